/* cmd-trace.c - hearth trace: prints the stages that a stream has passed, with times. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "client/cmd.h"

static json_t *json_trace(const struct hearth_trace_result *r)
{
    json_t *events = json_array();
    for (size_t i = 0; i < r->n_events; i++) {
        const struct hearth_trace_event *e = &r->events[i];
        json_t *fields = json_object();
        for (size_t k = 0; k < e->n_fields; k++)
            json_object_set_new(fields, e->fields[k].name, json_str(e->fields[k].value));
        json_array_append_new(events,
                              json_pack("{s:f, s:o, s:I, s:o, s:o}", "at", e->at, "where", json_str(e->where), "engine",
                                        (json_int_t)e->engine, "stage", json_str(e->stage), "fields", fields));
    }
    return json_pack("{s:I, s:I, s:o}", "stream", (json_int_t)r->stream, "lost", (json_int_t)r->lost, "events", events);
}

static void fields_of(const struct hearth_trace_event *e, char *out, size_t size)
{
    size_t at = 0;
    *out = 0;
    for (size_t i = 0; i < e->n_fields && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s=%s", i ? " " : "", e->fields[i].name, e->fields[i].value);
}

static void print_trace(const struct hearth_trace_result *r)
{
    struct table t = {0};
    double begin = r->n_events ? r->events[0].at : 0;
    time_t second = (time_t)begin;
    struct tm tm;
    char when[32];
    strftime(when, sizeof when, "%F %T", localtime_r(&second, &tm));
    printf("stream %lld, %s\n", (long long)r->stream, when);
    for (size_t i = 0; i < r->n_events; i++) {
        const struct hearth_trace_event *e = &r->events[i];
        char ms[40], where[32], fields[512];
        snprintf(ms, sizeof ms, "%12.1f ms", 1e3 * (e->at - begin));
        if (e->engine)
            snprintf(where, sizeof where, "%s %lld", e->where, (long long)e->engine);
        else
            snprintf(where, sizeof where, "%s", e->where);
        fields_of(e, fields, sizeof fields);
        table_add(&t, 4, ms, where, e->stage, fields);
    }
    table_print(&t);
    if (r->lost)
        printf("%lld more in the middle are not remembered\n", (long long)r->lost);
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    static const char next[] = "the last 64 generations of each user have a trace, as long as the daemon runs";
    struct hearth *h;
    bool json;
    int status = verb_begin(cmd, &argc, &argv, "stream", &json, &h);
    if (status != STATUS_OK)
        return status;
    char *end;
    errno = 0;
    long long stream = strtoll(argv[0], &end, 10);
    if (*argv[0] < '0' || *argv[0] > '9' || *end || errno)
        return verb_end(h, NULL, usage(cmd, "a stream is a number"));
    struct hearth_trace_result *r;
    struct hearth_err err;
    if (hearth_streams_trace(h, stream, &r, NULL, &err))
        return verb_end(h, NULL, err.code == HEARTH_ENOSTREAM ? fail_next(&err, next) : fail(&err));
    if (json)
        status = print_json(json_trace(r));
    else
        print_trace(r);
    return verb_end(h, r, status);
}

const struct cmd cmd_trace = {"trace", "STREAM [--json]", "what a generation has gone through, with times", run};

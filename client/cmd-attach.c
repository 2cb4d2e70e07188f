/* cmd-attach.c - hearth attach: attaches to a generation, running or ended, whichever client started it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cmd.h"

/* Returns the stream number that the operand is, or -1 where it is not a number. */
static int64_t as_number(const char *s)
{
    char *end;
    errno = 0;
    long long n = strtoll(s, &end, 10);
    return *s >= '0' && *s <= '9' && !*end && !errno ? n : -1;
}

/* Finds the stream to attach to where none is named, and prints which one on a terminal. */
static int find_last(struct hearth *h, int64_t *stream)
{
    struct hearth_streams_list_result *r;
    int status = streams_get(h, true, &r);
    if (status != STATUS_OK)
        return status;
    const struct hearth_stream_info *last = streams_last(r);
    if (last) {
        *stream = last->stream;
        if (isatty(STDERR_FILENO))
            say("hearth: stream %lld (%s%s%s)\n", (long long)last->stream, last->model, last->name ? ", " : "",
                last->name ? last->name : "");
    } else {
        struct hearth_err e = {.code = HEARTH_ENOSTREAM};
        snprintf(e.msg, sizeof e.msg, "there is no stream of yours to go on with; they can be had for a day");
        status = fail_next(&e, NULL);
    }
    hearth_free(r);
    return status;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    struct gen gen = {0};
    int64_t from = 0;
    bool request = false;
    const struct opt own[] = {
        {"from", 0, OPT_INT, &from, 0, 1 << 30, "INDEX", "leave out so many tokens, which you have already (0)"},
        {"request", 0, OPT_FLAG, &request, 0, 0, NULL, "STREAM is a request id, not a number"},
        {"stats", 0, OPT_FLAG, &gen.stats, 0, 0, NULL, "say on stderr what was reused, and how fast it was"},
        {"json", 0, OPT_FLAG, &gen.json, 0, 0, NULL, "one JSON object at the end, of the whole stream"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc > 1 || (request && argc != 1))
        return usage(cmd, "name one stream");
    int64_t stream = argc ? as_number(argv[0]) : -1;
    if (argc && !request && stream < 0)
        return usage(cmd, "a stream is a number (or say --request)");

    gen.several = request;
    struct hearth *h;
    int status = daemon_open(&h);
    if (status != STATUS_OK)
        return status;
    if (!argc && (status = find_last(h, &stream)) != STATUS_OK)
        return verb_end(h, NULL, status);
    struct hearth_generate_result *r;
    struct hearth_err err;
    if (gen_attach(h, &gen, stream, request ? argv[0] : NULL, from, &r, &err)) {
        status = gen_fail(&gen, &err);
    } else {
        if (from && r->n_choices && !gen.json)
            say("hearth: --from is for one generation: several choices are printed whole\n");
        if (gen.json)
            print_json(json_result(r));
        else if (r->n_choices)
            gen_print_choices(&gen, r);
        else
            gen_end_line(&gen, r);
        status = gen_report(&gen, r);
        hearth_free(r);
    }
    hearth_close(h);
    return status;
}

const struct cmd cmd_attach = {"attach", "[STREAM] [--from INDEX] [--request] [--stats] [--json]",
                               "go on with a generation that was begun before", run};

/* cmd-streams.c - hearth streams: the generations that run and, with --all, those that can still be attached to. */
#include <string.h>

#include "client/cmd.h"

int streams_get(struct hearth *h, bool ended, struct hearth_streams_list_result **out)
{
    struct hearth_err err;
    return hearth_streams_list(h, ended, out, NULL, &err) ? fail(&err) : STATUS_OK;
}

/* After a lost terminal the user wants the stream that runs without a reader, or one that has ended since. A stream
 * that has a reader, such as an editor, is the second choice. */
const struct hearth_stream_info *streams_last(const struct hearth_streams_list_result *r)
{
    const struct hearth_stream_info *running = NULL, *any = r->n_streams ? r->streams : NULL;
    for (size_t i = 0; i < r->n_streams; i++) {
        const struct hearth_stream_info *s = &r->streams[i];
        if (!strcmp(s->state, "ended"))
            continue;
        if (!s->attached)
            return s;
        if (!running)
            running = s;
    }
    return running ? running : any;
}

static json_t *json_streams(const struct hearth_streams_list_result *r)
{
    json_t *a = json_array();
    for (size_t i = 0; i < r->n_streams; i++) {
        const struct hearth_stream_info *s = &r->streams[i];
        json_t *o =
            json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:f, s:f}", "stream", (json_int_t)s->stream, "state",
                      json_str(s->state), "request", json_str(s->request), "session", json_str(s->session), "name",
                      json_str(s->name), "model", json_str(s->model), "tokens", (json_int_t)s->tokens, "attached",
                      (json_int_t)s->attached, "began", s->began, "ended", s->ended);
        if (s->choice >= 0)
            json_object_set_new(o, "choice", json_integer(s->choice));
        json_array_append_new(a, o);
    }
    return json_pack("{s:o}", "streams", a);
}

static void print_streams(const struct hearth_streams_list_result *r)
{
    struct table t = {.has_head = true};
    table_add(&t, 6, "STREAM", "SESSION", "MODEL", "TOKENS", "STATE", "AGE");
    for (size_t i = 0; i < r->n_streams; i++) {
        const struct hearth_stream_info *s = &r->streams[i];
        char number[24], tokens[24], state[64];
        bool ended = !strcmp(s->state, "ended");
        snprintf(number, sizeof number, "%lld", (long long)s->stream);
        snprintf(tokens, sizeof tokens, "%lld", (long long)s->tokens);
        snprintf(state, sizeof state, "%s%s", s->state, ended || s->attached ? "" : ", nobody reads it");
        table_add(&t, 6, number, s->name, s->model, tokens, state, human_since(ended ? s->ended : s->began));
    }
    table_print(&t);
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    struct hearth *h;
    bool json, all = false;
    const struct opt opts[] = {
        {"all", 'a', OPT_FLAG, &all, 0, 0, NULL, "those that have ended, too, as long as they can be had"}, OPT_END};
    int status = verb_begin_with(cmd, &argc, &argv, opts, NULL, &json, &h);
    if (status != STATUS_OK)
        return status;
    struct hearth_streams_list_result *r;
    status = streams_get(h, all, &r);
    if (status != STATUS_OK)
        return verb_end(h, NULL, status);
    if (json)
        status = print_json(json_streams(r));
    else
        print_streams(r);
    return verb_end(h, r, status);
}

const struct cmd cmd_streams = {"streams", "[--all] [--json]", "generations that run: what `hearth attach` takes", run};

/* cmd-fork.c - hearth fork: creates sessions that share a session's beginning and continue independently. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "client/cmd.h"

static json_t *json_forks(const struct hearth_forked *r)
{
    json_t *a = json_array();
    for (size_t i = 0; i < r->n_sessions; i++)
        json_array_append_new(a, json_session(&r->sessions[i]));
    return json_pack("{s:o}", "sessions", a);
}

/* A single fork gets the name itself; several get it with a number appended. */
static struct hearth_strs names_of(const char *name, int64_t count)
{
    struct hearth_strs names = {.v = calloc((size_t)count, sizeof *names.v), .n = (size_t)count};
    if (!names.v)
        abort();
    for (size_t i = 0; i < names.n; i++) {
        char *one;
        if ((count == 1 ? asprintf(&one, "%s", name) : asprintf(&one, "%s.%zu", name, i + 1)) < 0)
            abort();
        names.v[i] = one;
    }
    return names;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    struct hearth_session_fork f;
    bool json = false;
    hearth_session_fork_init(&f, sizeof f);
    const struct opt own[] = {
        {"at", 0, OPT_INT, &f.at, 0, INT32_MAX, "N",
         "of its first N tokens (all; of a running generation, what it has)"},
        {"count", 0, OPT_INT, &f.count, 1, 64, "K", "so many (1)"},
        {"ephemeral", 0, OPT_FLAG, &f.ephemeral, 0, 0, NULL, "removed when nobody has used it for a day"},
        {"json", 0, OPT_FLAG, &json, 0, 0, NULL, "one JSON object: the new sessions"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc < 1 || argc > 2)
        return usage(cmd, "name one session, and what its fork shall be called");
    struct hearth *h;
    int status = daemon_open(&h);
    if (status != STATUS_OK)
        return status;
    struct hearth_forked *r = NULL;
    struct hearth_err err;
    f.session = argv[0];
    if (argc == 2)
        f.names = names_of(argv[1], f.count);
    if (hearth_sessions_fork(h, &f, &r, NULL, &err))
        status = fail(&err);
    else if (json)
        status = print_json(json_forks(r));
    for (size_t i = 0; status == STATUS_OK && !json && i < r->n_sessions; i++) {
        print_text(r->sessions[i].name, strlen(r->sessions[i].name));
        putchar('\n');
    }
    for (size_t i = 0; i < f.names.n; i++)
        free((void *)f.names.v[i]);
    free(f.names.v);
    return verb_end(h, r, status);
}

const struct cmd cmd_fork = {"fork", "SESSION [NAME] [--at N] [--count K] [--ephemeral] [--json]",
                             "sessions that go on from a common beginning", run};

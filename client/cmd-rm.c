/* cmd-rm.c - hearth rm: remove sessions. What is named is removed without a question, as rm(1) does; --all asks. */
#include <string.h>
#include <unistd.h>

#include "client/cmd.h"

/* All names of what is not pinned, into *r's list; how many. */
static size_t unpinned(const struct hearth_sessions_list_result *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_sessions; i++)
        n += !r->sessions[i].pinned;
    return n;
}

static bool confirmed(size_t n)
{
    char line[16] = "";
    fprintf(stderr, "Remove %zu session%s? [y/N] ", n, n == 1 ? "" : "s");
    return fgets(line, sizeof line, stdin) && (line[0] == 'y' || line[0] == 'Y');
}

/* One that cannot be removed does not keep the others. */
static int remove_one(struct hearth *h, const char *session, const char *name, json_t *removed)
{
    struct hearth_err err;
    if (hearth_sessions_remove(h, session, NULL, &err))
        return fail(&err);
    json_array_append_new(removed, json_str(name));
    return STATUS_OK;
}

static int remove_all(struct hearth *h, bool yes, json_t *removed)
{
    struct hearth_sessions_list_result *r;
    struct hearth_err err;
    if (hearth_sessions_list(h, &r, NULL, &err))
        return fail(&err);
    int status = STATUS_OK;
    size_t n = unpinned(r);
    if (n && (yes || confirmed(n))) {
        for (size_t i = 0; i < r->n_sessions; i++) {
            const struct hearth_session *s = &r->sessions[i];
            if (!s->pinned && remove_one(h, s->id, s->name ? s->name : s->id, removed) != STATUS_OK)
                status = STATUS_ERROR;
        }
    } else if (n) {
        fputs("hearth: nothing was removed\n", stderr);
        status = STATUS_ERROR;
    }
    hearth_free(r);
    return status;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    bool json = false, all = false, yes = false;
    const struct opt own[] = {
        {"all", 0, OPT_FLAG, &all, 0, 0, NULL, "every session that is not pinned"},
        {"yes", 'y', OPT_FLAG, &yes, 0, 0, NULL, "do not ask whether --all is meant"},
        {"json", 0, OPT_FLAG, &json, 0, 0, NULL, "{\"removed\": [...]}"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (!argc == !all)
        return usage(cmd, "name the sessions to remove, or say --all");
    if (all && !yes && !isatty(STDIN_FILENO))
        return usage(cmd, "--all asks first, and there is no terminal to ask on: say --yes");

    struct hearth *h;
    int status = daemon_open(&h);
    if (status != STATUS_OK)
        return status;
    json_t *removed = json_array();
    if (all)
        status = remove_all(h, yes, removed);
    for (int i = 0; i < argc; i++)
        if (remove_one(h, argv[i], argv[i], removed) != STATUS_OK)
            status = STATUS_ERROR;
    if (json && print_json(json_pack("{s:O}", "removed", removed)) != STATUS_OK)
        status = STATUS_ERROR;
    json_decref(removed);
    return verb_end(h, NULL, status);
}

const struct cmd cmd_rm = {"rm", "SESSION... | --all [--yes] [--json]", "remove sessions", run};

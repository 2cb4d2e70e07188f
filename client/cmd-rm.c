/* cmd-rm.c - hearth rm: removes sessions. Without a terminal, named sessions are removed without a question. */
#include <string.h>
#include <unistd.h>

#include "client/cmd.h"

/* Asks for confirmation: removal is final, and `rm` of similar programs removes a model's file, where this one removes
 * conversations. */
static bool confirmed(size_t n)
{
    char line[16] = "";
    say("Remove %zu session%s, and what was said in %s? [y/N] ", n, n == 1 ? "" : "s", n == 1 ? "it" : "them");
    return fgets(line, sizeof line, stdin) && (line[0] == 'y' || line[0] == 'Y');
}

/* Removes one session. A failure does not keep the others from being removed. */
static int remove_one(struct hearth *h, const char *session, const char *name, json_t *removed)
{
    struct hearth_err err;
    if (hearth_sessions_remove(h, session, NULL, &err))
        return fail(&err);
    json_array_append_new(removed, json_str(name));
    return STATUS_OK;
}

/* Collects id and name of each session that is not pinned. */
static void add_unpinned(void *to, const struct hearth_session *s)
{
    if (s->pinned)
        return;
    json_array_append_new(to, json_str(s->id));
    json_array_append_new(to, json_str(s->name ? s->name : s->id));
}

static int remove_all(struct hearth *h, bool yes, json_t *removed)
{
    json_t *list = json_array();
    int status = sessions_each(h, true, add_unpinned, list);
    size_t n = status == STATUS_OK ? json_array_size(list) : 0;
    if (n && !yes && !confirmed(n / 2)) {
        fputs("hearth: nothing was removed\n", stderr);
        status = STATUS_ERROR;
        n = 0;
    }
    for (size_t i = 0; i < n; i += 2) {
        const char *id = json_string_value(json_array_get(list, i));
        if (remove_one(h, id, json_string_value(json_array_get(list, i + 1)), removed) != STATUS_OK)
            status = STATUS_ERROR;
    }
    json_decref(list);
    return status;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    bool json = false, all = false, yes = false;
    const struct opt own[] = {
        {"all", 0, OPT_FLAG, &all, 0, 0, NULL, "every session that is not pinned"},
        {"yes", 'y', OPT_FLAG, &yes, 0, 0, NULL, "do not ask whether this is meant"},
        {"json", 0, OPT_FLAG, &json, 0, 0, NULL, "{\"removed\": [...]}, and \"errors\" where there are"},
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
    errors_of_several = json_array(); /* one object reports what was removed, and what was not */
    if (all)
        status = remove_all(h, yes, removed);
    if (argc && !yes && isatty(STDIN_FILENO) && isatty(STDERR_FILENO) && !confirmed((size_t)argc)) {
        fputs("hearth: nothing was removed\n", stderr);
        status = STATUS_ERROR;
        argc = 0;
    }
    for (int i = 0; i < argc; i++)
        if (remove_one(h, argv[i], argv[i], removed) != STATUS_OK)
            status = STATUS_ERROR;
    json_t *o = json_pack("{s:o}", "removed", removed);
    if (json_array_size(errors_of_several) > 0)
        json_object_set(o, "errors", errors_of_several);
    if (json && print_json(json_incref(o)) != STATUS_OK)
        status = STATUS_ERROR;
    json_decref(o);
    json_decref(errors_of_several);
    errors_of_several = NULL;
    return verb_end(h, NULL, status);
}

const struct cmd cmd_rm = {"rm", "SESSION... | --all [--yes] [--json]", "remove sessions", run};

/* cmd-sessions.c - hearth sessions: list, show and rename them; rm is a verb of its own, and `sessions rm` is that. */
#include <string.h>

#include "client/cmd.h"

static int list(struct hearth *h, bool json)
{
    struct hearth_sessions_list_result *r;
    struct hearth_err err;
    if (hearth_sessions_list(h, &r, NULL, &err))
        return fail(&err);
    int status = STATUS_OK;
    if (json) {
        json_t *a = json_array();
        for (size_t i = 0; i < r->n_sessions; i++)
            json_array_append_new(a, json_session(&r->sessions[i]));
        status = print_json(json_pack("{s:o}", "sessions", a));
    } else {
        struct table t = {0};
        table_add(&t, 6, "NAME", "ID", "MODEL", "TURNS", "TOKENS", "USED");
        for (size_t i = 0; i < r->n_sessions; i++) {
            const struct hearth_session *s = &r->sessions[i];
            char turns[24], tokens[24];
            snprintf(turns, sizeof turns, "%lld", (long long)s->turns);
            snprintf(tokens, sizeof tokens, "%lld", (long long)s->tokens);
            table_add(&t, 6, s->name, s->id, s->model, turns, tokens, s->busy ? "running" : human_ago(s->used));
        }
        table_print(&t);
    }
    hearth_free(r);
    return status;
}

static json_t *json_turns(const struct hearth_session_show_result *r)
{
    json_t *a = json_array();
    for (size_t i = 0; i < r->n_turns; i++) {
        const struct hearth_turn *t = &r->turns[i];
        json_array_append_new(a, json_pack("{s:o, s:o, s:I, s:f}", "role", json_str(t->role), "text",
                                           json_text(t->text.data ? t->text.data : "", t->text.len), "n_tokens",
                                           (json_int_t)t->n_tokens, "created", t->created));
    }
    return a;
}

static int show(struct hearth *h, const char *session, bool json, bool tokens)
{
    struct hearth_session_show_result *r;
    struct hearth_err err;
    if (hearth_sessions_show(h, session, tokens, &r, NULL, &err))
        return fail(&err);
    int status = STATUS_OK;
    if (json) {
        json_t *o = json_session(&r->session);
        json_object_set_new(o, "transcript", json_turns(r));
        if (tokens)
            json_object_set_new(o, "ids", json_ids(r->tokens));
        status = print_json(o);
    } else {
        for (size_t i = 0; i < r->n_turns; i++) {
            const struct hearth_turn *t = &r->turns[i];
            printf("--- %s, %lld tokens\n", t->role, (long long)t->n_tokens);
            print_text(t->text.data, t->text.len);
            if (!t->text.len || t->text.data[t->text.len - 1] != '\n')
                putchar('\n');
        }
    }
    hearth_free(r);
    return status;
}

static int rename_session(struct hearth *h, const char *session, const char *name, bool json)
{
    struct hearth_err err;
    if (hearth_sessions_rename(h, session, name, NULL, &err))
        return fail(&err);
    return json ? print_json(json_pack("{s:o, s:o}", "session", json_str(session), "name", json_str(name))) : STATUS_OK;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "rm"))
        return cmd_rm.run(&cmd_rm, argc - 1, argv + 1);

    bool json = false, tokens = false;
    const struct opt own[] = {
        {"json", 0, OPT_FLAG, &json, 0, 0, NULL, "one JSON object"},
        {"tokens", 0, OPT_FLAG, &tokens, 0, 0, NULL, "show --json: the timeline's token ids too"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    const char *what = argc ? argv[0] : "list";
    int operands = !strcmp(what, "list") ? 0 : !strcmp(what, "show") ? 1 : !strcmp(what, "rename") ? 2 : -1;
    if (operands < 0)
        return usage(cmd, "'%s' is not one of list, show, rename and rm", what);
    if (argc && argc - 1 != operands)
        return usage(cmd, "%s takes %d names", what, operands);

    struct hearth *h;
    int status = daemon_open(&h);
    if (status != STATUS_OK)
        return status;
    if (operands == 0)
        status = list(h, json);
    else if (operands == 1)
        status = show(h, argv[1], json, tokens);
    else
        status = rename_session(h, argv[1], argv[2], json);
    hearth_close(h);
    return status;
}

const struct cmd cmd_sessions = {"sessions", "[list | show SESSION | rename SESSION NAME | rm SESSION...] [--json]",
                                 "sessions: list, show, rename, remove", run};

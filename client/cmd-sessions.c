/* cmd-sessions.c - hearth sessions: dispatches to its sub-verbs, one table row each; rm is also a top-level verb. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/cmd.h"

/* --- list ------------------------------------------------------------------------------------------------------- */

static const char *retention_text(const struct hearth_session *s)
{
    bool soon = s->expires < (double)time(NULL) + 3600; /* the daemon's retention runs every hour */
    return s->damaged        ? "damaged"
           : s->busy         ? "running"
           : s->pinned       ? "pinned"
           : s->expires <= 0 ? "-"
           : soon            ? "soon removed"
                             : human_in(s->expires);
}

static void add_json(void *array, const struct hearth_session *s)
{
    json_array_append_new(array, json_session(s));
}

static void add_row(void *table, const struct hearth_session *s)
{
    char turns[24], tokens[24];
    snprintf(turns, sizeof turns, "%lld", (long long)s->turns);
    snprintf(tokens, sizeof tokens, "%lld", (long long)s->tokens);
    table_add(table, 9, s->name, s->id, s->model, turns, tokens, human_bytes(s->bytes), human_bytes(s->kv_bytes),
              human_ago(s->used), retention_text(s));
}

static int run_list(const struct cmd *cmd, int argc, char **argv)
{
    struct hearth *h;
    bool json, all = false;
    const struct opt more[] = {{"ephemeral", 0, OPT_FLAG, &all, 0, 0, NULL, "ephemeral ones, too"}, OPT_END};
    int status = verb_begin_with(cmd, &argc, &argv, more, NULL, &json, &h);
    if (status != STATUS_OK)
        return status;
    if (json) {
        json_t *a = json_array();
        status = sessions_each(h, all, add_json, a);
        if (status == STATUS_OK)
            status = print_json(json_pack("{s:O}", "sessions", a));
        json_decref(a);
        return verb_end(h, NULL, status);
    }
    struct table t = {.has_head = true};
    table_add(&t, 9, "NAME", "ID", "MODEL", "TURNS", "TOKENS", "SIZE", "KV", "USED", "KEPT");
    status = sessions_each(h, all, add_row, &t);
    if (status == STATUS_OK)
        table_print(&t);
    return verb_end(h, NULL, status);
}

/* --- show ------------------------------------------------------------------------------------------------------- */

static json_t *json_turns(const struct hearth_session_show_result *r)
{
    json_t *a = json_array();
    for (size_t i = 0; i < r->n_turns; i++) {
        const struct hearth_turn *t = &r->turns[i];
        json_t *o = json_pack("{s:o, s:o, s:I, s:f}", "role", json_str(t->role), "text",
                              json_text(t->text.data ? t->text.data : "", t->text.len), "n_tokens",
                              (json_int_t)t->n_tokens, "created", t->created);
        if (t->reasoning.len)
            json_object_set_new(o, "reasoning", json_text(t->reasoning.data, t->reasoning.len));
        if (t->has_generation)
            json_object_set_new(o, "generation", json_generation_info(&t->generation));
        json_array_append_new(a, o);
    }
    return a;
}

static void print_facts(const struct hearth_session *s)
{
    struct table t = {0};
    char text[2][64];
    table_add(&t, 2, "name", s->name);
    table_add(&t, 2, "id", s->id);
    table_add(&t, 2, "model", s->model);
    table_add(&t, 2, "path", s->path);
    snprintf(text[0], sizeof text[0], "%lld tokens in %lld turns", (long long)s->tokens, (long long)s->turns);
    table_add(&t, 2, "length", text[0]);
    table_add(&t, 2, "size", human_bytes(s->bytes));
    table_add(&t, 2, "KV files", human_bytes(s->kv_bytes));
    table_add(&t, 2, "begun", human_ago(s->created));
    table_add(&t, 2, "used", human_ago(s->used));
    table_add(&t, 2, "kept",
              s->busy          ? "a generation is running in it"
              : s->expires > 0 ? retention_text(s)
                               : "until it is removed");
    if (s->pinned)
        table_add(&t, 2, "pinned", "yes");
    if (s->parent || s->shared) {
        snprintf(text[0], sizeof text[0], "%s, %lld tokens", s->parent ? s->parent : "one that was removed",
                 (long long)s->shared);
        table_add(&t, 2, "fork of", text[0]);
    }
    if (s->ephemeral)
        table_add(&t, 2, "ephemeral", "yes");
    table_print(&t);
}

static int run_show(const struct cmd *cmd, int argc, char **argv)
{
    bool json = false, tokens = false;
    const struct opt own[] = {
        {"json", 0, OPT_FLAG, &json, 0, 0, NULL, "one JSON object"},
        {"tokens", 0, OPT_FLAG, &tokens, 0, 0, NULL, "with --json: the timeline's token ids too"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc != 1)
        return usage(cmd, "name one session");
    if (tokens && !json)
        return usage(cmd, "--tokens goes with --json");
    struct hearth *h;
    int status = daemon_open(&h);
    if (status != STATUS_OK)
        return status;
    struct hearth_session_show_result *r;
    struct hearth_err err;
    if (hearth_sessions_show(h, argv[0], tokens, &r, NULL, &err))
        return verb_end(h, NULL, fail(&err));
    if (json) {
        json_t *o = json_session(&r->session);
        json_object_set_new(o, "transcript", json_turns(r));
        if (tokens)
            json_object_set_new(o, "ids", json_ids(r->tokens));
        return verb_end(h, r, print_json(o));
    }
    print_facts(&r->session);
    for (size_t i = 0; i < r->n_turns; i++) {
        const struct hearth_turn *t = &r->turns[i];
        printf_text("\n--- %s, %lld tokens\n", t->role, (long long)t->n_tokens);
        if (t->reasoning.len) {
            style_begin(stdout, STYLE_ASIDE);
            print_text(t->reasoning.data, t->reasoning.len);
            style_end(stdout);
            fputs("\n---\n", stdout);
        }
        print_text(t->text.data, t->text.len);
        if (!t->text.len || t->text.data[t->text.len - 1] != '\n')
            putchar('\n');
    }
    return verb_end(h, r, status);
}

/* --- rename, pin ------------------------------------------------------------------------------------------------ */

static int run_rename(const struct cmd *cmd, int argc, char **argv)
{
    bool json = false;
    const struct opt own[] = {{"json", 0, OPT_FLAG, &json, 0, 0, NULL, "{\"session\":...,\"name\":...}"}, OPT_END};
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc != 2)
        return usage(cmd, "name a session, and say what its name shall be");
    struct hearth *h;
    int status = daemon_open(&h);
    if (status != STATUS_OK)
        return status;
    struct hearth_err err;
    if (hearth_sessions_rename(h, argv[0], argv[1], NULL, &err))
        status = fail(&err);
    else if (json)
        status = print_json(json_pack("{s:o, s:o}", "session", json_str(argv[0]), "name", json_str(argv[1])));
    return verb_end(h, NULL, status);
}

static int pin(const struct cmd *cmd, int argc, char **argv, bool pinned)
{
    struct hearth *h;
    bool json;
    int status = verb_begin(cmd, &argc, &argv, "session", &json, &h);
    if (status != STATUS_OK)
        return status;
    struct hearth_err err;
    if (hearth_sessions_pin(h, argv[0], pinned, NULL, &err))
        status = fail(&err);
    else if (json)
        status = print_json(json_pack("{s:o, s:b}", "session", json_str(argv[0]), "pinned", pinned));
    return verb_end(h, NULL, status);
}

static int run_pin(const struct cmd *cmd, int argc, char **argv)
{
    return pin(cmd, argc, argv, true);
}

static int run_unpin(const struct cmd *cmd, int argc, char **argv)
{
    return pin(cmd, argc, argv, false);
}

/* --- adopt ------------------------------------------------------------------------------------------------------ */

static int run_adopt(const struct cmd *cmd, int argc, char **argv)
{
    bool json, force = false;
    const struct opt more[] = {
        {"force", 0, OPT_FLAG, &force, 0, 0, NULL, "in place of what its parent has after the cut"}, OPT_END};
    struct hearth *h;
    int status = verb_begin_with(cmd, &argc, &argv, more, "session that is a fork", &json, &h);
    if (status != STATUS_OK)
        return status;
    struct hearth_adopted *r = NULL;
    struct hearth_err err;
    if (hearth_sessions_adopt(h, argv[0], force, &r, NULL, &err)) /* the session may be there, and be no fork */
        status = err.code == HEARTH_ENOSESSION
                     ? fail_next(&err, "`hearth sessions show SESSION` says what a session is a fork of")
                     : fail(&err);
    else if (json)
        status = print_json(json_session(&r->session));
    return verb_end(h, r, status);
}

/* --- export, import ------------------------------------------------------------------------------------------------
 */

static int run_export(const struct cmd *cmd, int argc, char **argv)
{
    bool markdown = false, json = false;
    const struct opt own[] = {
        {"markdown", 0, OPT_FLAG, &markdown, 0, 0, NULL, "the texts alone, as Markdown"},
        {"json", 0, OPT_FLAG, &json, 0, 0, NULL, "one JSON object, for `sessions import` (the default)"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc != 1)
        return usage(cmd, "name one session");
    if (markdown && json)
        return usage(cmd, "--markdown or --json, not both");
    struct hearth *h;
    int status = daemon_open(&h);
    return status == STATUS_OK ? verb_end(h, NULL, sessions_export(h, argv[0], markdown)) : status;
}

static int run_import(const struct cmd *cmd, int argc, char **argv)
{
    struct import_as as = {0};
    const struct opt own[] = {
        {"name", 0, OPT_TEXT, &as.name, 0, 0, "NAME", "call it so, not as it was called"},
        {"model", 'm', OPT_TEXT, &as.model, 0, 0, "MODEL", "for this model; its tokenizer must be the same"},
        {"force", 0, OPT_FLAG, &as.force, 0, 0, NULL, "in place of the session that has the name"},
        {"json", 0, OPT_FLAG, &as.json, 0, 0, NULL, "one JSON object: the new session"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc > 1 || (argc == 0 && isatty(STDIN_FILENO)))
        return usage(cmd, "name one file");
    struct hearth *h;
    int status = daemon_open(&h);
    return status == STATUS_OK ? verb_end(h, NULL, sessions_import(h, argc ? argv[0] : "-", &as)) : status;
}

/* --- the verb ------------------------------------------------------------------------------------------------------
 */

static int run_rm(const struct cmd *cmd, int argc, char **argv)
{
    (void)cmd;
    return cmd_rm.run(&cmd_rm, argc, argv);
}

static const struct cmd subs[] = {
    {"sessions list", "[--ephemeral] [--json]", "sessions, the last used first", run_list},
    {"sessions show", "SESSION [--tokens] [--json]", "what a session is, and what was said in it", run_show},
    {"sessions rename", "SESSION NAME [--json]", "give it another name", run_rename},
    {"sessions rm", "SESSION... | --all [--yes] [--json]", "remove sessions", run_rm},
    {"sessions pin", "SESSION [--json]", "never remove it for its age or for room", run_pin},
    {"sessions unpin", "SESSION [--json]", "the opposite", run_unpin},
    {"sessions adopt", "FORK [--force] [--json]", "what a fork has becomes its parent's, and the fork is gone",
     run_adopt},
    {"sessions export", "SESSION [--markdown | --json]", "the whole session, or its text, to standard output",
     run_export},
    {"sessions import", "[FILE | -] [--name NAME] [-m MODEL] [--force] [--json]", "a session from what export wrote",
     run_import},
};
#define N_SUBS (sizeof subs / sizeof *subs)

static int help(const struct cmd *cmd)
{
    printf("usage: hearth sessions %s\n%s\n\n", cmd->args, cmd->summary);
    for (size_t i = 0; i < N_SUBS; i++)
        printf("  %-16s %s\n", subs[i].name + strlen("sessions "), subs[i].summary);
    fputs("\n`hearth sessions WHAT --help` lists its options. Without WHAT: list.\n", stdout);
    return STATUS_OK;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    int at = 1;
    while (at < argc && argv[at][0] == '-') /* `sessions --json`, `sessions --json show NAME` */
        at++;
    if (at == argc) {
        for (int i = 1; i < argc; i++)
            if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
                return help(cmd);
        return run_list(&subs[0], argc, argv);
    }
    for (size_t i = 0; i < N_SUBS; i++) {
        if (strcmp(argv[at], subs[i].name + strlen("sessions ")))
            continue;
        for (; at > 0; at--) /* options before the verb are moved after it */
            argv[at] = argv[at - 1];
        return subs[i].run(&subs[i], argc - 1, argv + 1);
    }
    return usage(
        cmd,
        "'%s' is not one of list, show, rename, rm, pin, unpin, adopt, export and import; what is in a session "
        "is told by `hearth sessions show NAME`",
        argv[at]);
}

const struct cmd cmd_sessions = {"sessions", "[WHAT] [OPTION...] [ARGUMENT...]",
                                 "sessions: list, show, rename, remove, pin, adopt, export, import", run};

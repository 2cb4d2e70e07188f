/* cmd-resume.c - hearth resume: continues an existing session. */
#include <string.h>
#include <unistd.h>

#include "client/cmd.h"

/* Shows the last exchange, so that the user knows where the conversation stands. */
static void show_last_turns(const struct hearth_session_show_result *s)
{
    for (size_t i = s->n_turns > 2 ? s->n_turns - 2 : 0; i < s->n_turns; i++) {
        bool theirs = !strcmp(s->turns[i].role, "user");
        style_begin(stdout, STYLE_ASIDE);
        if (theirs)
            fputs(">>> ", stdout);
        print_text(s->turns[i].text.data, s->turns[i].text.len);
        style_end(stdout);
        putchar('\n');
    }
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    struct gen gen;
    gen_init(&gen);
    const struct opt own[] = {
        {"json", 0, OPT_FLAG, &gen.json, 0, 0, NULL, "one JSON object per answer instead of text"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, gen.opts, own);
    if (argc + (gen.session ? 1 : 0) != 1)
        return usage(cmd, "name the session to go on with, once");
    if (argc)
        gen.session = argv[0];

    struct hearth *h;
    int status = gen_prepare(cmd, &gen);
    if (status == STATUS_OK)
        status = daemon_open(&h);
    if (status != STATUS_OK)
        goto out;
    struct hearth_session_show_result *s;
    struct hearth_err err;
    if (hearth_sessions_show(h, gen.session, false, &s, NULL, &err)) {
        status = fail(&err);
    } else {
        if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
            show_last_turns(s);
        hearth_free(s);
        status = chat_begin(h, &gen);
    }
    hearth_close(h);
out:
    gen_fini(&gen);
    return status;
}

const struct cmd cmd_resume = {"resume", "SESSION [OPTION...]", "a conversation in a session that exists", run};

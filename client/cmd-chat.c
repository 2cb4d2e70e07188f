/* cmd-chat.c - hearth chat: a conversation in a session. */
#include "client/cmd.h"

static int run(const struct cmd *cmd, int argc, char **argv)
{
    struct gen gen;
    gen_init(&gen);
    const struct opt own[] = {
        {"json", 0, OPT_FLAG, &gen.json, 0, 0, NULL, "one JSON object per answer instead of text"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, gen.opts, own);
    if (argc)
        return usage(cmd, "no argument is expected, not '%s'; `hearth run --chat` takes a prompt", argv[0]);

    struct hearth *h;
    int status = gen_prepare(cmd, &gen);
    if (status == STATUS_OK)
        status = daemon_open(&h);
    if (status == STATUS_OK) {
        status = chat_begin(h, &gen);
        hearth_close(h);
    }
    gen_fini(&gen);
    return status;
}

const struct cmd cmd_chat = {"chat", "[-m MODEL] [-s SESSION] [OPTION...]",
                             "a conversation; each line of stdin is a message", run};

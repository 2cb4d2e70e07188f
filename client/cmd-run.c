/* cmd-run.c - hearth run: one prompt, one answer. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cmd.h"

/* --chat: the prompt is a user's message, after the system's where there is one. */
static size_t as_messages(const struct gen *gen, struct hearth_bytes prompt, struct hearth_message to[2])
{
    size_t n = 0;
    if (gen->system)
        to[n++] = (struct hearth_message){.role = "system", .content = hearth_text(gen->system)};
    to[n++] = (struct hearth_message){.role = "user", .content = prompt};
    return n;
}

/* A terminal's next prompt belongs on a line of its own; a file gets the text and nothing else. */
static void end_line(const struct hearth_bytes *text)
{
    if (isatty(STDOUT_FILENO) && !(text->len && text->data[text->len - 1] == '\n'))
        putchar('\n');
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    struct gen gen;
    gen_init(&gen);
    bool no_special = false;
    const struct opt own[] = {
        {"chat", 0, OPT_FLAG, &gen.chat, 0, 0, NULL, "the prompt is a message, rendered with the chat template"},
        {"raw", 0, OPT_FLAG, &no_special, 0, 0, NULL, "take special tokens in the prompt as plain text"},
        {"request", 0, OPT_TEXT, &gen.g.request, 0, 0, "ID", "once more with the same ID: the same answer, made once"},
        {"logprobs", 0, OPT_INT, &gen.g.logprobs, 0, 20, "N", "with --json: log-probabilities, N alternatives each"},
        {"json", 0, OPT_FLAG, &gen.json, 0, 0, NULL, "one JSON object at the end instead of text"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, gen.opts, own);
    if (argc > 1)
        return usage(cmd, "one prompt, please: put it in quotes");
    if (gen.system && !gen.chat)
        return usage(cmd, "--system goes with --chat");
    if (gen.g.logprobs >= 0 && !gen.json)
        return usage(cmd, "--logprobs goes with --json");

    struct hearth_err err;
    struct hearth_bytes prompt = hearth_text(argc ? argv[0] : NULL);
    char *from_stdin = NULL;
    if (!argc || !strcmp(argv[0], "-")) {
        if (!read_stdin(&prompt, &err))
            return fail(&err);
        from_stdin = (char *)prompt.data;
        /* A message is text, and its last newline is the shell's; a raw prompt is taken byte for byte. */
        while (gen.chat && prompt.len && prompt.data[prompt.len - 1] == '\n')
            prompt.len--;
    }
    struct hearth_message messages[2];
    if (gen.chat) {
        gen.g.messages = messages;
        gen.g.n_messages = as_messages(&gen, prompt, messages);
    } else {
        gen.g.text = prompt;
        gen.g.special = !no_special;
    }

    struct hearth *h;
    int status = daemon_open(&h);
    if (status != STATUS_OK)
        goto out;
    struct hearth_generate_result *r;
    if (gen_run(h, &gen, &r, &err)) {
        status = fail(&err);
    } else {
        if (gen.json)
            print_json(json_result(r));
        else
            end_line(&r->text);
        status = gen_report(&gen, r);
        hearth_free(r);
    }
    hearth_close(h);
out:
    free(from_stdin);
    free(gen.g.stop.v);
    return status;
}

const struct cmd cmd_run = {"run", "[-m MODEL] [-s SESSION] [OPTION...] [PROMPT | -]",
                            "answer a prompt, or what stdin holds", run};

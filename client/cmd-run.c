/* cmd-run.c - hearth run: one prompt, one answer; on a terminal without a prompt, a conversation. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cmd.h"

/* For --chat: makes the prompt a user message, preceded by the system message where there is one. */
static size_t as_messages(const struct gen *gen, struct hearth_bytes prompt, struct hearth_message to[2])
{
    size_t n = 0;
    if (gen->system)
        to[n++] = (struct hearth_message){.role = "system", .content = hearth_text(gen->system)};
    to[n++] = (struct hearth_message){.role = "user", .content = prompt};
    return n;
}

/* Takes the operands [MODEL] [PROMPT | -]: the first operand is a model if it names one, unless it stands after "--" or
 * -m was given. Returns STATUS_OK, with *prompt set where there is one. */
static int take_operands(const struct cmd *cmd, struct hearth *h, struct gen *gen, int argc, char **argv, int plain,
                         const char **prompt)
{
    if (argc && plain && !gen->model && model_is_present(h, argv[0])) {
        gen->model = *argv++;
        argc--;
    } else if (argc > 1 && plain && !gen->model) {
        struct hearth_model *near;
        struct hearth_err err;
        if (hearth_models_show(h, argv[0], &near, NULL, &err)) /* the error suggests similar names */
            return usage(cmd, "%s. A prompt of several words goes in quotes", err.msg);
        int status = usage(cmd, "\"%s\" is not the whole name of a model; -m %s is one", argv[0], near->name);
        hearth_free(near);
        return status;
    }
    if (argc > (*prompt ? 0 : 1))
        return usage(cmd, "the prompt is one argument: put it in quotes");
    if (argc)
        *prompt = argv[0];
    return STATUS_OK;
}

/* Returns whether to start a conversation where no prompt is given: on a terminal, unless an option was given that
 * applies to a single answer only. */
static bool is_for_chat(const struct gen *gen, bool no_special)
{
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !gen->json && !gen->g.request && !gen->g.n && !no_special;
}

/* Reads the prompt from stdin, with a hint where stdin is a terminal. */
static bool prompt_from_stdin(const struct gen *gen, struct hearth_bytes *prompt, struct hearth_err *err)
{
    if (isatty(STDIN_FILENO))
        fputs("hearth: the prompt is read from the terminal; Ctrl+D ends it\n", stderr);
    if (!read_stdin(prompt, err))
        return false;
    /* A message loses its trailing newlines, which the shell added; a raw prompt is taken byte for byte. */
    while (gen->chat && prompt->len && prompt->data[prompt->len - 1] == '\n')
        prompt->len--;
    return true;
}

static int answer(struct hearth *h, struct gen *gen, struct hearth_bytes prompt, bool no_special)
{
    struct hearth_message messages[2];
    if (gen->chat) {
        gen->g.messages = messages;
        gen->g.n_messages = as_messages(gen, prompt, messages);
    } else {
        gen->g.text = prompt;
        gen->g.special = !no_special;
    }
    struct hearth_generate_result *r;
    struct hearth_err err;
    if (gen_run(h, gen, &r, &err))
        return gen_fail(gen, &err);
    if (gen->json)
        print_json(json_result(r));
    else if (gen->g.n)
        gen_print_choices(gen, r);
    else
        gen_end_line(gen, r);
    int status = gen_report(gen, r);
    hearth_free(r);
    return status;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    struct gen gen;
    gen_init(&gen);
    bool no_special = false;
    const char *prompt_text = NULL;
    const struct opt own[] = {
        {"prompt", 'p', OPT_TEXT, &prompt_text, 0, 0, "TEXT", "the prompt, where it could be taken for a model's name"},
        {"chat", 0, OPT_FLAG, &gen.chat, 0, 0, NULL, "the prompt is a message, rendered with the chat template"},
        {"raw", 0, OPT_FLAG, &no_special, 0, 0, NULL, "take special tokens in the prompt as plain text"},
        {"request", 0, OPT_TEXT, &gen.g.request, 0, 0, "ID", "once more with the same ID: the same answer, made once"},
        {"logprobs", 0, OPT_INT, &gen.g.logprobs, 0, 20, "N", "with --json: log-probabilities, N alternatives each"},
        {"choices", 0, OPT_INT, &gen.g.n, 1, 16, "N",
         "so many answers, one after the other; each has a seed of its own"},
        {"json", 0, OPT_FLAG, &gen.json, 0, 0, NULL, "one JSON object at the end instead of text"},
        OPT_END,
    };
    int plain = opts_parse(cmd, &argc, &argv, gen.opts, own);
    gen.several = gen.g.n > 0;
    if (argc > 2 || (argc == 2 && (gen.model || prompt_text)))
        return usage(cmd, "the prompt is one argument: put it in quotes");
    if (gen.g.n > 1 && gen.session)
        return usage(cmd, "--choices goes without --session; `hearth fork` makes several sessions of one");
    if (gen.g.logprobs >= 0 && !gen.json)
        return usage(cmd, "--logprobs goes with --json");

    if (gen.chat && no_special)
        return usage(cmd, "--raw goes without --chat: the text of a message is plain always");

    struct hearth *h;
    int status = gen_prepare(cmd, &gen);
    if (status == STATUS_OK)
        status = daemon_open(&h);
    if (status != STATUS_OK) {
        gen_fini(&gen);
        return status;
    }
    char *from_stdin = NULL;
    struct hearth_err err;
    struct hearth_bytes prompt;
    status = take_operands(cmd, h, &gen, argc, argv, plain, &prompt_text);
    if (status != STATUS_OK)
        goto out;
    if (!prompt_text && is_for_chat(&gen, no_special)) {
        status = chat_begin(h, &gen);
        goto out;
    }
    if (gen.system && !gen.chat) {
        status = usage(cmd, "--system goes with --chat");
        goto out;
    }
    if ((gen.template || gen.set.n || gen.think) && !gen.chat) {
        status = usage(cmd, "--template, --set and --think go with --chat");
        goto out;
    }
    prompt = hearth_text(prompt_text);
    if (!prompt_text || (argc && prompt_text == argv[argc - 1] && !strcmp(prompt_text, "-"))) {
        if (!prompt_from_stdin(&gen, &prompt, &err)) {
            status = fail(&err);
            goto out;
        }
        from_stdin = (char *)prompt.data;
    }
    status = answer(h, &gen, prompt, no_special);
out:
    hearth_close(h);
    free(from_stdin);
    gen_fini(&gen);
    return status;
}

const struct cmd cmd_run = {"run", "[MODEL] [-s SESSION] [OPTION...] [PROMPT | -]",
                            "answer a prompt, or what stdin holds", run};

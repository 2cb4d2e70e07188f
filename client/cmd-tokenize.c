/* cmd-tokenize.c - hearth tokenize: converts bytes to token ids, and back. */
#include <stdlib.h>

#include "client/cmd.h"

static void print_ids(struct hearth_ids ids)
{
    for (size_t i = 0; i < ids.n; i++)
        printf("%s%d", i ? " " : "", (int)ids.v[i]);
    putchar('\n');
}

static int encode(struct hearth *h, const char *model, struct hearth_bytes in, bool special, int bos, bool json)
{
    struct hearth_tokenize_result *r;
    struct hearth_err err;
    if (hearth_tokenize(h, model, in, special, bos, &r, NULL, &err))
        return fail(&err);
    int status = STATUS_OK;
    if (json)
        status = print_json(json_pack("{s:o}", "ids", json_ids(r->ids)));
    else
        print_ids(r->ids);
    hearth_free(r);
    return status;
}

/* Prints the exact bytes; a JSON string cannot hold all of them, so --json prints valid UTF-8. */
static int decode(struct hearth *h, const char *model, struct hearth_ids ids, bool json)
{
    struct hearth_detokenize_result *r;
    struct hearth_err err;
    if (hearth_detokenize(h, model, ids, &r, NULL, &err))
        return fail(&err);
    int status = STATUS_OK;
    if (json)
        status = print_json(json_pack("{s:o}", "text", json_text(r->text.data ? r->text.data : "", r->text.len)));
    else
        fwrite(r->bytes.data, 1, r->bytes.len, stdout);
    hearth_free(r);
    return status;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    const char *name = NULL;
    bool json = false, special = false, bos = false, no_bos = false, reverse = false;
    const struct opt own[] = {
        {"model", 'm', OPT_TEXT, &name, 0, 0, "MODEL", "a name or a path (tale)"},
        {"special", 0, OPT_FLAG, &special, 0, 0, NULL, "special tokens in the text are special"},
        {"bos", 0, OPT_FLAG, &bos, 0, 0, NULL, "begin with BOS; without this and the next, as the model asks"},
        {"no-bos", 0, OPT_FLAG, &no_bos, 0, 0, NULL, "no BOS"},
        {"decode", 'd', OPT_FLAG, &reverse, 0, 0, NULL, "the other way: ids on stdin, bytes on stdout"},
        {"json", 0, OPT_FLAG, &json, 0, 0, NULL, "{\"ids\":[...]}, or {\"text\":...}"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc)
        return usage(cmd, "the text is read from stdin");
    if (bos && no_bos)
        return usage(cmd, "--bos and --no-bos exclude each other");
    if (reverse && (special || bos || no_bos))
        return usage(cmd, "--special, --bos and --no-bos go without --decode");

    struct hearth_err err;
    struct hearth_bytes in;
    if (!read_stdin(&in, &err))
        return fail(&err);
    struct hearth_ids ids = {0};
    int status;
    if (reverse && !ids_parse(in.data, in.len, &ids)) {
        status = usage(cmd, "--decode reads token ids, as in \"1 2 3\"");
        goto out;
    }
    struct hearth *h;
    status = daemon_open(&h);
    if (status != STATUS_OK)
        goto out;
    char *model = model_or_default(h, name);
    if (reverse)
        status = decode(h, model, ids, json);
    else
        status = encode(h, model, in, special, bos ? HEARTH_BOS_YES : no_bos ? HEARTH_BOS_NO : HEARTH_BOS_AUTO, json);
    free(model);
    hearth_close(h);
out:
    free((void *)ids.v);
    free((void *)in.data);
    return status;
}

const struct cmd cmd_tokenize = {"tokenize", "[-m MODEL] [--special] [--json] <TEXT", "text to token ids, and back",
                                 run};

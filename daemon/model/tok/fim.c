/*
 * fim.c - tokens by their role, and the order of the parts of a fill-in-the-middle prompt.
 *
 * The orders are those that the models were trained on: prefix, suffix, middle (Bavarian et al. 2022, "PSM"), with the
 * other files of the repository before them where the vocabulary has tokens for that (StarCoder2, Qwen2.5-Coder). Only
 * Codestral has the suffix first and no token for the middle. CodeLlama's suffix is encoded without SentencePiece's
 * prepended space (Rozière et al. 2023, `encode_infilling`).
 */
#include "daemon/model/tok/tok-internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* DeepSeek's markup contains full-width bars and U+2581. */
#define WIDE(text) ("<\xef\xbd\x9c" text "\xef\xbd\x9c>")
#define LOW        "\xe2\x96\x81"

enum { KEYS = 2, TEXTS = 10 };

/* A role's keys in the file, the newer one first, and the token texts by which it is found where the file has no key.
 * In SentencePiece's pieces U+2581 has already become a space. */
static const struct {
    const char *name;
    const char *key[KEYS];
    const char *text[TEXTS];
} roles[VOCAB_ROLES] = {
    [ROLE_BOS] = {"bos", {"tokenizer.ggml.bos_token_id"}, {0}},
    [ROLE_EOS] = {"eos", {"tokenizer.ggml.eos_token_id"}, {0}},
    [ROLE_EOT] = {"eot",
                  {"tokenizer.ggml.eot_token_id"},
                  {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<EOT>", LOW "<EOT>"}},
    [ROLE_EOM] = {"eom", {"tokenizer.ggml.eom_token_id"}, {"<|eom_id|>"}},
    [ROLE_FIM_PRE] = {"fim_pre",
                      {"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"},
                      {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", WIDE("fim" LOW "begin"), "<PRE>", LOW "<PRE>",
                       "<|code_prefix|>", "<|prefix|>", "[PREFIX]"}},
    [ROLE_FIM_SUF] = {"fim_suf",
                      {"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"},
                      {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", WIDE("fim" LOW "hole"), "<SUF>", LOW "<SUF>",
                       "<|code_suffix|>", "<|suffix|>", "[SUFFIX]"}},
    [ROLE_FIM_MID] = {"fim_mid",
                      {"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"},
                      {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", WIDE("fim" LOW "end"), "<MID>", LOW "<MID>",
                       "<|code_middle|>", "<|middle|>"}},
    [ROLE_FIM_PAD] = {"fim_pad", {"tokenizer.ggml.fim_pad_token_id"}, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>"}},
    [ROLE_FIM_REP] = {"fim_rep",
                      {"tokenizer.ggml.fim_rep_token_id"},
                      {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<repo_name>"}},
    [ROLE_FIM_SEP] = {"fim_sep", {"tokenizer.ggml.fim_sep_token_id"}, {"<|file_sep|>", "<file_sep>", "<filename>"}},
};

const char *vocab_role_name(enum vocab_role role)
{
    return roles[role].name;
}

int32_t vocab_role(const struct vocab *v, enum vocab_role role)
{
    return v->role[role];
}

static bool has_text(const struct vocab *v, int32_t id, const char *text)
{
    return id >= 0 && v->piece[id].n == strlen(text) && !memcmp(v->piece[id].s, text, v->piece[id].n);
}

int roles_load(struct vocab *v, const struct gguf *g, struct hearth_err *e)
{
    int ret = 0;
    for (int r = 0; r < VOCAB_ROLES && !ret; r++) {
        v->role[r] = -1;
        for (int k = 0; k < KEYS && roles[r].key[k] && v->role[r] < 0 && !ret; k++)
            ret = vocab_load_id(v, g, roles[r].key[k], &v->role[r], e);
        for (int t = 0; t < TEXTS && roles[r].text[t] && v->role[r] < 0; t++)
            v->role[r] = vocab_special(v, roles[r].text[t]);
    }
    v->role[ROLE_BOS] = v->bos; /* may be SentencePiece's standard ids, without a key in the file */
    v->role[ROLE_EOS] = v->eos;
    v->suffix_first = has_text(v, v->role[ROLE_FIM_PRE], "[PREFIX]");
    return ret;
}

bool vocab_has_fim(const struct vocab *v)
{
    return v->role[ROLE_FIM_PRE] >= 0 && v->role[ROLE_FIM_SUF] >= 0 && (v->suffix_first || v->role[ROLE_FIM_MID] >= 0);
}

/* Appends one file: its name, a line end and its text, after the file separator token or, where there is none, under a
 * text header. */
static int push_file(const struct vocab *v, const char *name, const char *text, size_t n, struct ids *out,
                     struct hearth_err *e)
{
    int32_t sep = v->role[ROLE_FIM_SEP];
    const char *form = sep >= 0 ? "%s\n" : "--- %s ---\n";
    size_t len = strlen(name) + 16, head;
    char *all = malloc(len + n);
    if (!all)
        return err_set(e, HEARTH_ENOMEM, "no memory for a file of %zu bytes", n);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    head = (size_t)snprintf(all, len, form, name);
#pragma GCC diagnostic pop
    if (n)
        memcpy(all + head, text, n);
    n += head;
    if (sep < 0)
        all[n++] = '\n';
    int ret = sep >= 0 ? tok_push(out, sep, e) : 0;
    if (!ret)
        ret = tok_encode(v, all, n, TOK_MESSAGE, out, e);
    free(all);
    return ret;
}

static int push_files(const struct vocab *v, const struct fim *f, struct ids *out, struct hearth_err *e)
{
    int ret = 0;
    if (!f->n_files)
        return 0;
    if (v->role[ROLE_FIM_REP] >= 0) {
        ret = tok_push(out, v->role[ROLE_FIM_REP], e);
        if (!ret)
            ret = tok_encode(v, f->repo, strlen(f->repo), TOK_MESSAGE, out, e);
        if (!ret)
            ret = tok_encode(v, "\n", 1, TOK_MESSAGE, out, e);
    }
    for (size_t i = 0; i < f->n_files && !ret; i++)
        ret = push_file(v, f->files[i].name, f->files[i].text, f->files[i].n, out, e);
    if (!ret && v->role[ROLE_FIM_SEP] >= 0)
        ret = push_file(v, f->file, "", 0, out, e);
    return ret;
}

int fim_encode(const struct vocab *v, const struct fim *f, struct ids *out, struct hearth_err *e)
{
    size_t was = out->n;
    if (!vocab_has_fim(v))
        return err_set(e, HEARTH_EUNSUPPORTED,
                       "the model's vocabulary has no tokens to fill in the middle by; "
                       "`prefix` and `suffix` need a model that was trained for that");
    int ret = v->add_bos ? tok_push(out, v->bos, e) : 0;
    if (!ret)
        ret = push_files(v, f, out, e);
    for (int part = 0; part < 2 && !ret; part++) {
        bool suffix = (part == 1) != v->suffix_first;
        ret = tok_push(out, v->role[suffix ? ROLE_FIM_SUF : ROLE_FIM_PRE], e);
        if (!ret && suffix)
            ret = tok_encode(v, f->suffix, f->n_suffix, TOK_MESSAGE | TOK_GOES_ON, out, e);
        else if (!ret)
            ret = tok_encode(v, f->prefix, f->n_prefix, TOK_MESSAGE, out, e);
    }
    if (!ret && !v->suffix_first)
        ret = tok_push(out, v->role[ROLE_FIM_MID], e);
    if (ret)
        out->n = was;
    return ret;
}

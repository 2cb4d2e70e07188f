/* tok.c - loads a vocabulary and answers queries about it: see tok.h and tok-internal.h. */
#include "daemon/model/tok/tok-internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

enum {
    TOKENS_MAX = 1 << 22,
    ENDS_MAX = 64,
};

/* DeepSeek's markup contains full-width bars and U+2581, which is SentencePiece's space. */
#define WIDE(text) ("<\xef\xbd\x9c" text "\xef\xbd\x9c>")
#define LOW        "\xe2\x96\x81"

/*
 * Tokens that end a turn or a document, by their text, because few files name more than one of them by key. They count
 * as control tokens whatever type the file gives them, so that plain text is never tokenised to one of them.
 */
static const char *const end_texts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>", "</s>",
    "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>",
    WIDE("end" LOW "of" LOW "sentence"), "<turn|>", "<|tool_response>", "<|flush|>", "<|calls|>",
    /* fill-in-the-middle: padding, and ends of files */
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
    "<reponame>", "<repo_name>", "<|file_sep|>", "<file_sep>", LOW "<EOT>"};

/* Texts that do not end a generation where the vocabulary also has two others: <|end|> of harmony and of Solar Open
 * closes one of several messages in an answer, and Gemma's </s> is not a token of its makers but HTML markup that
 * people write. */
static const struct {
    const char *text, *beside[2];
    bool is_plain;
} not_ends[] = {{"<|end|>", {"<|return|>", "<|call|>"}, false},
                {"<|end|>", {"<|flush|>", "<|calls|>"}, false},
                {"</s>", {"<turn|>", "<|tool_response>"}, true},
                {"</s>", {"<end_of_turn>", "<eos>"}, true}};

/* Markup of fill-in-the-middle: control tokens too, but they do not end a generation. */
static const char *const markup_texts[] = {
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", WIDE("fim" LOW "begin"), "<PRE>", LOW "<PRE>", "<|code_prefix|>",
    "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", WIDE("fim" LOW "hole"),  "<SUF>", LOW "<SUF>", "<|code_suffix|>",
    "<|fim_middle|>", "<fim-middle>", "<fim_middle>", WIDE("fim" LOW "end"),   "<MID>", LOW "<MID>", "<|code_middle|>"};

/* Markup of the tool calls in an answer. Where they are control tokens, they are text of the answer nevertheless: only
 * they tell a call from text, and a tool's name from its arguments. */
static const char *const call_texts[] = {"[TOOL_CALLS]",
                                         "[CALL_ID]",
                                         "[ARGS]",
                                         "<|tool_call|>",
                                         "<|tool_calls|>",
                                         "<|python_tag|>",
                                         "<|\"|>",
                                         "<|tool_call>",
                                         "<tool_call|>",
                                         "<|tool_call_start|>",
                                         "<|tool_call_end|>",
                                         "<|START_ACTION|>",
                                         "<|END_ACTION|>",
                                         "<|tool_calls_section_begin|>",
                                         "<|tool_calls_section_end|>",
                                         "<|tool_call_begin|>",
                                         "<|tool_call_argument_begin|>",
                                         WIDE("tool" LOW "calls" LOW "begin"),
                                         WIDE("tool" LOW "calls" LOW "end"),
                                         WIDE("tool" LOW "call" LOW "begin"),
                                         WIDE("tool" LOW "call" LOW "end"),
                                         WIDE("tool" LOW "sep")};

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* --- loading ------------------------------------------------------------------------------------------- */

static bool among(const struct piece *p, const char *const *texts, size_t n)
{
    if (!p->n || !memchr("<[_\xe2", p->s[0], 4)) /* skips the search for nearly every token */
        return false;
    for (size_t i = 0; i < n; i++)
        if (strlen(texts[i]) == p->n && !memcmp(texts[i], p->s, p->n))
            return true;
    return false;
}

static int end_push(struct vocab *v, int32_t id)
{
    if (id < 0 || vocab_is_end(v, id) || v->n_end == ENDS_MAX) /* only a crafted file has so many */
        return 0;
    int32_t *end = realloc(v->end, (v->n_end + 1) * sizeof *end);
    if (!end)
        return HEARTH_ENOMEM;
    v->end = end;
    v->end[v->n_end++] = id;
    return 0;
}

/* The index of the end token with that text; n_end where there is none. */
static size_t end_place(const struct vocab *v, const char *text)
{
    size_t i = 0;
    while (i < v->n_end &&
           (v->piece[v->end[i]].n != strlen(text) || memcmp(v->piece[v->end[i]].s, text, v->piece[v->end[i]].n) != 0))
        i++;
    return i;
}

/* Applies only to ends that were found by text: those named by a key are added later and stay. */
static void drop_not_ends(struct vocab *v)
{
    for (size_t i = 0; i < COUNT(not_ends); i++) {
        size_t at = end_place(v, not_ends[i].text);
        if (at == v->n_end || end_place(v, not_ends[i].beside[0]) == v->n_end ||
            end_place(v, not_ends[i].beside[1]) == v->n_end)
            continue;
        if (not_ends[i].is_plain)
            v->piece[v->end[at]].attr = TOK_NORMAL;
        v->end[at] = v->end[--v->n_end];
    }
}

int vocab_load_id(const struct vocab *v, const struct gguf *g, const char *key, int32_t *id, struct hearth_err *e)
{
    uint32_t n;
    int ret = gguf_u32(g, key, &n, e);
    if (ret)
        return ret < 0 ? ret : 0;
    if (n >= v->n_tok)
        return err_set(e, HEARTH_EBADMODEL, "key %s is %u; there are %u tokens", key, n, v->n_tok);
    *id = (int32_t)n;
    return 0;
}

static int load_tokens(struct vocab *v, const struct gguf *g, struct hearth_err *e)
{
    struct gguf_strs texts;
    struct gguf_nums types = {0};
    int ret = gguf_strs(g, "tokenizer.ggml.tokens", &texts, e);
    if (ret)
        return ret < 0 ? ret : err_set(e, HEARTH_EBADMODEL, "key tokenizer.ggml.tokens is missing");
    ret = gguf_i32s(g, "tokenizer.ggml.token_type", &types, e);
    if (ret < 0)
        return ret;
    if (!texts.n || texts.n > TOKENS_MAX)
        return err_set(e, HEARTH_EBADMODEL, "key tokenizer.ggml.tokens has %zu; 1 to %d are possible", texts.n,
                       TOKENS_MAX);
    if (!ret && types.n != texts.n)
        return err_set(e, HEARTH_EBADMODEL, "tokenizer.ggml.token_type has %zu entries for %zu tokens", types.n,
                       texts.n);
    v->n_tok = v->n_piece = v->cap_piece = (uint32_t)texts.n;
    v->piece = calloc(v->n_tok, sizeof *v->piece);
    v->arena = malloc((size_t)(texts.end - texts.p) + 1); /* a decoded piece is never longer than its text */
    if (!v->piece || !v->arena)
        return err_set(e, HEARTH_ENOMEM, "no memory for %u tokens", v->n_tok);
    for (uint32_t i = 0; i < v->n_tok; i++) {
        struct piece *p = &v->piece[i];
        struct gguf_str s;
        if (!gguf_strs_next(&texts, &s))
            return err_set(e, HEARTH_EBADMODEL, "tokenizer.ggml.tokens ends at entry %u: the file has changed", i);
        if ((ret = pace(sizeof *p + s.n, e)))
            return ret;
        int32_t attr = types.n ? gguf_i32_at(&types, i) : TOK_NORMAL;
        if (attr < 0 || attr > TOK_BYTE)
            return err_set(e, HEARTH_EBADMODEL, "tokenizer.ggml.token_type: entry %u is %d", i, attr);
        *p = (struct piece){.s = s.s, .n = (uint32_t)s.n, .attr = attr ? (uint8_t)attr : TOK_NORMAL};
        bool end = among(p, end_texts, COUNT(end_texts));
        if (end || among(p, markup_texts, COUNT(markup_texts)))
            p->attr = TOK_CONTROL;
        p->shown = among(p, call_texts, COUNT(call_texts));
        if (end && end_push(v, (int32_t)i))
            return err_set(e, HEARTH_ENOMEM, "no memory for the vocabulary");
    }
    drop_not_ends(v);
    return 0;
}

/* In Phi 3 and 3.5, special tokens take in the white space after them, for which GGUF has no key; <s> and
 * <|endoftext|>, which belong to no turn, do not. Phi 4 has another kind of vocabulary. */
static void strip_as_phi3(struct vocab *v, const struct gguf *g)
{
    static const char *const others[] = {"<s>", "<|endoftext|>"};
    struct gguf_str arch;
    struct hearth_err ignored;
    if (v->model != VOCAB_SPM || gguf_str(g, "general.architecture", &arch, &ignored) || !gguf_str_is(arch, "phi3"))
        return;
    for (uint32_t i = 0; i < v->n_tok; i++) {
        struct piece *p = &v->piece[i];
        if ((p->attr == TOK_CONTROL || p->attr == TOK_USER) && !among(p, others, COUNT(others)))
            p->strip = STRIP_RIGHT;
    }
}

/* Reads how the special tokens of a tokenizer.json are found; hf/tokenizer.c writes the key. */
static int load_added(struct vocab *v, const struct gguf *g, struct hearth_err *e)
{
    struct gguf_nums added = {0};
    int ret = gguf_i32s(g, "hearth.tokenizer.added", &added, e);
    v->leftmost = ret == 0;
    for (size_t i = 0; i < added.n && i < v->n_tok; i++) {
        int32_t bits = gguf_i32_at(&added, i);
        struct piece *p = &v->piece[i];
        p->strip = (uint8_t)bits & (STRIP_LEFT | STRIP_RIGHT);
        p->late = bits & 4;
        p->apart = bits & 8;
        p->word = bits & 16;
        p->named = bits & 32;
        v->late |= p->late;
    }
    return ret < 0 ? ret : 0;
}

/* Reads hearth's own keys, among them the further ids that end a generation. */
static int load_own_keys(struct vocab *v, const struct gguf *g, struct hearth_err *e)
{
    struct gguf_nums ends = {0};
    int ret = gguf_i32s(g, "hearth.tokenizer.end_ids", &ends, e);
    if (ret >= 0)
        ret = gguf_bool(g, "hearth.tokenizer.fuse_unknown", &v->fuse_unknown, e);
    if (ret >= 0)
        ret = gguf_bool(g, "hearth.tokenizer.normal_spaces", &v->normal_spaces, e);
    if (ret >= 0)
        ret = suppressed_check(v, g, e);
    if (ret < 0)
        return ret;
    for (size_t i = 0; i < ends.n; i++) {
        int32_t id = gguf_i32_at(&ends, i);
        if (id < 0 || (uint32_t)id >= v->n_tok)
            return err_set(e, HEARTH_EBADMODEL,
                           "token %d ends a generation (eos_token_id, hearth.tokenizer.end_ids); there are %u tokens",
                           id, v->n_tok);
        if (end_push(v, id))
            return err_set(e, HEARTH_ENOMEM, "no memory for the vocabulary");
    }
    strip_as_phi3(v, g);
    return normalize_load(v, g, e);
}

static int load_named_ids(struct vocab *v, const struct gguf *g, struct hearth_err *e)
{
    int32_t eot = -1, eom = -1;
    struct {
        const char *key;
        int32_t *id;
    } named[] = {{"tokenizer.ggml.bos_token_id", &v->bos},     {"tokenizer.ggml.eos_token_id", &v->eos},
                 {"tokenizer.ggml.unknown_token_id", &v->unk}, {"hearth.tokenizer.unknown_id", &v->unk},
                 {"tokenizer.ggml.eot_token_id", &eot},        {"tokenizer.ggml.eom_token_id", &eom}};
    int ret = 0;
    for (size_t i = 0; i < COUNT(named) && !ret; i++)
        ret = vocab_load_id(v, g, named[i].key, named[i].id, e);
    if (!ret && (end_push(v, v->eos) || end_push(v, eot) || end_push(v, eom)))
        ret = err_set(e, HEARTH_ENOMEM, "no memory for the vocabulary");
    return ret;
}

static int load_prefixes(struct vocab *v, const struct gguf *g, struct hearth_err *e)
{
    bool space = v->model == VOCAB_SPM || v->model == VOCAB_UNIGRAM || v->model == VOCAB_WORDPIECE;
    v->add_bos = v->model == VOCAB_SPM || v->model == VOCAB_WORDPIECE || (v->pre_kind && v->pre_kind->add_bos);
    int ret = gguf_bool(g, "tokenizer.ggml.add_bos_token", &v->add_bos, e);
    if (ret >= 0)
        ret = gguf_bool(g, "tokenizer.ggml.add_space_prefix", &space, e);
    if (v->model == VOCAB_RAW && v->pre_kind) /* Gemma 4 needs it; its first files said no */
        v->add_bos = true;
    v->add_bos &= v->bos >= 0;
    struct gguf_str when = {"", 0};
    if (ret >= 0)
        ret = gguf_str(g, "hearth.tokenizer.prefix", &when, e);
    v->prefix = gguf_str_is(when, "never")                 ? PREFIX_NEVER
                : gguf_str_is(when, "always")              ? PREFIX_ALWAYS
                : gguf_str_is(when, "first")               ? PREFIX_FIRST
                : gguf_str_is(when, "unless there is one") ? PREFIX_UNLESS_SPACE
                : space                                    ? PREFIX_ALWAYS
                                                           : PREFIX_NEVER;
    if (v->model == VOCAB_BPE && v->pre_kind)
        v->prefix = PREFIX_NEVER; /* GGUF files have the key, but it has no effect there */
    return ret < 0 ? ret : 0;
}

/* Finds the kind of vocabulary for tokenizer.ggml.model. */
static int find_model(const struct gguf *g, enum vocab_model *out, struct hearth_err *e)
{
    static const struct {
        const char *name;
        enum vocab_model model;
    } models[] = {{"gpt2", VOCAB_BPE},
                  {"llama", VOCAB_SPM},
                  {"gemma4", VOCAB_RAW},
                  {"t5", VOCAB_UNIGRAM},
                  {"bert", VOCAB_WORDPIECE}};
    struct gguf_str name;
    int ret = gguf_str(g, "tokenizer.ggml.model", &name, e);
    if (ret)
        return ret < 0 ? ret : err_set(e, HEARTH_EBADMODEL, "key tokenizer.ggml.model is missing");
    for (size_t i = 0; i < COUNT(models); i++)
        if (gguf_str_is(name, models[i].name)) {
            *out = models[i].model;
            return 0;
        }
    return err_set(e, HEARTH_EUNSUPPORTED,
                   "tokenizer \"%s\" (tokenizer.ggml.model); hearth has gpt2, llama, gemma4, t5 and bert",
                   gguf_label(name).s);
}

/* Whether every byte of a text contributes to some id, if only to one of several bytes or to the unknown one. */
static bool takes_every_byte(const struct vocab *v)
{
    static const unsigned char replacement[3] = {0xef, 0xbf, 0xbd}; /* BPE writes U+FFFD for a byte that has no token */
    const unsigned char *b = replacement;
    bool replaces = v->model == VOCAB_BPE && v->byte_id[b[0]] >= 0 && v->byte_id[b[1]] >= 0 && v->byte_id[b[2]] >= 0;
    for (int i = 0; i < 256; i++)
        if (v->byte_id[i] < 0 && v->unk < 0 && !replaces)
            return false;
    return true;
}

/* Whether one id may stand for any number of unknown characters. */
static bool fuses(const struct vocab *v)
{
    bool any = false;
    for (int i = 0; i < 256; i++)
        any |= v->byte_id[i] < 0;
    return any && v->fuse_unknown;
}

/* The most bytes of text that a piece can stand for. In SentencePiece's pieces a space is also U+2581 in a text, of
 * three bytes; one more is prepended to the text of a `late` token. */
static size_t bytes_of(const struct vocab *v, const struct piece *p)
{
    size_t n = p->n + (p->late ? 3u : 0) + (p->named ? SPM_BYTE : 0);
    bool low = v->model == VOCAB_SPM || v->model == VOCAB_RAW;
    for (uint32_t i = 0; low && i < p->n; i++)
        n += p->s[i] == ' ' ? 2 : 0;
    return n;
}

/*
 * The value of vocab_reach(). No bound is known where special tokens take in white space, where bytes may be dropped,
 * where one id may stand for several unknown characters, or where normalisation may remove characters: for Unigram and
 * WordPiece, and with a table of replacements or rules for spaces. A Unicode form turns at most NORMAL_MOST bytes into
 * one.
 */
static size_t reach_of(const struct vocab *v)
{
    enum { NORMAL_MOST = 16, CHARACTER = 4 };
    size_t most = CHARACTER; /* the unknown id stands for one character */
    bool removes = v->charsmap.trie || v->spaces || v->model == VOCAB_UNIGRAM || v->model == VOCAB_WORDPIECE ||
                   (v->pre && pretok_removes(v->pre));
    if (removes || fuses(v) || !takes_every_byte(v))
        return SIZE_MAX;
    for (uint32_t i = 0; i < v->n_tok; i++) {
        if (v->piece[i].strip)
            return SIZE_MAX;
        size_t n = bytes_of(v, &v->piece[i]);
        most = n > most ? n : most;
    }
    return v->normalize ? most * NORMAL_MOST : most;
}

int vocab_load_as(struct vocab **out, const struct gguf *g, const char *pre, struct hearth_err *e)
{
    enum vocab_model model = VOCAB_BPE;
    int ret = find_model(g, &model, e);
    if (ret)
        return ret;
    struct vocab *v = calloc(1, sizeof *v);
    if (!v)
        return err_set(e, HEARTH_ENOMEM, "no memory for a vocabulary");
    v->model = model;
    v->bos = v->eos = v->unk = -1;
    if (getrandom(&v->map.seed, sizeof v->map.seed, GRND_NONBLOCK) < 0)
        v->map.seed = (uintptr_t)v;

    ret = load_tokens(v, g, e);
    if (!ret)
        ret = load_added(v, g, e);
    if (!ret && model == VOCAB_SPM && v->n_tok > 2) { /* SentencePiece's standard ids, without keys in the file */
        v->unk = 0;
        v->bos = 1;
        v->eos = 2;
    }
    if (!ret)
        ret = load_named_ids(v, g, e);
    if (!ret)
        ret = model == VOCAB_SPM         ? spm_load(v, g, e)
              : model == VOCAB_RAW       ? raw_load(v, g, e)
              : model == VOCAB_UNIGRAM   ? unigram_load(v, g, e)
              : model == VOCAB_WORDPIECE ? wordpiece_load(v, g, e)
                                         : bpe_load(v, g, pre, e);
    if (!ret)
        ret = special_load(v, g, e);
    if (!ret)
        ret = roles_load(v, g, e);
    if (!ret)
        ret = load_prefixes(v, g, e);
    if (!ret)
        ret = load_own_keys(v, g, e);
    if (!ret)
        ret = special_load_late(v, g, e);
    if (ret) {
        vocab_free(v);
        return ret;
    }
    static const char *const kinds[] = {[VOCAB_BPE] = "gpt2/",
                                        [VOCAB_RAW] = "gemma4",
                                        [VOCAB_SPM] = "llama",
                                        [VOCAB_UNIGRAM] = "unigram",
                                        [VOCAB_WORDPIECE] = "bert"};
    const char *cut = model != VOCAB_BPE ? "" : v->pre_kind ? v->pre_kind->name : "own";
    snprintf(v->kind, sizeof v->kind, "%s%s", kinds[model], cut);
    v->reach = reach_of(v);
    *out = v;
    return 0;
}

int vocab_load(struct vocab **out, const struct gguf *g, struct hearth_err *e)
{
    return vocab_load_as(out, g, NULL, e);
}

void vocab_free(struct vocab *v)
{
    if (!v)
        return;
    for (uint32_t i = v->n_tok; i < v->n_piece; i++)
        free((char *)v->piece[i].s);
    pretok_close(v->pre);
    free(v->piece);
    free(v->arena);
    free(v->map.slot);
    free(v->merges);
    free(v->score);
    free(v->merge_slot);
    free(v->end);
    free(v->special.node);
    free(v->normal.node);
    free(v);
}

/* --- queries ------------------------------------------------------------------------------------------- */

uint32_t vocab_size(const struct vocab *v)
{
    return v->n_tok;
}

const char *vocab_kind(const struct vocab *v)
{
    return v->kind;
}

size_t vocab_reach(const struct vocab *v)
{
    return v->reach;
}

int32_t vocab_bos(const struct vocab *v)
{
    return v->bos;
}

int32_t vocab_eos(const struct vocab *v)
{
    return v->eos;
}

bool vocab_add_bos(const struct vocab *v)
{
    return v->add_bos;
}

bool vocab_is_end(const struct vocab *v, int32_t id)
{
    for (size_t i = 0; i < v->n_end; i++)
        if (v->end[i] == id)
            return true;
    return false;
}

bool tok_adds_space(const struct vocab *v)
{
    return v->prefix != PREFIX_NEVER;
}

size_t tok_piece(const struct vocab *v, int32_t id, bool special, char *out, size_t cap)
{
    if (id < 0 || (uint32_t)id >= v->n_tok)
        return 0;
    const struct piece *p = &v->piece[id];
    if (!special && !p->shown && (p->attr == TOK_CONTROL || p->attr == TOK_UNKNOWN))
        return 0;
    if (cap)
        memcpy(out, p->s, p->n < cap ? p->n : cap);
    return p->n;
}

const char *tok_bytes(const struct vocab *v, int32_t id, size_t *n)
{
    bool known = id >= 0 && (uint32_t)id < v->n_tok;
    *n = known ? v->piece[id].n : 0;
    return *n ? v->piece[id].s : "";
}

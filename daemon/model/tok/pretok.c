/*
 * pretok.c - pre-tokenizer patterns, matched by PCRE2.
 *
 * The patterns are those that the models were trained with, written with the classes of pattern.h, so that the same
 * text gives the same ids on every machine and in llama.cpp. A byte that is not UTF-8 is matched like U+FFFD, by which
 * other engines replace it (here the byte itself is kept).
 */
#include "daemon/model/tok/pretok.h"

#include "daemon/model/pace.h"
#include "daemon/model/tok/pattern.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Letters without case, and marks: they match both as upper and as lower case. */
#define UNCASED                                                                                                \
    "\\p{Lm}\\p{Lo}" MARK "\\x{1123F}\\x{11240}\\x{11F02}\\x{11F04}-\\x{11F10}\\x{11F12}-\\x{11F33}\\x{1342F}" \
    "\\x{13441}-\\x{13446}\\x{1B132}\\x{1B155}\\x{1E030}-\\x{1E06D}\\x{1E4D0}-\\x{1E4EB}\\x{2B739}"            \
    "\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"
#define CAPITAL "\\p{Lu}\\p{Lt}"
#define SMALL   "\\p{Ll}\\x{1DF25}-\\x{1DF2A}"
#define UPPER   CAPITAL UNCASED
#define LOWER   SMALL UNCASED

#define GPT2                                                                                                     \
    "'(?:[stmd]|re|ve|ll)| ?[" LETTER "]+| ?[" NUMBER "]+| ?[^" SPACE LETTER NUMBER "]+|[" SPACE "]+(?![^" SPACE \
    "])|[" SPACE "]+"
/* Case-insensitive, so the long s (U+017F) matches as an s. */
#define CONTRACTION "'(?:[sStTmMdD\\x{17F}]|[rR][eE]|[vV][eE]|[lL][lL])"
/* The common end of most newer patterns: line breaks, then white space, whose last character is left to the next
 * word. */
#define SPACES "[" SPACE "]*[\\r\\n]+|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"
/* Llama 3 and its relatives differ in how many digits form a group. */
#define LLAMA3(digits)                                                                                      \
    CONTRACTION "|[^\\r\\n" LETTER NUMBER "]?[" LETTER "]+|[" NUMBER "]" digits "| ?[^" SPACE LETTER NUMBER \
                "]+[\\r\\n]*|" SPACES
/* o200k and tekken split before a capital that follows a small letter; they differ in digits and contractions. */
#define BY_CASE(contraction, digits)                                                                        \
    "[^\\r\\n" LETTER NUMBER "]?[" UPPER "]*[" LOWER "]+" contraction "|[^\\r\\n" LETTER NUMBER "]?[" UPPER \
    "]+[" LOWER "]*" contraction "|[" NUMBER "]" digits "| ?[^" SPACE LETTER NUMBER "]+[\\r\\n/]*|" SPACES

static const char *const gpt2[] = {GPT2, NULL};
static const char *const llama3[] = {LLAMA3("{1,3}"), NULL};
static const char *const qwen2[] = {LLAMA3(""), NULL};
/* MiniCPM 5 splits numbers off first, so that the white space before one ends its stretch. */
static const char *const minicpm5[] = {"[" NUMBER "]{1,3}", LLAMA3("+"), NULL};
/* Seed-Coder does not attach line breaks to the symbols before them. */
static const char *const seed_coder[] = {CONTRACTION "|[^\\r\\n" LETTER NUMBER "]?[" LETTER "]+|[" NUMBER
                                                     "]| ?[^" SPACE LETTER NUMBER "\\r\\n]+|" SPACES,
                                         NULL};
/* Ling takes one line break at a time. */
static const char *const bailing[] = {CONTRACTION "|[^\\r\\n" LETTER NUMBER "]?+[" LETTER "]+|[" NUMBER
                                                  "]| ?[^" SPACE LETTER NUMBER "]++[\\r\\n]*|[" SPACE
                                                  "]*[\\r\\n]|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+",
                                      NULL};
/* Bloom's words end before punctuation, including that of Arabic and Devanagari. */
#define BLOOM " ?[^(" SPACE "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"
static const char *const bloom[] = {BLOOM, NULL};
static const char *const viking[] = {BLOOM, "[" NUMBER "]", NULL};
/* SuperBPE's words may contain spaces; digits are grouped by three from the right. */
static const char *const superbpe[] = {"[" NUMBER "]+", DIGIT_GROUP_ENDS, NULL};
static const char *const starcoder[] = {"[" NUMBER "]", GPT2, NULL};
/* As in the model's own pattern: everything from U+0800 on, including white space and the Kelvin sign. */
#define CJK_RUN "[\\x{800}-\\x{9FA5}\\x{AC00}-\\x{D7FF}]+"
static const char *const deepseek_coder[] = {
    "[\\r\\n]", "[" SPACE "]?[" LETTER "]+", "[" SPACE "]?[" PUNCT "]+", CJK_RUN, "[" NUMBER "]", NULL};
/* Letters with case, as the model's own pattern lists them: those of Unicode 11 except Armenian and Georgian lower
 * case. */
#define DEEPSEEK_CASED                                                                                \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}"   \
    "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}"             \
    "\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}"   \
    "\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}"   \
    "\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}" \
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}"  \
    "\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}"  \
    "\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}" \
    "\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}"   \
    "\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}"            \
    "\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"            \
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"  \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}" \
    "\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}"                \
    "\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"            \
    "\\x{1E900}-\\x{1E943}"
/* In DeepSeek V3, the CJK block with Hiragana and Katakana forms words of its own; an ASCII punctuation character takes
 * the letters after it into its word. */
static const char *const deepseek_v3[] = {
    "[" NUMBER "]{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{30FF}]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n" LETTER PUNCT SYMBOL "]?[" LETTER MARK
    "]+| ?[" PUNCT SYMBOL "]+[\\r\\n]*|" SPACES,
    NULL};
static const char *const deepseek_llm[] = {
    "[\\r\\n]",
    "[" SPACE "]?[" DEEPSEEK_CASED "]+",
    "[" SPACE "]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
    "[" SPACE "]+$",
    CJK_RUN,
    "[" NUMBER "]+",
    NULL};
static const char *const gpt_4o[] = {BY_CASE("(?:" CONTRACTION ")?", "{1,3}"), NULL};
/* The digits of a long number are grouped by three from the right. */
static const char *const tiny_aya[] = {DIGIT_GROUPS(WORD_END), BY_CASE("(?:" CONTRACTION ")?", "{1,3}"), NULL};
/* In Kimi, Chinese characters form words of their own, and do not count as letters in other words. A repeated group
 * would take memory for each character if it could be taken back, so these are possessive: where no small letter
 * follows, a word of capitals and UNCASED ends after the last of the latter. */
#define KIMI_UNCASED "(?![" HAN "])[" UNCASED "]"
#define KIMI_UPPER   "(?:[" CAPITAL "]|" KIMI_UNCASED ")"
#define KIMI_LOWER   "(?:[" SMALL "]|" KIMI_UNCASED ")"
static const char *const kimi_k2[] = {"[" HAN "]+|[^\\r\\n" LETTER NUMBER "]?(?:" KIMI_UPPER "*+(?=[" SMALL
                                      "])" KIMI_LOWER "++|(?:[" CAPITAL "]*+" KIMI_UNCASED ")++)(?:" CONTRACTION
                                      ")?|[^\\r\\n" LETTER NUMBER "]?" KIMI_UPPER "++" KIMI_LOWER "*+(?:" CONTRACTION
                                      ")?|[" NUMBER "]{1,3}| ?[^" SPACE LETTER NUMBER "]+[\\r\\n]*|" SPACES,
                                      NULL};
static const char *const tekken[] = {BY_CASE("", ""), NULL};
static const char *const qwen35[] = {CONTRACTION "|[^\\r\\n" LETTER NUMBER "]?[" LETTER MARK "]+|[" NUMBER
                                                 "]| ?[^" SPACE LETTER MARK NUMBER "]+[\\r\\n]*|" SPACES,
                                     NULL};
/* Youtu: stretches of Korean, of Chinese punctuation, of Bopomofo, and of Chinese and Japanese are cut out first. */
static const char *const youtu[] = {
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|"
    "[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}"
    "\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{30FF}]+",
    BY_CASE("(?:" CONTRACTION ")?", ""), NULL};
static const char *const falcon[] = {"[" PUNCT "$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]", NULL};
static const char *const whole[] = {NULL}; /* Unigram: the text is not split */
static const char *const gemma4[] = {"[^\\n]+|[\\n]+", NULL};
static const char *const plain[] = {"[" PUNCT "$+<=>^~|]+", GPT2, "[" NUMBER "]+", "[0-9][0-9][0-9]", NULL};

/* The tests cover the first name of each group; the others are aliases of the same patterns. */
static const struct pretok_kind kinds[] = {
    {"gpt-2", gpt2, false, false},
    {"phi-2", gpt2, false, false},
    {"mpt", gpt2, false, false},
    {"gpt-neox", gpt2, false, false},
    {"olmo", gpt2, false, false},
    {"jais", gpt2, false, false},
    {"trillion", gpt2, false, false},
    {"granite-docling", gpt2, false, false},
    {"gigachat", gpt2, false, false},
    {"a.x-4.0", gpt2, false, false},
    {"mellum", gpt2, false, false},
    {"exaone4", gpt2, false, false},
    {"modern-bert", gpt2, false, false},
    {"roberta-bpe", gpt2, false, false},
    {"jina-v1-en", gpt2, false, false},
    {"jina-v2-es", gpt2, false, false},
    {"jina-v2-de", gpt2, false, false},
    {"jina-v2-code", gpt2, false, false},
    {"jina-es", gpt2, false, false},
    {"jina-de", gpt2, false, false},
    {"llama-bpe", llama3, true, true},
    {"llama3", llama3, true, true},
    {"llama-v3", llama3, true, true},
    {"falcon3", llama3, true, true},
    {"falcon-h1", llama3, true, true},
    {"pixtral", llama3, true, true},
    {"lfm2", llama3, true, true},
    {"midm-2.0", llama3, true, true},
    {"jina-v5-nano", llama3, true, true},
    {"minicpm5", minicpm5, true, false},
    {"smaug-bpe", llama3, false, false},
    {"dbrx", llama3, false, false},
    {"glm4", llama3, false, false},
    {"chatglm-bpe", llama3, false, false},
    {"qwen2", qwen2, false, false},
    {"deepseek-r1-qwen", qwen2, false, false},
    {"stablelm2", qwen2, false, false},
    {"hunyuan", qwen2, false, false},
    {"kormo", qwen2, false, false},
    {"megrez", qwen2, false, false},
    {"solar-open", qwen2, false, false},
    {"grok-2", qwen2, false, false},
    {"f2llmv2", qwen2, false, false},
    {"qwen35", qwen35, false, false},
    {"seed-coder", seed_coder, false, false},
    {"bailingmoe", bailing, false, false},
    {"bailingmoe2", bailing, false, false},
    {"llada-moe", bailing, false, false},
    {"bloom", bloom, false, false},
    {"gpt3-finnish", bloom, false, false},
    {"poro-chat", bloom, false, false},
    {"viking", viking, false, false},
    {"superbpe", superbpe, false, false},
    {"gpt-4o", gpt_4o, false, false},
    {"minimax-m2", gpt_4o, false, false},
    {"llama4", gpt_4o, false, false},
    {"kanana2", gpt_4o, false, false},
    {"talkie", gpt_4o, false, false},
    {"tiny_aya", tiny_aya, false, false},
    {"cohere2moe", tiny_aya, false, false},
    {"kimi-k2", kimi_k2, false, false},
    {"tekken", tekken, true, false},
    {"deepseek-v3", deepseek_v3, false, false},
    {"hunyuan-dense", deepseek_v3, false, false},
    {"joyai-llm", deepseek_v3, false, false},
    {"deepseek-llm", deepseek_llm, false, false},
    {"falcon", falcon, false, false},
    {"gemma4", gemma4, false, false},
    {"whole", whole, false, false},
    {"deepseek-coder", deepseek_coder, false, false},
    {"starcoder", starcoder, false, false},
    {"refact", starcoder, false, false},
    {"smollm", starcoder, false, false},
    {"codeshell", starcoder, false, false},
    {"command-r", starcoder, false, false},
    {"exaone", starcoder, false, false},
    {"minerva-7b", starcoder, false, false},
    {"youtu", youtu, true, false},
    {"hy_v4", deepseek_v3, false, false},
    {"mellum2", starcoder, false, false},
    {"default", plain, false, false},
};

const struct pretok_kind *pretok_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strlen(kinds[i].name) == n && !memcmp(kinds[i].name, name, n))
            return &kinds[i];
    return NULL;
}

enum { PATTERNS_MAX = 8, MATCH_LIMIT = 50 * 1000 * 1000, HEAP_LIMIT_KIB = 64 * 1024 };

struct pretok {
    pcre2_code *code[PATTERNS_MAX];
    int behavior[PATTERNS_MAX];
    size_t n;
};

static int add_pattern(struct pretok *p, const char *name, const char *s, size_t n, int behavior, struct hearth_err *e)
{
    int at_fault;
    PCRE2_SIZE where;
    if (p->n == PATTERNS_MAX)
        return err_set(e, HEARTH_EUNSUPPORTED, "pre-tokenizer %s: more than %d patterns", name, PATTERNS_MAX);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)s, n, PCRE2_UTF | PCRE2_UCP, &at_fault, &where, NULL);
    if (!code) {
        unsigned char msg[100] = "";
        pcre2_get_error_message(at_fault, msg, sizeof msg);
        return err_set(e, HEARTH_EBADMODEL, "pre-tokenizer %s, pattern %zu: %s at %zu", name, p->n, (char *)msg,
                       (size_t)where);
    }
    /* JIT compilation fails where no memory may be made executable; matching is then interpreted, which is slower but
     * gives the same words. */
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    p->behavior[p->n] = behavior;
    p->code[p->n++] = code;
    return 0;
}

int pretok_open(struct pretok **out, const struct pretok_kind *kind, struct hearth_err *e)
{
    struct pretok *p = calloc(1, sizeof *p);
    int ret = p ? 0 : err_set(e, HEARTH_ENOMEM, "no memory for the pre-tokenizer");
    for (size_t i = 0; !ret && kind->patterns[i]; i++)
        ret = add_pattern(p, kind->name, kind->patterns[i], strlen(kind->patterns[i]), PRETOK_ISOLATED, e);
    if (ret)
        pretok_close(p);
    else
        *out = p;
    return ret;
}

/* --- tokenizer.json's patterns ------------------------------------------------------------------------------ */

int pretok_open_patterns(struct pretok **out, const struct pretok_pattern *v, size_t n, struct hearth_err *e)
{
    struct pretok *p = calloc(1, sizeof *p);
    struct pattern *x = malloc(sizeof *x);
    int ret = p && x ? 0 : err_set(e, HEARTH_ENOMEM, "no memory for the pre-tokenizer");
    for (size_t i = 0; i < n && !ret; i++) {
        ret = pattern_translate(x, v[i].s, v[i].n, e);
        if (!ret)
            ret = add_pattern(p, "of tokenizer.json", x->s, x->n, v[i].behavior, e);
    }
    free(x);
    if (ret)
        pretok_close(p);
    else
        *out = p;
    return ret;
}

void pretok_close(struct pretok *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < PATTERNS_MAX; i++)
        pcre2_code_free(p->code[i]);
    free(p);
}

static int behavior_of(int flags)
{
    return flags & ~(PRETOK_INVERT | PRETOK_LETTERS);
}

bool pretok_removes(const struct pretok *p)
{
    bool any = false;
    for (size_t i = 0; i < p->n; i++)
        any |= behavior_of(p->behavior[i]) == PRETOK_REMOVED;
    return any;
}

/* Returns the length of the well-formed UTF-8 character at s, or 0. */
static size_t utf8_char(const unsigned char *s, size_t n)
{
    size_t len = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    if (!len || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool surrogate = s[0] == 0xed && s[1] > 0x9f, beyond = s[0] == 0xf4 && s[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : len;
}

/*
 * Returns the subject for the patterns: text itself or, where it is not UTF-8, a copy in which U+0001 replaces each bad
 * byte. Every pattern here treats U+0001 as it treats U+FFFD: as neither letter, number, punctuation nor white space.
 * It is one byte long, so offsets do not change. *copy is malloc'd or NULL.
 */
static int as_utf8(const char *text, size_t n, const char **out, char **copy, struct hearth_err *e)
{
    *out = text;
    *copy = NULL;
    for (size_t i = 0; i < n;) {
        size_t len = utf8_char((const unsigned char *)text + i, n - i);
        if (!len) {
            if (!*copy) {
                *copy = malloc(n);
                if (!*copy)
                    return err_set(e, HEARTH_ENOMEM, "no memory to tokenize %zu bytes", n);
                memcpy(*copy, text, n);
                *out = *copy;
            }
            (*copy)[i] = 1;
            len = 1;
        }
        i += len;
    }
    return 0;
}

struct ends {
    uint32_t *v;
    size_t n, cap;
};

static int ends_push(struct ends *a, size_t end)
{
    if (a->n == a->cap) {
        size_t cap = a->cap ? a->cap * 2 : 256;
        uint32_t *v = realloc(a->v, cap * sizeof *v);
        if (!v)
            return HEARTH_ENOMEM;
        a->v = v;
        a->cap = cap;
    }
    a->v[a->n++] = (uint32_t)end;
    return 0;
}

/* The stretches of a text, matches and what is between them, that are yet to become words. */
struct cutter {
    int behavior;
    size_t from, done; /* text[from..from + done) is in stretches already */
    bool any, match;   /* there was a stretch, and the last one counts as a match */
    struct ends *out;
};

/* Whether a word ends between a stretch and the next one. */
static bool parts(int behavior, bool match, bool next)
{
    switch (behavior_of(behavior)) {
    case PRETOK_PREVIOUS:
        return match || !next;
    case PRETOK_NEXT:
        return !match || next;
    case PRETOK_CONTIGUOUS:
        return match != next;
    default:
        return true;
    }
}

/* Ends the word that the last stretch is in. Between two empty stretches, that may have been done. */
static int end_word(struct cutter *c)
{
    size_t last = c->out->n ? c->out->v[c->out->n - 1] & ~PRETOK_GONE : 0, end = c->from + c->done;
    bool gone = c->match && behavior_of(c->behavior) == PRETOK_REMOVED;
    return end > last ? ends_push(c->out, end | (gone ? PRETOK_GONE : 0)) : 0;
}

/* The next stretch, up to text[from + end]. */
static int stretch(struct cutter *c, size_t end, bool match)
{
    match ^= (c->behavior & PRETOK_INVERT) != 0;
    int ret = c->any && parts(c->behavior, c->match, match) ? end_word(c) : 0;
    c->any = true;
    c->match = match;
    c->done = end;
    return ret;
}

enum { PACE_MATCH = 16 }; /* what a match counts for, since it may look at far more than it takes */

/*
 * Splits text[from..to) into the matches of code and the stretches between them, and these into words. The pattern sees
 * nothing outside, so a lookahead takes `to` for the end of the text. An empty match is no word, but it cuts at its
 * position. Where an empty match is at the end of the last match, the search continues one character later, as in
 * Oniguruma's iterator, which runs the original patterns.
 */
static int cut(const pcre2_code *code, int behavior, pcre2_match_data *md, pcre2_match_context *mc, const char *text,
               size_t from, size_t to, struct ends *out, struct hearth_err *e)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text + from;
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(md);
    struct cutter c = {.behavior = behavior, .from = from, .out = out};
    size_t at = 0, len = to - from;
    int ret = 0;
    while (!ret && at < len) {
        if ((ret = pace(PACE_MATCH, e)))
            return ret;
        int rc = pcre2_match(code, subject, len, at, PCRE2_NO_UTF_CHECK, md, mc);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
            rc = pcre2_match(code, subject, len, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, md, mc);
        if (rc == PCRE2_ERROR_NOMATCH)
            break;
        if (rc < 0)
            return err_set(e, rc == PCRE2_ERROR_NOMEMORY ? HEARTH_ENOMEM : HEARTH_EPARAMS,
                           "the text at byte %zu cannot be cut into words (PCRE2 error %d)", from + at, rc);
        if (span[1] == c.done) { /* an empty match right after the last match */
            size_t character = utf8_char(subject + at, len - at);
            at += character ? character : 1;
            continue;
        }
        if (span[0] > c.done)
            ret = stretch(&c, span[0], false);
        if (!ret)
            ret = stretch(&c, span[1], true);
        at = c.done;
    }
    if (!ret && c.done < len)
        ret = stretch(&c, len, false);
    if (!ret)
        ret = end_word(&c);
    return ret ? err_set(e, HEARTH_ENOMEM, "no memory to tokenize") : 0;
}

/* Writes text in GPT-2's alphabet (see bpe.c), and the ends of its words as offsets in that. *out is malloc'd. */
static int to_letters(const char *text, size_t n, struct ends *ends, char **out, struct hearth_err *e)
{
    size_t w = 0, len = 0;
    char *s = n <= INT32_MAX / 2 ? malloc(2 * n + 1) : NULL;
    if (!s)
        return err_set(e, HEARTH_ENOMEM, "no memory to tokenize %zu bytes", n);
    for (size_t i = 0; i < n; i++) {
        unsigned b = (unsigned char)text[i], letter = b;
        if (b <= 0x20)
            letter = 0x100 + b;
        else if (b >= 0x7f && b <= 0xa0)
            letter = 0x121 + b - 0x7f;
        else if (b == 0xad)
            letter = 0x143;
        if (letter >= 0x80)
            s[len++] = (char)(0xc0 | letter >> 6);
        s[len++] = (char)(letter < 0x80 ? letter : 0x80 | (letter & 0x3f));
        for (; w < ends->n && (ends->v[w] & ~PRETOK_GONE) == i + 1; w++)
            ends->v[w] = (uint32_t)len | (ends->v[w] & PRETOK_GONE);
    }
    *out = s;
    return 0;
}

/* The reverse of to_letters() for the ends of words: a letter is a byte. */
static void from_letters(const char *letters, struct ends *ends)
{
    uint32_t bytes = 0;
    for (size_t w = 0, i = 0; w < ends->n; i++) {
        for (; w < ends->n && (ends->v[w] & ~PRETOK_GONE) == i; w++)
            ends->v[w] = bytes | (ends->v[w] & PRETOK_GONE);
        if (w < ends->n)
            bytes += (letters[i] & 0xc0) != 0x80;
    }
}

int pretok_split(const struct pretok *p, const char *text, size_t n, uint32_t **ends, size_t *n_word,
                 struct hearth_err *e)
{
    const char *seen;
    char *copy, *letters = NULL;
    int ret = pace(n, e);
    if (!ret)
        ret = as_utf8(text, n, &seen, &copy, e);
    if (ret)
        return ret;
    struct ends now = {0}, next = {0};
    pcre2_match_data *md = pcre2_match_data_create(1, NULL);
    pcre2_match_context *mc = pcre2_match_context_create(NULL);
    if (!md || !mc || (n && ends_push(&now, n))) {
        ret = err_set(e, HEARTH_ENOMEM, "no memory to tokenize");
        goto out;
    }
    pcre2_set_match_limit(mc, MATCH_LIMIT);
    pcre2_set_heap_limit(mc, HEAP_LIMIT_KIB);
    for (size_t i = 0; i < p->n; i++) {
        next.n = 0;
        if ((p->behavior[i] & PRETOK_LETTERS) && !letters && (ret = to_letters(text, n, &now, &letters, e)))
            goto out;
        for (size_t w = 0, from, to; w < now.n; w++) {
            if (pretok_word(now.v, w, &from, &to))
                ret = cut(p->code[i], p->behavior[i], md, mc, letters ? letters : seen, from, to, &next, e);
            else if (ends_push(&next, now.v[w]))
                ret = err_set(e, HEARTH_ENOMEM, "no memory to tokenize");
            if (ret)
                goto out;
        }
        struct ends swap = now;
        now = next;
        next = swap;
    }
    if (letters)
        from_letters(letters, &now);
    *ends = now.v;
    *n_word = now.n;
    now.v = NULL;
out:
    free(letters);
    free(now.v);
    free(next.v);
    free(copy);
    pcre2_match_data_free(md);
    pcre2_match_context_free(mc);
    return ret;
}

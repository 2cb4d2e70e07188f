/*
 * reasoning.c - reasoning and text for every family of markers, with expected parts written by hand: however the text
 * is cut into tokens, whether markers are special tokens or text, with stop strings, and from replayed tokens.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/front/text.h"

/* A vocabulary of the 256 bytes and, if `specials` is set, of the families' tokens from SPECIAL on. */
enum { SPECIAL = 1000 };
static bool specials;
static const char *const special[] = {"<think>",  "</think>",           "<|channel|>",      "<|message|>", "<|start|>",
                                      "<|end|>",  "<|constrain|>",      "<|channel>",       "<channel|>",  "[THINK]",
                                      "[/THINK]", "<|START_THINKING|>", "<|END_THINKING|>", NULL};

size_t tok_piece(const struct vocab *v, int32_t id, bool as_special, char *out, size_t cap)
{
    (void)v;
    assert_true(cap > 32);
    if (id >= SPECIAL && !as_special)
        return 0;
    if (id >= SPECIAL) {
        strcpy(out, special[id - SPECIAL]);
        return strlen(out);
    }
    out[0] = (char)id;
    return 1;
}

int32_t vocab_special(const struct vocab *v, const char *text)
{
    assert_non_null(v);
    for (int32_t i = 0; specials && special[i]; i++)
        if (!strcmp(text, special[i]))
            return SPECIAL + i;
    return -1;
}

static const struct vocab *const a_vocab = (const struct vocab *)"a vocabulary";

static const struct example {
    const char *family;
    bool open;
    const char *in, *reasoning, *text;
    enum { BOTH, AS_TEXT, AS_TOKENS } when;
} examples[] = {
    {"think", false, "<think>\nLet me see: 2 < 3.\n\nYes.\n</think>\n\nIt is 2.\n\nDone.\n",
     "Let me see: 2 < 3.\n\nYes.", "It is 2.\n\nDone.\n", BOTH},
    {"think", true, "\nhm </thin> </ think>\n</think>\n\nok", "hm </thin> </ think>", "ok", BOTH},
    {"think", true, "<think>\nagain</think>x", "again", "x", BOTH},
    {"think", false, "\n\n<think>\n\n</think>\n\nNo thoughts.", "", "No thoughts.", BOTH},
    {"think", false, "\n\nNo markers, <thin, <.\n", "", "\n\nNo markers, <thin, <.\n", BOTH},
    {"think", false, "Tags: <think> and </think>.", "", "Tags: <think> and </think>.", AS_TEXT},
    {"think", false, "Wait.<think>hm</think> Yes.</think>", "hm", "Wait. Yes.", AS_TOKENS},
    {"think", true, "never ends \xc3\xa9\n\n", "never ends \xc3\xa9\n\n", "", BOTH},
    {"think", true, "</think>", "", "", BOTH},
    {"think", false, "<think", "", "<think", AS_TEXT},
    {"harmony", false,
     "<|channel|>analysis<|message|>The user greets.\nGreet.<|end|><|start|>assistant<|channel|>final<|message|>Hello "
     "there.",
     "The user greets.\nGreet.", "Hello there.", BOTH},
    {"harmony", false, "<|channel|>final<|message|>At once.", "", "At once.", AS_TOKENS},
    {"harmony", false, "<|channel|>final <|constrain|>JSON<|message|>{\"a\":1}", "", "{\"a\":1}", BOTH},
    {"harmony", true, "a<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>{}", "a", "{}", BOTH},
    {"harmony", true,
     "a<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>analysis<|"
     "message|>b<|end|><|start|>assistant<|channel|>final<|message|>c",
     "ab", "I look.c", AS_TOKENS},
    {"harmony", true,
     "Call.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":1}",
     "Call.", "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":1}",
     AS_TOKENS},
    {"harmony", false,
     "<|start|>assistant<|channel|>analysis<|message|>x<|start|>assistant<|channel|>final<|message|>y", "x", "y",
     AS_TOKENS},
    {"gemma4", false, "<|channel>thought\nOne.\nTwo.\n<channel|>Three.", "One.\nTwo.", "Three.", BOTH},
    {"gemma4", false, "Three.<|channel>thought\nFour.<channel|>Five.", "Four.", "Three.Five.", AS_TOKENS},
    {"gemma4", false, "<|channel>thoughtless", "less", "", BOTH},
    {"gemma4", false, "<|channel>though", "", "<|channel>though", BOTH},
    {"mistral", false, "[THINK]Hm [1].[/THINK]Bien s\xc3\xbbr.", "Hm [1].", "Bien s\xc3\xbbr.", BOTH},
    {"mistral", true, "Hm [/THIN [/THINK]So.", "Hm [/THIN ", "So.", BOTH},
    {"cohere", true, "Plan.\n<|END_THINKING|>Answer.", "Plan.", "Answer.", BOTH},
};
enum { EXAMPLES = sizeof examples / sizeof *examples };

struct parts {
    char reasoning[1024], text[1024];
    int64_t n_tokens;
    bool stopped;
};

/* Takes what two calls returned, first text and then reasoning: no example depends on the order of the two within a
 * call. */
static void take(struct parts *p, const struct text *t, const char *s, size_t n)
{
    strncat(p->text, s, n);
    strncat(p->reasoning, t->n_thought ? t->thought : "", t->n_thought);
    assert_true(strlen(p->text) < 1000 && strlen(p->reasoning) < 1000);
}

/* Takes what is held back, as at the end of a generation. */
static void take_held(struct parts *p, struct text *t)
{
    struct hearth_err e;
    assert_int_equal(text_held(t, &e), 0);
    strncat(p->text, t->n_held ? t->held : "", t->n_held);
    strncat(p->reasoning, t->n_held_thought ? t->held_thought : "", t->n_held_thought);
    assert_true(strlen(p->text) < 1000 && strlen(p->reasoning) < 1000);
}

/* The special token at s, or -1. */
static int32_t special_at(const char *s)
{
    for (int32_t i = 0; specials && special[i]; i++)
        if (!strncmp(s, special[i], strlen(special[i])))
            return SPECIAL + i;
    return -1;
}

static void push(struct text *t, struct parts *p, const char *s, size_t n)
{
    const char *out;
    size_t len;
    struct hearth_err e;
    if (n && !t->stopped) {
        assert_int_equal(text_push_bytes(t, s, n, &out, &len, &e), 0);
        take(p, t, out, len);
    }
}

/* Pushes the input cut at a and b, and at its special tokens. */
static struct parts divide(const struct example *x, size_t a, size_t b, const char *stop)
{
    struct text t;
    struct parts p = {.n_tokens = 0};
    struct hearth_err e;
    const char *out;
    size_t n, from = 0, len = strlen(x->in);
    const struct reasoning_family *f = reasoning_family_named(x->family);
    assert_non_null(f);
    assert_int_equal(text_init(&t, a_vocab, &stop, stop != NULL, &e), 0);
    text_divide(&t, f, x->open);
    for (size_t at = 0; at < len;) {
        int32_t id = special_at(x->in + at);
        if (at == a || at == b || id >= 0) {
            push(&t, &p, x->in + from, at - from);
            from = at;
        }
        if (id < 0) {
            at++;
            continue;
        }
        if (!t.stopped) {
            assert_int_equal(text_push(&t, id, &out, &n, &e), 0);
            take(&p, &t, out, n);
        }
        from = at += strlen(special[id - SPECIAL]);
    }
    push(&t, &p, x->in + from, len - from);
    take_held(&p, &t);
    p.stopped = t.stopped;
    text_fini(&t);
    return p;
}

static void every_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * EXAMPLES; i++) {
        const struct example *x = &examples[i / 2];
        specials = i % 2;
        if ((x->when == AS_TEXT && specials) || (x->when == AS_TOKENS && !specials))
            continue;
        size_t len = strlen(x->in);
        for (size_t a = 0; a <= len; a++)
            for (size_t b = a; b <= len; b++) {
                struct parts p = divide(x, a, b, NULL);
                if (strcmp(p.text, x->text) || strcmp(p.reasoning, x->reasoning))
                    fail_msg("%s, %s, cut at %zu and %zu of\n%s\n\"%s\" and \"%s\"", x->family,
                             specials ? "tokens" : "text", a, b, x->in, p.reasoning, p.text);
            }
    }
}

/* Stop strings are matched against the text alone. */
static void stop_strings(void **state)
{
    (void)state;
    static const struct example x = {"think",        false,   "<think>\nno STOP here\n</think>\n\nOne. STOP two",
                                     "no STOP here", "One. ", BOTH};
    for (specials = false;; specials = true) {
        for (size_t a = 0; a <= strlen(x.in); a++) {
            struct parts p = divide(&x, a, a, "STOP");
            assert_string_equal(p.reasoning, x.reasoning);
            assert_string_equal(p.text, x.text);
            assert_true(p.stopped);
        }
        struct parts p = divide(&x, 0, 0, "</think>");
        assert_false(p.stopped);
        assert_string_equal(p.text, "One. STOP two");
        if (specials)
            break;
    }
}

/* The id at s, of a byte or of a special token. */
static int32_t next(const char **s)
{
    int32_t id = special_at(*s);
    *s += id < 0 ? 1 : (ptrdiff_t)strlen(special[id - SPECIAL]);
    return id < 0 ? (unsigned char)(*s)[-1] : id;
}

/* Cases with their number of reasoning tokens, as text and as special tokens. A replay of the first tokens continues in
 * the same way. */
static void tokens_and_replays(void **state)
{
    (void)state;
    static const struct {
        const char *family, *in;
        bool open;
        int64_t as_text, as_tokens; /* reasoning tokens */
    } cases[] = {{"think", "<think>\nab\n</think>\n\nc", false, 7 + 1 + 2 + 1 + 8, 1 + 1 + 2 + 1 + 1},
                 {"think", "ab</think>c", true, 2 + 8, 2 + 1},
                 {"think", "\n<thin", false, 0, 0},
                 {"harmony", "<|channel|>analysis<|message|>ab<|end|><|start|>assistant<|channel|>final<|message|>c",
                  false, 30 + 2 + 7, 1 + 8 + 1 + 2 + 1},
                 {"mistral", "a[THINK]b[/THINK]c", false, 0, 3}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const char *in = cases[i / 2].in;
        specials = i % 2;
        struct hearth_err e;
        const char *out;
        size_t n, many = 0;
        for (const char *s = in; *s; many++)
            next(&s);
        for (size_t replayed = 0; replayed <= many;
             replayed++) { /* these are replayed, and their output is discarded */
            struct text t;
            struct parts p = {.n_tokens = 0}, before = {.n_tokens = 0};
            const char *s = in;
            assert_int_equal(text_init(&t, a_vocab, NULL, 0, &e), 0);
            text_divide(&t, reasoning_family_named(cases[i / 2].family), cases[i / 2].open);
            for (size_t k = 0; *s; k++) {
                assert_int_equal(text_push(&t, next(&s), &out, &n, &e), 0);
                take(k < replayed ? &before : &p, &t, out, n);
            }
            take_held(&p, &t);
            assert_int_equal(t.reasoning.n_tokens, specials ? cases[i / 2].as_tokens : cases[i / 2].as_text);
            strcat(before.text, p.text);
            strcat(before.reasoning, p.reasoning);
            struct example x = {cases[i / 2].family, cases[i / 2].open, in, NULL, NULL, BOTH};
            struct parts whole = divide(&x, 0, 0, NULL);
            assert_string_equal(before.text, whole.text);
            assert_string_equal(before.reasoning, whole.reasoning);
            text_fini(&t);
        }
    }
}

/* At most some newlines and a possible marker are held back. */
static void what_is_held_back(void **state)
{
    (void)state;
    struct text t;
    struct hearth_err e;
    const char *out;
    size_t n;
    specials = false;
    assert_int_equal(text_init(&t, a_vocab, NULL, 0, &e), 0);
    text_divide(&t, reasoning_family_named("think"), true);
    assert_int_equal(text_push(&t, 'a', &out, &n, &e), 0);
    for (int i = 0; i < 100000; i++) {
        assert_int_equal(text_push(&t, '\n', &out, &n, &e), 0);
        assert_int_equal(n, 0);
        assert_int_equal(t.n_thought, i >= REASONING_NEWLINES);
        assert_int_equal(text_held(&t, &e), 0);
        assert_int_equal(t.n_held_thought, i < REASONING_NEWLINES ? i + 1 : REASONING_NEWLINES);
    }
    assert_int_equal(text_push(&t, 'b', &out, &n, &e), 0);
    assert_int_equal(t.n_thought, REASONING_NEWLINES + 1);
    assert_int_equal(t.thought[REASONING_NEWLINES], 'b');
    for (const char *s = "</thin"; *s; s++) {
        assert_int_equal(text_push(&t, *s, &out, &n, &e), 0);
        assert_int_equal(t.n_thought, 0);
    }
    assert_int_equal(text_push(&t, '!', &out, &n, &e), 0);
    assert_int_equal(t.n_thought, 7);
    assert_memory_equal(t.thought, "</thin!", 7);
    text_fini(&t);
}

static void families(void **state)
{
    (void)state;
    static const struct {
        const char *source, *family, *key;
    } cases[] = {
        {"{% if '</think>' in content %}{{ content.split('</think>')[-1] }}", "think", NULL},
        {"<think>{{ message.reasoning_content }}", "think", "reasoning_content"},
        {"<think>{{ message.thinking }}</think>", "think", "thinking"},
        {"<|channel|>analysis<|message|>{{ message.thinking }}", "harmony", "thinking"},
        {"'<|channel>thought' message.get('reasoning') or message.get('reasoning_content')", "gemma4",
         "reasoning_content"},
        {"[THINK]{{ block['thinking'] }}[/THINK]", "mistral", NULL},
        {"<|START_THINKING|>{{ msg.reasoning_content }}", "cohere", "reasoning_content"},
        {"{{ message.content }}", NULL, NULL},
    };
    specials = false;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].source);
        const char *before, *after, *key;
        const struct reasoning_family *f = reasoning_family_of(cases[i].source, n, a_vocab);
        assert_int_equal(f != NULL, cases[i].family != NULL);
        if (!f)
            continue;
        assert_string_equal(reasoning_family_name(f), cases[i].family);
        key = reasoning_key(f, cases[i].source, n, &before, &after);
        assert_string_equal(key ? key : "", cases[i].key ? cases[i].key : "");
    }
    specials = true; /* the vocabulary has all markers: the first family is chosen, also without a template */
    assert_string_equal(reasoning_family_name(reasoning_family_of(NULL, 0, a_vocab)), "harmony");
    const struct reasoning_family *f = reasoning_family_named("think");
    assert_true(reasoning_is_open(f, "a<think>\n", 9));
    assert_false(reasoning_is_open(f, "a<think>\n\n</think>\n\n", 20));
    assert_false(reasoning_is_open(f, "think>", 6));
    assert_null(reasoning_family_named("no such"));
    assert_null(reasoning_family_named(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut),         cmocka_unit_test(stop_strings), cmocka_unit_test(tokens_and_replays),
        cmocka_unit_test(what_is_held_back), cmocka_unit_test(families),
    };
    return cmocka_run_group_tests_name("reasoning", tests, NULL, NULL);
}

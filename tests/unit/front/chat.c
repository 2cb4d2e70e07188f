/*
 * chat.c - what messages append to a timeline, with the vocabularies of the source tree: turn by turn the timeline
 * equals the ids of the whole text, whatever a vocabulary does to spaces.
 */
#include "config.h"

#include "daemon/engine/front/chat.h"
#include "daemon/engine/front/rpc.h"
#include "libclient/hearth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const char chatml[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
/* Llama 2's template: spaces and BOS around each turn. */
static const char inst[] =
    "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token }}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }} {{ eos_token }}{% endif %}{% endfor %}";
static const char mistral[] =
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}";

static bool open_vocab(struct model_entry *m, const char *name)
{
    char path[4096];
    struct hearth_err e;
    const char *shared = getenv("HEARTH_SHARED");
    snprintf(path, sizeof path, "%s/vocab/%s", shared ? shared : "../shared", name);
    if (access(path, R_OK))
        return false;
    *m = (struct model_entry){.hp.n_ctx = 4096};
    if (gguf_open(&m->gguf, path, &e) || vocab_load(&m->vocab, m->gguf, &e))
        fail_msg("%s: %s", name, e.msg);
    return true;
}

static void push(struct ids *to, const struct ids *more)
{
    for (size_t i = 0; i < more->n; i++)
        assert_int_equal(ids_push(to, more->v[i]), 0);
}

/* Renders the messages after `kept` turns of them. The model's answer is given by the ids of its text, as a
 * continuation. */
static void talk(struct model_entry *m, const char *template, const char *lead)
{
    static const char *const said[] = {"Tell me a tale.",
                                       "Once upon  a time\nthere was a na\xc3\xafve king.",
                                       " And then?",
                                       "He died",
                                       "\tx = [1, 2];\n",
                                       "}\n\nYes.",
                                       "Bye"};
    enum { N = sizeof said / sizeof *said };
    struct wire_message all[N];
    struct wire_past_message past[N] = {{{NULL}}};
    struct ids line = {0}, whole = {0};
    struct hearth_err e = {0};
    for (int i = 0; i < N; i++)
        all[i] = (struct wire_message){.role = i % 2 ? "assistant" : "user", .content = hearth_text(said[i])};
    for (int i = 0; i < N; i++)
        past[i].message = all[i];
    for (int i = 0; i < N; i += 2) {
        struct wire_engine_generate g = {.history = {line.v, line.n}, .past = past, .n_past = (size_t)i};
        struct ids more = {0};
        struct prompt_told told = {0};
        g.req.messages = &all[i];
        g.req.n_messages = 1;
        g.req.chat_template = template;
        if (chat_append(&g, m, &more, &told, &e))
            fail_msg("%s", e.msg);
        assert_false(told.history_kept);
        push(&line, &more);
        if (i + 1 < N) { /* an answer begins as it does in the template's text */
            char answer[128];
            snprintf(answer, sizeof answer, "%s%s", lead, said[i + 1]);
            assert_int_equal(tok_encode(m->vocab, answer, strlen(answer), TOK_GOES_ON, &line, &e), 0);
        }
        ids_fini(&more);
    }
    struct wire_engine_generate g = {.n_past = 0};
    struct prompt_told told;
    g.req.messages = all;
    g.req.n_messages = N;
    g.req.chat_template = template;
    assert_int_equal(chat_append(&g, m, &whole, &told, &e), 0);
    char a[8192], b[8192];
    size_t n_a = 0, n_b = 0;
    for (size_t i = 0; i < line.n && n_a < sizeof a - 512; i++)
        n_a += tok_piece(m->vocab, line.v[i], true, a + n_a, sizeof a - n_a);
    for (size_t i = 0; i < whole.n && n_b < sizeof b - 512; i++)
        n_b += tok_piece(m->vocab, whole.v[i], true, b + n_b, sizeof b - n_b);
    if (n_a != n_b || memcmp(a, b, n_a))
        fail_msg("the timeline spells\n%.*s\nand the whole text\n%.*s", (int)n_a, a, (int)n_b, b);
    ids_fini(&line);
    ids_fini(&whole);
}

static void with(const char *name)
{
    struct model_entry m;
    if (!open_vocab(&m, name))
        skip();
    talk(&m, chatml, "");
    talk(&m, mistral, "");
    talk(&m, inst, " ");
    templates_free(m.templates);
    vocab_free(m.vocab);
    gguf_close(m.gguf);
}

/* Raw text that is given in pieces: the timeline spells them one after the other, with nothing in between. */
static void test_pieces(void **state)
{
    (void)state;
    static const char *const said[] = {"Hel", "lo world", " and", "\n", "more", "<s>", "x"};
    struct model_entry m;
    struct ids line = {0};
    struct hearth_err e = {0};
    char whole[128] = "", got[128];
    size_t n = 0;
    if (!open_vocab(&m, "llama-spm.gguf"))
        skip();
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        struct wire_engine_generate g = {.history = {line.v, line.n}};
        struct ids more = {0};
        struct prompt_told told;
        g.req.text = hearth_text(said[i]);
        if (prompt_make(&g, &m, &more, &told, &e))
            fail_msg("%s", e.msg);
        push(&line, &more);
        ids_fini(&more);
        strcat(whole, said[i]);
    }
    assert_int_equal(line.v[0], vocab_bos(m.vocab));
    for (size_t i = 0; i < line.n; i++)
        n += tok_piece(m.vocab, line.v[i], false, got + n, sizeof got - n);
    assert_true(tok_adds_space(m.vocab) && n > 0 && got[0] == ' '); /* the one at the start */
    assert_int_equal(n - 1, strlen(whole));
    assert_memory_equal(got + 1, whole, n - 1);
    ids_fini(&line);
    vocab_free(m.vocab);
    gguf_close(m.gguf);
}

static void test_bpe(void **state)
{
    (void)state;
    with("llama-bpe.gguf");
}

static void test_gpt_2(void **state)
{
    (void)state;
    with("gpt-2.gguf");
}

static void test_spm(void **state)
{
    (void)state;
    with("llama-spm.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe),
        cmocka_unit_test(test_gpt_2),
        cmocka_unit_test(test_spm),
        cmocka_unit_test(test_pieces),
    };
    return cmocka_run_group_tests_name("chat", tests, NULL, NULL);
}

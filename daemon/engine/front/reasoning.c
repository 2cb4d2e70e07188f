/* reasoning.c - see reasoning.h. Any thread. */
#include "config.h" /* memmem */

#include "daemon/engine/front/reasoning.h"

#include <string.h>

static const char EXACT = '\xff'; /* does not occur in UTF-8 */

struct reasoning_family {
    const char *name;
    const char *sign[2];                  /* a template that contains one of them is of this family */
    const char *tokens[REASONING_TOKENS]; /* of the markers; a vocabulary with the first one is of this family */
    /* No marker is a prefix of another one. After `skip` comes text. */
    const char *open[2], *close, *skip[8];
    const char *think, *no_think; /* variables of the template */
    const char *before, *after;   /* what encloses the reasoning in a template's rendering of an answer */
};

#define SWITCH(value) "\"enable_thinking\":" value ",\"thinking\":" value ",\"reasoning\":" value

/* In the order in which they are tried. */
static const struct reasoning_family families[] = {
    {
        .name = "harmony",
        .sign = {"<|channel|>"},
        .tokens = {"<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>"},
        .open = {"<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>analysis<|message|>"},
        .close = "<|end|>",
        .skip = {"<|channel|>final<|message|>", "<|start|>assistant<|channel|>final<|message|>",
                 "<|channel|>commentary<|message|>", "<|start|>assistant<|channel|>commentary<|message|>",
                 /* an answer in JSON */
                 "<|channel|>final <|constrain|>json<|message|>", "<|channel|>final <|constrain|>JSON<|message|>",
                 "<|start|>assistant<|channel|>final <|constrain|>json<|message|>",
                 "<|start|>assistant<|channel|>final <|constrain|>JSON<|message|>"},
        .think = "\"reasoning_effort\":\"medium\"",
        .no_think = "\"reasoning_effort\":\"low\"", /* the lowest level there is */
        .before = "<|channel|>analysis<|message|>",
        .after = "<|end|><|start|>assistant<|channel|>final<|message|>",
    },
    {
        .name = "gemma4",
        .sign = {"<|channel>"},
        .tokens = {"<|channel>", "<channel|>"},
        .open = {"<|channel>thought"},
        .close = "<channel|>",
        .think = SWITCH("true"),
        .no_think = SWITCH("false"),
        .before = "<|channel>thought\n",
        .after = "\n<channel|>",
    },
    {
        .name = "mistral",
        .sign = {"[THINK]"},
        .tokens = {"[THINK]", "[/THINK]"},
        .open = {"[THINK]"},
        .close = "[/THINK]",
        .think = SWITCH("true"),
        .no_think = SWITCH("false"),
        .before = "[THINK]",
        .after = "[/THINK]",
    },
    {
        .name = "cohere",
        .sign = {"<|START_THINKING|>"},
        .tokens = {"<|START_THINKING|>", "<|END_THINKING|>"},
        .open = {"<|START_THINKING|>"},
        .close = "<|END_THINKING|>",
        .think = SWITCH("true"),
        .no_think = SWITCH("false"),
        .before = "<|START_THINKING|>",
        .after = "<|END_THINKING|>",
    },
    {
        .name = "think",
        .sign = {"</think>", "<think>"},
        .tokens = {"<think>", "</think>"},
        .open = {"<think>"},
        .close = "</think>",
        .think = SWITCH("true"),
        .no_think = SWITCH("false"),
        .before = "<think>\n",
        .after = "\n</think>\n\n",
    },
};
enum { FAMILIES = sizeof families / sizeof *families };

/* --- the family of a model ------------------------------------------------------------------------------------- */

static bool has(const char *s, size_t n, const char *word)
{
    return s && memmem(s, n, word, strlen(word));
}

const struct reasoning_family *reasoning_family_of(const char *source, size_t n, const struct vocab *v)
{
    for (size_t i = 0; i < FAMILIES; i++)
        for (size_t k = 0; k < 2 && families[i].sign[k]; k++)
            if (has(source, n, families[i].sign[k]))
                return &families[i];
    for (size_t i = 0; i < FAMILIES && v; i++)
        if (vocab_special(v, families[i].tokens[0]) >= 0)
            return &families[i];
    return NULL;
}

const struct reasoning_family *reasoning_family_named(const char *name)
{
    for (size_t i = 0; i < FAMILIES && name; i++)
        if (!strcmp(families[i].name, name))
            return &families[i];
    return NULL;
}

const struct reasoning_family *reasoning_family_at(size_t i)
{
    return i < FAMILIES ? &families[i] : NULL;
}

const char *reasoning_family_name(const struct reasoning_family *f)
{
    return f->name;
}

bool reasoning_is_open(const struct reasoning_family *f, const char *prompt, size_t n)
{
    while (n && (prompt[n - 1] == '\n' || prompt[n - 1] == ' '))
        n--;
    for (size_t i = 0; i < 2 && f->open[i]; i++) {
        size_t len = strlen(f->open[i]);
        if (n >= len && !memcmp(prompt + n - len, f->open[i], len))
            return true;
    }
    return false;
}

const char *reasoning_switches(const struct reasoning_family *f, bool think)
{
    if (f)
        return think ? f->think : f->no_think;
    return think ? SWITCH("true") : SWITCH("false");
}

const char *reasoning_key(const struct reasoning_family *f, const char *source, size_t n, const char **before,
                          const char **after)
{
    static const char *const keys[][3] = {/* a key, and how templates refer to it */
                                          {"reasoning_content", "reasoning_content", NULL},
                                          {"thinking", "message.thinking", "message['thinking']"},
                                          {"reasoning", "message.reasoning", "message['reasoning']"}};
    *before = f->before;
    *after = f->after;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        for (size_t k = 1; k < 3 && keys[i][k]; k++)
            if (has(source, n, keys[i][k]))
                return keys[i][0];
    return NULL;
}

/* --- dividing -------------------------------------------------------------------------------------------------- */

/* Adds a marker in the form in which it arrives with this vocabulary: EXACT before each token that is a special one. */
static void add(struct reasoning *r, int kind, const char *s)
{
    struct reasoning_mark *m = &r->mark[r->n_mark++];
    *m = (struct reasoning_mark){.kind = kind};
    while (*s) {
        for (size_t i = 0; i < REASONING_TOKENS && r->family->tokens[i]; i++)
            if (r->special[i] >= 0 && !strncmp(s, r->family->tokens[i], strlen(r->family->tokens[i])))
                m->s[m->n++] = EXACT;
        m->s[m->n++] = *s++;
    }
}

void reasoning_begin(struct reasoning *r, const struct reasoning_family *f, const struct vocab *v, bool open)
{
    *r = (struct reasoning){.family = f, .state = open ? REASONING_THINK : REASONING_START, .fresh = open};
    r->touched = open;
    if (!f)
        return;
    for (size_t i = 0; i < REASONING_TOKENS; i++)
        r->special[i] = v && f->tokens[i] ? vocab_special(v, f->tokens[i]) : -1;
    for (size_t i = 0; i < 2 && f->open[i]; i++)
        add(r, MARK_OPEN, f->open[i]);
    add(r, MARK_CLOSE, f->close);
    for (size_t i = 0; i < sizeof f->skip / sizeof *f->skip && f->skip[i]; i++)
        add(r, MARK_SKIP, f->skip[i]);
}

const char *reasoning_token(const struct reasoning *r, int32_t id)
{
    for (size_t i = 0; i < REASONING_TOKENS && r->family; i++)
        if (r->special[i] >= 0 && r->special[i] == id)
            return r->family->tokens[i];
    return NULL;
}

size_t reasoning_held(const struct reasoning *r)
{
    return r->n_part + r->n_newline;
}

static void put(const struct reasoning *r, char c, struct reasoning_out *out)
{
    if (r->state == REASONING_THINK)
        out->thought[out->n_thought++] = c;
    else
        out->text[out->n_text++] = c;
}

/* Outputs a byte that belongs to no marker, or holds it back if it is a newline that may belong to one. */
static void give(struct reasoning *r, char c, struct reasoning_out *out)
{
    if (c == '\n' && (r->state != REASONING_TEXT || r->fresh)) {
        bool held = r->state == REASONING_START || !r->fresh;
        if (held && r->n_newline == REASONING_NEWLINES)
            put(r, '\n', out);
        else
            r->n_newline += held;
        return;
    }
    if (r->state == REASONING_START)
        r->state = REASONING_TEXT;
    r->fresh = false;
    for (; r->n_newline; r->n_newline--)
        put(r, '\n', out);
    if (c != EXACT)
        put(r, c, out);
}

static bool counts(const struct reasoning *r, const struct reasoning_mark *m)
{
    if (memchr(m->s, EXACT, m->n) || (m->kind == MARK_CLOSE && r->state == REASONING_THINK))
        return true;
    return m->kind != MARK_CLOSE && (r->state == REASONING_START || r->fresh);
}

/* A closing marker without an opening one is a mistake of the model, and is not shown. */
static void act(struct reasoning *r, const struct reasoning_mark *m)
{
    r->state = m->kind == MARK_OPEN ? REASONING_THINK : REASONING_TEXT;
    r->touched |= m->kind == MARK_OPEN;
    r->fresh = true;
    r->n_newline = 0;
    r->n_part = 0;
}

/* Outputs the bytes that begin no marker, or acts on a complete one. */
static void settle(struct reasoning *r, struct reasoning_out *out)
{
    while (r->n_part) {
        bool begins = false;
        for (size_t i = 0; i < r->n_mark && !begins; i++) {
            const struct reasoning_mark *m = &r->mark[i];
            begins = counts(r, m) && r->n_part <= m->n && !memcmp(m->s, r->part, r->n_part);
            if (begins && r->n_part == m->n) {
                act(r, m);
                return;
            }
        }
        if (begins)
            return;
        char first = r->part[0];
        memmove(r->part, r->part + 1, --r->n_part);
        give(r, first, out);
    }
}

static void feed(struct reasoning *r, char c, struct reasoning_out *out)
{
    r->part[r->n_part++] = c;
    settle(r, out);
}

void reasoning_feed(struct reasoning *r, const char *s, size_t n, bool exact, struct reasoning_out *out)
{
    if (exact)
        feed(r, EXACT, out);
    for (size_t i = 0; i < n; i++)
        feed(r, s[i], out);
}

void reasoning_end(struct reasoning *r, struct reasoning_out *out)
{
    for (size_t i = 0; i < r->n_part; i++)
        give(r, r->part[i], out);
    r->n_part = 0;
    for (; r->n_newline; r->n_newline--)
        put(r, '\n', out);
}

void reasoning_count(struct reasoning *r)
{
    if (!r->family)
        return;
    r->n_waiting++;
    if (r->touched)
        r->n_tokens += r->n_waiting;
    if (r->touched || !reasoning_held(r))
        r->n_waiting = 0;
    r->touched = r->state == REASONING_THINK;
}

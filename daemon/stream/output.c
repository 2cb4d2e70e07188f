/* output.c - ids, text and logprobs of a generation; see output.h. Pure. */
#include "daemon/stream/output.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_TOKENS = 1024, PIECE_BYTES = 64 << 10 };

void output_fini(struct output *o)
{
    for (size_t i = 0; i < o->n_logprobs; i++)
        free(o->logprobs[i].top);
    free(o->logprobs);
    free(o->ids);
    free(o->text);
    free(o->reasoning);
    free(o->marks);
    free(o->held);
    *o = (struct output){0};
}

/* Makes room for n more elements after the first `used`. */
static int reserve(void **v, size_t size, size_t used, size_t *cap, size_t n, struct hearth_err *e)
{
    if (*cap - used >= n)
        return 0;
    size_t want = *cap * 2 > used + n ? *cap * 2 : used + n + 16;
    void *grown = reallocarray(*v, want, size);
    if (!grown)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    *v = grown;
    *cap = want;
    return 0;
}

/* The copy is one allocation: the alternatives, then the bytes of their texts. */
static int copy_logprobs(struct wire_token_logprobs *to, const struct wire_token_logprobs *from, struct hearth_err *e)
{
    size_t bytes = 0;
    for (size_t i = 0; i < from->n_top; i++)
        bytes += from->top[i].text.len + 1;
    *to = *from;
    to->top = malloc(from->n_top * sizeof *to->top + bytes + 1);
    if (!to->top)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    char *p = (char *)(to->top + from->n_top);
    for (size_t i = 0; i < from->n_top; i++) {
        to->top[i] = from->top[i];
        if (!from->top[i].text.data)
            continue;
        memcpy(p, from->top[i].text.data, from->top[i].text.len);
        p[from->top[i].text.len] = '\0';
        to->top[i].text.data = p;
        p += from->top[i].text.len + 1;
    }
    return 0;
}

static void append(char *to, size_t *n, const struct wire_bytes *text)
{
    if (text->len > 0)
        memcpy(to + *n, text->data, text->len);
    *n += text->len;
    to[*n] = '\0';
}

int output_append(struct output *o, const struct wire_engine_tokens *t, struct hearth_err *e)
{
    const struct wire_ids *ids = &t->tokens;
    size_t n_logprobs = t->n_logprobs, n_held = t->held.len + t->held_reasoning.len;
    int rc = reserve((void **)&o->ids, sizeof *o->ids, o->n_ids, &o->cap_ids, ids->n, e);
    if (!rc)
        rc = reserve((void **)&o->text, 1, o->n_text, &o->cap_text, t->text.len + 1, e);
    if (!rc)
        rc = reserve((void **)&o->reasoning, 1, o->n_reasoning, &o->cap_reasoning, t->reasoning.len + 1, e);
    if (!rc)
        rc = reserve((void **)&o->marks, sizeof *o->marks, o->n_marks, &o->cap_marks, 1, e);
    if (!rc && n_held > 0)
        rc = reserve((void **)&o->held, 1, 0, &o->cap_held, n_held + 1, e);
    if (!rc && n_logprobs > 0)
        rc = reserve((void **)&o->logprobs, sizeof *o->logprobs, o->n_logprobs, &o->cap_logprobs, n_logprobs, e);
    for (size_t i = 0; !rc && i < n_logprobs; i++) {
        rc = copy_logprobs(&o->logprobs[o->n_logprobs], &t->logprobs[i], e);
        o->n_logprobs += rc == 0;
    }
    if (rc)
        return rc;
    if (ids->n > 0)
        memcpy(o->ids + o->n_ids, ids->v, ids->n * sizeof *ids->v);
    o->n_ids += ids->n;
    append(o->text, &o->n_text, &t->text);
    append(o->reasoning, &o->n_reasoning, &t->reasoning);
    o->n_held = t->held.len;
    o->n_held_reasoning = t->held_reasoning.len;
    if (o->n_held > 0)
        memcpy(o->held, t->held.data, o->n_held);
    if (o->n_held_reasoning > 0)
        memcpy(o->held + o->n_held, t->held_reasoning.data, o->n_held_reasoning);
    if (t->reasoning_tokens > o->reasoning_tokens)
        o->reasoning_tokens = t->reasoning_tokens;
    o->marks[o->n_marks++] = (struct output_mark){.ids = o->n_ids, .text = o->n_text, .reasoning = o->n_reasoning};
    return 0;
}

struct wire_bytes output_reasoning(const struct output *o)
{
    return (struct wire_bytes){.data = o->n_reasoning ? o->reasoning : NULL, .len = o->n_reasoning};
}

struct wire_bytes output_held(const struct output *o)
{
    return (struct wire_bytes){.data = o->n_held ? o->held : NULL, .len = o->n_held};
}

struct wire_bytes output_held_reasoning(const struct output *o)
{
    return (struct wire_bytes){.data = o->n_held_reasoning ? o->held + o->n_held : NULL, .len = o->n_held_reasoning};
}

static bool same(const struct output_mark *a, const struct output_mark *b)
{
    return a->ids == b->ids && a->text == b->text && a->reasoning == b->reasoning;
}

bool output_next(const struct output *o, struct output_cursor *cursor, struct wire_stream_tokens *f)
{
    struct output_mark from = {.ids = cursor->ids, .text = cursor->text, .reasoning = cursor->reasoning}, to = from;
    while (cursor->mark < o->n_marks) {
        const struct output_mark *m = &o->marks[cursor->mark];
        bool again =
            to.text > from.text && m->reasoning > to.reasoning; /* reasoning that follows text begins a new piece */
        bool much =
            m->ids - from.ids > PIECE_TOKENS || m->text - from.text + (m->reasoning - from.reasoning) > PIECE_BYTES;
        if (!same(&to, &from) && (again || much))
            break;
        to = *m;
        cursor->mark++;
    }
    if (same(&to, &from))
        return false;
    cursor->ids = to.ids;
    cursor->text = to.text;
    cursor->reasoning = to.reasoning;
    f->index = (int64_t)from.ids;
    f->count = (int64_t)(to.ids - from.ids);
    f->tokens = (struct wire_ids){.v = o->ids + from.ids, .n = to.ids - from.ids};
    f->text = (struct wire_bytes){.data = o->text + from.text, .len = to.text - from.text};
    f->reasoning = (struct wire_bytes){0};
    if (to.reasoning > from.reasoning)
        f->reasoning = (struct wire_bytes){.data = o->reasoning + from.reasoning, .len = to.reasoning - from.reasoning};
    f->logprobs = NULL;
    f->n_logprobs = 0;
    if (o->n_logprobs >= to.ids && to.ids > from.ids) {
        f->logprobs = o->logprobs + from.ids;
        f->n_logprobs = to.ids - from.ids;
    }
    return true;
}

void output_seek(const struct output *o, size_t from, struct output_cursor *cursor)
{
    size_t low = 0, high = o->n_marks;
    while (low < high) { /* finds the first mark at or after `from` */
        size_t mid = low + (high - low) / 2;
        if (o->marks[mid].ids < from)
            low = mid + 1;
        else
            high = mid;
    }
    *cursor = (struct output_cursor){0};
    if (from == 0)
        return;
    const struct output_mark none = {0}, *before = low > 0 ? &o->marks[low - 1] : &none;
    bool at = low < o->n_marks && o->marks[low].ids == from;
    if (at)
        before = &o->marks[low];
    *cursor = (struct output_cursor){.ids = low < o->n_marks ? from : o->n_ids,
                                     .text = before->text,
                                     .reasoning = before->reasoning,
                                     .mark = low + at};
}

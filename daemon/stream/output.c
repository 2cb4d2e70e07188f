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
    free(o->marks);
    *o = (struct output){0};
}

/* Makes room for n more elements behind the first `used`. */
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

/* The copy is one block: the alternatives, then the bytes of their texts. */
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

int output_append(struct output *o, const struct wire_ids *ids, const struct wire_bytes *text,
                  const struct wire_token_logprobs *logprobs, size_t n_logprobs, struct hearth_err *e)
{
    int rc = reserve((void **)&o->ids, sizeof *o->ids, o->n_ids, &o->cap_ids, ids->n, e);
    if (!rc)
        rc = reserve((void **)&o->text, 1, o->n_text, &o->cap_text, text->len + 1, e);
    if (!rc)
        rc = reserve((void **)&o->marks, sizeof *o->marks, o->n_marks, &o->cap_marks, 1, e);
    if (!rc && n_logprobs > 0)
        rc = reserve((void **)&o->logprobs, sizeof *o->logprobs, o->n_logprobs, &o->cap_logprobs, n_logprobs, e);
    for (size_t i = 0; !rc && i < n_logprobs; i++) {
        rc = copy_logprobs(&o->logprobs[o->n_logprobs], &logprobs[i], e);
        o->n_logprobs += rc == 0;
    }
    if (rc)
        return rc;
    if (ids->n > 0)
        memcpy(o->ids + o->n_ids, ids->v, ids->n * sizeof *ids->v);
    o->n_ids += ids->n;
    if (text->len > 0)
        memcpy(o->text + o->n_text, text->data, text->len);
    o->n_text += text->len;
    o->text[o->n_text] = '\0';
    o->marks[o->n_marks++] = (struct output_mark){.ids = o->n_ids, .text = o->n_text};
    return 0;
}

bool output_next(const struct output *o, struct output_cursor *cursor, struct wire_stream_tokens *f)
{
    struct output_mark from = {.ids = cursor->ids, .text = cursor->text}, to = from;
    while (cursor->mark < o->n_marks) {
        const struct output_mark *m = &o->marks[cursor->mark];
        bool first = to.ids == from.ids && to.text == from.text;
        if (!first && (m->ids - from.ids > PIECE_TOKENS || m->text - from.text > PIECE_BYTES))
            break;
        to = *m;
        cursor->mark++;
    }
    if (to.ids == from.ids && to.text == from.text)
        return false;
    cursor->ids = to.ids;
    cursor->text = to.text;
    f->index = (int64_t)from.ids;
    f->count = (int64_t)(to.ids - from.ids);
    f->tokens = (struct wire_ids){.v = o->ids + from.ids, .n = to.ids - from.ids};
    f->text = (struct wire_bytes){.data = o->text + from.text, .len = to.text - from.text};
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
    while (low < high) { /* the first mark at or behind `from` */
        size_t mid = low + (high - low) / 2;
        if (o->marks[mid].ids < from)
            low = mid + 1;
        else
            high = mid;
    }
    *cursor = (struct output_cursor){0};
    if (from == 0)
        return;
    *cursor = (struct output_cursor){.ids = from, .text = low > 0 ? o->marks[low - 1].text : 0, .mark = low};
    if (low == o->n_marks)
        cursor->ids = o->n_ids;
    else if (o->marks[low].ids == from)
        *cursor = (struct output_cursor){.ids = from, .text = o->marks[low].text, .mark = low + 1};
}

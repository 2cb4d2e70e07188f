/* past.c - see past.h. */
#include "daemon/stream/past.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/store/generation-info.h"

void past_fini(struct past *p)
{
    for (size_t i = 0; p->joined && p->blocks && i < p->n; i++) {
        free(p->joined[i]);
        wire_free(p->blocks[i]);
    }
    free(p->joined);
    free(p->blocks);
    free(p->v);
    store_turns_free(p->turns, p->n_turns);
    *p = (struct past){0};
}

/* Adds a turn's text to the content of the last message. */
static int join(struct past *p, const struct store_turn *t, struct hearth_err *e)
{
    struct wire_bytes *content = &p->v[p->n - 1].message.content;
    char *text = malloc(content->len + t->len + 1);
    if (!text)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    if (content->len)
        memcpy(text, content->data, content->len);
    if (t->len)
        memcpy(text + content->len, t->text, t->len);
    free(p->joined[p->n - 1]);
    p->joined[p->n - 1] = text;
    p->v[p->n - 1].message.json = NULL; /* of an answer that raw text has extended, so it no longer fits */
    *content = (struct wire_bytes){.data = text, .len = content->len + t->len};
    return 0;
}

static void add(struct past *p, const struct store_turn *t)
{
    struct wire_past_message *to = &p->v[p->n];
    struct wire_turn_generation *g = generation_info_of(t);
    to->message =
        (struct wire_message){.role = t->role, .content = {.data = t->text, .len = t->len}, .json = t->message};
    if (g)
        to->reasoning = g->reasoning;
    p->blocks[p->n++] = g;
}

int past_read(struct server *s, const struct store_session *row, struct past *out, struct hearth_err *e)
{
    struct past p = {0};
    int rc = store_turns(s->store, row, &p.turns, &p.n_turns, e);
    if (rc)
        return rc;
    p.v = calloc(p.n_turns + 1, sizeof *p.v);
    p.joined = calloc(p.n_turns + 1, sizeof *p.joined);
    p.blocks = calloc(p.n_turns + 1, sizeof *p.blocks);
    if (!p.v || !p.joined || !p.blocks)
        rc = err_set(e, HEARTH_ENOMEM, "out of memory");
    for (size_t i = 0; i < p.n_turns && !rc; i++) {
        const struct store_turn *t = &p.turns[i];
        if (!store_is_raw_role(t->role))
            add(&p, t);
        else if (p.n)
            rc = join(&p, t, e);
        else
            p.at += (int64_t)t->n_ids;
    }
    if (rc)
        past_fini(&p);
    else
        *out = p;
    return rc;
}

/* generation-info.c - converts turns between the store and the wire; see generation-info.h. */
#include "daemon/store/generation-info.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"

int generation_info_pack(const struct wire_turn_generation *info, struct wire_buf *b, struct hearth_err *e)
{
    return wire_pack_event(b, &wire_methods[WIRE_TURN_GENERATION], info, NULL, NULL, e);
}

/* Databases written before 0.1.0 have the event under its old name, turn.made; the fields are the same. */
static bool is_generation_info(const struct wire_frame *f)
{
    static const char old[] = "turn.made";
    return wire_method_find(f->method, f->method_len) == &wire_methods[WIRE_TURN_GENERATION] ||
           (f->method_len == sizeof old - 1 && !memcmp(f->method, old, sizeof old - 1));
}

/* NULL if the bytes are not what this or an older version of generation_info_pack() writes. */
static void *unpack(const uint8_t *data, size_t len)
{
    struct wire_scan scan = {0};
    struct wire_frame f;
    struct hearth_err e;
    void *info = NULL;
    if (wire_scan(&scan, data, len, WIRE_FRAME_MAX, &e) == (ptrdiff_t)len && wire_frame_open(&f, data, len, &e) == 0 &&
        is_generation_info(&f) &&
        wire_unpack(wire_methods[WIRE_TURN_GENERATION].params, f.body, f.body_len, &info, &e) == 0)
        return info;
    log_warn("the session database has a turn whose generation metadata cannot be read");
    return NULL;
}

struct wire_turn_generation *generation_info_of(const struct store_turn *t)
{
    return t->generation ? unpack(t->generation, t->generation_len) : NULL;
}

int generation_turns(const struct store_turn *turns, size_t n, bool whole, struct generation_turns *out,
                     struct hearth_err *e)
{
    struct wire_turn_generation none;
    wire_defaults(wire_methods[WIRE_TURN_GENERATION].params, &none);
    *out = (struct generation_turns){.n = n};
    out->v = calloc(n + 1, sizeof *out->v);
    out->blocks = calloc(n + 1, sizeof *out->blocks);
    if (!out->v || !out->blocks) {
        generation_turns_fini(out);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        const struct store_turn *t = &turns[i];
        struct wire_turn *w = &out->v[i];
        w->generation = none.info;
        w->role = t->role;
        w->text = (struct wire_bytes){.data = t->text, .len = t->len};
        w->n_tokens = (int64_t)t->n_ids;
        w->created = t->created;
        w->message = t->message;
        if (whole) {
            w->tokens = (struct wire_ids){.v = t->ids, .n = t->n_ids};
            w->continues = t->continues;
        }
        out->blocks[i] = generation_info_of(t);
        w->has_generation = out->blocks[i] != NULL;
        if (w->has_generation) {
            const struct wire_turn_generation *g = out->blocks[i];
            w->generation = g->info;
            w->reasoning = g->reasoning;
        }
    }
    return 0;
}

void generation_turns_fini(struct generation_turns *t)
{
    for (size_t i = 0; t->blocks != NULL && i < t->n; i++)
        wire_free(t->blocks[i]);
    free(t->blocks);
    free(t->v);
    *t = (struct generation_turns){0};
}

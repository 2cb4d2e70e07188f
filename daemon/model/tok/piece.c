/* piece.c - a vocabulary's pieces: a hash table by their bytes, and pieces beyond the tokens, which merges need. */
#include "daemon/model/tok/tok-internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

static uint32_t *map_slot(const struct vocab *v, const char *s, size_t n)
{
    const struct piece_map *m = &v->map;
    for (size_t at = XXH3_64bits_withSeed(s, n, m->seed) & m->mask;; at = (at + 1) & m->mask) {
        uint32_t *slot = &m->slot[at];
        if (!*slot || (v->piece[*slot - 1].n == n && !memcmp(v->piece[*slot - 1].s, s, n)))
            return slot;
    }
}

void piece_prefetch(const struct vocab *v, const char *s, size_t n, int stage)
{
    const uint32_t *slot = &v->map.slot[XXH3_64bits_withSeed(s, n, v->map.seed) & v->map.mask];
    if (stage == 0)
        __builtin_prefetch(slot);
    else if (stage == 1 && *slot)
        __builtin_prefetch(&v->piece[*slot - 1]);
    else if (stage == 2 && *slot)
        __builtin_prefetch(v->piece[*slot - 1].s);
}

int32_t piece_find(const struct vocab *v, const char *text, size_t n)
{
    return n > v->max_len ? -1 : (int32_t)*map_slot(v, text, n) - 1;
}

static int map_resize(struct vocab *v, size_t cap)
{
    struct piece_map old = v->map;
    v->map.slot = calloc(cap, sizeof *v->map.slot);
    if (!v->map.slot) {
        v->map = old;
        return HEARTH_ENOMEM;
    }
    v->map.mask = cap - 1;
    for (size_t i = 0; old.slot && i <= old.mask; i++)
        if (old.slot[i])
            *map_slot(v, v->piece[old.slot[i] - 1].s, v->piece[old.slot[i] - 1].n) = old.slot[i];
    free(old.slot);
    return 0;
}

int piece_index(struct vocab *v, struct hearth_err *e)
{
    int ret;
    size_t cap = 16;
    while (cap < 2 * (size_t)v->n_piece)
        cap *= 2;
    if (map_resize(v, cap))
        return err_set(e, HEARTH_ENOMEM, "no memory for %u tokens", v->n_piece);
    for (uint32_t i = 0; i < v->n_piece; i++) {
        const struct piece *p = &v->piece[i];
        if ((ret = pace(sizeof *p + p->n, e)))
            return ret;
        if (!p->in_text || !p->n)
            continue;
        uint32_t *slot = map_slot(v, p->s, p->n);
        if (!*slot) { /* of tokens with equal text, the first is used */
            *slot = i + 1;
            v->map.n++;
        }
        v->max_len = p->n > v->max_len ? p->n : v->max_len;
    }
    return 0;
}

int piece_intern(struct vocab *v, const char *s, size_t n, uint32_t *id)
{
    uint32_t *slot = map_slot(v, s, n);
    if (*slot) {
        *id = *slot - 1;
        return 0;
    }
    if (2 * (v->map.n + 1) > v->map.mask) {
        if (map_resize(v, 2 * (v->map.mask + 1)))
            return HEARTH_ENOMEM;
        slot = map_slot(v, s, n);
    }
    if (v->n_piece == v->cap_piece) {
        uint32_t cap = v->cap_piece * 2;
        struct piece *piece = realloc(v->piece, cap * sizeof *piece);
        if (!piece)
            return HEARTH_ENOMEM;
        v->piece = piece;
        v->cap_piece = cap;
    }
    char *copy = malloc(n); /* rare: a sound vocabulary has a token for each part of each merge */
    if (!copy)
        return HEARTH_ENOMEM;
    memcpy(copy, s, n);
    v->piece[v->n_piece] = (struct piece){.s = copy, .n = (uint32_t)n};
    *id = v->n_piece++;
    *slot = *id + 1;
    v->map.n++;
    return 0;
}

int tok_hash(const struct vocab *v, const int32_t *ids, size_t n, char out[static TOK_HASH], struct hearth_err *e)
{
    XXH3_state_t *s = XXH3_createState();
    if (!s)
        return err_set(e, HEARTH_ENOMEM, "no memory for a hash");
    XXH3_128bits_reset(s);
    XXH3_128bits_update(s, &v->model, sizeof v->model); /* the model determines how pieces become text */
    for (size_t i = 0; i < n; i++) {
        static const struct piece none; /* for ids of embedding rows without a token */
        const struct piece *p = ids[i] >= 0 && (uint32_t)ids[i] < v->n_tok ? &v->piece[ids[i]] : &none;
        XXH3_128bits_update(s, &p->n, sizeof p->n); /* makes "ab" "c" and "a" "bc" differ */
        XXH3_128bits_update(s, p->s, p->n);
    }
    XXH128_hash_t h = XXH3_128bits_digest(s);
    snprintf(out, TOK_HASH, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
    XXH3_freeState(s);
    return 0;
}

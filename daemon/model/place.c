/* place.c - see place.h. Pure. */
#include "daemon/model/place.h"

#include <stdlib.h>

struct candidate {
    struct place_item *item;
    double share; /* fraction of its bytes that a step of one token reads */
};

/* The order in which candidates leave the device; no two compare equal. */
static int by_use(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->share != y->share)
        return x->share < y->share ? -1 : 1;
    if (x->item->bytes != y->item->bytes)
        return x->item->bytes > y->item->bytes ? -1 : 1;
    return x->item > y->item ? -1 : 1;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static void add_up(const struct place_item *v, size_t n, struct model_place *out)
{
    *out = (struct model_place){0};
    for (size_t i = 0; i < n; i++) {
        uint64_t *bytes = v[i].host ? &out->host : &out->own, *read = v[i].host ? &out->host_read : &out->own_read;
        *bytes = sum(*bytes, v[i].bytes);
        *read = sum(*read, v[i].read);
        if (v[i].host && v[i].passing > out->passing)
            out->passing = v[i].passing;
    }
}

static bool fits(const struct model_place *p, const struct model_room *room)
{
    return p->own <= room->own && p->passing <= room->own - p->own;
}

static double gigabytes(uint64_t bytes)
{
    return 1e-9 * (double)bytes;
}

/* Moves the candidates to host memory, in their order, until the rest fits; then moves back those that fit after all,
 * starting with the last one moved. */
static void send_out(struct place_item *v, size_t n, struct candidate *c, size_t n_candidate,
                     const struct model_room *room, struct model_place *out)
{
    size_t sent = 0;
    for (; sent < n_candidate && !fits(out, room); sent++) {
        struct place_item *i = c[sent].item;
        i->host = true;
        out->own -= i->bytes < out->own ? i->bytes : out->own;
        out->passing = i->passing > out->passing ? i->passing : out->passing;
    }
    add_up(v, n, out);
    while (sent-- > 0 && fits(out, room)) {
        struct place_item *i = c[sent].item;
        if (i->bytes > room->own - out->own - out->passing)
            continue;
        i->host = false;
        out->own += i->bytes;
    }
    add_up(v, n, out);
}

int place_choose(struct place_item *v, size_t n, const struct model_room *room, struct model_place *out,
                 struct hearth_err *e)
{
    size_t n_candidate = 0;
    struct candidate *c = malloc((n + 1) * sizeof *c);
    if (!c)
        return err_set(e, HEARTH_ENOMEM, "no memory to place %zu matrices", n);
    for (size_t i = 0; i < n; i++) {
        v[i].host = false;
        if (!v[i].fixed && v[i].bytes)
            c[n_candidate++] = (struct candidate){&v[i], (double)v[i].read / (double)v[i].bytes};
    }
    qsort(c, n_candidate, sizeof *c, by_use);
    add_up(v, n, out);
    uint64_t all = out->own;
    send_out(v, n, c, n_candidate, room, out);
    free(c);
    if (!fits(out, room))
        return err_set(
            e, HEARTH_ENOMEM,
            "of weights of %.1f GB at least %.1f GB have to be in the GPU's memory, which has %.1f GB for them",
            gigabytes(all), gigabytes(sum(out->own, out->passing)), gigabytes(room->own));
    if (out->host > room->host)
        return err_set(
            e, HEARTH_ENOMEM,
            "weights of %.1f GB: the GPU's memory has %.1f GB for them, and the host's %.1f GB of the %.1f GB "
            "that are left",
            gigabytes(all), gigabytes(room->own), gigabytes(room->host), gigabytes(out->host));
    return 0;
}

double place_speed(const struct model_place *p, double own_rate, double host_rate)
{
    if (!(own_rate > 0) || (p->host_read && !(host_rate > 0)))
        return 0;
    double seconds = (double)p->own_read / own_rate + (p->host_read ? (double)p->host_read / host_rate : 0);
    return seconds > 0 ? 1 / seconds : 0;
}

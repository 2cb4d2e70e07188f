/* kv-eviction.c - see kv-eviction.h. */
#include "config.h"

#include "daemon/retention/kv-eviction.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double week = 7 * 86400, seen_max = 1e11; /* 3,000 years */

double kv_eviction_clock(double seen, double wall, double wall_now)
{
    if (!(seen >= 0 && seen <= seen_max))
        seen = 0;
    double past = wall > 0 ? wall_now - wall : 0;
    if (!(past > 0)) /* the wall clock was set back, is NaN, or was never stored */
        past = 0;
    return seen + (past < week ? past : week);
}

static int by_lru(const void *pa, const void *pb)
{
    const struct kv_manifest_row *a = *(struct kv_manifest_row *const *)pa, *b = *(struct kv_manifest_row *const *)pb;
    if (a->used != b->used)
        return a->used < b->used ? -1 : 1;
    if (a->pos != b->pos)
        return a->pos > b->pos ? -1 : 1;
    return strcmp(a->name, b->name);
}

struct share {
    uid_t uid;
    int64_t bytes;
    size_t next; /* index of the first file that may belong to this user and is not a victim yet */
};

static struct share *share_of(struct share *v, size_t *n, uid_t uid)
{
    size_t i = 0;
    while (i < *n && v[i].uid != uid)
        i++;
    if (i == *n)
        v[(*n)++] = (struct share){.uid = uid};
    return &v[i];
}

/* Makes the user's next file a victim. */
static void evict_next(struct kv_manifest_row **files, bool *victims, struct share *s)
{
    while (victims[s->next] || files[s->next]->uid != s->uid)
        s->next++;
    victims[s->next] = true;
    s->bytes -= files[s->next]->bytes;
}

ptrdiff_t kv_eviction_pick(const struct kv_eviction_policy *r, struct kv_manifest_row **files, size_t n, double now,
                           bool *victims)
{
    struct share *shares = calloc(n + 1, sizeof *shares);
    if (!shares)
        return HEARTH_ENOMEM;
    size_t n_shares = 0, left = n;
    int64_t total = 0;
    if (n > 0)
        qsort(files, n, sizeof *files, by_lru);
    for (size_t i = 0; i < n; i++) {
        int64_t its = files[i]->bytes;
        double unused = now - files[i]->used;
        victims[i] = (r->age > 0 && unused > r->age) ||
                     (r->age_unowned > 0 && files[i]->session[0] == '\0' && unused > r->age_unowned) ||
                     its > r->bytes_per_uid || its > r->bytes;
        if (victims[i]) {
            left--;
            continue;
        }
        struct share *s = share_of(shares, &n_shares, files[i]->uid);
        s->bytes += its; /* between 1 and KV_MANIFEST_BYTES_MAX: no sum overflows, and the loops below end */
    }
    for (size_t k = 0; k < n_shares; k++) {
        for (; shares[k].bytes > r->bytes_per_uid; left--)
            evict_next(files, victims, &shares[k]);
        total += shares[k].bytes;
    }
    while (total > r->bytes || left > r->files) {
        struct share *most = shares;
        for (size_t k = 1; k < n_shares; k++)
            if (shares[k].bytes > most->bytes)
                most = &shares[k];
        total -= most->bytes;
        evict_next(files, victims, most);
        total += most->bytes;
        left--;
    }
    free(shares);
    return (ptrdiff_t)(n - left);
}

/* kvrule.c - see kvrule.h. */
#include "config.h"

#include "daemon/kvrule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double week = 7 * 86400, seen_max = 1e11; /* 3,000 years */

double kvrule_clock(double seen, double wall, double wall_now)
{
    if (!(seen >= 0 && seen <= seen_max))
        seen = 0;
    double past = wall > 0 ? wall_now - wall : 0;
    if (!(past > 0)) /* set back, not a number, or never written */
        past = 0;
    return seen + (past < week ? past : week);
}

static int order(const void *pa, const void *pb)
{
    const struct store_kv *a = *(struct store_kv *const *)pa, *b = *(struct store_kv *const *)pb;
    if (a->used != b->used)
        return a->used < b->used ? -1 : 1;
    if (a->pos != b->pos)
        return a->pos > b->pos ? -1 : 1;
    return strcmp(a->name, b->name);
}

struct share {
    uid_t uid;
    int64_t bytes;
    size_t next; /* index of the first file that may be his and is still there */
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

/* The user's next file goes. */
static void drop_next(struct store_kv **files, bool *gone, struct share *s)
{
    while (gone[s->next] || files[s->next]->uid != s->uid)
        s->next++;
    gone[s->next] = true;
    s->bytes -= files[s->next]->bytes;
}

ptrdiff_t kvrule_pick(const struct kvrule *r, struct store_kv **files, size_t n, double now, bool *gone)
{
    struct share *shares = calloc(n + 1, sizeof(*shares));
    if (shares == NULL)
        return HEARTH_ENOMEM;
    size_t n_shares = 0, left = n;
    int64_t total = 0;
    if (n > 0)
        qsort(files, n, sizeof(*files), order);
    for (size_t i = 0; i < n; i++) {
        int64_t its = files[i]->bytes;
        double unused = now - files[i]->used;
        gone[i] = (r->age > 0 && unused > r->age) ||
                  (r->age_alone > 0 && files[i]->session[0] == '\0' && unused > r->age_alone) ||
                  its > r->bytes_per_uid || its > r->bytes;
        if (gone[i]) {
            left--;
            continue;
        }
        struct share *s = share_of(shares, &n_shares, files[i]->uid);
        s->bytes += its; /* 1 to STORE_KV_BYTES_MAX, so that no sum overflows and the loops below end */
    }
    for (size_t k = 0; k < n_shares; k++) {
        for (; shares[k].bytes > r->bytes_per_uid; left--)
            drop_next(files, gone, &shares[k]);
        total += shares[k].bytes;
    }
    while (total > r->bytes || left > r->files) {
        struct share *most = shares;
        for (size_t k = 1; k < n_shares; k++)
            if (shares[k].bytes > most->bytes)
                most = &shares[k];
        total -= most->bytes;
        drop_next(files, gone, most);
        total += most->bytes;
        left--;
    }
    free(shares);
    return (ptrdiff_t)(n - left);
}

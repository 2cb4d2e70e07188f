/* tier.c - polls the tiers: I/O events, copies under way, waiting sequences; see tier.h. Thread: the device
 * thread's. */
#include "config.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/kvtier/tier-internal.h"

static const double used_seconds = 60; /* a file's use is reported at most once in this time: kvdir.c */

/* The bytes of one copy. A GPU has up to TRANSFERS_MAX copies under way at once, which do not slow its steps: the link
 * has a sixtieth of its memory's bandwidth. A CPU copies synchronously, between two steps. */
static const uint64_t piece_gpu = 16 << 20, piece_cpu = 8 << 20;

int tier_open(struct tier **out, const struct tier_params *p, struct hearth_err *e)
{
    struct tier *t = calloc(1, sizeof *t);
    *out = t;
    if (!t)
        return err_set(e, HEARTH_ENOMEM, "no memory for the KV tiers");
    t->p = *p;
    t->piece = p->gpu ? piece_gpu : piece_cpu;
    t->transfers[TO_HOST].most = t->transfers[TO_DEVICE].most = p->gpu ? TRANSFERS_MAX : 1;
    pin_open(t);
    index_init(&t->index, &t->host);
    TAILQ_INIT(&t->saves);
    TAILQ_INIT(&t->fetches);
    TAILQ_INIT(&t->restores);
    TAILQ_INIT(&t->waiting);
    TAILQ_INIT(&t->ready);
    return p->dir ? tier_use_dir(t, p->dir, e) : 0;
}

/* Looks for the files of a namespace, once. */
static void scan(struct tier *t, struct kv_namespace *s)
{
    if (!t->io || s->scanned)
        return;
    s->scanned = true;
    s->scan = kvio_scan(t->io, &s->fingerprint);
    t->io_jobs++;
}

int tier_use_dir(struct tier *t, const char *dir, struct hearth_err *e)
{
    struct kv_namespace *s;
    int rc = t->io ? 0 : kvio_open(&t->io, dir, NULL, NULL, e);
    if (rc)
        return rc;
    TAILQ_FOREACH (s, &t->index.namespaces, link)
        scan(t, s);
    return 0;
}

void tier_close(struct tier *t)
{
    struct hearth_err ignored;
    struct fetch *f;
    struct save *s;
    struct restore *r;
    if (!t)
        return;
    assert(TAILQ_EMPTY(&t->waiting) && TAILQ_EMPTY(&t->ready));
    if (t->io)
        kvio_close(t->io);
    for (int way = 0; way < 2; way++)
        for (struct transfers *mv = &t->transfers[way]; mv->n; mv->n--, mv->first = (mv->first + 1) % TRANSFERS_MAX)
            t->p.be->kv_transfer_wait(t->p.dev, mv->ring[mv->first].ticket, &ignored);
    while ((r = TAILQ_FIRST(&t->restores)))
        restore_free(t, r);
    while ((f = TAILQ_FIRST(&t->fetches)))
        fetch_free(t, f);
    while ((s = TAILQ_FIRST(&t->saves)))
        save_free(t, s);
    index_fini(&t->index);
    host_fini(&t->host);
    free(t);
}

int tier_fd(const struct tier *t)
{
    return t->io_jobs ? kvio_fd(t->io) : -1; /* it may be readable without an event: see post.h */
}

double tier_poll_timeout(const struct tier *t)
{
    static const double look = 0.01; /* the interval, in seconds, at which restores are checked for falling behind */
    double now = engine_now(), pin_in = t->pin_at > now ? t->pin_at - now : 0;
    bool restoring = !TAILQ_EMPTY(&t->restores) || !TAILQ_EMPTY(&t->waiting);
    if (t->pin_wanted && (!restoring || pin_in < look))
        return pin_in;
    return restoring ? look : -1;
}

/* --- shared helpers -------------------------------------------------------------------------------------- */

struct kv_hash tier_root(const struct seq *q)
{
    return (struct kv_hash){0, q->kv.freq_set};
}

struct kv_hash *tier_chain(const struct seq *q, uint32_t n)
{
    struct kv_hash *h = malloc((n + 1) * sizeof *h), above = tier_root(q);
    for (uint32_t i = 0; h && i < n; i++)
        above = h[i] = kvfile_chain(&above, q->uid, q->token + (size_t)i * KV_PAGE);
    return h;
}

void tier_notify(struct tier *t, const struct tier_event *ev)
{
    if (t->p.notify)
        t->p.notify(t->p.arg, ev);
}

void tier_used(struct tier *t, struct tier_file *f, double now)
{
    if (f->notified_at && now - f->notified_at < used_seconds)
        return;
    f->notified_at = now;
    tier_notify(t, &(struct tier_event){.kind = TIER_USED, .file = f->name});
}

void tier_computed(struct tier *t, const struct model_entry *m, uint32_t n_tok, double seconds)
{
    enum { ENOUGH = 64 /* tokens: with fewer, the rate would measure the step's fixed cost */ };
    struct kv_namespace *s = m->ns[0]; /* the first namespace stands for all of the model's */
    if (!s || n_tok < ENOUGH || seconds <= 0)
        return;
    rate_add(&s->prefill, n_tok, seconds, &s->prefill_rate);
    atomic_store(&t->p.counters->prefill_rate, s->prefill_rate);
}

/* --- copies ---------------------------------------------------------------------------------------------- */

static void transfer_done(struct tier *t, enum direction way, const struct transfer *m, double now)
{
    double begin = m->begin > t->last_transfer_done ? m->begin : t->last_transfer_done;
    if (way == TO_HOST) {
        atomic_fetch_add(&t->p.counters->pages_saved, m->n);
        atomic_fetch_add(&t->p.counters->bytes_saved, m->bytes);
        save_copied(m->save, m->n);
        return;
    }
    rate_add(&t->device, (double)m->bytes, now - begin, &t->p.counters->device_rate);
    t->last_transfer_done = now;
    atomic_fetch_add(&t->p.counters->pages_restored, m->n);
    atomic_fetch_add(&t->p.counters->bytes_restored, m->bytes);
    restore_loaded(t, m->restore, m->n);
}

int tier_transfer(struct tier *t, enum direction way, struct transfer m, struct kv_pool *pool, const uint32_t *pages,
                  void **host, struct hearth_err *e)
{
    const struct backend *be = t->p.be;
    struct transfers *mv = &t->transfers[way];
    m.begin = engine_now();
    m.ticket = way == TO_HOST ? be->kv_save(t->p.dev, pool, pages, host, m.n)
                              : be->kv_load(t->p.dev, pool, pages, (const void *const *)host, m.n);
    int rc = m.ticket ? be->kv_transfer_done(t->p.dev, m.ticket, e) : be->sync(t->p.dev, e);
    if (rc < 0)
        return rc;
    if (!m.ticket)
        return err_set(e, HEARTH_EDEVICE, "the device refused a move of %u KV pages", m.n);
    mv->n_begun++;
    if (rc == 1 && mv->n == 0) { /* the backend copied synchronously */
        transfer_done(t, way, &m, engine_now());
        return 0;
    }
    mv->ring[(mv->first + mv->n++) % TRANSFERS_MAX] = m;
    return 0;
}

bool tier_may_transfer(const struct tier *t, enum direction way)
{
    const struct transfers *mv = &t->transfers[way];
    return mv->n < mv->most && (mv->most > 1 || mv->n_begun == 0);
}

static int finish_transfers(struct tier *t, struct hearth_err *e)
{
    for (int way = 0; way < 2; way++) {
        struct transfers *mv = &t->transfers[way];
        mv->n_begun = 0;
        while (mv->n) {
            struct transfer m = mv->ring[mv->first];
            int rc = t->p.be->kv_transfer_done(t->p.dev, m.ticket, e);
            if (rc < 0)
                return rc;
            if (rc == 0)
                break;
            mv->first = (mv->first + 1) % TRANSFERS_MAX;
            mv->n--;
            transfer_done(t, way, &m, engine_now());
        }
    }
    return 0;
}

int tier_wait(struct tier *t, struct hearth_err *e)
{
    for (int way = TO_DEVICE; way >= TO_HOST; way--)
        if (t->transfers[way].n)
            return t->p.be->kv_transfer_wait(t->p.dev, t->transfers[way].ring[t->transfers[way].first].ticket, e);
    return 0;
}

/* --- files ----------------------------------------------------------------------------------------------- */

/* Finds the owner of an event's job: the scan of a namespace, a fetch, or a save. */
static void find_job(struct tier *t, uint64_t job, struct kv_namespace **ns, struct fetch **fetch, struct save **save)
{
    *ns = NULL;
    TAILQ_FOREACH (*fetch, &t->fetches, link)
        if ((*fetch)->job == job) {
            *ns = (*fetch)->ns;
            break;
        }
    TAILQ_FOREACH (*save, &t->saves, link)
        if ((*save)->job == job) {
            *ns = (*save)->ns;
            break;
        }
    if (!*ns)
        TAILQ_FOREACH (*ns, &t->index.namespaces, link)
            if ((*ns)->scan == job)
                break;
}

static void take_event(struct tier *t, const struct kvio_event *ev, double now)
{
    struct kv_namespace *s;
    struct fetch *f;
    struct save *w;
    find_job(t, ev->job, &s, &f, &w);
    assert(s); /* a job is known until its KVIO_END, its last event */
    switch (ev->kind) {
    case KVIO_PIECE:
    case KVIO_END:
        if (f)
            fetch_event(t, f, ev, now);
        else if (w)
            save_event(t, w, ev, now);
        else if (ev->kind == KVIO_END) {
            s->scan = 0;
            t->retry_waiting = true;
        }
        break;
    case KVIO_FILE:
        index_file(&t->index, s, ev->file, ev->bytes, &ev->extent);
        break;
    case KVIO_BAD:
        index_forget(&t->index, s, ev->file);
        tier_notify(t, &(struct tier_event){.kind = TIER_BAD, .file = ev->file, .why = ev->err.msg});
        break;
    }
    if (ev->kind == KVIO_END)
        t->io_jobs--;
}

void tier_file_evicted(struct tier *t, const char *file, bool again, double now)
{
    static const double not_again = 3600; /* seconds */
    struct kv_namespace *s;
    TAILQ_FOREACH (s, &t->index.namespaces, link)
        if (again)
            index_forget(&t->index, s, file);
        else
            index_retire(&t->index, s, file, now);
    index_forget_retired(&t->index, now - not_again);
}

static void take_events(struct tier *t, double now)
{
    struct kvio_event *ev;
    if (!t->io_jobs)
        return;
    kvio_take(t->io);
    while ((ev = kvio_next(t->io))) {
        take_event(t, ev, now);
        kvio_event_free(ev);
    }
}

void tier_attach(struct tier *t, struct model_entry *m, const struct kv_fingerprint *fingerprint)
{
    for (uint32_t g = 0; g < m->n_group; g++)
        if (!(m->ns[g] = index_namespace(&t->index, &fingerprint[g]))) {
            memset(m->ns, 0, sizeof m->ns);
            return; /* no memory: this model has no lower tiers */
        }
    for (uint32_t g = 0; g < m->n_group; g++) {
        struct kv_namespace *s = m->ns[g];
        /* one page being filled and one full, for a restore and a save each */
        uint64_t least = t->ram + 4 * fingerprint[g].page_bytes;
        if (t->host.limit < least)
            t->host.limit = least;
        scan(t, s);
    }
    t->page_bytes = fingerprint[0].page_bytes;
    pin_for_transit(t);
}

void tier_hurry(struct tier *t, const struct model_entry *m)
{
    t->leaving = m;
}

bool tier_busy(const struct tier *t, const struct model_entry *m)
{
    const struct save *s;
    const struct restore *r;
    TAILQ_FOREACH (s, &t->saves, link)
        if (s->model == m)
            return true;
    TAILQ_FOREACH (r, &t->restores, link)
        if (r->model == m)
            return true;
    return false;
}

uint32_t tier_pages_leaving(const struct tier *t, const struct model_entry *m)
{
    const struct save *s;
    uint32_t n = 0;
    TAILQ_FOREACH (s, &t->saves, link)
        n += s->model == m ? s->n : 0;
    return n;
}

/* --- sequences ------------------------------------------------------------------------------------------- */

bool tier_submit(struct tier *t, struct seq *q, double now)
{
    enum restore_begun b = restore_begin(t, q, now);
    if (b == RESTORE_NOT)
        return false;
    q->model->group.n_seq++; /* so that its model is not unloaded */
    q->tier_since = now;
    if (b == RESTORE_LATER)
        TAILQ_INSERT_TAIL(&t->waiting, q, link);
    return true;
}

static struct seq *give_back(struct seq *q)
{
    if (q)
        q->model->group.n_seq--;
    return q;
}

struct seq *tier_ready(struct tier *t)
{
    struct seq *q = TAILQ_FIRST(&t->ready);
    if (!q)
        return NULL;
    TAILQ_REMOVE(&t->ready, q, link);
    q->time.restore = engine_now() - q->tier_since;
    return give_back(q);
}

static struct seq *cancel(struct tier *t, uint64_t id, bool any)
{
    struct restore *r;
    struct seq *q;
    TAILQ_FOREACH (q, &t->ready, link)
        if (any || q->id == id) {
            TAILQ_REMOVE(&t->ready, q, link);
            return give_back(q);
        }
    TAILQ_FOREACH (q, &t->waiting, link)
        if (any || q->id == id) {
            TAILQ_REMOVE(&t->waiting, q, link);
            return give_back(q);
        }
    TAILQ_FOREACH (r, &t->restores, link)
        if (r->seq && (any || r->seq->id == id)) {
            q = r->seq;
            restore_stop(r);
            r->seq = NULL;
            return give_back(q);
        }
    return NULL;
}

struct seq *tier_cancel(struct tier *t, uint64_t seq_id)
{
    return cancel(t, seq_id, false);
}

struct seq *tier_cancel_any(struct tier *t)
{
    return cancel(t, 0, true);
}

struct seq *tier_find(const struct tier *t, uint64_t seq_id)
{
    const struct restore *r;
    struct seq *q;
    TAILQ_FOREACH (q, &t->ready, link)
        if (q->id == seq_id)
            return q;
    TAILQ_FOREACH (q, &t->waiting, link)
        if (q->id == seq_id)
            return q;
    TAILQ_FOREACH (r, &t->restores, link)
        if (r->seq && r->seq->id == seq_id)
            return r->seq;
    return NULL;
}

static struct seq *earlier(struct seq *q, struct seq *first)
{
    bool due = q && q->deadline > 0 && q->time.first == 0;
    return due && (!first || q->deadline < first->deadline) ? q : first;
}

struct seq *tier_first_due(const struct tier *t)
{
    const struct restore *r;
    struct seq *q, *first = NULL;
    TAILQ_FOREACH (q, &t->ready, link)
        first = earlier(q, first);
    TAILQ_FOREACH (q, &t->waiting, link)
        first = earlier(q, first);
    TAILQ_FOREACH (r, &t->restores, link)
        first = earlier(r->seq, first);
    return first;
}

static void retry_waiting(struct tier *t, double now)
{
    struct seq *q, *next;
    t->retry_waiting = false;
    for (q = TAILQ_FIRST(&t->waiting); q; q = next) {
        next = TAILQ_NEXT(q, link);
        enum restore_begun b = restore_begin(t, q, now);
        if (b == RESTORE_LATER)
            continue;
        TAILQ_REMOVE(&t->waiting, q, link);
        if (b == RESTORE_NOT)
            TAILQ_INSERT_TAIL(&t->ready, q, link);
    }
}

/* --- polling --------------------------------------------------------------------------------------------- */

static void count_files(struct tier_counters *c, const struct kvio_counters *io)
{
    atomic_store(&c->bytes_written, atomic_load(&io->written_bytes));
    atomic_store(&c->bytes_read, atomic_load(&io->read_bytes));
    atomic_store(&c->files_written, atomic_load(&io->files_written));
    atomic_store(&c->files_bad, atomic_load(&io->files_bad));
    atomic_store(&c->read_rate, atomic_load(&io->read_rate));
    atomic_store(&c->write_rate, atomic_load(&io->write_rate));
}

void tier_count_moving(struct tier *t)
{
    uint64_t moving = 0;
    const struct restore *r;
    TAILQ_FOREACH (r, &t->restores, link)
        moving++;
    const struct save *s;
    TAILQ_FOREACH (s, &t->saves, link)
        moving++;
    atomic_store(&t->p.counters->moving, moving);
}

static void count(struct tier *t)
{
    struct tier_counters *c = t->p.counters;
    const struct tier_index *x = &t->index;
    atomic_store(&c->host_pages, x->host_pages);
    atomic_store(&c->host_bytes, x->host_bytes);
    atomic_store(&c->file_pages, x->file_pages);
    atomic_store(&c->file_bytes, x->file_bytes);
    atomic_store(&c->pages_dropped, x->dropped);
    if (t->io)
        count_files(c, kvio_counters(t->io));
    tier_count_moving(t); /* last, so that what has stopped moving is counted above */
}

void tier_foreground(struct tier *t, enum tier_foreground what)
{
    t->foreground = what;
}

int tier_poll(struct tier *t, double now, struct hearth_err *e)
{
    pin_poll(t, now);
    take_events(t, now);
    int rc = finish_transfers(t, e);
    if (rc)
        return rc;
    if (t->retry_waiting || !TAILQ_EMPTY(&t->waiting))
        retry_waiting(t, now);
    if ((rc = restore_poll(t, now, e)) || (rc = save_poll(t, e)))
        return rc;
    while (t->index.lru_bytes > t->ram && index_evict_oldest(&t->index)) {
    }
    count(t);
    return t->transfers[TO_HOST].n || t->transfers[TO_DEVICE].n || t->transfers[TO_HOST].n_begun ||
           t->transfers[TO_DEVICE].n_begun || t->retry_waiting || (t->pin_wanted && t->pin_at <= now);
}

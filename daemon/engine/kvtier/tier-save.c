/*
 * tier-save.c - saves the pages of an ended turn to host memory and into a file; see tier.h. Thread: the device
 * thread's.
 *
 * A save processes its pages in order, with four marks: the copies of [0, n_submitted) to host memory were submitted,
 * those of [0, n_copied) are complete, [0, n_queued) were handed to the I/O thread, and of [0, n_returned) it has given
 * the buffers back. Host memory limits how far the first is ahead of the last; nothing else delays a save. The pool's
 * pages are released after the last copy.
 */
#include "config.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/kvtier/tier-internal.h"
#include "daemon/log.h"
#include "daemon/trace.h"

/* After a failed write (a full disk, most likely) no file is tried for this many seconds. */
static const double disk_pause = 10;

/* The most pages in one file, because a file is valid as a whole or not at all, and is evicted as a whole. */
static const uint64_t extent_bytes = 512 << 20;

/* --- the end of a turn ----------------------------------------------------------------------------------- */

static bool wants_saving(const struct tier *t, const struct tier_entry *en, bool to_file)
{
    if (en && (en->saving || en->file))
        return false;
    if (en && en->host && !en->ready) /* a fetch is filling it, from a file that left the index meanwhile */
        return false;
    return to_file || (t->ram && (!en || !en->host));
}

/* Starts a save of the group's pages [first, first + n) of the sequence. */
static void begin(struct tier *t, struct seq *q, uint32_t group, const struct kv_hash *hash, uint32_t first, uint32_t n,
                  bool to_file)
{
    const struct kv_hash root = tier_root(q);
    struct kvfile_page *page = calloc(n, sizeof *page);
    struct save *s = calloc(1, sizeof *s);
    if (!s || !page || !(s->entry = calloc(n, sizeof *s->entry)))
        goto fail;
    s->model = q->model;
    s->group = group;
    s->ns = q->model->ns[group];
    s->uid = s->table.uid = q->uid;
    s->table.freq_set = q->kv.freq_set;
    memcpy(s->label, q->label, sizeof s->label);
    s->stream = q->stream;
    s->seq = q->id;
    s->first = first;
    if (kv_match_nodes(q->model->group.kv, &s->table, q->token, (first + n) * KV_PAGE) < first + n)
        goto fail_table;
    for (uint32_t i = first; !tier_sees_all(q->model, group) && i < first + n; i++)
        kv_hold(q->model->group.kv, &s->table, group, i);
    for (; s->n < n; s->n++) {
        uint32_t i = first + s->n;
        const int32_t *id = q->token + (size_t)i * KV_PAGE;
        struct tier_entry *en =
            index_add(&t->index, s->ns, &hash[i], i ? &hash[i - 1] : &root, q->uid, i * KV_PAGE, id);
        if (!en)
            break;
        index_acquire(&t->index, en);
        en->saving = true;
        s->entry[s->n] = en;
        page[s->n].hash = hash[i];
        memcpy(page[s->n].id, id, sizeof page[s->n].id);
    }
    if (s->n == 0)
        goto fail_table;
    if (to_file) {
        struct kvfile_extent x = {
            .uid = q->uid, .pos = first * KV_PAGE, .n = s->n, .parent = first ? hash[first - 1] : root, .page = page};
        s->job = kvio_write(t->io, &(struct kvio_write){.fingerprint = &s->ns->fingerprint, .extent = &x});
        t->io_jobs++;
    }
    TAILQ_INSERT_TAIL(&t->saves, s, link);
    free(page);
    return;

fail_table:
    kv_release(q->model->group.kv, &s->table, NULL, 0);
fail:
    if (s)
        free(s->entry);
    free(s);
    free(page);
}

/*
 * Touches the pages that the turn's timeline needs, as the turn has used them: in a group that sees everything all
 * pages; in a group with a window or of states those before the prompt's end and before the turn's end, where others
 * resume. Pages of such groups that earlier turns kept are not needed to resume here, and must not push out what is: a
 * state may have as many bytes as the KV of thousands of tokens.
 */
static void touch_needed(struct tier *t, const struct seq *q, uint32_t group, const struct kv_hash *hash, uint32_t n,
                         double now)
{
    enum { ENDS = 2 };
    uint32_t runs = 0;
    bool above = false;              /* the place after this one is in the tiers, or about to be */
    for (uint32_t i = n; i-- > 0;) { /* backwards: the first pages are dropped last */
        struct tier_entry *en = index_lookup(q->model->ns[group], &hash[i]);
        runs += en && !above;
        above = en != NULL;
        if (runs > ENDS && !tier_sees_all(q->model, group))
            return;
        if (!en)
            continue;
        index_touch(&t->index, en);
        if (index_in_file(en))
            tier_used(t, en->file, now);
    }
}

/* Starts saves of the group's pages: one for each run of wanted pages. `on_device` has the first n places. */
static void save_group(struct tier *t, struct seq *q, uint32_t group, const struct kv_table *on_device,
                       const struct kv_hash *hash, struct tier_entry **entry, double now)
{
    struct kv_namespace *s = q->model->ns[group];
    const struct kv *kv = q->model->group.kv;
    bool to_file = t->io && now >= t->disk_retry_at;
    uint32_t n = on_device->n;
    uint64_t most = extent_bytes / tier_page_bytes(s);
    most = most < 1 ? 1 : most > KVFILE_PAGES_MAX ? KVFILE_PAGES_MAX : most;
    for (uint32_t i = 0; i < n; i++)
        entry[i] = index_lookup(s, &hash[i]);
    for (uint32_t i = 0, run; i < n; i += run) {
        bool wanted = kv_has(kv, on_device, group, i) && wants_saving(t, entry[i], to_file);
        for (run = 1; i + run < n && run < most; run++)
            if ((kv_has(kv, on_device, group, i + run) && wants_saving(t, entry[i + run], to_file)) != wanted)
                break;
        if (wanted)
            begin(t, q, group, hash, i, run, to_file);
    }
    touch_needed(t, q, group, hash, n, now);
}

void tier_save(struct tier *t, struct seq *q, double now)
{
    const struct model_entry *m = q->model;
    uint32_t n_tok = q->n_computed < q->n_tokens ? q->n_computed : q->n_tokens, n = n_tok / KV_PAGE;
    if (q->state != SEQ_RUN || q->eval || q->uid < 0 || /* no user's: no request finds it */
        !m->ns[0] || n == 0 || (!t->io && !t->ram))
        return;
    struct kv_table on_device = {.uid = q->uid, .freq_set = q->kv.freq_set};
    struct kv_hash *hash = tier_chain(q, n);
    struct tier_entry **entry = calloc(n, sizeof *entry);
    if (hash && entry) {
        kv_advance(m->group.kv, &q->kv, q->n_computed); /* puts a state from within the last step in its place */
        kv_publish(m->group.kv, &q->kv, q->token, n_tok);
        kv_match_nodes(m->group.kv, &on_device, q->token, n * KV_PAGE);
        for (uint32_t g = 0; g < m->n_group; g++)
            save_group(t, q, g, &on_device, hash, entry, now);
        kv_release(m->group.kv, &on_device, NULL, 0);
    }
    tier_count_moving(t); /* a client that has the answer may ask at once whether it is saved */
    free(entry);
    free(hash);
}

bool tier_saving(const struct tier *t)
{
    return !TAILQ_EMPTY(&t->saves);
}

/* --- progress -------------------------------------------------------------------------------------------- */

static void return_pages(struct tier *t, struct save *s, uint32_t n)
{
    for (; s->n_returned < n; s->n_returned++)
        index_release(&t->index, s->entry[s->n_returned]);
}

/* Truncates the save to the pages whose copies were submitted. */
static void truncate_save(struct tier *t, struct save *s)
{
    for (uint32_t i = s->n_submitted; i < s->n; i++) {
        s->entry[i]->saving = false;
        index_release(&t->index, s->entry[i]);
    }
    s->n = s->n_submitted;
}

/* Truncates the save and cancels its file, which would be incomplete. */
static void abort_save(struct tier *t, struct save *s)
{
    truncate_save(t, s);
    if (s->job)
        kvio_cancel(t->io, s->job);
}

/* Submits copies of the next pages; false where none is possible at present. */
static bool copy_some(struct tier *t, struct save *s, struct hearth_err *e, int *rc)
{
    uint32_t most = tier_piece(t, s->ns), n = 0;
    void *host[PIECE_MAX];
    if (s->n_submitted == s->n_copied) /* in host memory already: an earlier file failed */
        for (; s->n_submitted < s->n && s->entry[s->n_submitted]->ready; s->n_submitted++)
            s->n_copied++;
    if (!tier_may_transfer(t, TO_HOST))
        return false;
    while (n < most && s->n_submitted + n < s->n) {
        struct tier_entry *en = s->entry[s->n_submitted + n];
        if (!en->host) {
            struct host_page *p = tier_host_page(t, TO_HOST, s->model, tier_page_bytes(s->ns));
            if (!p) {
                if (host_is_none(&t->host))
                    abort_save(t, s);
                break;
            }
            index_set_host(&t->index, en, p);
        } else if (en->ready) {
            break;
        }
        host[n++] = en->host->mem;
    }
    if (n == 0)
        return false;
    struct transfer m = {.save = s, .n = n, .bytes = n * tier_page_bytes(s->ns)};
    const uint32_t *pages = s->table.page[s->group] + s->first + s->n_submitted;
    s->n_submitted += n;
    *rc = tier_transfer(t, TO_HOST, m, s->model->pool[s->group], pages, host, e);
    return *rc == 0;
}

void save_copied(struct save *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        s->entry[s->n_copied++]->ready = true;
}

static void put_copied(struct tier *t, struct save *s)
{
    const void *buf[PIECE_MAX];
    while (s->n_queued < s->n_copied) {
        uint32_t n = 0;
        for (; n < PIECE_MAX && s->n_queued + n < s->n_copied; n++)
            buf[n] = s->entry[s->n_queued + n]->host->mem;
        if (s->job)
            kvio_put(t->io, s->job, buf, n);
        s->n_queued += n;
    }
    if (!s->job)
        return_pages(t, s, s->n_queued);
}

static void trace_saved(const struct save *s, const char *tier)
{
    trace(.stage = TRACE_SAVED, .stream = s->stream, .seq = s->seq, .word = tier,
          .n = {(int64_t)s->first * KV_PAGE, (int64_t)s->n * KV_PAGE});
}

/* Enters the committed file, with its pages, into the index. */
static void enter_file(struct tier *t, struct save *s, const struct kvio_event *ev)
{
    struct kvfile_page *page = calloc(s->n, sizeof *page);
    if (!page)
        return; /* the scan at the next start will find the file */
    for (uint32_t i = 0; i < s->n; i++) {
        page[i].hash = s->entry[i]->hash;
        memcpy(page[i].id, s->entry[i]->id, sizeof page[i].id);
    }
    struct kvfile_extent x = {
        .uid = s->uid, .pos = s->first * KV_PAGE, .n = s->n, .parent = s->entry[0]->parent, .page = page};
    index_file(&t->index, s->ns, ev->file, ev->bytes, &x);
    free(page);
    tier_notify(t, &(struct tier_event){.kind = TIER_SAVED,
                                        .file = ev->file,
                                        .fingerprint = kv_fingerprint_id(&s->ns->fingerprint),
                                        .uid = s->uid,
                                        .label = s->label,
                                        .stream = s->stream,
                                        .bytes = ev->bytes,
                                        .tokens = s->n * KV_PAGE,
                                        .pos = s->first * KV_PAGE});
}

void save_event(struct tier *t, struct save *s, const struct kvio_event *ev, double now)
{
    if (ev->kind == KVIO_PIECE) {
        return_pages(t, s, ev->first + ev->n);
        return;
    }
    s->job = 0;
    if (!ev->err.code) {
        trace_saved(s, "file");
        enter_file(t, s, ev);
        if (t->disk_failed)
            log_info("KV files can be written again");
        t->disk_failed = false;
    } else if (ev->err.code == HEARTH_ECONFLICT) {
        truncate_save(t, s); /* a longer file holds these pages; the disk is in order */
    } else if (ev->err.code != HEARTH_ECANCELLED) {
        if (!t->disk_failed)
            log_warn("KV is not saved: %s", ev->err.msg);
        t->disk_failed = true;
        t->disk_retry_at = now + disk_pause;
        truncate_save(t, s);
    }
    return_pages(t, s, s->n_queued);
}

static bool release_pages(const struct tier *t, struct save *s)
{
    if (s->model && s->n_copied == s->n) {
        if (t->ram && s->n) /* without a cache in host memory the copies exist only until they are written */
            trace_saved(s, "host");
        kv_release(s->model->group.kv, &s->table, NULL, 0);
        s->model = NULL;
    }
    return !s->model && !s->job && s->n_returned == s->n;
}

static void finish(struct tier *t, struct save *s)
{
    for (uint32_t i = s->n; i-- > 0;) { /* backwards: the first pages are dropped last */
        s->entry[i]->saving = false;
        t->index.dropped += !s->entry[i]->host && !index_in_file(s->entry[i]);
        index_acquire(&t->index, s->entry[i]);
        index_release(&t->index, s->entry[i]);
    }
    TAILQ_REMOVE(&t->saves, s, link);
    free(s->entry);
    free(s);
}

int save_poll(struct tier *t, struct hearth_err *e)
{
    struct save *s, *next;
    int rc = 0;
    for (s = TAILQ_FIRST(&t->saves); s && !rc; s = next) {
        next = TAILQ_NEXT(s, link);
        while (s->model && copy_some(t, s, e, &rc)) {
        }
        put_copied(t, s);
        if (!rc && release_pages(t, s))
            finish(t, s);
    }
    return rc;
}

void tier_detach(struct tier *t, struct model_entry *m)
{
    struct save *s;
    TAILQ_FOREACH (s, &t->saves, link)
        if (s->model == m)
            abort_save(t, s);
}

void save_free(struct tier *t, struct save *s)
{
    s->job = 0;
    truncate_save(t, s);
    save_copied(s, s->n_submitted - s->n_copied);
    s->n_queued = s->n;
    return_pages(t, s, s->n);
    if (s->model)
        kv_release(s->model->group.kv, &s->table, NULL, 0);
    finish(t, s);
}

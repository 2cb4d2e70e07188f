/* journal-read.c - the format of a journal's file, see journal.h. All file content is untrusted input. */
#include "config.h"

#include "daemon/stream/journal-read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    FILE_VERSION = 1,
    FILE_HEADER = 16,
    RECORD_HEADER = 12,
    FILE_MAX = 1 << 30,
};

static const char magic[8] = {'H', 'E', 'A', 'R', 'T', 'H', 'J', '\n'};

static void put_le(uint8_t *to, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_le(const uint8_t *from, int n)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++)
        v |= (uint64_t)from[i] << (8 * i);
    return v;
}

void journal_name(int64_t number, char name[static 32])
{
    snprintf(name, 32, "%lld", (long long)number);
}

/* --- writing -------------------------------------------------------------------------------------------- */

int journal_pack(struct wire_buf *b, int64_t at, const struct wire_method *m, const void *body, struct hearth_err *e)
{
    size_t lead = at == 0 ? FILE_HEADER : 0, start = lead + RECORD_HEADER;
    if (b->cap < 4096) {
        uint8_t *data = realloc(b->data, 4096);
        if (!data)
            return err_set(e, HEARTH_ENOMEM, "out of memory");
        b->data = data;
        b->cap = 4096;
    }
    b->len = start;
    int rc = wire_pack_event(b, m, body, NULL, NULL, e);
    if (rc)
        return rc;
    if (lead > 0) {
        memcpy(b->data, magic, sizeof magic);
        put_le(b->data + 8, FILE_VERSION, 4);
        put_le(b->data + 12, 0, 4);
    }
    size_t len = b->len - start;
    put_le(b->data + lead, len, 4);
    put_le(b->data + lead + 4, XXH3_64bits_withSeed(b->data + start, len, (uint64_t)at + lead), 8);
    return 0;
}

int journal_hash(const struct wire_generate *g, uint64_t *hash, struct hearth_err *e)
{
    struct wire_generate same = *g;
    struct wire_buf b = {0};
    same.request = NULL;
    same.stream = true;
    same.deadline_ms = 0; /* a repeated request has less of it left */
    /* A field that has its default value is as if absent; the tables know no defaults for these. */
    if (same.service_class && !strcmp(same.service_class, "normal"))
        same.service_class = NULL;
    if (!same.stop.n)
        same.stop.v = NULL;
    if (!same.sampling.n_logit_bias)
        same.sampling.logit_bias = NULL;
    if (!same.n_extra)
        same.extra = NULL;
    int rc = wire_pack_request(&b, 0, &wire_methods[WIRE_GENERATE], &same, e);
    if (!rc)
        *hash = XXH3_64bits(b.data, b.len);
    wire_buf_fini(&b);
    return rc;
}

/* --- reading -------------------------------------------------------------------------------------------- */

void journal_copy_fini(struct journal_copy *c)
{
    wire_free(c->head);
    wire_free(c->begin);
    wire_free(c->end);
    output_fini(&c->output);
    *c = (struct journal_copy){0};
}

/* Applies one record's event to the copy; *moved if the copy keeps the body. */
static int apply(struct journal_copy *c, int64_t number, const struct wire_method *m, void *body, bool *moved,
                 struct hearth_err *e)
{
    struct wire_journal_head *head = body;
    struct wire_engine_begin *begin = body;
    struct wire_engine_tokens *t = body;
    *moved = true;
    if (m == &wire_methods[WIRE_JOURNAL_HEAD] && !c->head && head->stream == number) {
        c->head = head;
    } else if (m == &wire_methods[WIRE_ENGINE_BEGIN] && c->head && !c->begin && !c->end && begin->stream == number) {
        c->begin = begin;
    } else if (m == &wire_methods[WIRE_JOURNAL_END] && c->head) {
        wire_free(c->end); /* a later one says that the turn could not be written after all */
        c->end = body;
    } else if (m == &wire_methods[WIRE_ENGINE_TOKENS] && c->begin && !c->end && t->stream == number &&
               (size_t)t->index == c->output.n_ids && (t->n_logprobs == 0 || t->n_logprobs == t->tokens.n)) {
        *moved = false;
        return output_append(&c->output, t, e);
    } else {
        *moved = false;
        return err_set(e, HEARTH_ESTORE, "a record %s that does not belong there", m->name);
    }
    return 0;
}

/* Parses one record's payload and applies it. */
static int take(struct journal_copy *c, int64_t number, const uint8_t *data, size_t len, struct hearth_err *e)
{
    struct wire_scan scan = {0};
    struct wire_frame f = {0};
    ptrdiff_t n = wire_scan(&scan, data, len, WIRE_LINK_FRAME_MAX, e);
    if (n < 0)
        return (int)n;
    if ((size_t)n != len)
        return err_set(e, HEARTH_ESTORE, "a record that is not one frame");
    int rc = wire_frame_open(&f, data, len, e);
    if (rc)
        return rc;
    const struct wire_method *m = f.kind == WIRE_FRAME_EVENT ? wire_method_find(f.method, f.method_len) : NULL;
    if (!m)
        return err_set(e, HEARTH_ESTORE, "a record that is no event");
    void *body;
    bool moved;
    rc = wire_unpack(m->params, f.body, f.body_len, &body, e);
    if (rc)
        return rc;
    rc = apply(c, number, m, body, &moved, e);
    if (!moved)
        wire_free(body);
    return rc;
}

/* Returns the number of valid bytes; *e is set if those are not all. *tail: where the last records begin that have text
 * without tokens; the number of valid bytes if there are none. */
static size_t parse(struct journal_copy *c, int64_t number, const uint8_t *data, size_t len, size_t *tail,
                    struct hearth_err *e)
{
    if (len < FILE_HEADER || memcmp(data, magic, sizeof magic) != 0) {
        err_set(e, HEARTH_ESTORE, "not a journal");
        return 0;
    }
    if (get_le(data + 8, 8) != FILE_VERSION) { /* the zero is reserved for later versions */
        err_set(e, HEARTH_ESTORE, "of version %lu, this hearthd knows %d", (unsigned long)get_le(data + 8, 4),
                FILE_VERSION);
        return 0;
    }
    size_t at = *tail = FILE_HEADER;
    while (at < len) {
        bool is_tokens = c->begin != NULL; /* or the end */
        size_t n_ids = c->output.n_ids;
        const uint8_t *payload = data + at + RECORD_HEADER;
        uint64_t n = len - at >= RECORD_HEADER ? get_le(data + at, 4) : UINT64_MAX;
        if (len - at < RECORD_HEADER || n > len - at - RECORD_HEADER) {
            err_set(e, HEARTH_ESTORE, "an unfinished record");
            break;
        }
        if (XXH3_64bits_withSeed(payload, n, at) != get_le(data + at + 4, 8)) {
            err_set(e, HEARTH_ESTORE, "a record whose checksum is wrong");
            break;
        }
        if (take(c, number, payload, n, e) != 0)
            break;
        at += RECORD_HEADER + n;
        if (!is_tokens || c->end || c->output.n_ids > n_ids)
            *tail = at;
    }
    return at;
}

/* Reads the whole file into malloc'd memory. */
static int slurp(int fd, uint8_t **data, size_t *len, struct hearth_err *e)
{
    struct stat sb;
    if (fstat(fd, &sb) != 0)
        return err_set(e, HEARTH_ESTORE, "%s", strerror(errno));
    if (!S_ISREG(sb.st_mode))
        return err_set(e, HEARTH_ESTORE, "not a file");
    if (sb.st_uid != geteuid())
        return err_set(e, HEARTH_ESTORE, "belongs to user %u", (unsigned)sb.st_uid);
    if (sb.st_size > FILE_MAX)
        return err_set(e, HEARTH_ESTORE, "%lld bytes, the limit is %d", (long long)sb.st_size, FILE_MAX);
    uint8_t *p = malloc((size_t)sb.st_size + 1);
    if (!p)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    size_t n = 0;
    while (n < (size_t)sb.st_size) {
        ssize_t got = read(fd, p + n, (size_t)sb.st_size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    *data = p;
    *len = n;
    return 0;
}

int journal_read(int dir_fd, const char *name, int64_t number, struct journal_copy *c, int64_t *good,
                 struct hearth_err *e)
{
    *c = (struct journal_copy){0};
    *e = (struct hearth_err){0};
    /* O_NONBLOCK: opening a FIFO with that name must not block the start. */
    int fd = openat(dir_fd, name, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return err_set(e, HEARTH_ESTORE, "%s", errno == ELOOP ? "a symbolic link" : strerror(errno));
    uint8_t *data = NULL;
    size_t len = 0, valid, tail = 0;
    int rc = slurp(fd, &data, &len, e);
    if (!rc) {
        valid = parse(c, number, data, len, &tail, e);
        /* Text that was held back is written at the stream's end. If the end itself is missing, the stream goes on, and
         * the engine, which is given the tokens, holds the same text back again. */
        if (!c->end && tail < valid) {
            journal_copy_fini(c);
            valid = parse(c, number, data, tail, &tail, e);
            if (e->code == 0)
                err_set(e, HEARTH_ESTORE, "the last text, and not the end");
        }
        *good = (int64_t)valid;
    }
    free(data);
    if (!rc && !c->head)
        rc = e->code != 0 ? e->code : err_set(e, HEARTH_ESTORE, "without a head");
    if (rc) {
        journal_copy_fini(c);
        close(fd);
        return rc;
    }
    return fd;
}

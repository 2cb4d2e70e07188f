/* heads.c - see heads.h. Thread: the loop's, except for read_head(), which runs on a worker. */
#include "config.h"

#include "daemon/engine/front/heads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/clock.h"
#include "daemon/model/file.h"
#include "daemon/model/kind.h"

/* A failure that may pass is remembered for the lists of one client, who asks until everything is read, but not for
 * later ones. */
static const double passing_seconds = 1;

struct head {
    TAILQ_ENTRY(head) link;
    struct job job;
    char *path;
    int64_t bytes;
    double modified;
    bool wanted;  /* it is in the last list */
    bool reading; /* the following members are in use by a worker */
    bool read;
    char arch[64], type[16]; /* "" if not known */
    const char *kind;        /* NULL: the file could not be opened */
    uint64_t n_param;
    struct hearth_err why; /* code 0: the model can run */
    double until;          /* time on the engine's clock at which it is read again; 0: only once the file has changed */
};

struct heads {
    TAILQ_HEAD(, head) list; /* in the order of the last list, so that the next one is matched in one pass */
};

struct heads *heads_new(void)
{
    struct heads *h = malloc(sizeof *h);
    if (h)
        TAILQ_INIT(&h->list);
    return h;
}

static void forget(struct heads *h, struct head *d)
{
    TAILQ_REMOVE(&h->list, d, link);
    free(d->path);
    free(d);
}

void heads_free(struct heads *h)
{
    struct head *d;
    while (h && (d = TAILQ_FIRST(&h->list)))
        forget(h, d);
    free(h);
}

/* --- reading ------------------------------------------------------------------------------------------------ */

static void describe(struct head *d, const struct model_file *f)
{
    struct gguf_str arch = {"", 0};
    struct hearth_err ignored;
    gguf_str(f->gguf, "general.architecture", &arch, &ignored);
    snprintf(d->arch, sizeof d->arch, "%.60s", gguf_label(arch).s);
    snprintf(d->type, sizeof d->type, "%s", model_type(f->gguf));
    d->kind = model_kind_name(model_kind(f->gguf));
    d->n_param = 0;
    for (size_t i = 0; i < gguf_n_tensor(f->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(f->gguf, i);
        d->n_param += t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
    }
}

/* Checks that all tensors exist, with the shapes and types that the program requires. */
static void check(struct head *d, struct model_file *f)
{
    struct model *outline = NULL;
    d->why = f->hp_err;
    if (model_kind(f->gguf) == KIND_VOCABULARY)
        err_set(&d->why, HEARTH_EUNSUPPORTED, "it holds a vocabulary and no weights");
    else if (!d->why.code && !model_outline(&outline, f->gguf, &d->why))
        d->why.code = 0;
    model_free(outline);
}

static int read_head(struct job *j, struct hearth_err *e)
{
    struct head *d = j->owner;
    struct model_file f;
    int rc = model_file_read(d->path, &f, e);
    if (rc == HEARTH_ECANCELLED)
        return rc; /* it is run again where more time is allowed */
    if (rc) {
        d->why = *e;
        return 0;
    }
    describe(d, &f);
    check(d, &f);
    gguf_close(f.gguf);
    return d->why.code == HEARTH_ECANCELLED ? d->why.code : 0;
}

bool heads_is_theirs(const struct job *j)
{
    return j->run == read_head;
}

void heads_end(struct job *j)
{
    struct head *d = j->owner;
    d->reading = false;
    d->read = !j->err.code;
    bool passes = d->why.code && !model_file_is_at_fault(d->why.code);
    d->until = passes ? engine_now() + passing_seconds : 0;
}

/* --- the list ----------------------------------------------------------------------------------------------- */

/* Searches from `from` to the end, then from the start: a list usually has the same order as the one before. */
static struct head *find(struct heads *h, struct head *from, const struct wire_engine_file *f)
{
    struct head *d = from ? from : TAILQ_FIRST(&h->list);
    for (struct head *first = d; d;) {
        if (!strcmp(d->path, f->path))
            return d;
        d = TAILQ_NEXT(d, link) ? TAILQ_NEXT(d, link) : TAILQ_FIRST(&h->list);
        if (d == first)
            break;
    }
    return NULL;
}

static int add(struct heads *h, struct head *before, const char *path, struct head **out, struct hearth_err *e)
{
    struct head *d = calloc(1, sizeof *d);
    if (!d || !(d->path = strdup(path))) {
        free(d);
        return err_set(e, HEARTH_ENOMEM, "no memory for a list of models");
    }
    if (before)
        TAILQ_INSERT_AFTER(&h->list, before, d, link);
    else
        TAILQ_INSERT_HEAD(&h->list, d, link);
    *out = d;
    return 0;
}

static bool is_known(const struct head *d, const struct wire_engine_file *f)
{
    return d->read && d->bytes == f->bytes && d->modified == f->modified && (!d->until || engine_now() < d->until);
}

static void begin(struct work *w, struct head *d, const struct wire_engine_file *f)
{
    d->bytes = f->bytes;
    d->modified = f->modified;
    d->read = false;
    d->reading = true;
    d->arch[0] = d->type[0] = '\0';
    d->kind = NULL;
    d->n_param = 0;
    d->job = (struct job){.run = read_head, .owner = d};
    work_begin(w, &d->job);
}

static bool is_loaded(const struct models *t, const char *path)
{
    const struct model_entry *m;
    TAILQ_FOREACH (m, &t->list, link)
        if (!strcmp(m->path, path) && atomic_load(&m->loaded))
            return true;
    return false;
}

static struct wire_model row(const struct head *d, const struct models *models)
{
    struct wire_model m = {.name = d->path, .path = d->path, .loaded = is_loaded(models, d->path)};
    if (!d->read)
        return m;
    m.read = true;
    m.arch = d->arch[0] ? d->arch : NULL;
    m.type = d->type[0] ? d->type : NULL;
    m.kind = d->kind;
    m.parameters = (int64_t)d->n_param;
    m.refusal = d->why.code ? d->why.msg : NULL;
    return m;
}

int heads_get(struct heads *h, struct work *w, const struct models *models, const struct wire_engine_heads *ask,
              struct wire_engine_heads_result *out, struct hearth_err *e)
{
    struct head *d, *next, *last = NULL;
    size_t n_old = 0; /* known before, and not yet found in this list */
    struct wire_model *rows = calloc(ask->n_files + 1, sizeof *rows);
    int rc = rows ? 0 : err_set(e, HEARTH_ENOMEM, "no memory for a list of models");
    TAILQ_FOREACH (d, &h->list, link) {
        d->wanted = false;
        n_old++;
    }
    for (size_t i = 0; i < ask->n_files && !rc; i++) {
        const struct wire_engine_file *f = &ask->files[i];
        d = n_old ? find(h, last ? TAILQ_NEXT(last, link) : NULL, f) : NULL;
        n_old -= d && !d->wanted;
        if (!d && (rc = add(h, last, f->path, &d, e)))
            break;
        d->wanted = true;
        if (!d->reading && !is_known(d, f))
            begin(w, d, f);
        rows[i] = row(d, models);
        last = d;
    }
    for (d = TAILQ_FIRST(&h->list); d; d = next) {
        next = TAILQ_NEXT(d, link);
        if (!d->wanted && !d->reading)
            forget(h, d);
    }
    if (rc) {
        free(rows);
        return rc;
    }
    *out = (struct wire_engine_heads_result){rows, ask->n_files};
    return 0;
}

/* models.c - the table of models; see models.h. Thread: the loop thread. */
#include "daemon/engine/sched/models.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/file.h"
#include "daemon/model/map.h"
#include "daemon/model/passed.h"

enum {
    MODELS_CACHED_MAX = 32,    /* mapped files that are neither loaded nor in use */
    MAPS_CACHED = 256,         /* mapped files, of loaded models too, from which on none is kept for an idle entry */
    FOLDER_ENTRIES_MAX = 4096, /* directory entries that are read where a model is a directory */
};

void models_init(struct models *t)
{
    TAILQ_INIT(&t->list);
    t->n = 0;
    t->clock = 0;
}

static void model_entry_free(struct models *t, struct model_entry *m)
{
    assert(!m->users && !atomic_load(&m->loaded));
    TAILQ_REMOVE(&t->list, m, link);
    t->n--;
    templates_free(m->templates);
    vocab_free(m->vocab);
    gguf_close(m->gguf);
    free(m->path);
    for (struct reason *r; (r = m->reasons); free(r))
        m->reasons = r->next;
    for (struct op_table *o; (o = m->op_tables); free(o))
        m->op_tables = o->next;
    free(m);
}

void models_fini(struct models *t)
{
    struct model_entry *m;
    while ((m = TAILQ_FIRST(&t->list))) {
        m->users = 0;
        model_entry_free(t, m);
    }
}

/* Unmaps files beyond MODELS_CACHED_MAX that are neither loaded nor in use, least recently used first. */
static void trim(struct models *t)
{
    struct model_entry *m, *next, *oldest;
    for (m = TAILQ_FIRST(&t->list); m; m = next) {
        next = TAILQ_NEXT(m, link);
        if (m->replaced && !m->users && !atomic_load(&m->loaded))
            model_entry_free(t, m);
    }
    /* A model may consist of 128 files and more: what is merely cached must not keep others from being mapped. */
    while (t->n > MODELS_CACHED_MAX || map_used() > MAPS_CACHED) {
        oldest = NULL;
        TAILQ_FOREACH (m, &t->list, link)
            if (!m->users && !atomic_load(&m->loaded) && (!oldest || m->used < oldest->used))
                oldest = m;
        if (!oldest)
            return;
        model_entry_free(t, oldest);
    }
}

/* A directory is identified by the sum of its files' sizes and the latest of their modification times. */
static int identify_folder(const char *path, struct file_id *id, struct hearth_err *e)
{
    DIR *d = opendir(path);
    struct dirent *de;
    if (!d)
        return err_set(e, HEARTH_EIO, "%.120s: %s", path, strerror(errno));
    id->size = 0;
    for (int n = 0; n < FOLDER_ENTRIES_MAX && (de = readdir(d)); n++) {
        struct stat st;
        if (fstatat(dirfd(d), de->d_name, &st, 0) || !S_ISREG(st.st_mode))
            continue;
        id->size += st.st_size;
        if (st.st_mtim.tv_sec > id->mtime.tv_sec ||
            (st.st_mtim.tv_sec == id->mtime.tv_sec && st.st_mtim.tv_nsec > id->mtime.tv_nsec))
            id->mtime = st.st_mtim;
    }
    closedir(d);
    return 0;
}

static int identify(const char *path, struct file_id *id, struct hearth_err *e)
{
    struct stat st;
    if (path[0] != '/')
        return err_set(e, HEARTH_EPARAMS, "model: \"%.120s\" is not an absolute path", path);
    int rc = passed_stat(path, &st);
    if (rc && passed_is(path))
        return err_set(e, HEARTH_ENOTPASSED, "%.120s: the descriptor that it was passed by is gone: pass it again",
                       passed_label(path));
    if (rc) {
        int code = errno == ENOENT || errno == ENOTDIR ? HEARTH_ENOMODEL : HEARTH_EIO;
        return err_set(e, code, "%.120s: %s", path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return err_set(e, HEARTH_ENOMODEL, "%.120s is neither a file nor a folder", path);
    *id = (struct file_id){st.st_dev, st.st_ino, st.st_size, st.st_mtim};
    return S_ISDIR(st.st_mode) && !passed_is(path) ? identify_folder(path, id, e) : 0;
}

static bool same_file(const struct file_id *a, const struct file_id *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size && a->mtime.tv_sec == b->mtime.tv_sec &&
           a->mtime.tv_nsec == b->mtime.tv_nsec;
}

/* Whether the path leads to another file, or to none. False where that cannot be determined. */
static bool is_gone(const struct model_entry *m)
{
    struct file_id id;
    struct hearth_err ignored;
    int rc = identify(m->path, &id, &ignored);
    return rc ? rc == HEARTH_ENOMODEL || rc == HEARTH_ENOTPASSED : !same_file(&m->id, &id);
}

void models_drop_gone(struct models *t)
{
    struct model_entry *m;
    TAILQ_FOREACH (m, &t->list, link)
        if (!m->users && !atomic_load(&m->loaded) && is_gone(m))
            m->replaced = true;
    trim(t);
}

static int model_entry_new(struct models *t, const char *path, const struct file_id *id, struct model_entry **out,
                           struct hearth_err *e)
{
    struct model_entry *m = calloc(1, sizeof *m);
    if (!m || !(m->path = strdup(path))) {
        free(m);
        return err_set(e, HEARTH_ENOMEM, "no memory for a model");
    }
    m->id = *id;
    TAILQ_INSERT_TAIL(&t->list, m, link);
    t->n++;
    *out = m;
    return 0;
}

int models_get(struct models *t, const char *path, struct model_entry **out, struct hearth_err *e)
{
    struct file_id id;
    struct model_entry *m, *found = NULL;
    int rc = identify(path, &id, e);
    if (rc)
        return rc;
    TAILQ_FOREACH (m, &t->list, link) {
        if (same_file(&m->id, &id) && !atomic_load(&m->changed))
            found = m;
        else if (!strcmp(m->path, path))
            m->replaced = true;
    }
    bool is_new = !found;
    if (!found && (rc = model_entry_new(t, path, &id, &found, e)))
        return rc;
    found->replaced = false;
    found->users++;
    found->used = ++t->clock;
    *out = found;
    if (is_new) /* otherwise each request for a known model would read the status of all files */
        models_drop_gone(t);
    else
        trim(t);
    return 0;
}

/* How near an entry is to having weights in memory; 0: not at all. One that is in use may be about to be loaded, and is
 * preferred to the loaded one of a file that was replaced, which is unloaded anyway as soon as it has no users. */
static int nearness(const struct model_entry *m)
{
    bool loaded = atomic_load(&m->loaded);
    if (!loaded && !m->gguf && !m->reading)
        return 0;
    if (!m->replaced && (loaded || m->users))
        return 3;
    return loaded ? 2 : 1;
}

struct model_entry *models_find(struct models *t, const char *path)
{
    struct model_entry *m, *found = NULL;
    TAILQ_FOREACH (m, &t->list, link) /* the newer of two is preferred */
        if (nearness(m) && !strcmp(m->path, path) && (!found || nearness(m) >= nearness(found)))
            found = m;
    if (found)
        found->users++;
    return found;
}

void models_put(struct models *t, struct model_entry *m)
{
    assert(m->users > 0);
    m->users--;
    if (!m->users && !atomic_load(&m->loaded) && is_gone(m)) /* since models_drop_gone() left it alone, for instance */
        m->replaced = true;
    trim(t);
}

int model_file_read(const char *path, struct model_file *out, struct hearth_err *e)
{
    *out = (struct model_file){0};
    int rc = model_file_open(&out->gguf, path, e);
    if (rc)
        return rc;
    if (!model_hparams(&out->hp, out->gguf, &out->hp_err))
        model_find_tied(&out->hp, out->gguf); /* memory is planned by hp.weight_bytes */
    return 0;
}

void models_set_file(struct model_entry *m, const struct model_file *f)
{
    m->hp = f->hp;
    m->hp_err = f->hp_err;
    m->gguf = f->gguf;
    m->filled = gguf_is_filled(f->gguf);
}

void models_set_vocab(struct model_entry *m, struct vocab *v, const struct hearth_err *why)
{
    m->vocab = v;
    if (!v)
        m->vocab_err = *why;
}

int models_templates(struct model_entry *m, struct templates **out, struct hearth_err *e)
{
    int rc = m->templates ? 0 : templates_load(&m->templates, m->gguf, e);
    *out = m->templates;
    return rc;
}

struct model_entry *models_idle_replaced(struct models *t)
{
    struct model_entry *m;
    TAILQ_FOREACH (m, &t->list, link)
        if (m->replaced && !m->users && atomic_load(&m->loaded))
            return m;
    return NULL;
}

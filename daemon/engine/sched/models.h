/*
 * models.h - the table of models: from a path to a mapped file, its vocabulary, and the model on the device.
 *
 * A file is known by device, inode, size and time of change: the same file under two names is one model, and a file
 * that was replaced is another. A model that only tokenises or answers questions about itself is mapped, not loaded.
 *
 * A model's entry has two owners. The loop thread opens the file, answers questions about it and counts its users; the
 * device thread loads and unloads the model. The loop thread frees an entry only when it has no users and is not
 * loaded.
 */
#ifndef HEARTH_ENGINE_MODELS_H
#define HEARTH_ENGINE_MODELS_H

#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include "daemon/engine/sched/op-table.h"
#include "daemon/engine/sched/sched.h"
#include "daemon/model/chat/templates.h"
#include "daemon/model/model.h"
#include "daemon/model/tok/tok.h"

struct engine;
struct kv_namespace; /* tier-index.h */

struct file_id {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
};

/* Why a model is not on the engine's device. */
struct reason {
    struct reason *next;
    char text[HEARTH_ERR_MSG];
};

struct model_entry {
    /* The loop thread's. Constant once set. */
    TAILQ_ENTRY(model_entry) link;
    char *path;
    struct file_id id;
    struct gguf *gguf;           /* NULL: its file is being read */
    struct vocab *vocab;         /* NULL before models_set_vocab(), or where the model has none */
    struct hearth_err vocab_err; /* why its file has none; what passes, as no memory, is not kept */
    struct hparams hp;           /* valid where hp_err.code is 0 */
    struct hearth_err hp_err;    /* why the model cannot run */
    struct templates *templates; /* NULL before models_templates */
    void *reading;               /* what reads its file or its vocabulary; NULL: nothing does */
    uint32_t users;              /* requests that hold it */
    uint64_t used;               /* the table's clock at the last use */
    bool replaced;               /* the path leads to another file now */

    /* The device thread's. */
    TAILQ_ENTRY(model_entry) loaded_link;
    struct model *model;                 /* NULL: not loaded */
    struct kv_pool *pool[KV_GROUPS_MAX]; /* [n_group] of its layer groups ... */
    struct kv_desc kv[KV_GROUPS_MAX];    /* ... and what they are */
    uint32_t n_group;
    bool invariant_prompts; /* they are computed by steps of INVARIANT_PROMPT, where it is on a GPU */
    struct engine *engine;  /* whose device it is loaded on */
    bool here;              /* it is served by this engine whatever room there is, until it is unloaded */
    struct sched_group group;
    struct kv_namespace *ns[KV_GROUPS_MAX]; /* its KV's namespaces in the tiers; all NULL: it has none there */
    double load_begun, load_ended;          /* the last time */
    double used_at;                         /* when somebody had work for it last */
    struct reason *reasons;                 /* of all its loadings; owned, freed with the entry */
    struct op_table *op_tables;             /* likewise */

    /* Written by the device thread, read by the loop's status. */
    _Atomic bool loaded, on_gpu;
    _Atomic uint64_t own_bytes, host_bytes; /* of weights that lie in the device's memory and, because that had no room,
                                               in the host's; 0 and 0: all where they belong */
    _Atomic double speed;                   /* tokens per second that are to be expected then, at most; 0: not known */
    _Atomic bool changed; /* the file was written to while its weights were in use; nothing is computed from here on,
                             even where the true bytes come back with the old time */
    _Atomic(const char *) self_check;     /* "passed", "passed before", or a reason; NULL: the device needs none */
    _Atomic(const struct op_table *) ops; /* of the last loading; NULL: it had no memory, or there was none */
    _Atomic uint32_t pages_used, pages_total, sequences, context_used;
    _Atomic uint64_t page_bytes;
    _Atomic uint32_t states_used, states_total; /* recurrent states, which are among the above; 0: it has none */
    _Atomic uint64_t state_bytes;               /* of one */
    _Atomic bool pinned;                        /* it is unloaded when somebody says so alone */
    _Atomic double unload_at; /* of one that is loaded: time on the engine's clock, unless it is used before; 0: in use,
                                or never */
};

struct models {
    TAILQ_HEAD(, model_entry) list;
    uint32_t n;
    uint64_t clock;
};
void models_init(struct models *t);
/* Unmaps all files and frees the table. No model may be loaded any more. */
void models_fini(struct models *t);

/* Finds the file's entry, or makes one, whose gguf is NULL until models_set_file(); it stays until models_put(). The
 * path must be absolute. Nothing is read but the file's status. */
int models_get(struct models *t, const char *path, struct model_entry **out, struct hearth_err *e);
/* The entry of that path whose weights are loaded, whatever has become of the file since, or may be about to be; it
 * stays until models_put(). NULL: none, so that nothing of the path is or will be in memory. */
struct model_entry *models_find(struct models *t, const char *path);
void models_put(struct models *t, struct model_entry *m);
/* Unmaps files that are neither loaded nor in use, and that their paths do not lead to any more: the space of one that
 * was deleted is the disk's again. It reads the status of each such file, so it is for what comes seldom. */
void models_drop_gone(struct models *t);

/* What is read of a model's file. */
struct model_file {
    struct gguf *gguf;
    struct hparams hp;
    struct hearth_err hp_err;
};
/* Opens a file and reads its header, which takes seconds where that is large. Any thread. */
int model_file_read(const char *path, struct model_file *out, struct hearth_err *e);
void models_set_file(struct model_entry *m, const struct model_file *f); /* takes it over */

/* Gives the entry its vocabulary, which it owns from then on, or why its file has none. That must be done before the
 * device thread gets a sequence of the model, because that thread reads the vocabulary too; from then on it is
 * constant. */
void models_set_vocab(struct model_entry *m, struct vocab *v, const struct hearth_err *why);

/* The model's chat templates, read at first need. Owned by the entry. */
int models_templates(struct model_entry *m, struct templates **out, struct hearth_err *e);

/* Device thread: carries out what the model's page table asks for, copies and clearings, before anything else uses the
 * pages. */
static inline void models_run_kv_actions(struct model_entry *m)
{
    const struct backend *be = m->model->be;
    struct kv_action a;
    while (kv_next_action(m->group.kv, &a)) {
        if (a.kind == KV_COPY)
            be->kv_copy(m->model->dev, m->pool[a.group], a.page, a.from);
        else
            be->kv_clear(m->model->dev, m->pool[a.group], a.page);
    }
}

/* Returns the next entry whose file was replaced, which is idle but loaded, for the loop to unload; NULL. */
struct model_entry *models_idle_replaced(struct models *t);

#endif

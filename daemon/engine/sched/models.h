/*
 * models.h - the table of models: maps a path to a mapped file, its vocabulary, and the model on the device.
 *
 * A file is identified by device, inode, size and modification time: the same file under two names is one model, and a
 * file that was replaced is another model. A model that is only used to tokenise or to answer questions about itself is
 * mapped, not loaded.
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

/* One reason why a model is not on the engine's device. */
struct reason {
    struct reason *next;
    char text[HEARTH_ERR_MSG];
};

struct model_entry {
    /* Owned by the loop thread. Constant once set. */
    TAILQ_ENTRY(model_entry) link;
    char *path;
    struct file_id id;
    struct gguf *gguf;           /* NULL while the file is being read */
    bool filled;                 /* gguf_is_filled(); it can be loaded */
    struct vocab *vocab;         /* NULL before models_set_vocab(), or where the model has none */
    struct hearth_err vocab_err; /* why the file has none; a transient error, such as no memory, is not kept */
    struct hparams hp;           /* valid where hp_err.code is 0 */
    struct hearth_err hp_err;    /* why the model cannot run */
    struct templates *templates; /* NULL before models_templates */
    void *reading;               /* the job that reads the file, weights or vocabulary; NULL: none is under way */
    uint32_t users;              /* requests that hold it */
    uint64_t used;               /* the table's clock at the last use */
    bool replaced;               /* the path leads to another file or to none, or the file changed in place */

    /* Owned by the device thread. */
    TAILQ_ENTRY(model_entry) loaded_link;
    struct model *model;                 /* NULL: not loaded */
    struct kv_pool *pool[KV_GROUPS_MAX]; /* [n_group] one for each layer group ... */
    struct kv_desc kv[KV_GROUPS_MAX];    /* ... and their descriptions */
    uint32_t n_group;
    bool invariant_prompts; /* prompts are computed in INVARIANT_PROMPT steps when the model is on a GPU */
    uint64_t weights;       /* bytes of its weights as the device keeps them; 0: not known */
    uint64_t sums;          /* bytes that its steps may take for partial sums of attention to the longest context */
    struct engine *engine;  /* the engine whose device it is loaded on */
    bool here;              /* this engine serves it even where another device has more room, until it is unloaded */
    struct sched_group group;
    /* The namespaces of its KV in the tiers; all NULL: its KV does not go to the tiers. */
    struct kv_namespace *ns[KV_GROUPS_MAX];
    double load_begun, load_ended; /* of the last load */
    double used_at;                /* when it last had work */
    struct reason *reasons;        /* of all loads; owned, freed with the entry */
    struct op_table *op_tables;    /* likewise */

    /* Written by the device thread, read by the loop thread for the status. */
    _Atomic bool loaded, on_gpu;
    /* Bytes of weights in the device's own memory, and in host memory because the device had no room for them. Both are
     * 0 where all weights are where they belong. */
    _Atomic uint64_t own_bytes, host_bytes;
    _Atomic double speed; /* upper estimate of tokens per second with weights in host memory; 0: not known */
    /* The file was written to while its weights were in use. Nothing more is computed, even if the original bytes are
     * restored together with the old modification time. */
    _Atomic bool changed;
    _Atomic(const char *) self_check;     /* "passed", "passed before", or a reason; NULL: the device needs none */
    _Atomic(const struct op_table *) ops; /* of the last load; NULL: no load yet, or no memory for the table */
    _Atomic uint32_t pages_used, pages_total, sequences, context_used;
    _Atomic uint64_t page_bytes;
    _Atomic uint32_t states_used, states_total; /* recurrent states, included in pages_*; 0: it has none */
    _Atomic uint64_t state_bytes;               /* of one state */
    _Atomic bool pinned;                        /* it is unloaded only on request */
    /* When an idle loaded model is to be unloaded, on the engine's clock, unless it is used before; 0: in use, or
     * never. */
    _Atomic double unload_at;
};

struct models {
    TAILQ_HEAD(, model_entry) list;
    uint32_t n;
    uint64_t clock;
};
void models_init(struct models *t);
/* Unmaps all files and frees the table. No model may still be loaded. */
void models_fini(struct models *t);

/* Finds the file's entry, or creates one whose gguf is NULL until models_set_file(). The entry stays until
 * models_put(). The path must be absolute. Only the file's status is read. */
int models_get(struct models *t, const char *path, struct model_entry **out, struct hearth_err *e);
/* Returns the entry of that path whose weights are loaded, or may be about to be, whatever has become of the file
 * since. The entry stays until models_put(). NULL: nothing of the path is or will be in memory. */
struct model_entry *models_find(struct models *t, const char *path);
/* With its last user goes a file that is not loaded and that its path no longer leads to. */
void models_put(struct models *t, struct model_entry *m);
/* Unmaps files that are neither loaded nor in use and that their paths no longer lead to, so that the disk space of a
 * deleted file is freed. It reads the status of each such file, so call it only on rare events. */
void models_drop_gone(struct models *t);

/* What model_file_read() reads from a model's file. */
struct model_file {
    struct gguf *gguf;
    struct hparams hp;
    struct hearth_err hp_err;
};
/* Opens a file and reads its header, which takes seconds if the header is large. Any thread. */
int model_file_read(const char *path, struct model_file *out, struct hearth_err *e);
void models_set_file(struct model_entry *m, const struct model_file *f); /* takes it over */

/* Sets the entry's vocabulary, which the entry owns from then on, or the reason why its file has none. This must happen
 * before the device thread gets a sequence of the model, because that thread reads the vocabulary too; after that the
 * vocabulary is constant. */
void models_set_vocab(struct model_entry *m, struct vocab *v, const struct hearth_err *why);

/* Returns the model's chat templates, which are read on first use. Owned by the entry. */
int models_templates(struct model_entry *m, struct templates **out, struct hearth_err *e);

/* Device thread: carries out the copies and clears that the model's page table has queued, before anything else uses
 * the pages. */
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

/* Returns an entry whose file was replaced and which is loaded but has no users, for the loop to unload; NULL: there is
 * none. */
struct model_entry *models_idle_replaced(struct models *t);

#endif

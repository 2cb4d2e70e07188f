/* one-step.h - computes the first tokens of a sequence, with whatever buffers a model needs. */
#ifndef HEARTH_TESTS_ONE_STEP_H
#define HEARTH_TESTS_ONE_STEP_H

#include "daemon/model/model.h"

enum { STEP_MOST = 2 * KV_PAGE };

/* Computes the ids 1, 2 ... of the vocabulary, n of them, at most STEP_MOST. `logits`, [n][n_vocab], may be NULL. */
static inline int one_step(const struct backend *be, struct device *dev, const struct model *m, uint32_t n,
                           float *logits, struct hearth_err *e)
{
    struct workspace_dims dims = {.n_row = n, .n_out = n};
    struct kv_desc kv[KV_GROUPS_MAX];
    struct kv_pool *pool[KV_GROUPS_MAX];
    uint32_t n_group = model_kv_descs(m, DT_F32, kv), made = 0, pages[2] = {0, 1}, row[STEP_MOST];
    int32_t token[STEP_MOST];
    struct batch_seq seq = {.n_row = n};
    struct batch b = {
        .n_row = n, .n_seq = 1, .n_out = n, .token = token, .seq = &seq, .out_row = row, .n_group = n_group};
    for (uint32_t i = 0; i < n; i++) {
        token[i] = (int32_t)((i + 1) % m->hp.n_vocab);
        row[i] = i;
    }
    model_workspace(m, &dims);
    int rc = be->reserve(dev, &dims, e);
    for (; made < n_group && !rc; made += !rc) {
        kv[made].n_page = 2;
        rc = be->kv_new(dev, &kv[made], &pool[made], e);
        b.kv[made] = rc ? NULL : pool[made];
        seq.pages[made] = pages;
    }
    if (!rc)
        rc = be->step_wait(dev, be->step_run(dev, &b, &m->program), NULL, 0, e);
    if (!rc && logits)
        rc = be->act_read(dev, ACT_LOGITS, 0, n, logits, e);
    for (uint32_t i = 0; i < made; i++)
        be->kv_free(dev, pool[i]);
    return rc;
}

#endif

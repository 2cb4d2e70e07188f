/*
 * model.c - from a file's tensors and an architecture to a model on a device. Thread: the device's.
 *
 * Two passes over the same bind functions: the first finds every tensor and checks type and shape, the second loads.
 * So a file with one wrong shape costs no upload, and an error never depends on the device's free memory.
 */
#include "daemon/model/model-internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/model/pace.h"

static struct layer *layer_at(const struct model *m, uint32_t i)
{
    size_t bytes = m->arch->layer_bytes ? m->arch->layer_bytes : sizeof(struct layer);
    return (struct layer *)((char *)m->layers + i * bytes);
}

const struct layer *model_layer(const struct model *m, uint32_t i)
{
    return layer_at(m, i);
}

/* Fills in the parts of a layer that are known before its architecture binds it. */
static struct layer *begin_layer(const struct model *m, uint32_t i)
{
    const struct hparams *hp = &m->hp;
    struct layer *l = layer_at(m, i);
    l->number = i;
    l->group = hp->group_of[i];
    l->index = hp->index_of[i];
    l->window = hp->slides[i] ? hp->window : 0;
    l->shares_kv = i >= hp->n_layer - hp->n_shared_kv;
    l->n_head = hp->shape[i].n_head;
    l->n_kv = hp->shape[i].n_kv;
    l->d_head = hp->shape[i].d_head;
    l->d_ff = hp->shape[i].d_ff;
    l->rope = hp->turns[i] ? &m->rope[bind_rope_which(hp, i)] : NULL;
    return l;
}

static int bind_all(struct binder *b)
{
    struct model *m = b->m;
    const struct hparams *hp = &m->hp;
    b->layer = -1;
    if (!b->load) /* the second pass loads what the first one has found */
        m->tied = model_find_tied(&m->hp, m->gguf);
    if (m->tied)
        bind_ignore(b, "output.weight");
    int ret = bind_matrix(b, &m->tok_embd, WEIGHT_EMBED, hp->d_model,
                          &(struct bind_part){"token_embd.weight", hp->n_vocab}, 1);
    if (!ret)
        ret = bind_rope(b);
    for (uint32_t i = 0; i < hp->n_layer && !ret; i++) {
        b->layer = (int32_t)i;
        ret = m->arch->bind_layer(b, begin_layer(m, i));
    }
    b->layer = -1;
    if (!ret && m->arch->bind_own)
        ret = m->arch->bind_own(b, m->own);
    if (!ret)
        ret = bind_norm(b, &m->out_norm, m->arch->out_norm ? m->arch->out_norm : "output_norm", hp->d_model);
    if (!ret && m->tied)
        m->out = m->tok_embd;
    else if (!ret)
        ret = bind_matrix(b, &m->out, WEIGHT_HEAD, hp->d_model, &(struct bind_part){"output.weight", hp->n_vocab}, 1);
    if (!ret && gguf_tensor_find(m->gguf, "output.bias"))
        ret = bind_vector(b, &m->out_bias, &(struct bind_part){"output.bias", hp->n_vocab}, 1);
    return ret;
}

/* A tensor that was not bound belongs to a model that computes something else; ignoring it would give wrong results
 * silently. */
static int all_used(const struct binder *b)
{
    for (size_t i = 0; i < gguf_n_tensor(b->m->gguf); i++)
        if (!b->used[i] && !hparams_is_ahead(&b->m->hp, gguf_tensor_at(b->m->gguf, i)->name))
            return err_set(b->e, HEARTH_EUNSUPPORTED, "tensor %s has no place in a %s as hearth runs it",
                           gguf_label(gguf_tensor_at(b->m->gguf, i)->name).s, b->m->hp.arch);
    return 0;
}

static int build(struct model *m, struct hearth_err *e)
{
    m->program = (struct program){.model = m};
    m->arch->build(m, &m->program);
    return m->program.failed ? err_set(e, HEARTH_ENOMEM, "no memory for a program of %u layers", m->hp.n_layer) : 0;
}

/* Makes a model that has only its hyperparameters, and sets up `b` for binding. The caller frees b->used. */
static int begin(struct binder *b, struct gguf *g, const struct backend *be, struct device *dev)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(b->e, HEARTH_ENOMEM, "no memory for a model");
    b->m = m;
    m->be = be;
    m->dev = dev;
    m->gguf = g;
    int ret = model_hparams(&m->hp, g, b->e);
    if (ret)
        return ret;
    m->arch = arch_find(m->hp.arch, strlen(m->hp.arch));
    m->layers = calloc(m->hp.n_layer, m->arch->layer_bytes ? m->arch->layer_bytes : sizeof(struct layer));
    if (!m->layers)
        return err_set(b->e, HEARTH_ENOMEM, "no memory for %u layers", m->hp.n_layer);
    if (m->arch->own_bytes && !(m->own = calloc(1, m->arch->own_bytes)))
        return err_set(b->e, HEARTH_ENOMEM, "no memory for a model");
    if (!(b->used = calloc(gguf_n_tensor(g) + 1, sizeof *b->used)))
        return err_set(b->e, HEARTH_ENOMEM, "no memory for %zu tensors", gguf_n_tensor(g));
    return 0;
}

/* The first pass: every tensor exists, has the right shape and is used; within a room, the matrices also fit into
 * it. */
static int check(struct binder *b)
{
    int ret = bind_all(b);
    if (!ret)
        ret = all_used(b);
    return ret || !b->room ? ret : place_choose(b->item, b->n_item, b->room, &b->m->place, b->e);
}

struct filling {
    struct binder *b;
    size_t bytes; /* since the last report */
};

static int on_fill(void *arg, size_t bytes, struct hearth_err *e)
{
    enum { STEP = 16 << 20 };
    struct filling *f = arg;
    const struct binder *b = f->b;
    f->bytes += bytes;
    if (f->bytes < STEP)
        return 0;
    f->bytes = 0;
    return b->cb(b->arg, b->done, b->total) ? 0 : err_set(e, HEARTH_ECANCELLED, "loading was cancelled");
}

/* Writes what the file has in another form, which for experts of a folder may be many gigabytes: others go on
 * meanwhile, as they do between matrices. */
static int fill(struct binder *b)
{
    struct filling f = {b, 0};
    if (b->cb)
        pace_set(on_fill, &f);
    int ret = gguf_fill(b->m->gguf, b->e);
    if (b->cb)
        pace_set(NULL, NULL);
    return ret;
}

static int load(struct binder *b)
{
    b->load = true;
    int ret = fill(b);
    if (!ret)
        ret = bind_all(b);
    return ret ? ret : gguf_check(b->m->gguf, b->e);
}

static int end(struct binder *b, struct model **out, int ret)
{
    if (!ret)
        ret = build(b->m, b->e);
    free(b->used);
    free(b->item);
    if (ret)
        model_free(b->m);
    else
        *out = b->m;
    return ret;
}

int model_load(struct model **out, struct gguf *g, const struct backend *be, struct device *dev, model_progress *cb,
               void *arg, struct hearth_err *e)
{
    return model_load_within(out, g, be, dev, NULL, cb, arg, e);
}

int model_load_within(struct model **out, struct gguf *g, const struct backend *be, struct device *dev,
                      const struct model_room *room, model_progress *cb, void *arg, struct hearth_err *e)
{
    struct binder b = {.room = be->weight_bytes ? room : NULL, .cb = cb, .arg = arg, .e = e};
    int ret = begin(&b, g, be, dev);
    if (!ret)
        ret = check(&b);
    if (!ret)
        ret = load(&b);
    return end(&b, out, ret);
}

int model_find_places(struct gguf *g, const struct backend *be, struct device *dev, const struct model_room *room,
                      struct model_place *out, struct hearth_err *e)
{
    struct binder b = {.room = be->weight_bytes ? room : NULL, .e = e};
    struct model *m = NULL;
    int ret = begin(&b, g, be, dev);
    if (!ret)
        ret = check(&b);
    ret = end(&b, &m, ret);
    if (!ret)
        *out = m->place;
    model_free(m);
    return ret;
}

int model_outline(struct model **out, struct gguf *g, struct hearth_err *e)
{
    struct binder b = {.e = e};
    int ret = begin(&b, g, NULL, NULL);
    if (!ret)
        ret = check(&b);
    return end(&b, out, ret);
}

void model_free(struct model *m)
{
    if (!m)
        return;
    for (struct loaded *l; (l = m->loaded);) {
        m->loaded = l->next;
        m->be->weight_free(m->dev, l->w);
        free(l);
    }
    for (struct vec *v; (v = m->vecs);) {
        m->vecs = v->next;
        m->be->vec_free(m->dev, v->v);
        free(v);
    }
    for (struct owned *k; (k = m->owned);) {
        m->owned = k->next;
        free(k);
    }
    program_free(&m->program);
    free(m->own);
    free(m->layers);
    free(m);
}

const float *model_vector(const struct model *m, const float *v)
{
    for (const struct vec *at = m->vecs; at; at = at->next)
        if (at->v == v)
            return at->host;
    return NULL;
}

uint32_t model_kv_descs(const struct model *m, enum dtype type, struct kv_desc out[KV_GROUPS_MAX])
{
    for (uint32_t i = 0; i < m->hp.n_group; i++) {
        const struct kv_group *g = &m->hp.kv[i];
        out[i] = (struct kv_desc){
            .n_layer = g->n_layer, .n_kv = g->n_kv, .d_k = g->d_k, .d_v = g->d_v, .window = g->window, .type = type};
        if (g->d_state) {
            out[i].type = DT_F32;
            out[i].d_state = g->d_state;
        }
    }
    return m->hp.n_group;
}

static void at_least(uint32_t *v, uint32_t n)
{
    if (*v < n)
        *v = n;
}

/* Columns of ACT_LATENT. */
static uint32_t latent_width(const struct hparams *hp)
{
    const struct hparams_latent *l = &hp->latent;
    return l->d_q ? l->d_q : hp->n_head * (l->d_nope + hp->n_rot[ROPE_FULL]);
}

void model_workspace(const struct model *m, struct workspace_dims *dims)
{
    at_least(&dims->d_model, m->hp.d_model);
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer_shape *l = &m->hp.shape[i];
        at_least(&dims->d_q, (uint32_t)l->n_head * l->d_head);
        at_least(&dims->d_kv, (uint32_t)l->n_kv * l->d_head);
    }
    at_least(&dims->d_q, m->program.most[ACT_ATT]);
    at_least(&dims->d_mix, m->program.most[ACT_MIX]);
    at_least(&dims->d_ff, m->hp.d_ff);
    at_least(&dims->d_ff, m->hp.experts.d_shared);
    at_least(&dims->d_ff, m->hp.d_input);
    if (m->hp.latent.d_c)
        at_least(&dims->d_latent, latent_width(&m->hp));
    at_least(&dims->d_inputs, m->hp.n_layer * m->hp.d_input);
    if (m->hp.experts.beside)
        at_least(&dims->d_aside, m->hp.d_model);
    at_least(&dims->d_route, 2 * m->hp.experts.n_used);
    at_least(&dims->d_experts, m->hp.experts.n_used * m->hp.experts.d_expert);
    at_least(&dims->n_vocab, m->hp.n_vocab);
}

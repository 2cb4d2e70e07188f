/* fingerprint.c - the fingerprint of a model's KV; see fingerprint.h. */
#include "config.h"

#include "daemon/engine/kvtier/fingerprint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

enum { SAMPLE = 4096 /* bytes of a sample; three are hashed of each tensor */ };

static struct kv_hash digest(XXH3_state_t *s)
{
    XXH128_hash_t h = XXH3_128bits_digest(s);
    return (struct kv_hash){h.low64, h.high64};
}

/* The length is hashed too, so that "ab" "c" and "a" "bc" differ. */
static void add_str(XXH3_state_t *s, struct gguf_str v)
{
    uint64_t n = v.n;
    XXH3_128bits_update(s, &n, sizeof n);
    XXH3_128bits_update(s, v.s, v.n);
}

static bool is_tokenizer(struct gguf_str key)
{
    static const char prefix[] = "tokenizer.";
    return key.n >= sizeof prefix - 1 && !memcmp(key.s, prefix, sizeof prefix - 1);
}

static void add_keys(XXH3_state_t *s, const struct gguf *g, bool tokenizer)
{
    for (size_t i = 0; i < gguf_n_key(g); i++) {
        struct gguf_str raw, name = gguf_key_at(g, i, &raw);
        if (is_tokenizer(name) != tokenizer)
            continue;
        add_str(s, name);
        add_str(s, raw);
    }
}

/* Calls fn for the samples that represent a tensor's data: its first, middle and last bytes. */
static void each_sample(const struct gguf_tensor *t, void (*fn)(void *arg, const char *p, size_t n), void *arg)
{
    const char *p = t->data;
    if (t->bytes <= 3 * SAMPLE) {
        fn(arg, p, t->bytes);
        return;
    }
    fn(arg, p, SAMPLE);
    fn(arg, p + (t->bytes - SAMPLE) / 2, SAMPLE);
    fn(arg, p + t->bytes - SAMPLE, SAMPLE);
}

static void add_sample(void *arg, const char *p, size_t n)
{
    XXH3_128bits_update(arg, p, n);
}

/* Requests read-ahead of a sample. The file may not be in the page cache, so all samples are requested before the first
 * is read. */
static void want_sample(void *arg, const char *p, size_t n)
{
    uintptr_t page = *(const uintptr_t *)arg, from = (uintptr_t)p & ~(page - 1);
    if (n)
        madvise((void *)from, (uintptr_t)p + n - from, MADV_WILLNEED);
}

static struct kv_hash model_digest(XXH3_state_t *s, const struct gguf *g)
{
    uint64_t bytes = gguf_file_bytes(g);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    XXH3_128bits_reset(s);
    XXH3_128bits_update(s, &bytes, sizeof bytes);
    add_keys(s, g, false);
    for (size_t i = 0; i < gguf_n_tensor(g); i++)
        each_sample(gguf_tensor_at(g, i), want_sample, &page);
    for (size_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        add_str(s, t->name);
        XXH3_128bits_update(s, t->dim, sizeof t->dim);
        XXH3_128bits_update(s, &t->type, sizeof t->type);
        each_sample(t, add_sample, s);
    }
    return digest(s);
}

static struct kv_hash tokenizer_digest(XXH3_state_t *s, const struct gguf *g)
{
    XXH3_128bits_reset(s);
    add_keys(s, g, true);
    return digest(s);
}

static void add_rope(XXH3_state_t *s, const struct rope_params *p)
{
    uint32_t scaling = p->scaling, exact = p->exact_bounds, apart = p->apart;
    XXH3_128bits_update(s, &scaling, sizeof scaling);
    XXH3_128bits_update(s, &p->base, sizeof p->base);
    XXH3_128bits_update(s, &p->factor, sizeof p->factor);
    XXH3_128bits_update(s, &p->original, sizeof p->original);
    XXH3_128bits_update(s, &p->beta_fast, sizeof p->beta_fast);
    XXH3_128bits_update(s, &p->beta_slow, sizeof p->beta_slow);
    XXH3_128bits_update(s, &p->extrapolation, sizeof p->extrapolation);
    XXH3_128bits_update(s, &exact, sizeof exact);
    XXH3_128bits_update(s, &p->scale, sizeof p->scale);
    XXH3_128bits_update(s, &apart, sizeof apart);
}

/* Adds what else K and V depend on in models that are not plain: all RoPE parameters, windows, which layers have
 * windows or rotate by RoPE, and the scales. Windows and scales reach K and V from the second layer on. */
static void add_layers(XXH3_state_t *s, const struct hparams *hp)
{
    const float scales[] = {hp->embed_scale, hp->attn_scale, hp->residual_scale, hp->attn_softcap, hp->temperature};
    add_rope(s, &hp->rope[ROPE_FULL]);
    add_rope(s, &hp->rope[ROPE_SLIDING]);
    XXH3_128bits_update(s, &hp->window, sizeof hp->window);
    XXH3_128bits_update(s, hp->slides, hp->n_layer);
    XXH3_128bits_update(s, hp->turns, hp->n_layer);
    XXH3_128bits_update(s, scales, sizeof scales);
}

/* Whether the model has none of what add_layers() adds. The digest of such a model is then the one from before there
 * were others, so that KV saved at that time is still found. */
static bool is_plain(const struct hparams *hp)
{
    const struct rope_params *p = &hp->rope[ROPE_FULL];
    bool turn = true;
    for (uint32_t i = 0; i < hp->n_layer; i++)
        turn = turn && hp->turns[i];
    return turn && !hp->window && hp->temperature == 0 && hp->residual_scale == 0 && hp->attn_softcap == 0 &&
           hp->embed_scale == 1 && hp->attn_scale == 1.0f / sqrtf((float)hp->d_head) && p->scale == 1 &&
           (p->scaling == ROPE_SCALING_NONE || p->scaling == ROPE_SCALING_LINEAR);
}

static struct kv_hash rope_digest(XXH3_state_t *s, const struct model *m)
{
    const struct gguf_tensor *factors = gguf_tensor_find(m->gguf, "rope_freqs.weight");
    const struct rope *rope = &m->rope[ROPE_FULL];
    const struct rope_params *p = &m->hp.rope[ROPE_FULL];
    uint32_t kind = rope->kind;
    XXH3_128bits_reset(s);
    XXH3_128bits_update(s, &kind, sizeof kind);
    XXH3_128bits_update(s, &rope->n_rot, sizeof rope->n_rot);
    XXH3_128bits_update(s, &rope->scale, sizeof rope->scale);
    XXH3_128bits_update(s, &p->base, sizeof p->base);
    XXH3_128bits_update(s, &p->factor, sizeof p->factor);
    if (factors)
        XXH3_128bits_update(s, factors->data, factors->bytes);
    if (!is_plain(&m->hp))
        add_layers(s, &m->hp);
    return digest(s);
}

int kv_fingerprint_make(struct kv_fingerprint out[KV_GROUPS_MAX], const struct model *m, const struct kv_desc *desc,
                        struct hearth_err *e)
{
    XXH3_state_t *s = XXH3_createState();
    if (!s)
        return err_set(e, HEARTH_ENOMEM, "no memory for a digest");
    struct kv_hash model = model_digest(s, m->gguf), rope = rope_digest(s, m);
    struct kv_hash tokenizer = tokenizer_digest(s, m->gguf);
    XXH3_freeState(s);
    int rc = gguf_check(m->gguf, e); /* a file that was truncated reads as zeros, which must not be fingerprinted */
    for (uint32_t g = 0; g < m->hp.n_group && !rc; g++) {
        out[g] = (struct kv_fingerprint){
            .model = model,
            .tokenizer = tokenizer,
            .rope = rope,
            .page_bytes = kv_page_bytes(&desc[g]),
            .n_layer = desc[g].n_layer,
            .n_kv = desc[g].n_kv,
            .d_head = desc[g].d_state ? desc[g].d_state : desc[g].d_k,
            .window = desc[g].window,
            .kv_type = desc[g].type,
            .page_tokens = KV_PAGE,
            .numerics = KV_NUMERICS,
            .group = (uint16_t)g,
            .d_v = (uint16_t)(desc[g].d_v == desc[g].d_k ? 0
                              : desc[g].d_v              ? desc[g].d_v
                                                         : KV_V_IN_K),
        };
        strncpy(out[g].backend, m->be->name, sizeof out[g].backend - 1);
    }
    return rc;
}

static void to_hex(char out[static KV_DIGEST], struct kv_hash h)
{
    snprintf(out, KV_DIGEST, "%016llx%016llx", (unsigned long long)h.hi, (unsigned long long)h.lo);
}

int kv_fingerprint_digests(const struct gguf *g, char weights[static KV_DIGEST], char tokenizer[static KV_DIGEST],
                           struct hearth_err *e)
{
    XXH3_state_t *s = XXH3_createState();
    if (!s)
        return err_set(e, HEARTH_ENOMEM, "no memory for a digest");
    to_hex(weights, model_digest(s, g));
    to_hex(tokenizer, tokenizer_digest(s, g));
    XXH3_freeState(s);
    return gguf_check(g, e);
}

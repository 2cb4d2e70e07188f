/* odd-model.c - see odd-model.h. */
#include "config.h" /* memfd_create */

#include "tests/unit/model/odd-model.h"

#include <math.h>

struct plan {
    struct build keys, tensors, data;
    uint64_t n_key, n_tensor;
    const struct odd *odd;
};

static void add_u32(struct plan *p, const char *key, uint32_t v)
{
    char full[128];
    snprintf(full, sizeof full, "%s.%s", p->odd->arch ? p->odd->arch : "llama", key);
    if (p->odd->list_key && !strcmp(p->odd->list_key, key)) {
        key_arr(&p->keys, full, T_I32, p->odd->n_list);
        for (uint32_t i = 0; i < p->odd->n_list; i++)
            put32(&p->keys, (uint32_t)p->odd->list[i]);
        p->n_key++;
        return;
    }
    if (p->odd->no_key && !strcmp(p->odd->no_key, key))
        return;
    key_u32(&p->keys, full, p->odd->set_key && !strcmp(p->odd->set_key, key) ? p->odd->set_u32 : v);
    p->n_key++;
}

static void add_tensor(struct plan *p, const char *name, uint64_t n_in, uint64_t n_out)
{
    const struct odd *o = p->odd;
    uint32_t type = o->retype && !strcmp(o->retype, name) ? o->type : DT_F32;
    if (o->no_tensor && !strcmp(o->no_tensor, name))
        return;
    if (o->reshape && !strcmp(o->reshape, name))
        n_out++, n_in += n_out == 2 ? 8 : 0; /* makes a vector longer */
    bool twice = o->twice && !strcmp(o->twice, name);
    bool deep = o->deep && (!*o->deep || !strcmp(o->deep, name));
    put_tensor(&p->tensors, name,
               deep        ? 4
               : n_out > 1 ? 2
                           : 1,
               (uint64_t[]){n_in, n_out, o->third, 1}, type, twice ? 0 : p->data.n);
    p->n_tensor++;
    for (uint64_t i = 0; i < n_in * n_out; i++) {
        float v = sinf((float)(i * 7 + p->n_tensor)) / 4 + (n_out == 1 ? 1 : 0);
        if (!strcmp(name, "rope_freqs.weight"))
            v = o->freq;
        if (o->nan && !strcmp(o->nan, name) && i + 1 == n_in * n_out)
            v = NAN;
        if (o->scaled && !strcmp(name, o->scaled))
            v = o->scale;
        uint16_t half = v > 0.5f ? 0x3c00 : 0x2c00;
        if (type == DT_F16)
            put(&p->data, &half, 2);
        else
            put(&p->data, &v, 4);
    }
    put_zeros(&p->data, (32 - p->data.n % 32) % 32);
}

/* The layer's entry of a list, or the value that all layers share. */
static uint32_t of_layer(const struct odd *o, const char *key, int i, uint32_t all)
{
    return o->list_key && !strcmp(o->list_key, key) && o->list[i] > 0 ? (uint32_t)o->list[i] : all;
}

static void add_layer(struct plan *p, int i)
{
    uint32_t heads = of_layer(p->odd, "attention.head_count", i, HEADS);
    uint32_t kv = of_layer(p->odd, "attention.head_count_kv", i, KV);
    uint32_t ff = of_layer(p->odd, "feed_forward_length", i, FF);
    bool glm4 = p->odd->arch && !strcmp(p->odd->arch, "glm4"); /* with gate and up in one tensor, and more norms */
    const struct {
        const char *name;
        uint32_t n_in, n_out;
        bool bias;
    } all[] = {{"attn_norm.weight", D, 1, 0},
               {"attn_q.weight", D, heads * HEAD, 0},
               {"attn_k.weight", D, kv * HEAD, 0},
               {"attn_v.weight", D, kv * HEAD, 0},
               {"attn_output.weight", heads * HEAD, D, 0},
               {"ffn_norm.weight", D, 1, 0},
               {"ffn_gate.weight", D, ff, 0},
               {"ffn_up.weight", D, glm4 ? 2 * ff : ff, 0},
               {"ffn_down.weight", ff, D, 0},
               {"attn_q.bias", HEADS * HEAD, 1, 1},
               {"attn_k.bias", KV * HEAD, 1, 1},
               {"attn_v.bias", KV * HEAD, 1, 1},
               {"post_attention_norm.weight", D, 1, 0},
               {"post_ffw_norm.weight", D, 1, 0}};
    char name[64];
    uint32_t n = p->odd->mixture;
    for (uint32_t k = 0; k < 3 * n; k++) {
        static const char *const parts[] = {"gate", "up", "down"};
        snprintf(name, sizeof name, "blk.%d.ffn_%s.%u.weight", i, parts[k % 3], k / 3);
        add_tensor(p, name, k % 3 == 2 ? FF : D, k % 3 == 2 ? D : FF);
    }
    snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", i);
    if (n)
        add_tensor(p, name, D, n);
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        bool glm = k == 5 && p->odd->arch &&
                   !strcmp(p->odd->arch, "glm4moe"); /* glm4moe has another name for the norm of the FFN */
        snprintf(name, sizeof name, "blk.%d.%s", i, glm ? "post_attention_norm.weight" : all[k].name);
        if ((n && (k >= 6 && k <= 8)) || (glm4 ? k == 6 : k >= 12))
            continue;
        if (!all[k].bias || p->odd->biases)
            add_tensor(p, name, all[k].n_in, all[k].n_out);
    }
}

struct build model_file(const struct odd *odd)
{
    struct plan p = {.odd = odd};
    const char *arch = odd->arch ? odd->arch : "llama";
    char key[128];
    key_str(&p.keys, "general.architecture", arch);
    key_u32(&p.keys, "general.file_type", 0);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    key_f32(&p.keys, key, odd->eps ? odd->eps : 1e-5f);
    key_arr(&p.keys, "tokenizer.ggml.tokens", T_STR, odd->vocab_short ? VOCAB - 1 : VOCAB);
    for (int i = 0; i < (odd->vocab_short ? VOCAB - 1 : VOCAB); i++)
        put_str(&p.keys, (char[]){(char)('a' + i), 0});
    p.n_key = 4;
    if (odd->scaling) {
        snprintf(key, sizeof key, "%s.rope.scaling.type", arch);
        key_str(&p.keys, key, odd->scaling);
        p.n_key++;
    }
    if (odd->attn_factor != 0) {
        snprintf(key, sizeof key, "%s.%s", arch, odd->float_key ? odd->float_key : "rope.scaling.attn_factor");
        key_f32(&p.keys, key, odd->attn_factor);
        p.n_key++;
    }
    if (odd->not_causal) {
        snprintf(key, sizeof key, "%s.attention.causal", arch);
        key_bool(&p.keys, key, false);
        p.n_key++;
    }
    int layers = odd->layers ? (int)odd->layers : LAYERS;
    add_u32(&p, "block_count", (uint32_t)layers);
    add_u32(&p, "context_length", 64);
    add_u32(&p, "embedding_length", D);
    add_u32(&p, "feed_forward_length", FF);
    add_u32(&p, "attention.head_count", HEADS);
    add_u32(&p, "attention.head_count_kv", KV);
    if (odd->experts)
        add_u32(&p, "expert_count", 8);
    if (odd->mixture) {
        add_u32(&p, "expert_count", odd->mixture);
        add_u32(&p, "expert_used_count", 2);
    }
    if (odd->set_key && (!strncmp(odd->set_key, "rope.", 5) || !strcmp(odd->set_key, "attention.value_length") ||
                         !strncmp(odd->set_key, "attention.sliding", 17) || !strncmp(odd->set_key, "expert_g", 8) ||
                         !strcmp(odd->set_key, "leading_dense_block_count") ||
                         !strcmp(odd->set_key, "moe_latent_size") || !strcmp(odd->set_key, "nextn_predict_layers")))
        add_u32(&p, odd->set_key, 0);
    if (odd->list_key && !strncmp(odd->list_key, "rope.", 5))
        add_u32(&p, odd->list_key, 0);
    add_tensor(&p, "token_embd.weight", D, VOCAB);
    for (int i = 0; i < layers; i++)
        add_layer(&p, i);
    add_tensor(&p, "output_norm.weight", D, 1);
    add_tensor(&p, "output.weight", D, VOCAB);
    if (odd->more)
        add_tensor(&p, odd->more, 8, 1);
    if (odd->scaled)
        add_tensor(&p, odd->scaled, odd->mixture ? odd->mixture : 1, 1);
    if (odd->freq != 0)
        add_tensor(&p, "rope_freqs.weight", HEAD / 2, 1);

    struct build b = {0};
    put_header(&b, 3, p.n_tensor, p.n_key);
    put(&b, p.keys.p, p.keys.n);
    put(&b, p.tensors.p, p.tensors.n);
    put_zeros(&b, (32 - b.n % 32) % 32);
    put(&b, p.data.p, p.data.n);
    free(p.keys.p);
    free(p.tensors.p);
    free(p.data.p);
    return b;
}

int load(struct loaded *l, const struct odd *odd, model_progress *cb, void *arg, struct hearth_err *e)
{
    struct build b = model_file(odd);
    char path[64];
    int fd = build_file(&b, path);
    *l = (struct loaded){.be = backend_find("cpu")};
    if (gguf_open(&l->g, path, e) || l->be->open(&l->dev, &(struct device_params){.threads = 1}, e))
        fail_msg("%s", e->msg);
    int ret = model_load(&l->m, l->g, l->be, l->dev, cb, arg, e);
    close(fd);
    free(b.p);
    return ret;
}

void unload(struct loaded *l)
{
    model_free(l->m);
    l->be->close(l->dev);
    gguf_close(l->g);
}

void logits_of(struct loaded *l, float out[VOCAB])
{
    struct hearth_err e = {0};
    struct workspace_dims dims = {.n_row = 3, .n_out = 1};
    struct kv_desc desc[KV_GROUPS_MAX];
    model_workspace(l->m, &dims);
    static const uint32_t first = 0;
    uint32_t n_group = model_kv_descs(l->m, DT_F32, desc);
    assert_int_equal(l->be->reserve(l->dev, &dims, &e), 0);
    struct batch_seq seq = {.n_row = 3};
    struct batch b = {3, 1, 1, (int32_t[]){1, 2, 3}, &seq, &(uint32_t){2}, .n_group = n_group};
    for (uint32_t g = 0; g < n_group; g++) {
        desc[g].n_page = 1;
        assert_int_equal(l->be->kv_new(l->dev, &desc[g], &b.kv[g], &e), 0);
        seq.pages[g] = &first;
    }
    uint64_t t = l->be->step_run(l->dev, &b, &l->m->program);
    if (l->be->step_wait(l->dev, t, NULL, 0, &e) || l->be->act_read(l->dev, ACT_LOGITS, 0, 1, out, &e))
        fail_msg("%s", e.msg);
    for (uint32_t g = 0; g < n_group; g++)
        l->be->kv_free(l->dev, b.kv[g]);
}

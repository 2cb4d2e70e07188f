/* llama.c - Llama 1 to 3 and whoever has their shape (Mistral, TinyLlama, SmolLM, DeepSeek-Coder). */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

#include <math.h>

int llama_bind_biases(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    uint32_t d_q = hp->n_head * hp->d_head, d_kv = hp->n_kv * hp->d_head;
    const struct bind_part bias[] = {{"attn_q.bias", d_q}, {"attn_k.bias", d_kv}, {"attn_v.bias", d_kv}};
    return bind_vector(b, &l->qkv_bias, bias, 3);
}

int llama_bind_layer(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    uint32_t d_q = hp->n_head * hp->d_head, d_kv = hp->n_kv * hp->d_head;
    const struct bind_part qkv[] = {{"attn_q.weight", d_q}, {"attn_k.weight", d_kv}, {"attn_v.weight", d_kv}};
    const struct bind_part attn_out[] = {{"attn_output.weight", hp->d_model}};
    const struct bind_part gate_up[] = {{"ffn_gate.weight", hp->d_ff}, {"ffn_up.weight", hp->d_ff}};
    const struct bind_part down[] = {{"ffn_down.weight", hp->d_model}};
    int ret = bind_rms_norm(b, &l->attn_norm, "attn_norm.weight", hp->d_model);
    if (!ret)
        ret = bind_matrix(b, &l->qkv, WEIGHT_QKV, hp->d_model, qkv, 3);
    if (!ret)
        ret = bind_matrix(b, &l->attn_out, WEIGHT_PROJ, d_q, attn_out, 1);
    if (!ret)
        ret = bind_rms_norm(b, &l->ffn_norm, "ffn_norm.weight", hp->d_model);
    if (!ret)
        ret = bind_matrix(b, &l->gate_up, WEIGHT_GATE_UP, hp->d_model, gate_up, 2);
    if (!ret)
        ret = bind_matrix(b, &l->down, WEIGHT_PROJ, hp->d_ff, down, 1);
    return ret || !bind_has(b, "attn_q.bias") ? ret : llama_bind_biases(b, l);
}

void llama_build(const struct model *m, struct program *p)
{
    const struct hparams *hp = &m->hp;

    program_embed(p, (struct op_embed){.w = &m->tok_embd, .scale = 1});
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        const struct layer *l = &m->layers[i];
        program_qkv(p, (struct op_qkv){
                           .layer = i,
                           .n_head = hp->n_head,
                           .n_kv = hp->n_kv,
                           .d_head = hp->d_head,
                           .norm = l->attn_norm,
                           .w = &l->qkv,
                           .bias = l->qkv_bias,
                           .rope = &m->rope,
                       });
        program_attend(p, (struct op_attend){
                              .layer = i,
                              .n_head = hp->n_head,
                              .n_kv = hp->n_kv,
                              .d_head = hp->d_head,
                              .scale = 1.0f / sqrtf((float)hp->d_head),
                          });
        program_proj(p, (struct op_proj){.in = ACT_ATT, .w = &l->attn_out});
        program_ffn_up(p, (struct op_ffn_up){.norm = l->ffn_norm, .w = &l->gate_up, .glu = GLU_SWIGLU});
        program_proj(p, (struct op_proj){.in = ACT_FF, .w = &l->down});
    }
    program_head(p, (struct op_head){.norm = m->out_norm, .w = &m->out, .scale = 1});
}

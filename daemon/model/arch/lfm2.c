/* lfm2.c - LFM 2, dense and with experts: most layers have a short convolution between two gates instead of attention,
 * the others have attention like Qwen 3's. The final norm is called token_embd_norm. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

static int bind_shortconv(struct binder *b, struct recurrent_layer *r)
{
    uint32_t d = bind_hparams(b)->d_model;
    const struct bind_part in = {"shortconv.in_proj.weight", 3 * d};
    int ret = bind_matrix(b, &r->in, WEIGHT_MIXER, d, &in, 1);
    if (!ret)
        ret = bind_conv(b, &r->conv, "shortconv.conv", d);
    return ret ? ret : bind_state_out(b, &r->layer, "shortconv.out_proj.weight", d);
}

int lfm2_bind_layer(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    struct recurrent_layer *r = (struct recurrent_layer *)l;
    r->recurs = hp->kind[l->number] == LAYER_RECURS;
    int ret = bind_norm(b, &l->attn_norm, "attn_norm", hp->d_model);
    if (!ret)
        ret = r->recurs ? bind_shortconv(b, r) : bind_attention(b, l);
    if (!ret && !r->recurs)
        ret = bind_head_norms(b, l);
    if (!ret)
        ret = bind_norm(b, &l->ffn_norm, "ffn_norm", hp->d_model);
    return ret ? ret : bind_ffn(b, l);
}

void lfm2_build(const struct model *m, struct program *p)
{
    build_embed(m, p);
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = model_layer(m, i);
        const struct recurrent_layer *r = (const struct recurrent_layer *)l;
        if (r->recurs) {
            build_project(p, r);
            program_shortconv(p, (struct op_shortconv){
                                     .layer = l->index, .group = l->group, .d_inner = m->hp.d_model, .conv = r->conv});
        } else
            build_attend(m, p, l);
        build_attention_out(m, p, l);
        build_ffn(m, p, l, GLU_SWIGLU);
    }
    build_head(m, p);
}

const struct arch arch_lfm2 = {"lfm2",
                               ROPE_NEOX,
                               .layer_bytes = sizeof(struct recurrent_layer),
                               .out_norm = "token_embd_norm",
                               .state = STATE_CONV,
                               .bind_layer = lfm2_bind_layer,
                               .build = lfm2_build};

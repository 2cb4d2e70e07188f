/*
 * op.h - the ops of a forward pass, and programs: the list of ops that a model's architecture builds once, at load.
 *
 * OPS below is the only list of ops. Everything that enumerates ops is generated from it: the kinds, the union, the
 * functions that add an op to a program, what an op reads and writes, the CPU's table. To add an op: its struct and its
 * row here, and cpu_NAME() in a file of its own in kernels/cpu; for CUDA a file with its launcher, a row in
 * cuda/plan.cu, and the self-check's functions. Until these exist a GPU refuses the op by name.
 *
 * A program is a value: immutable once it has run, shared by every step of its model, the same for every batch. What
 * changes from step to step (rows, sequences, sampling) is in `struct batch`, backend.h.
 *
 * Thread: a program belongs to the thread that builds it; once built it is only read.
 */
#ifndef HEARTH_OP_H
#define HEARTH_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weight; /* backend.h */

/* --- what ops are made of ------------------------------------------------------------------------------ */

/* Activations of a step. */
enum act {
    ACT_X,      /* residual stream  [n_row, d_model] f32 */
    ACT_Q,      /* queries          [n_row, n_head, d_head] */
    ACT_ATT,    /* attention output [n_row, n_head, d_head], or another op's result for an op_proj to add to ACT_X */
    ACT_FF,     /* FFN hidden       [n_row, d_ff] */
    ACT_LOGITS, /* [n_out, n_vocab] f32 */
    /* [n_row, 2 n_used] f32: a row's expert ids, converted to float, the best first; then the weights of the experts */
    ACT_ROUTE,
    ACT_EXPERTS, /* hidden rows of these experts, in that order [n_row, n_used, d_expert] */
    ACT_MIX,     /* f32: output of op_project for a recurrent layer's op or for experts, or op_qkv's attention gates */
    ACT_ASIDE,   /* [n_row, d_model] f32: a result that is kept until another one is added to it */
    ACT_INPUTS,  /* [n_row, n_layer, d_input] f32: per-layer inputs, see op_inputs */
    ACT_LATENT,  /* latent attention's queries, after the first (or only) of their projections */
    ACT_COUNT
};
#define ACT_BIT(a) (1u << (a)) /* sets of activations */

enum norm_kind { NORM_RMS, NORM_LAYER, NORM_NONE };

/* y = norm(x) * w + b, or x where kind is NORM_NONE. The vectors are in device memory, from `vec_load`. */
struct norm {
    enum norm_kind kind;
    float eps;
    const float *w; /* [n]; NULL where kind is NORM_NONE */
    const float *b; /* [n] or NULL */
};

enum { ROPE_SETS_MAX = 2 };
enum rope_kind { ROPE_NONE, ROPE_NORM /* pairs (2i, 2i+1) */, ROPE_NEOX /* pairs (i, i + n_rot/2) */ };
struct rope {
    enum rope_kind kind;
    uint32_t n_rot; /* leading dimensions of a head that are rotated */
    /* [n_set or 1][n_rot/2] f32 device memory, frequency factors already applied. Longrope has two sets; a row uses the
     * set of its sequence, batch_seq.freq_set. */
    const float *inv_freq;
    float scale; /* multiplies cos and sin (YaRN's mscale); 1 otherwise */
    /* After the rotation q and k go through a Hadamard transform over eight pairs at a time (pairs as in RoPE; n_rot =
     * d_head, a multiple of 16). It changes no score, but spreads an outlier in one dimension of a key over sixteen, so
     * that rounding to fp16 loses less. */
    bool hadamard;
    uint32_t n_set; /* frequency sets, up to ROPE_SETS_MAX; 0 or 1: one for all sequences */
};

enum glu_kind {
    GLU_SWIGLU,
    GLU_GEGLU,
    GLU_GELU,  /* ungated: up alone */
    GLU_RELU2, /* ungated: max(up, 0)^2 */
    GLU_OAI    /* gpt-oss's: g sigmoid(1.702 g) (u + 1), with g at most 7 and u from -7 to 7 */
};
static inline bool glu_gated(enum glu_kind k)
{
    return k == GLU_SWIGLU || k == GLU_GEGLU || k == GLU_OAI;
}

/* --- the ops ------------------------------------------------------------------------------------------- */

/* The tokens' rows of the embedding matrix -> ACT_X */
struct op_embed {
    const struct weight *w; /* WEIGHT_EMBED */
    float scale;            /* 1, or sqrt(d_model) for gemma */
};

/*
 * ACT_X -> norm -> Q|K|V (+ bias) -> q/k/v norm -> RoPE (not on V) -> ACT_Q, and K, V appended to the pages. Where the
 * matrix has no V part, the values are K as projected, before its norm; where it has only Q, nothing is appended: the
 * layer attends to another layer's K and V. Where attention is gated, Q projects to each head's query followed by its
 * gate, and the gates are left in their places in ACT_MIX [n_head, 2, d_head].
 */
struct op_qkv {
    uint32_t layer; /* index within the group */
    uint32_t group; /* the layer group, whose pool K and V go to: batch.kv[group] */
    uint32_t n_head, n_kv, d_head;
    struct norm norm;
    const struct weight *w;    /* WEIGHT_QKV: Q, K, V; Q, K; or Q */
    const float *bias;         /* [n_out] or NULL */
    const struct norm *q_norm; /* over d_head, or NULL */
    const struct norm *k_norm;
    const struct norm *v_norm;
    bool whole_norms;        /* q_norm and k_norm are over all heads of a row at once: [n_head d_head], [n_kv d_head] */
    bool gated;              /* then without bias */
    const struct rope *rope; /* NULL: no rotation */
    /* Queries at position p are multiplied by 1 + beta ln(1 + floor(p / length)), which keeps attention sharp over long
     * contexts (Llama 4's attention temperature); beta 0: off. */
    struct {
        float beta;
        uint32_t length; /* tokens; at least 1 */
    } temperature;
};

/* ACT_Q and the pages -> ACT_ATT. Causal, GQA. */
struct op_attend {
    uint32_t layer, group; /* as in op_qkv; of the layer whose K and V are read, if this one has none of its own */
    uint32_t n_head, n_kv, d_head;
    uint32_t window; /* visible tokens, the query's own included; 0 = all */
    float scale;     /* usually 1/sqrt(d_head) */
    float softcap;   /* scores become softcap * tanh(score / softcap); 0 = none */
    /* Attention sinks [n_head]: an additional score of each query head that has no value: its exp only joins the
     * softmax's denominator. NULL: none. */
    const float *sinks;
    uint32_t d_latent; /* a value is the last d_latent dimensions of its key, a result is as long; 0: V is stored */
    bool gated;        /* the result is multiplied by the sigmoid of the gates that op_qkv left in ACT_MIX */
};

/* ACT_X = x_scale (ACT_X + residual_scale norm?(in * W (+ bias))); or, `aside`, the addend alone -> ACT_ASIDE */
struct op_proj {
    enum act in;                  /* ACT_ATT or ACT_FF */
    const struct weight *w;       /* WEIGHT_PROJ */
    const float *bias;            /* [n_out] or NULL */
    const struct norm *post_norm; /* gemma: norm of the product before it is added; NULL otherwise */
    float residual_scale;         /* 0 = none, i.e. 1 */
    float x_scale;                /* likewise */
    bool aside;                   /* writes ACT_ASIDE; then without x_scale */
};

/* ACT_X -> norm -> gate, up -> act(gate) * up -> ACT_FF */
struct op_ffn_up {
    struct norm norm;
    const struct weight *w; /* WEIGHT_GATE_UP */
    const float *bias;      /* [n_out] or NULL */
    enum glu_kind glu;
    const float *row_gate; /* [n_in]: the row's result is multiplied by sigmoid(row_gate . norm(x)); NULL: off */
};

/* rows out_row of ACT_X -> norm -> ACT_LOGITS */
struct op_head {
    struct norm norm;
    const struct weight *w; /* WEIGHT_HEAD */
    float scale;            /* multiplies the logits; 1 */
    float softcap;          /* 0 = none */
    const float *bias;      /* [n_out], added before the scale, or NULL */
};

/* How an expert's score is computed from the router's logits. */
enum route_kind {
    ROUTE_SOFTMAX,        /* softmax over all experts */
    ROUTE_SOFTMAX_CHOSEN, /* softmax over the chosen experts */
    ROUTE_SIGMOID,
};

/*
 * ACT_X -> norm -> logits = W x + bias -> scores -> the n_used experts with the greatest score + select_bias (for
 * ROUTE_SOFTMAX_CHOSEN the greatest logit + select_bias), the lower id first on a tie -> ACT_ROUTE. Their weights
 * are their scores, without select_bias, divided by their sum where `normalise` is set, times `scale`. Sums, scores and
 * weights are F32 on every device. An expert whose logit is NaN is chosen last, and makes the row's weights NaN.
 *
 * With groups, of n_expert / n_group experts each, only experts of n_group_used groups can be chosen: of the groups
 * with the greatest sum of their `group_best` greatest members, the lower group first on a tie.
 */
struct op_route {
    struct norm norm;
    const struct weight *w;   /* WEIGHT_ROUTER */
    const float *bias;        /* [n_out] or NULL */
    const float *select_bias; /* [n_out] or NULL */
    enum route_kind kind;
    uint32_t n_used;
    uint32_t n_group, n_group_used, group_best; /* n_group 0 or 1: no groups */
    bool normalise;
    float scale;
    const float *expert_scale; /* [n_out]: finally multiplies each expert's weight, or NULL */
};

/*
 * ACT_X -> norm -> gate and up of each of the row's experts -> act(gate) * up -> ACT_EXPERTS. An expert's matrices are
 * read once a step, for all of its rows. A row's results depend on its own experts alone. Experts that work in a latent
 * space (Nemotron 3 Super's LatentMoE) read, without a norm, the row that an op_project has projected into ACT_MIX.
 */
struct op_experts_up {
    struct norm norm;
    const struct weight *w; /* WEIGHT_EXPERTS_UP */
    const float *bias;      /* [n_part, n_expert, d_expert] or NULL */
    enum glu_kind glu;
    uint32_t n_used; /* as in op_route */
    bool latent;     /* then the norm is of kind NORM_NONE */
};

/*
 * y = residual_scale sum over the row's experts of weight (W_expert hidden + bias_expert), summed by ascending id,
 * normalised where there is a post_norm -> ACT_X = x_scale (ACT_X + y). With an aside_norm, aside_norm(ACT_ASIDE + y)
 * is added instead of y: these are experts beside a dense FFN. In a latent space y is only stored -> ACT_ATT, from
 * where an op_proj projects it into the residual stream.
 */
struct op_experts_down {
    const struct weight *w;                    /* WEIGHT_EXPERTS_DOWN */
    const float *bias;                         /* [n_expert, n_out] or NULL */
    float residual_scale;                      /* 0 = none, i.e. 1 */
    uint32_t n_used;                           /* as in op_route */
    const struct norm *post_norm, *aside_norm; /* [n_out], or NULL; aside_norm only together with post_norm */
    float x_scale;                             /* 0 = none, i.e. 1 */
    bool latent;                               /* then without norms and scales */
};

/*
 * Gemma's per-layer inputs: a vector of d_input for each layer, made from the token's embedding ACT_X and from the
 * token's row in a second embedding table: scale (norm(w_scale W x) + embed_scale row) -> ACT_INPUTS, the norm over
 * each layer's d_input.
 */
struct op_inputs {
    const struct weight *w;     /* WEIGHT_PROJ: [n_layer d_input, d_model] */
    const struct weight *embed; /* WEIGHT_EMBED: [n_vocab, n_layer d_input] */
    struct norm norm;           /* [d_input] */
    uint32_t d_input;
    float w_scale, embed_scale, scale;
};

/*
 * Latent attention (DeepSeek's MLA): all heads share one latent vector, from which the keys and values of each head
 * would be projected, and one rotated part of the key. The pages hold these two, [rotated n_rot | latent d_c] per
 * token, and the heads' key and value matrices are applied to the queries and results instead ("absorbed").
 *
 * ACT_X -> norm -> W: its first part, normalised where there is a q_norm -> ACT_LATENT; of its second part, [latent d_c
 * | n_rot], the latent is normalised and the rest rotated -> the pages.
 */
struct op_latent {
    uint32_t layer, group; /* as in op_qkv; the group has n_kv 1, d_k n_rot + d_c, d_v 0 */
    uint32_t d_c;
    struct norm norm;          /* [d_model] */
    const struct weight *w;    /* WEIGHT_LATENT: [d_latent | d_c + n_rot, d_model] */
    const struct norm *q_norm; /* [d_latent], or NULL */
    struct norm kv_norm;       /* [d_c] */
    const struct rope *rope;
};

/* ACT_LATENT -> W, or unchanged where W is NULL -> each head's [d_nope | n_rot], of which n_rot is rotated and d_nope
 * multiplied by the head's own matrix -> ACT_Q [n_head, n_rot + d_c] */
struct op_latent_q {
    uint32_t n_head, d_nope, d_c;
    const struct weight *w;      /* WEIGHT_PROJ: [n_head (d_nope + n_rot), d_latent], or NULL */
    const struct weight *absorb; /* WEIGHT_HEADS: n_head times [d_c, d_nope] */
    const struct rope *rope;
};

/* Each head's columns of ACT_ATT times its own matrix -> ACT_ATT */
struct op_latent_out {
    const struct weight *w; /* WEIGHT_HEADS: n_head times [n_out, n_in] */
};

/* gelu(W x) times the layer's columns of ACT_INPUTS -> ACT_FF */
struct op_input_gate {
    const struct weight *w; /* WEIGHT_GATE_UP, of one part: [d_input, d_model] */
    uint32_t layer, n_layer;
};

/* --- ops with a recurrent state -------------------------------------------------------------------------- */

/*
 * Layers that keep a state of a fixed size, a function of all tokens so far, in place of keys and values. It is stored
 * in a page of a group of states (backend.h), and is 0 before the first token. The ops are defined as a recurrence over
 * the rows in order, in F32, and the CPU computes exactly that, however a prompt is cut into chunks.
 *
 * op_project: ACT_X -> norm -> W -> columns [at, at + w->n_out) of ACT_MIX, which has `width` columns. Several of these
 * ops fill it.
 */
struct op_project {
    struct norm norm;
    const struct weight *w; /* WEIGHT_MIXER */
    uint32_t at, width;
};

/* A causal convolution of each channel over its last n_tap inputs, the current one last; the n_tap - 1 before it are
 * the first part of the state, [n_tap - 1, channels]. */
struct state_conv {
    uint32_t n_tap;
    const float *w;    /* [channels, n_tap] */
    const float *bias; /* [channels] or NULL */
};

/* LFM2: ACT_MIX is b | c | x, d_inner each: c * conv(b * x) -> ACT_ATT. */
struct op_shortconv {
    uint32_t layer, group; /* as in op_qkv */
    uint32_t d_inner;
    struct state_conv conv;
};

/*
 * Gated delta net (Yang and others, 2024; Qwen 3-Next and 3.5): n_v heads, each with a matrix S [d_k, d_v]. ACT_MIX
 * is q (n_k heads of d_k) | k (the same) | v (n_v heads of d_v) | z (as v) | 2 n_v numbers b and a. q, k and v go
 * through conv, then x sigmoid(x); q and k of each head are divided by sqrt(sum x^2 + 1e-6), and q also by sqrt(d_k).
 * Then, row by row, S *= exp(decay softplus(a + dt_bias)),  S += k (sigmoid(b) (v - S^T k))^T,  y = S^T q, and
 * norm(y) z sigmoid(z), the norm over each head, goes to ACT_ATT. Value head h uses q and k of head h / (n_v / n_k), or
 * h % n_k where heads are `tiled`. b and a are [2][n_v], or [n_k][2][n_v / n_k] where they are `paired`. The state's
 * second part is S of all heads, [n_v, d_k, d_v].
 */
struct op_delta {
    uint32_t layer, group; /* as in op_qkv */
    uint32_t n_k, n_v, d_k, d_v;
    bool tiled, paired;
    struct state_conv conv; /* of 2 n_k d_k + n_v d_v channels */
    const float *decay;     /* [n_v], negative: -exp(A_log) */
    const float *dt_bias;   /* [n_v] */
    struct norm norm;       /* RMS, over d_v */
};
static inline uint32_t delta_channels(const struct op_delta *o)
{
    return 2 * o->n_k * o->d_k + o->n_v * o->d_v;
}

/*
 * Mamba-2 (Dao and Gu, 2024): n_head heads, each with a matrix S [d_state, d_head]. ACT_MIX is z (d_inner = n_head
 * d_head) | x (the same) | B (n_group vectors of d_state) | C (the same) | dt (n_head numbers). x, B and C go through
 * conv, then x sigmoid(x). With t = softplus(dt + dt_bias), row by row,
 *     S = exp(decay t) S + t B x^T,  y = S^T C + skip x,
 * and norm(y z sigmoid(z)) goes to ACT_ATT, the norm over each group's d_inner / n_group numbers, or over all of
 * d_inner with norm_whole. Head h uses B and C of group h / (n_head / n_group). The state's second part is S of all
 * heads, [n_head, d_state, d_head].
 */
struct op_mamba2 {
    uint32_t layer, group; /* as in op_qkv */
    uint32_t n_head, d_head, d_state, n_group;
    bool norm_whole;
    struct state_conv conv; /* of d_inner + 2 n_group d_state channels */
    const float *decay;     /* [n_head], negative: -exp(A_log) */
    const float *dt_bias;   /* [n_head] */
    const float *skip;      /* [n_head] */
    struct norm norm;       /* RMS; w is [d_inner] */
};
static inline uint32_t mamba2_channels(const struct op_mamba2 *o)
{
    return o->n_head * o->d_head + 2 * o->n_group * o->d_state;
}
/* The number of columns that one norm covers. */
static inline uint32_t mamba2_norm_cols(const struct op_mamba2 *o)
{
    return o->n_head * o->d_head / (o->norm_whole ? 1 : o->n_group);
}

/* clang-format off */
/*
 * The list of ops: the kind; the name of its struct and functions; and, as expressions of `o`, an op of that kind: its
 * matrix (NULL: none), the set of activations that it reads, the one that it writes, and the columns of the latter. An
 * op that adds to ACT_X both reads and writes it. An activation that an op only reads has the matrix's n_in columns;
 * where the op has no matrix, and from ACT_ROUTE on, the last entry gives its columns by `a`, the activation in
 * question.
 */
#define OPS(X) \
    X(EMBED,  embed,  o->embed.w,  0,                                         ACT_X,      o->embed.w->n_in) \
    X(QKV,    qkv,    o->qkv.w,    ACT_BIT(ACT_X),                            ACT_Q,      o->qkv.n_head * o->qkv.d_head) \
    X(ATTEND, attend, NULL,        ACT_BIT(ACT_Q) | (o->attend.gated ? ACT_BIT(ACT_MIX) : 0), ACT_ATT, \
      o->attend.n_head * (a == ACT_MIX ? 2 : 1) * (a == ACT_ATT && o->attend.d_latent ? o->attend.d_latent : o->attend.d_head)) \
    X(PROJ,   proj,   o->proj.w,   ACT_BIT(o->proj.in) | (o->proj.aside ? 0 : ACT_BIT(ACT_X)), \
      o->proj.aside ? ACT_ASIDE : ACT_X, o->proj.w->n_out) \
    X(FFN_UP, ffn_up, o->ffn_up.w, ACT_BIT(ACT_X),                            ACT_FF,     o->ffn_up.w->part[0].n_out) \
    X(HEAD,   head,   o->head.w,   ACT_BIT(ACT_X),                            ACT_LOGITS, o->head.w->n_out) \
    X(ROUTE,  route,  o->route.w,  ACT_BIT(ACT_X),                            ACT_ROUTE,  2 * o->route.n_used) \
    X(EXPERTS_UP, experts_up, o->experts_up.w, ACT_BIT(o->experts_up.latent ? ACT_MIX : ACT_X) | ACT_BIT(ACT_ROUTE), \
      ACT_EXPERTS, a == ACT_MIX ? o->experts_up.w->n_in : \
      o->experts_up.n_used * (a == ACT_ROUTE ? 2 : o->experts_up.w->part[0].n_out)) \
    X(EXPERTS_DOWN, experts_down, o->experts_down.w, ACT_BIT(ACT_ROUTE) | ACT_BIT(ACT_EXPERTS) | \
      (o->experts_down.latent ? 0 : ACT_BIT(ACT_X)) | (o->experts_down.aside_norm ? ACT_BIT(ACT_ASIDE) : 0), \
      o->experts_down.latent ? ACT_ATT : ACT_X, \
      a == ACT_X || a == ACT_ASIDE || a == ACT_ATT ? o->experts_down.w->n_out : \
      o->experts_down.n_used * (a == ACT_ROUTE ? 2 : o->experts_down.w->n_in)) \
    X(PROJECT, project, o->project.w, ACT_BIT(ACT_X), ACT_MIX, o->project.width) \
    X(SHORTCONV, shortconv, NULL, ACT_BIT(ACT_MIX), ACT_ATT, o->shortconv.d_inner * (a == ACT_MIX ? 3 : 1)) \
    X(DELTA, delta, NULL, ACT_BIT(ACT_MIX), ACT_ATT, o->delta.n_v * o->delta.d_v + \
      (a == ACT_MIX ? delta_channels(&o->delta) + 2 * o->delta.n_v : 0)) \
    X(MAMBA2, mamba2, NULL, ACT_BIT(ACT_MIX), ACT_ATT, o->mamba2.n_head * o->mamba2.d_head + \
      (a == ACT_MIX ? mamba2_channels(&o->mamba2) + o->mamba2.n_head : 0)) \
    X(INPUTS, inputs, o->inputs.w, ACT_BIT(ACT_X),                            ACT_INPUTS, o->inputs.w->n_out) \
    X(INPUT_GATE, input_gate, o->input_gate.w, ACT_BIT(ACT_X) | ACT_BIT(ACT_INPUTS), ACT_FF, \
      o->input_gate.w->n_out * (a == ACT_INPUTS ? o->input_gate.n_layer : 1)) \
    X(LATENT, latent, o->latent.w, ACT_BIT(ACT_X), ACT_LATENT, o->latent.w->part[0].n_out) \
    X(LATENT_Q, latent_q, o->latent_q.w, ACT_BIT(ACT_LATENT), ACT_Q, \
      a == ACT_Q ? o->latent_q.n_head * (o->latent_q.rope->n_rot + o->latent_q.d_c) : \
      o->latent_q.w ? o->latent_q.w->n_in : o->latent_q.n_head * (o->latent_q.rope->n_rot + o->latent_q.d_nope)) \
    X(LATENT_OUT, latent_out, o->latent_out.w, ACT_BIT(ACT_ATT), ACT_ATT, o->latent_out.w->n_expert * o->latent_out.w->n_out)
/* clang-format on */

#define X(KIND, name, ...) OP_##KIND,
enum op_kind { OPS(X) OP_COUNT };
#undef X

struct op {
    enum op_kind kind;
    union {
#define X(KIND, name, ...) struct op_##name name;
        OPS(X)
#undef X
    };
};

const char *op_name(enum op_kind kind);             /* "ffn_up" */
const struct weight *op_weight(const struct op *o); /* NULL: the op has no matrix */
uint32_t op_reads(const struct op *o);              /* a set: bits ACT_BIT(a) */
enum act op_writes(const struct op *o);
/* Columns of an activation that the op reads or writes. */
uint32_t op_columns(const struct op *o, enum act a);
/* A human-readable line, in buf: "qkv (Q4_K, Q4_K, Q6_K; 4096 to 6144)": types of the matrix's parts, n_in, n_out. */
const char *op_describe(const struct op *o, char buf[96]);

/* --- programs ------------------------------------------------------------------------------------------ */

struct program {
    struct op *op; /* [n_op]; owned by the program where cap > 0, else by the caller of program_of() */
    uint32_t n_op, cap;
    const void *model;         /* the model whose matrices the ops use, or NULL; only compared with weight.model */
    uint64_t id;               /* unique in this process, also among freed programs; captured graphs are found by it */
    uint32_t width[ACT_COUNT]; /* columns of each activation after the last op that uses it; 0: no op does */
    uint32_t most[ACT_COUNT];  /* its greatest number of columns in any op */
    bool failed;               /* memory ran out in program_add(): the program is incomplete */
};

/* A program of the caller's n ops, which must stay in place as long as it is used. It owns nothing: it must not be
 * added to, and need not be freed. */
struct program program_of(const void *model, const struct op *op, uint32_t n);
/* Appends a copy of the op. Begin with `struct program p = {.model = m}`; a failure is recorded in p->failed. */
void program_add(struct program *p, const struct op *op);
/* Frees the ops, where the program owns them, and leaves it empty. */
void program_free(struct program *p);

/* program_embed(p, (struct op_embed){...}) and so on: program_add() for each kind of op. */
#define X(KIND, name, ...)                                                      \
    static inline void program_##name(struct program *p, struct op_##name args) \
    {                                                                           \
        struct op o;                                                            \
        o.kind = OP_##KIND;                                                     \
        o.name = args;                                                          \
        program_add(p, &o);                                                     \
    }
OPS(X)
#undef X

#endif

/*
 * attend.cu - the attention op: which kernels take which sequences of a step, and the memory for partial sums.
 *
 * Decode, short prompts and rows that decode with fixed bits go chunk by chunk: a work item is (sequence, KV head, tile
 * of 8 rows, chunk), where the rows of a tile are the query heads of a KV head's group over one or more tokens, so that
 * grouped queries share what they read (plan.cuh). split_kv.cu takes items, or decode.cu where there are many
 * sequences; reduce.cu adds the partial sums of a row's chunks. A chunk has 256 tokens, or 128 for heads of more than
 * 128 dimensions, where bits must not depend on the batch; where they may, decode's chunk is as long as a sequence if
 * there are sequences enough. Longer runs of rows go through prefill.cu. Large heads and latent attention are
 * wide.cu's, whatever the number of rows.
 */
#include "kernels/cuda/attend/tailed.cuh"
#include "kernels/cuda/local.cuh"
#include "kernels/cuda/plan.cuh"

#include <math.h>
#include <string.h>

bool attend_supports(enum dtype type, uint32_t d_k, uint32_t d_v)
{
    bool large = (d_k == d_v || !d_v) && attend_wide_supports(d_k, d_v) && type == DT_F16;
    return large || (d_k == d_v && by_head(d_k, [](auto) {}));
}

bool attend_has_prompts(const struct kv_desc *kv)
{
    return kv->d_state || (by_head(kv->d_k, [](auto) {}) && kv->d_v);
}

void attend_init(struct device *d)
{
    attend_long_init(d);
    attend_split_init(d);
    attend_stream_init(d);
    attend_decode_init(d);
    attend_trunk_init(d);
    attend_wide_init(d);
    attend_reduce_init(d);
}

/* Whether the step's model has only recurrent states: a state's group is the last one, and so the first only where
 * there is no other. */
static bool attends_nowhere(const struct device *d)
{
    return d->kv[0]->desc.d_state;
}

/* Pages of the step's shortest chunk. */
static uint32_t pages_of(const struct device *d, const step_dev *m)
{
    uint32_t least = m->chunk_pages;
    for (uint32_t g = 0; g < d->n_group && !m->chunk_pages; g++) {
        if (d->kv[g]->desc.d_state)
            continue;
        uint32_t fixed = fixed_pages((int)d->kv[g]->desc.d_k);
        least = least && least < fixed ? least : fixed;
    }
    return least;
}

/* Floats of the sums of all heads of a row in a group. */
static uint64_t floats_of_group(const struct kv_desc *kv, uint32_t d_q)
{
    return kv->d_state ? 0 : d_q / kv->d_k * (kv->d_k + 4ull);
}

/* The same for the group that needs the most. */
static uint64_t floats_of(const struct device *d)
{
    uint64_t floats = 0;
    for (uint32_t g = 0; g < d->n_group; g++) {
        uint64_t n = floats_of_group(&d->kv[g]->desc, d->ws.dims.d_q);
        floats = n > floats ? n : floats;
    }
    return floats;
}

static uint64_t pieces_of(uint32_t n_token)
{
    return (n_token + ATTEND_SPLIT - 1ull) / ATTEND_SPLIT;
}

static uint32_t split_rows(uint64_t pieces, uint64_t floats)
{
    const uint64_t most = 512ull << 20; /* bytes */
    uint64_t rows = most / (pieces * floats * sizeof(float)) / GEMM_ROWS * GEMM_ROWS;
    return rows < GEMM_ROWS ? GEMM_ROWS : rows < ATTEND_SPLIT_ROWS ? (uint32_t)rows : ATTEND_SPLIT_ROWS;
}

uint32_t attend_split_rows(const struct device *d)
{
    return split_rows(pieces_of(d->max_pos), floats_of(d));
}

/* What attend_reserve() allocates for prompts of one sequence, which take more than as many rows that decode, unless
 * these have long contexts in common. */
uint64_t attend_bytes(struct device *d, const struct workspace_dims *dims, const struct kv_desc *kv, uint32_t n_group,
                      uint32_t n_token)
{
    uint64_t floats = 0, pairs;
    uint32_t least = UINT32_MAX;
    bool prompts = dims->n_prompt && n_token > ATTEND_SPLIT;
    for (uint32_t g = 0; g < n_group; g++) {
        uint64_t n = floats_of_group(&kv[g], dims->d_q);
        floats = n > floats ? n : floats;
        prompts = prompts && attend_has_prompts(&kv[g]);
        if (!kv[g].d_state && (uint32_t)fixed_pages((int)kv[g].d_k) < least)
            least = (uint32_t)fixed_pages((int)kv[g].d_k);
    }
    if (!floats)
        return 0;
    pairs = (n_token / (KV_PAGE * (uint64_t)least) + 1) * (dims->n_row < GEMM_ROWS ? dims->n_row : GEMM_ROWS);
    if (prompts) {
        uint64_t pieces = pieces_of(n_token), rows = split_rows(pieces, floats);
        rows = dims->n_row < rows ? dims->n_row : rows;
        pairs = pieces * rows > pairs ? pieces * rows : pairs;
    }
    uint64_t bytes = pairs * floats * sizeof(float);
    d->foreseen = bytes > d->foreseen ? bytes : d->foreseen;
    return bytes;
}

void attend_reserve(struct device *d, const step_dev *m)
{
    uint64_t pairs = 0;
    if (attends_nowhere(d))
        return;
    uint64_t floats = floats_of(d);
    if (d->invariant == INVARIANT_PROMPT && d->max_pos > ATTEND_SPLIT)
        pairs = pieces_of(d->max_pos) * (d->n_row < attend_split_rows(d) ? d->n_row : attend_split_rows(d));
    uint64_t launch[BATCH_ROWS_MAX / GEMM_ROWS] = {}; /* pairs of each: they use the same memory one after the other */
    for (uint32_t s = 0; s < m->n_seq && d->invariant != INVARIANT_PROMPT; s++) {
        uint64_t chunks = (m->pos0[s] + m->n_rows[s]) / (KV_PAGE * pages_of(d, m)) + 1;
        for (uint32_t row = m->row0[s], end = row + m->n_rows[s], next; row < end; row = next) {
            next = row / GEMM_ROWS * GEMM_ROWS + GEMM_ROWS;
            uint64_t *of = &launch[row / GEMM_ROWS];
            *of += chunks * ((next < end ? next : end) - row);
            pairs = *of > pairs ? *of : pairs;
        }
    }
    uint64_t want = pairs * floats * sizeof(float), have = d->ws.part_bytes ? d->ws.part_bytes : 64ull << 20;
    if (want <= d->ws.part_bytes)
        return;
    while (have < want)
        have *= 2;
    if (want <= d->foreseen && have > d->foreseen)
        have = d->foreseen;
    cuda_ok(d, cudaStreamSynchronize(d->stream));
    step_drop_graphs(d);
    cuda_free(d, d->ws.part);
    if (d->ws.part_bytes)
        d->hot_allocs++; /* a longer context than any before */
    d->ws.part_bytes = 0;
    struct hearth_err e = {};
    d->ws.part = (float *)cuda_alloc(d, have, "attention partials", &e);
    if (!d->ws.part && !d->err.code) /* without what spares later steps an allocation */
        d->ws.part = (float *)cuda_alloc(d, have = want, "attention partials", &e);
    if (d->ws.part)
        d->ws.part_bytes = have;
    else
        cuda_refuse(d, e.code, "%s", e.msg);
}

/*
 * Estimated time in us of a decode step's attention with chunks of so many pages: that of transferring all of its
 * bytes, or that of the block with the most rounds, a round being a page per warp, whichever is longer. At the end of a
 * chunk its block reads nothing, and if a sequence has more than one chunk, another launch adds them up. Chunks of a
 * trunk (pages: by sequence, the pages of its trunk) are items of a launch of their own. The constants are an H100's.
 */
static float cut_us(const struct device *d, const step_dev *m, uint32_t chunk, const uint32_t pages[BATCH_SEQS_MAX],
                    const struct step_trunks *trunks, uint32_t n_trunk)
{
    const struct kv_desc *kv = &d->kv[0]->desc;
    const float kb = d->kv[0]->layer_bytes / 1024.f / kv->n_kv, us_round = 0.8f + 0.11f * kb, kb_us = 2750, us_end = 1,
                us_trunk_end = 3, us_reduce = 3.5f, us_launch = 3, us_join = 1;
    uint32_t warps = attend_warps((int)kv->d_k), most = (d->max_pos + KV_PAGE - 1) / KV_PAGE, items = 0, all = 0;
    auto us_of = [&](uint32_t n, uint32_t total, float end, uint32_t ranks = 1) {
        float turns = (float)((n * kv->n_kv + d->sms - 1) / d->sms), mean = turns * total / n;
        float way = ceilf((mean > chunk ? mean : chunk) / (warps * ranks)) * us_round,
              bytes = kb * total * kv->n_kv / kb_us;
        return (way > bytes ? way : bytes) + turns * end;
    };
    for (uint32_t s = 0; s < m->n_seq; s++) {
        uint32_t shared = pages[s] / chunk;
        items += m->pos0[s] / KV_PAGE / chunk + 1 - shared, all += m->pos0[s] / KV_PAGE + 1 - shared * chunk;
    }
    float us = us_of(items, all, us_end) + (most > chunk ? us_reduce : 0);
    uint32_t group = d->ws.dims.d_q / kv->d_k / kv->n_kv, ranks = attend_ranks(d, d->bucket * kv->n_kv);
    if (most <= chunk && !n_trunk && ranks && attend_decode_takes(d, kv, group)) {
        float shared = us_of(items, all, us_end + us_join, 1u << ranks);
        us = shared < us ? shared : us;
    }
    items = all = 0;
    for (uint32_t t = 0; t < n_trunk; t++) {
        uint32_t chunks = pages[trunks->seq[trunks->trunk[t].first]] / chunk;
        items += chunks * ((trunks->trunk[t].n_seq * group + TRUNK_ROWS - 1) / TRUNK_ROWS), all += chunks * chunk;
    }
    return us + (items ? us_of(items, all, us_trunk_end) + us_launch : 0);
}

/* Warps of a block, of the group whose blocks have the fewest: a chunk has at most ATTEND_ROUNDS pages for each. */
static uint32_t least_warps(const struct device *d)
{
    uint32_t least = ATTEND_FIRST_PAGES;
    for (uint32_t g = 0; g < d->n_group; g++)
        if (!d->kv[g]->desc.d_state && (uint32_t)attend_warps((int)d->kv[g]->desc.d_k) < least)
            least = (uint32_t)attend_warps((int)d->kv[g]->desc.d_k);
    return least;
}

/*
 * The number of pages of a chunk; 0: the fixed number. Where bits are free, decode uses the chunk length with the
 * shortest time by cut_us(), and uses the step's trunks where they are quicker than none: a chunk is then an even share
 * of the longest trunk, so that little of the trunk is left to each sequence.
 */
static uint32_t chunk_pages_of(const struct device *d, const step_dev *m, struct step_trunks *to)
{
    uint32_t pages[BATCH_SEQS_MAX] = {}, none[BATCH_SEQS_MAX] = {};
    if (!d->decode || d->invariant || d->bucket <= GEMV_ROWS)
        return 0;
    uint32_t most = (d->max_pos + KV_PAGE - 1) / KV_PAGE, best = 0, warps = least_warps(d), chunk;
    float least = INFINITY;
    uint32_t n = (most + ATTEND_ROUNDS * warps - 1) / (ATTEND_ROUNDS * warps);
    do {
        chunk = (most + n - 1) / n;
        float us = cut_us(d, m, chunk, none, to, 0);
        if (us < least)
            least = us, best = chunk;
        n += (n + 3) / 4;
    } while (chunk > warps);
    uint32_t n_trunk = attend_trunks(d, m, to, pages), longest = 0, with = 0;
    for (uint32_t s = 0; s < m->n_seq; s++)
        longest = pages[s] > longest ? pages[s] : longest;
    for (n = (longest + ATTEND_ROUNDS * warps - 1) / (ATTEND_ROUNDS * warps); n && longest / n >= warps;
         n += (n + 15) / 16) {
        float us = cut_us(d, m, longest / n, pages, to, n_trunk);
        if (us < least)
            least = us, with = longest / n;
    }
    if (!with)
        return best;
    to->n = n_trunk;
    for (uint32_t s = 0; s < m->n_seq; s++) {
        to->chunks[s] = pages[s] / with;
        to->rows += to->chunks[s] > 0;
    }
    for (uint32_t t = 0; t < n_trunk; t++)
        to->trunk[t].n_chunk = to->chunks[to->seq[to->trunk[t].first]];
    return with;
}

uint32_t attend_words(void)
{
    return sizeof(struct step_trunks) / 4;
}

bool attend_shares(const struct device *d)
{
    return trunks_of(d, d->host)->rows;
}

/*
 * log2 of the number of chunks per item in the modes for rows that decode: 0, or, where there are sequences enough, as
 * many chunks as can be combined without partial sums in memory. The order of all sums is the same. It depends on the
 * step's shape alone.
 */
static uint32_t span_of(const struct device *d)
{
    uint32_t items = d->bucket * d->kv[0]->desc.n_kv;
    bool fixed = d->invariant == INVARIANT_DECODE || d->invariant == INVARIANT_BATCH;
    if (!d->decode || !fixed || d->bucket <= GEMV_ROWS || 5 * items < 2u * d->sms)
        return 0;
    for (uint32_t g = 0; g < d->n_group; g++)
        if (!d->kv[g]->desc.d_state && (!d->kv[g]->desc.d_v || !attend_spans(d, d->kv[g]->desc.d_k)))
            return 0; /* wide.cu takes latents without values of their own, whatever their size */
    return REDUCE_SPAN;
}

/*
 * The number of warps per team of decode.cu, where each team has at most one item: the most with which there are enough
 * teams. 0: blocks take items one after the other, which is quicker where a few sequences are much longer than the
 * rest, for example. The constants are an H100's.
 */
static uint32_t team_of(const struct device *d, const step_dev *m)
{
    const struct kv_desc *kv = &d->kv[0]->desc;
    const float kb = d->kv[0]->layer_bytes / 1024.f / kv->n_kv, us_round = 0.8f + 0.11f * kb, us_end = 2;
    uint32_t most = (d->max_pos + KV_PAGE - 1) / KV_PAGE, items = d->bucket * kv->n_kv, pages = 0,
             all = attend_warps((int)kv->d_k), warps = all;
    if (!m->chunk_pages || d->n_split > 1)
        return 0;
    while (warps && items > attend_decode_teams(d, kv->d_k, warps))
        warps /= 2;
    if (warps < ATTEND_TEAM_MIN || most > ATTEND_ROUNDS * warps)
        return 0;
    for (uint32_t s = 0; s < m->n_seq; s++)
        pages += m->pos0[s] / KV_PAGE + 1;
    float turns = (float)((m->n_seq * kv->n_kv + d->sms - 1) / d->sms), mean = turns * pages / m->n_seq,
          bytes = kb * pages * kv->n_kv / 2750, once = ceilf((float)most / warps) * us_round,
          many = ceilf((mean > most ? mean : most) / all) * us_round;
    once = (once > bytes ? once : bytes) + us_end, many = (many > bytes ? many : bytes) + turns * us_end;
    return once <= many ? warps : 0;
}

void attend_cut(struct device *d, step_dev *m)
{
    d->team = 0;
    d->n_split = 1; /* more where any sequence has more: the graph then includes a reduction */
    m->chunk_pages = m->chunk_magic = 0;
    struct step_trunks *trunks = trunks_of(d, m);
    memset(trunks, 0, sizeof(*trunks));
    if (attends_nowhere(d))
        return;
    uint32_t pages = chunk_pages_of(d, m, trunks), tokens;
    m->chunk_pages = pages, m->chunk_magic = pages ? fastdiv_magic(pages) : 0;
    tokens = pages_of(d, m) * KV_PAGE << span_of(d);
    while (d->n_split * tokens < d->max_pos &&
           (d->n_split == 1 || d->n_split * d->bucket * d->kv[0]->desc.n_kv < 2u * d->sms))
        d->n_split *= 2;
    d->team = team_of(d, m);
}

/*
 * Whether the step's longer runs of rows are few enough to be split into items too. prefill.cu has one block for 128
 * rows and heads, which goes through the whole context: its time follows the context, that of chunks the number of
 * items. The measured break-even (tests/bench/lab/NOTES.md) is one and a half items per SM, or two where no row sees
 * more than a chunk.
 */
static bool split_all(const struct device *d, const struct op_attend *op)
{
    uint64_t group = op->n_head / op->n_kv, items = 0;
    for (uint32_t s = 0; s < d->n_seq; s++)
        items += (d->host->n_rows[s] * group + TILE_ROWS - 1) / TILE_ROWS * op->n_kv;
    return 2 * items <= (d->max_pos <= ATTEND_CHUNK ? 4ull : 3ull) * d->sms;
}

/* Whether every sequence of the step has more than so many rows. */
static bool all_longer(const struct device *d, uint32_t rows)
{
    for (uint32_t s = 0; s < d->n_seq; s++)
        if (d->host->n_rows[s] && d->host->n_rows[s] <= rows)
            return false;
    return true;
}

bool attend_one(const struct op_attend *op)
{
    return op->n_head / op->n_kv <= TILE_ROWS;
}

/*
 * Hands the op the partial sums (pieces) that q|k|v left, where its items are decode.cu's, which finish them. In all
 * other cases epilogue.cu's kernel runs in between, and is launched here: for prompts; steps whose bits are fixed; KV
 * of Q8_0; trunks, whose items have queries of many sequences; groups that need two tiles; norms of whole rows; gates,
 * which belong to no head; and keys or values that are not the product's.
 */
static bool takes_tail(struct device *d, struct op_call *p, const struct op_attend *op, attend_tail *to)
{
    const struct op_qkv *q = p->q_op;
    if (!(p->acts.pieces & ACT_BIT(ACT_Q)))
        return false;
    if (!attend_decode_takes(d, &d->kv[op->group]->desc, op->n_head / op->n_kv) || attend_shares(d) || op->gated ||
        q->gated || q->w->n_part != 3 || q->whole_norms || q->layer != op->layer || q->group != op->group ||
        q->n_head != op->n_head || q->n_kv != op->n_kv || q->d_head != op->d_head) {
        plan_complete(d, p, ACT_BIT(ACT_Q));
        return false;
    }
    to->pieces = p->q, to->tail = qkv_epilogue_args_of(d, q);
    act_taken(&p->acts, ACT_Q);
    return true;
}

void attend_run(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_attend *op = &o->attend;
    attend_args a = {};
    uint32_t kept = d->kv[op->group]->desc.window;
    if (kept && (!op->window || op->window > kept)) {
        cuda_refuse(d, HEARTH_EPARAMS, "attention over %u tokens (0: all) to KV that keeps %u", op->window, kept);
        return;
    }
    a.q = d->ws.q, a.ldq = d->ws.ldq, a.out = d->ws.att;
    a.kv = kv_view_of(d->kv[op->group], op->layer);
    a.q8 = d->kv[op->group]->desc.type == DT_Q8_0;
    a.s = d->step, a.pages = d->pages, a.pages0 = d->step->group[op->group].pages0;
    a.trunks = attend_shares(d) && !op->window ? trunks_of(d, d->step) : NULL;
    a.n_head = op->n_head, a.group = op->n_head / op->n_kv, a.window = op->window;
    a.scale = op->scale, a.softcap = op->softcap, a.sinks = op->sinks;
    if (op->gated)
        a.gates = d->ws.mix, a.ldgates = d->ws.ldmix;
    a.one = d->decode && d->bucket == 1 && attend_one(op);
    a.first = !a.window && !op->group;
    a.part = d->ws.part;
    uint32_t d_value = op->d_latent ? op->d_latent : op->d_head;
    bool large = !by_head(op->d_head, [](auto) {}) || op->d_latent;
    if (large && !attend_wide_supports(op->d_head, d_value)) {
        cuda_refuse(d, HEARTH_EUNSUPPORTED, "head size %u, of values %u: the GPU has attention for " HEAD_SIZES,
                    op->d_head, d_value);
        return;
    }
    attend_tail tail;
    bool tailed = takes_tail(d, p, op, &tail);
    wg_attended(d, p, op->n_head * d_value, &a.out);
    if (d->invariant == INVARIANT_PROMPT) { /* one kernel for any number of rows */
        a.rows_max = 0;
        if (!attend_long(d, op, a))
            cuda_refuse(d, HEARTH_EUNSUPPORTED, "attention to prompts of heads of %u has no room here", op->d_head);
        return;
    }
    /* Longer runs of rows go to prefill.cu, where bits depend on how a prompt is cut. */
    a.rows_max = ATTEND_SHORT_ROWS;
    if (large || d->decode || d->invariant || split_all(d, op) || !attend_long(d, op, a))
        a.rows_max = BATCH_ROWS_MAX;
    else if (all_longer(d, a.rows_max)) {
        attend_sums_run(d, a, op->d_head);
        return;
    }
    uint32_t fixed = fixed_pages((int)op->d_head);
    split_args split = {a, fastdiv_magic(a.group), fastdiv_magic(a.kv.n_kv), fixed, fastdiv_magic(fixed), span_of(d)};
    for (uint32_t lo = 0; lo < d->bucket; lo += GEMM_ROWS) {
        split.row_lo = lo, split.row_hi = lo + GEMM_ROWS;
        if (split.trunks) /* only for heads that split_kv.cu takes */
            attend_trunk_run(d, split, op->d_head);
        if (tailed)
            attend_decode_run(d, split, tail, op->d_head);
        else if (large)
            attend_wide_run(d, split, op->d_head, d_value);
        else if (!attend_stream_run(d, split, op->d_head))
            attend_split_run(d, split, op->d_head);
        if (d->n_split > 1)
            attend_reduce_run(d, split, d_value);
    }
    attend_sums_run(d, a, d_value);
}

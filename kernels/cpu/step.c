/*
 * step.c - a step on the CPU: the batch is checked and copied, then the program's ops run one by one.
 *
 * Errors belong to the step: the first is recorded, the ops after it do nothing, and step_wait or sync returns and
 * clears it. Thread: the device's.
 */
#include "kernels/cpu/cpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cpu_fail(struct device *d, int code, const char *fmt, ...)
{
    if (d->err.code)
        return;
    va_list ap;
    va_start(ap, fmt);
    d->err.code = code;
    vsnprintf(d->err.msg, sizeof d->err.msg, fmt, ap);
    va_end(ap);
}

bool cpu_scratch(struct device *d, struct scratch *s, size_t n)
{
    if (n <= s->room)
        return true;
    n += n / 2; /* contexts grow token by token; growing by half each time avoids a reallocation a step */
    float *v = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);
    if (!v) {
        cpu_fail(d, HEARTH_ENOMEM, "no memory for %zu bytes of scratch", n * sizeof(float));
        return false;
    }
    d->hot_allocs++;
    free(s->v);
    s->v = v;
    s->room = n;
    return true;
}

/* The number of entries in the sequence's block table of that group. */
static uint32_t n_pages(const struct batch *b, const struct batch_seq *q, uint32_t group)
{
    if (b->kv[group]->desc.d_state)
        return q->n_within ? 3 : 2;
    return (uint32_t)(((uint64_t)q->pos0 + q->n_row + KV_PAGE - 1) / KV_PAGE);
}

/* The first entry of the block table that the sequence's rows use. */
static uint32_t first_page(const struct batch *b, const struct batch_seq *q, uint32_t group)
{
    if (b->kv[group]->desc.d_state)
        return q->pos0 ? 0 : 1;
    return kv_first_visible(q->pos0, b->kv[group]->desc.window) / KV_PAGE;
}

static void table_check(struct device *d, const struct batch *b, uint32_t s, uint32_t group)
{
    const struct batch_seq *q = &b->seq[s];
    uint32_t n_page = b->kv[group]->desc.n_page;
    for (uint32_t p = first_page(b, q, group); p < n_pages(b, q, group); p++)
        if (q->pages[group][p] >= n_page) {
            cpu_fail(d, HEARTH_EPARAMS, "sequence %u names KV page %u of a pool of %u", (unsigned)s,
                     (unsigned)q->pages[group][p], (unsigned)n_page);
            return;
        }
}

/* Checks that rows belong to sequences in order and without gaps, and that every page they need is in its pool. */
static bool batch_check(struct device *d, const struct batch *b)
{
    if (!b->n_row || b->n_row > BATCH_ROWS_MAX || b->n_row > d->dims.n_row)
        cpu_fail(d, HEARTH_EPARAMS, "step of %u rows: 1 to %u were reserved", (unsigned)b->n_row,
                 (unsigned)d->dims.n_row);
    else if (b->n_seq > BATCH_SEQS_MAX)
        cpu_fail(d, HEARTH_EPARAMS, "step of %u sequences, limit %d", (unsigned)b->n_seq, BATCH_SEQS_MAX);
    else if (b->n_group > KV_GROUPS_MAX)
        cpu_fail(d, HEARTH_EPARAMS, "step of %u layer groups, limit %d", (unsigned)b->n_group, KV_GROUPS_MAX);
    else if (b->n_out > d->dims.n_out || b->n_out > b->n_row)
        cpu_fail(d, HEARTH_EPARAMS, "step wants logits of %u of its %u rows, %u were reserved", (unsigned)b->n_out,
                 (unsigned)b->n_row, (unsigned)d->dims.n_out);
    uint32_t row = 0;
    for (uint32_t s = 0; s < b->n_seq && !d->err.code; s++) {
        const struct batch_seq *q = &b->seq[s];
        uint64_t end = (uint64_t)q->pos0 + q->n_row;
        if (q->row0 != row || !q->n_row || q->n_row > b->n_row - row || end > INT32_MAX) {
            cpu_fail(d, HEARTH_EPARAMS, "sequence %u of the step has rows %u+%u at position %u; row %u is next of %u",
                     (unsigned)s, (unsigned)q->row0, (unsigned)q->n_row, (unsigned)q->pos0, (unsigned)row,
                     (unsigned)b->n_row);
            break;
        }
        if (q->freq_set >= ROPE_SETS_MAX)
            cpu_fail(d, HEARTH_EPARAMS, "sequence %u of the step turns by set %u of RoPE's frequencies, of at most %d",
                     (unsigned)s, (unsigned)q->freq_set, ROPE_SETS_MAX);
        if (q->n_within >= q->n_row)
            cpu_fail(d, HEARTH_EPARAMS, "sequence %u of the step is to give its states after row %u of %u", (unsigned)s,
                     (unsigned)q->n_within, (unsigned)q->n_row);
        for (uint32_t g = 0; g < b->n_group && !d->err.code; g++)
            table_check(d, b, s, g);
        row += q->n_row;
    }
    if (!d->err.code && row != b->n_row)
        cpu_fail(d, HEARTH_EPARAMS, "sequences of the step cover %u of its %u rows", (unsigned)row, (unsigned)b->n_row);
    for (uint32_t i = 0; i < b->n_out && !d->err.code; i++)
        if (b->out_row[i] >= b->n_row || (i && b->out_row[i] <= b->out_row[i - 1]))
            cpu_fail(d, HEARTH_EPARAMS, "out_row %u is %u: rows ascend and are below %u", (unsigned)i,
                     (unsigned)b->out_row[i], (unsigned)b->n_row);
    return !d->err.code;
}

/* Grows the buffers for the block tables and for the longest row of attention scores. */
static bool batch_room(struct device *d, const struct batch *b)
{
    size_t n_page = 0, longest = 0;
    for (uint32_t s = 0; s < b->n_seq; s++) {
        size_t end = (size_t)b->seq[s].pos0 + b->seq[s].n_row;
        for (uint32_t g = 0; g < b->n_group; g++)
            n_page += n_pages(b, &b->seq[s], g);
        longest = end > longest ? end : longest;
    }
    if (n_page > d->pages_room) {
        uint32_t *pages = realloc(d->pages, 2 * n_page * sizeof *pages);
        if (!pages) {
            cpu_fail(d, HEARTH_ENOMEM, "no memory for %zu block table entries", n_page);
            return false;
        }
        d->hot_allocs++;
        d->pages = pages;
        d->pages_room = 2 * n_page;
    }
    d->max_keys = round_up((uint32_t)longest, LANES);
    return true;
}

static void begin(struct device *d, const struct batch *b, const struct program *p)
{
    d->n_sampled = 0;
    d->model = p->model;
    d->n_rope = 0;
    memset(&d->batch, 0, sizeof d->batch);
    if (!batch_check(d, b) || !batch_room(d, b))
        return;
    d->batch = *b;
    memcpy(d->token, b->token, b->n_row * sizeof *b->token);
    if (b->n_out) /* else out_row may be NULL */
        memcpy(d->out_row, b->out_row, b->n_out * sizeof *b->out_row);
    uint32_t *pages = d->pages;
    for (uint32_t s = 0; s < b->n_seq; s++) {
        struct batch_seq *q = &d->seq[s];
        *q = b->seq[s];
        for (uint32_t g = 0; g < b->n_group; g++) {
            uint32_t n = n_pages(b, q, g), from = first_page(b, q, g);
            memcpy(pages + from, q->pages[g] + from, (n - from) * sizeof *pages);
            q->pages[g] = pages;
            pages += n;
        }
        for (uint32_t i = 0; i < q->n_row; i++) {
            d->pos[q->row0 + i] = q->pos0 + i;
            d->seq_of[q->row0 + i] = s;
        }
    }
    d->normed.n_row = d->att.n_row = d->ff.n_row = d->latent.n_row = b->n_row;
    cpu_act_apply(d);
}

/* The op table, one row per kind. */
#define X(KIND, name, ...)                                       \
    static void run_##name(struct device *d, const struct op *o) \
    {                                                            \
        cpu_##name(d, &o->name);                                 \
    }
OPS(X)
#undef X
#define X(KIND, name, ...) run_##name,
static void (*const run[OP_COUNT])(struct device *d, const struct op *o) = {OPS(X)};
#undef X

uint64_t cpu_step_run(struct device *d, const struct batch *b, const struct program *p)
{
    begin(d, b, p);
    staged_free(&d->staged);
    for (uint32_t i = 0; i < p->n_op && !d->err.code; i++)
        if (b->stop && b->stop(b->stop_arg))
            cpu_fail(d, HEARTH_ECANCELLED, "the step was stopped after %u of its %u ops", i, p->n_op);
        else
            run[p->op[i].kind](d, &p->op[i]);
    if (b->sample.n)
        cpu_sample(d, &b->sample);
    return ++d->ticket;
}

int cpu_step_wait(struct device *d, uint64_t ticket, struct sampled *out, uint32_t n, struct hearth_err *e)
{
    if (d->err.code) {
        struct hearth_err err = d->err;
        d->err.code = 0;
        return err_set(e, err.code, "%s", err.msg);
    }
    if (ticket != d->ticket)
        return err_set(e, HEARTH_EPARAMS, "step %llu is not the last one, %llu", (unsigned long long)ticket,
                       (unsigned long long)d->ticket);
    if (n > d->n_sampled)
        return err_set(e, HEARTH_EPARAMS, "%u tokens wanted of a step that sampled %u", (unsigned)n,
                       (unsigned)d->n_sampled);
    if (n)
        memcpy(out, d->sampled, n * sizeof *out);
    return 0;
}

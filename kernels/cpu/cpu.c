/*
 * cpu.c - the CPU backend: opening a device; its workspace, vectors and weights; the backend's function table.
 *
 * Weights stay in the mapped model file: loading one only checks that its type can be multiplied by. Thread: a device
 * belongs to the thread that opened it.
 */
#include "config.h"

#include "kernels/cpu/cpu.h"

#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS_MAX = 256 };

static const struct cpu_kernels *const variants[] = {
#ifdef __x86_64__
    &cpu_avx512,    &cpu_avxvnni, &cpu_avx2,
#endif
    &cpu_reference, NULL,
};

static const struct cpu_kernels *variant_find(const char *name, struct hearth_err *e)
{
    bool any = !name || !strcmp(name, "auto");
    for (const struct cpu_kernels *const *k = variants; *k; k++) {
        if (!any && strcmp((*k)->name, name))
            continue;
        if ((*k)->usable())
            return *k;
        if (!any) {
            err_set(e, HEARTH_EDEVICE, "this processor has no %s", name);
            return NULL;
        }
    }
    err_set(e, HEARTH_EPARAMS, "no CPU variant '%s': auto, reference, avx2, avxvnni or avx512", name);
    return NULL;
}

static uint32_t machine_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (uint32_t)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

static void cpu_close(struct device *d)
{
    if (!d)
        return;
    pool_free(d->pool);
    for (uint32_t i = 0; d->scratch && i < d->n_thread; i++)
        free(d->scratch[i].v);
    for (int i = 0; i < ROPE_TABLES; i++)
        free(d->rope[i].cs.v);
    for (int i = 0; i < SLOTS_MAX; i++)
        cpu_slot_fini(&d->slot[i]);
    staged_free(&d->staged);
    free(d->scores.v);
    free(d->gathered.v);
    free(d->kblocks.v);
    free(d->convolved.v);
    free(d->scratch);
    free(d->workspace);
    free(d->pages);
    free(d);
}

static int cpu_open(struct device **out, const struct device_params *p, struct hearth_err *e)
{
    if (p->index != 0)
        return err_set(e, HEARTH_EDEVICE, "CPU device %d: there is only 0", p->index);
    if (p->threads > THREADS_MAX)
        return err_set(e, HEARTH_EPARAMS, "%u threads, limit %d", (unsigned)p->threads, THREADS_MAX);
    const struct cpu_kernels *k = variant_find(p->variant, e);
    if (!k)
        return e ? e->code : HEARTH_EDEVICE;
    struct device *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, HEARTH_ENOMEM, "no memory for a CPU device");
    d->k = k;
    d->kv_type = p->kv_type;
    d->n_thread = p->threads ? p->threads : machine_cores();
    if (d->n_thread > THREADS_MAX)
        d->n_thread = THREADS_MAX;
    for (int i = 0; i < SLOTS_MAX; i++)
        d->slot[i].last = -1;
    d->scratch = calloc(d->n_thread, sizeof *d->scratch);
    int rc = d->scratch ? pool_new(&d->pool, d->n_thread, e) : err_set(e, HEARTH_ENOMEM, "no memory for a CPU device");
    if (rc) {
        cpu_close(d);
        return rc;
    }
    *out = d;
    return 0;
}

/* Reads the value of "key ... : value" in a file of /proc, without the newline. */
static bool proc_line(const char *path, const char *key, char *out, size_t size)
{
    char line[256];
    bool found = false;
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        char *v = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) || !v)
            continue;
        v += 1 + strspn(v + 1, " \t");
        v[strcspn(v, "\n")] = 0;
        snprintf(out, size, "%s", v);
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}

static uint64_t meminfo(const char *key)
{
    char v[64];
    return proc_line("/proc/meminfo", key, v, sizeof v) ? strtoull(v, NULL, 10) * 1024 : 0;
}

static void cpu_info(struct device *d, struct device_info *out)
{
    char model[64] = "CPU";
    proc_line("/proc/cpuinfo", "model name", model, sizeof model);
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s (%s, %u thread%s)", model, d->k->name, (unsigned)d->n_thread,
             d->n_thread == 1 ? "" : "s");
    out->keeps_source = true;
    out->states_within = true;
    out->kv_type = d->kv_type;
    out->max_in_flight = 1;
    out->decode_rows = UINT32_MAX;
    out->mem_total = meminfo("MemTotal");
    out->mem_free = meminfo("MemAvailable");
    out->hot_allocs = d->hot_allocs;
    out->kv_granule = (uint64_t)sysconf(_SC_PAGESIZE);
    memcpy(out->held, d->held, sizeof out->held);
}

static size_t carve(char *base, size_t *at, float **out, uint64_t floats)
{
    if (base)
        *out = (float *)(base + *at);
    *at += (floats * sizeof(float) + 63) / 64 * 64;
    return *at;
}

/* Lays out the workspace at base and returns its size; with base NULL it only returns the size. */
static size_t workspace_layout(struct device *d, const struct workspace_dims *w, char *base)
{
    size_t at = 0;
    uint64_t rows = w->n_row;
    carve(base, &at, &d->x, rows * w->d_model);
    carve(base, &at, &d->y, rows * w->d_model);
    carve(base, &at, &d->normed.v, rows * round_up(w->d_model, KB));
    carve(base, &at, &d->q, rows * w->d_q);
    carve(base, &at, &d->kv, rows * 2 * w->d_kv);
    carve(base, &at, &d->att.v, rows * round_up(w->d_q, KB));
    carve(base, &at, &d->ff.v, rows * round_up(w->d_ff, KB));
    carve(base, &at, &d->route, rows * w->d_route);
    carve(base, &at, &d->experts, rows * w->d_experts);
    carve(base, &at, &d->mix, rows * w->d_mix);
    carve(base, &at, &d->latent.v, rows * round_up(w->d_latent, KB));
    carve(base, &at, &d->aside, rows * w->d_aside);
    carve(base, &at, &d->inputs, rows * w->d_inputs);
    return carve(base, &at, &d->logits, (uint64_t)w->n_out * w->n_vocab);
}

static int cpu_reserve(struct device *d, const struct workspace_dims *dims, struct hearth_err *e)
{
    struct workspace_dims w = d->dims;
    const uint32_t limit = 1u << 24; /* far above any model's; keeps every product below 2^63 */
    uint32_t *have = &w.d_model;
    const uint32_t *want = &dims->d_model;
    for (size_t i = 0; i < sizeof w / sizeof *have; i++) {
        if (want[i] > limit)
            return err_set(e, HEARTH_EPARAMS, "workspace dimension %u is over %u", (unsigned)want[i], (unsigned)limit);
        have[i] = want[i] > have[i] ? want[i] : have[i];
    }
    if (w.n_row > BATCH_ROWS_MAX || w.n_out > BATCH_ROWS_MAX)
        return err_set(e, HEARTH_EPARAMS, "workspace for %u rows, %u with logits: limit %d", (unsigned)w.n_row,
                       (unsigned)w.n_out, BATCH_ROWS_MAX);
    if (!memcmp(&w, &d->dims, sizeof w))
        return 0;
    size_t bytes = workspace_layout(d, &w, NULL);
    void *mem = aligned_alloc(64, bytes);
    if (!mem)
        return err_set(e, HEARTH_ENOMEM, "no memory for a workspace of %zu bytes", bytes);
    free(d->workspace);
    d->workspace = mem;
    d->held[MEM_WORKSPACE] = bytes;
    d->dims = w;
    workspace_layout(d, &w, mem);
    /* The op that writes an activation sets its width; until then it has the reserved width. */
    d->d_model = w.d_model;
    d->d_q = d->att.n_col = w.d_q;
    d->ff.n_col = w.d_ff;
    d->n_logit = w.n_vocab;
    d->d_route = w.d_route;
    d->d_experts = w.d_experts;
    d->d_mix = w.d_mix;
    d->latent.n_col = w.d_latent;
    d->d_aside = w.d_aside;
    d->d_inputs = w.d_inputs;
    return 0;
}

static uint64_t file_bytes(const struct weight *w)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < w->n_part; i++)
        bytes += dtype_bytes(w->part[i].type, (uint64_t)w->part[i].n_out * w->n_in);
    return bytes * (w->n_expert ? w->n_expert : 1);
}

static int cpu_weight_load(struct device *d, struct weight *w, struct hearth_err *e)
{
    uint64_t n_out = 0;
    if (!w->n_in || !w->n_part || w->n_part > 3 || w->n_expert > EXPERTS_MAX)
        return err_set(e, HEARTH_EPARAMS, "weight of %u parts and %u columns, %u experts", (unsigned)w->n_part,
                       (unsigned)w->n_in, (unsigned)w->n_expert);
    for (uint32_t i = 0; i < w->n_part; i++) {
        const struct weight_part *p = &w->part[i];
        const struct dtype_info *t = dtype_get(p->type);
        if (!t)
            return err_set(e, HEARTH_EUNSUPPORTED, "weights of type %d", (int)p->type);
        if (w->n_in % t->block_len)
            return err_set(e, HEARTH_EBADMODEL, "rows of %u weights are no whole blocks of %s", (unsigned)w->n_in,
                           t->name);
        for (uint32_t k = 0; k < (w->n_expert ? w->n_expert : 1); k++) {
            const void *at = w->n_expert ? p->expert[k] : p->data;
            if ((uintptr_t)at % (p->type == DT_F32 ? sizeof(float) : sizeof(uint16_t)))
                return err_set(e, HEARTH_EBADMODEL, "weights of type %s lie on an odd address", t->name);
        }
        n_out += p->n_out;
    }
    if (n_out != w->n_out || !n_out)
        return err_set(e, HEARTH_EPARAMS, "weight of %u rows has parts of %llu", (unsigned)w->n_out,
                       (unsigned long long)n_out);
    w->dev = NULL;
    d->held[MEM_WEIGHTS] += file_bytes(w);
    return 0;
}

static void cpu_weight_free(struct device *d, struct weight *w)
{
    d->held[MEM_WEIGHTS] -= file_bytes(w);
}

/* A vector of vec_load: a copy, with its size in front of it. */
struct vec {
    size_t bytes;
    _Alignas(max_align_t) float v[];
};

static int cpu_vec_load(struct device *d, const float *src, size_t n, float **out, struct hearth_err *e)
{
    struct vec *vec = n <= (SIZE_MAX - sizeof *vec) / sizeof *src ? malloc(sizeof *vec + n * sizeof *src) : NULL;
    if (!vec)
        return err_set(e, HEARTH_ENOMEM, "no memory for a vector of %zu", n);
    vec->bytes = n * sizeof *src;
    memcpy(vec->v, src, vec->bytes);
    d->held[MEM_WEIGHTS] += vec->bytes;
    *out = vec->v;
    return 0;
}

static void cpu_vec_free(struct device *d, float *v)
{
    if (!v)
        return;
    struct vec *vec = (struct vec *)((char *)v - offsetof(struct vec, v));
    d->held[MEM_WEIGHTS] -= vec->bytes;
    free(vec);
}

/* --- activations, for eval and tests --------------------------------------------------------------------- */

struct act_view {
    float *v;
    uint32_t n_row, n_col;
    const struct panel *panel; /* NULL: row after row */
};

static float *act_at(const struct act_view *a, uint32_t row, uint32_t col)
{
    if (a->panel)
        return panel_row(a->panel, row) + col / KB * panel_stride(a->panel) + col % KB;
    return a->v + (size_t)row * a->n_col + col;
}

static int act_view(struct device *d, enum act a, uint32_t row0, uint32_t n_row, struct act_view *out,
                    struct hearth_err *e)
{
    switch (a) {
    case ACT_X:
        *out = (struct act_view){d->x, d->batch.n_row, d->d_model, NULL};
        break;
    case ACT_Q:
        *out = (struct act_view){d->q, d->batch.n_row, d->d_q, NULL};
        break;
    case ACT_ATT:
        *out = (struct act_view){NULL, d->batch.n_row, d->att.n_col, &d->att};
        break;
    case ACT_FF:
        *out = (struct act_view){NULL, d->batch.n_row, d->ff.n_col, &d->ff};
        break;
    case ACT_LOGITS:
        *out = (struct act_view){d->logits, d->batch.n_out, d->n_logit, NULL};
        break;
    case ACT_ROUTE:
        *out = (struct act_view){d->route, d->batch.n_row, d->d_route, NULL};
        break;
    case ACT_EXPERTS:
        *out = (struct act_view){d->experts, d->batch.n_row, d->d_experts, NULL};
        break;
    case ACT_MIX:
        *out = (struct act_view){d->mix, d->batch.n_row, d->d_mix, NULL};
        break;
    case ACT_ASIDE:
        *out = (struct act_view){d->aside, d->batch.n_row, d->d_aside, NULL};
        break;
    case ACT_INPUTS:
        *out = (struct act_view){d->inputs, d->batch.n_row, d->d_inputs, NULL};
        break;
    case ACT_LATENT:
        *out = (struct act_view){NULL, d->batch.n_row, d->latent.n_col, &d->latent};
        break;
    case ACT_COUNT:
        return err_set(e, HEARTH_EPARAMS, "no such activation");
    }
    if (row0 > out->n_row || n_row > out->n_row - row0 || !out->n_col)
        return err_set(e, HEARTH_EPARAMS, "rows %u+%u of activation %d, which has %u of %u columns", (unsigned)row0,
                       (unsigned)n_row, (int)a, (unsigned)out->n_row, (unsigned)out->n_col);
    return 0;
}

static int cpu_act_read(struct device *d, enum act a, uint32_t row0, uint32_t n_row, float *out, struct hearth_err *e)
{
    struct act_view view;
    int rc = d->err.code ? err_set(e, d->err.code, "%s", d->err.msg) : act_view(d, a, row0, n_row, &view, e);
    for (uint32_t r = row0; !rc && r < row0 + n_row; r++)
        for (uint32_t c = 0; c < view.n_col; c++)
            *out++ = *act_at(&view, r, c);
    return rc;
}

static int cpu_act_write(struct device *d, enum act a, uint32_t row0, uint32_t n_row, uint32_t n_col, const float *in,
                         struct hearth_err *e)
{
    return staged_add(&d->staged, a, row0, n_row, n_col, in, e);
}

/* Makes an activation n columns wide; false where fewer were reserved. */
static bool set_width(struct device *d, enum act a, uint32_t n)
{
    uint32_t *const width[ACT_COUNT] = {&d->d_model, &d->d_q,      &d->att.n_col,   &d->ff.n_col,
                                        &d->n_logit, &d->d_route,  &d->d_experts,   &d->d_mix,
                                        &d->d_aside, &d->d_inputs, &d->latent.n_col};
    const uint32_t most[ACT_COUNT] = {d->dims.d_model, d->dims.d_q,      d->dims.d_q,       d->dims.d_ff,
                                      d->dims.n_vocab, d->dims.d_route,  d->dims.d_experts, d->dims.d_mix,
                                      d->dims.d_aside, d->dims.d_inputs, d->dims.d_latent};
    if (n > most[a])
        cpu_fail(d, HEARTH_EPARAMS, "%u columns of activation %d: %u were reserved", (unsigned)n, (int)a,
                 (unsigned)most[a]);
    else
        *width[a] = n;
    return !d->err.code;
}

void cpu_act_apply(struct device *d)
{
    struct act_view view;
    struct hearth_err e;
    for (const struct staged *s = d->staged; s && set_width(d, s->act, s->n_col); s = s->next) {
        const float *in = s->v;
        if (act_view(d, s->act, s->row0, s->n_row, &view, &e)) {
            cpu_fail(d, e.code, "%s", e.msg);
            return;
        }
        for (uint32_t r = s->row0; r < s->row0 + s->n_row; r++)
            for (uint32_t c = 0; c < view.n_col; c++)
                *act_at(&view, r, c) = *in++;
    }
}

static const char *cpu_op_path(struct device *d, const struct program *p, uint32_t i, uint32_t n_row,
                               enum invariance how)
{
    (void)d, (void)p, (void)i, (void)n_row, (void)how;
    return "cpu";
}

static int cpu_sync(struct device *d, struct hearth_err *e)
{
    return cpu_step_wait(d, d->ticket, NULL, 0, e);
}

const struct backend backend_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .info = cpu_info,
    .reserve = cpu_reserve,
    .weight_load = cpu_weight_load,
    .weight_free = cpu_weight_free,
    .vec_load = cpu_vec_load,
    .vec_free = cpu_vec_free,
    .kv_new = cpu_kv_new,
    .kv_free = cpu_kv_free,
    .kv_map = cpu_kv_map,
    .kv_unmap = cpu_kv_unmap,
    .kv_copy = cpu_kv_copy,
    .kv_clear = cpu_kv_clear,
    .kv_save = cpu_kv_save,
    .kv_load = cpu_kv_load,
    .kv_transfer_done = cpu_kv_transfer_done,
    .kv_transfer_wait = cpu_kv_transfer_wait,
    .host_alloc = cpu_host_alloc,
    .host_free = cpu_host_free,
    .step_run = cpu_step_run,
    .op_path = cpu_op_path,
    .step_wait = cpu_step_wait,
    .slot_set = cpu_slot_set,
    .act_read = cpu_act_read,
    .act_write = cpu_act_write,
    .sync = cpu_sync,
    .read_rate = cpu_read_rate,
};

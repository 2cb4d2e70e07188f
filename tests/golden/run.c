/* run.c - see run.h. */
#include "tests/golden/run.h"

#include "daemon/model/file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct model_room *run_room;

const struct backend *run_backend(void)
{
    const char *name = getenv("HEARTH_BACKEND");
    const struct backend *be = backend_find(name ? name : "cpu");
    if (!be)
        fail_msg("this build has no backend \"%s\"", name);
    return be;
}

bool run_on_gpu(void)
{
    return strcmp(run_backend()->name, "cpu") != 0;
}

bool run_possible(void)
{
    const char *name = getenv("HEARTH_BACKEND");
    const struct backend *be = backend_find(name ? name : "cpu");
    struct hearth_err e = {.msg = "not in this build"};
    struct device *d;
    if (be && !be->open(&d, &(struct device_params){.threads = 1}, &e)) {
        be->close(d);
        return true;
    }
    printf("1..0 # SKIP %s: %s\n", name, e.msg);
    return false;
}

void run_open(struct run *r, const char *path, const struct backend *be, const char *variant, uint32_t threads,
              uint32_t n_page, uint32_t n_row)
{
    run_open_kv(r, path, be, variant, threads, n_page, n_row, DT_F32);
}

void run_open_kv(struct run *r, const char *path, const struct backend *be, const char *variant, uint32_t threads,
                 uint32_t n_page, uint32_t n_row, enum dtype kv_type)
{
    struct workspace_dims dims = {.n_row = n_row, .n_out = n_row, .n_prompt = n_row};
    memset(r, 0, sizeof *r);
    r->be = be;
    if (!variant)
        variant = getenv(strcmp(be->name, "cpu") ? "HEARTH_GPU_VARIANT" : "HEARTH_CPU_VARIANT");
    MUST(model_file_open(&r->g, path, &e));
    struct device_params params = {.variant = variant, .threads = threads, .kv_type = kv_type};
    MUST(be->open(&r->dev, &params, &e));
    be->info(r->dev, &r->info);
    MUST(model_load_within(&r->m, r->g, be, r->dev, run_room, NULL, NULL, &e));
    model_workspace(r->m, &dims);
    MUST(be->reserve(r->dev, &dims, &e));
    r->n_group = model_kv_descs(r->m, r->info.kv_type, r->kv);
    r->n_page = n_page ? n_page : (r->m->hp.n_ctx + KV_PAGE - 1) / KV_PAGE;
    for (uint32_t g = 0; g < r->n_group; g++) {
        r->kv[g].n_page = r->n_page;
        MUST(be->kv_new(r->dev, &r->kv[g], &r->pool[g], &e));
    }
    r->pages = malloc(r->n_page * sizeof *r->pages);
    assert_non_null(r->pages);
    for (uint32_t i = 0; i < r->n_page; i++)
        r->pages[i] = r->n_page - 1 - i;
}

void run_close(struct run *r)
{
    for (uint32_t g = 0; g < r->n_group; g++)
        r->be->kv_free(r->dev, r->pool[g]);
    model_free(r->m);
    r->be->close(r->dev);
    gguf_close(r->g);
    free(r->pages);
}

void run_step(struct run *r, const struct piece *p, uint32_t n_piece, enum invariance how, float *logits)
{
    int32_t token[BATCH_ROWS_MAX];
    uint32_t out_row[BATCH_ROWS_MAX], n_row = 0, n_out = 0;
    struct batch_seq seq[BATCH_SEQS_MAX];
    uint32_t state[BATCH_SEQS_MAX][2];
    for (uint32_t i = 0; i < n_piece; i++) {
        assert_true(p[i].n <= BATCH_ROWS_MAX - n_row && p[i].n_out <= p[i].n);
        seq[i] = (struct batch_seq){.row0 = n_row, .n_row = p[i].n, .pos0 = p[i].pos, .freq_set = r->freq_set};
        state[i][0] = state[i][1] = p[i].pages[0]; /* a state is written to the page from which it was read */
        for (uint32_t g = 0; g < r->n_group; g++)
            seq[i].pages[g] = r->kv[g].d_state ? state[i] : p[i].pages;
        memcpy(token + n_row, p[i].token, p[i].n * sizeof *token);
        for (uint32_t k = p[i].n - p[i].n_out; k < p[i].n; k++)
            out_row[n_out++] = n_row + k;
        n_row += p[i].n;
    }
    struct batch b = {.n_row = n_row,
                      .n_seq = n_piece,
                      .n_out = n_out,
                      .token = token,
                      .seq = seq,
                      .out_row = out_row,
                      .n_group = r->n_group,
                      .invariant = how};
    memcpy(b.kv, r->pool, sizeof b.kv);
    uint64_t ticket = r->be->step_run(r->dev, &b, r->program ? r->program : &r->m->program);
    MUST(r->be->step_wait(r->dev, ticket, NULL, 0, &e));
    if (logits && n_out)
        MUST(r->be->act_read(r->dev, ACT_LOGITS, 0, n_out, logits, &e));
}

const char *run_path(char buf[4096], const char *name)
{
    bool ours = !strncmp(name, "contrib/", 8) || !strncmp(name, "tests/", 6);
    const char *dir = getenv(ours ? "top_srcdir" : "HEARTH_SHARED");
    snprintf(buf, 4096, "%s/%s", dir ? dir : ours ? ".." : "../shared", name);
    return access(buf, R_OK) ? NULL : buf;
}

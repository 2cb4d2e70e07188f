/* fault.c - see fault.h. Thread: the device's. */
#include "config.h"

#include "tests/fault/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.h"

enum point { LOAD, STEP, SAVE, RESTORE, ANY, HANG, HANG_LOAD, POINTS };
static const char *const names[POINTS] = {"load", "step", "save", "restore", "any", "hang", "hang-load"};

/* The function table's calls get only the inner backend's device, so the state of the fault is kept here. */
static struct {
    const struct backend *inner;
    struct backend table;
    const char *path; /* NULL: no file is waited for */
    enum point point;
    uint64_t left; /* calls until it fails; 0: not known yet, or failed already */
    char when[32]; /* the description of the failure */
    bool gpu;
    bool dead;
} fault;

static bool parse(const char *s, enum point *point, uint64_t *n)
{
    for (int i = 0; i < POINTS; i++) {
        size_t len = strlen(names[i]);
        char *end;
        if (strncmp(s, names[i], len) || s[len] != '=' || s[len + 1] < '0' || s[len + 1] > '9')
            continue;
        errno = 0;
        *n = strtoull(s + len + 1, &end, 10);
        *point = (enum point)i;
        return !errno && *n > 0 && (!*end || !strcmp(end, "\n"));
    }
    return false;
}

/* Takes the file if it exists by now. */
static void look(void)
{
    char line[32];
    int fd = open(fault.path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    if (unlink(fault.path))
        return; /* another engine was quicker */
    line[n > 0 ? n : 0] = '\0';
    if (!parse(line, &fault.point, &fault.left))
        log_error("%s: \"%s\" is not a fault", fault.path, line);
    fault.path = NULL;
}

/* A call of that kind begins: is it the one that fails? */
static bool strikes(enum point p)
{
    if (fault.path)
        look();
    if (fault.dead || !fault.left || (fault.point != p && (fault.point != ANY || p >= HANG)) || --fault.left)
        return false;
    snprintf(fault.when, sizeof fault.when, "a %s", names[p]);
    log_warn("the device fails in %s, as a test asked", fault.when);
    return true;
}

static int failed(struct hearth_err *e)
{
    return err_set(e, HEARTH_EDEVICE, "the device failed in %s, as a test asked", fault.when);
}

/* --- calls that fail ------------------------------------------------------------------------------------- */

static int weight_load(struct device *d, struct weight *w, struct hearth_err *e)
{
    while (strikes(HANG_LOAD))
        for (;;)
            pause();
    fault.dead |= strikes(LOAD);
    return fault.dead ? failed(e) : fault.inner->weight_load(d, w, e);
}

/* Runs the program with norms at an invalid address. As it is a program of its own, no graph is found for it. */
static uint64_t run_poisoned(struct device *d, const struct batch *b, const struct program *p)
{
    struct program bad = {.model = p->model};
    for (uint32_t i = 0; i < p->n_op; i++) {
        struct op o = p->op[i];
        if (o.kind == OP_QKV)
            o.qkv.norm.w = (const float *)256;
        program_add(&bad, &o);
    }
    uint64_t ticket = fault.inner->step_run(d, b, &bad);
    program_free(&bad);
    return ticket;
}

static uint64_t step_run(struct device *d, const struct batch *b, const struct program *p)
{
    bool now = strikes(STEP);
    if (now && fault.gpu && !fault.dead)
        return run_poisoned(d, b, p); /* from here on the device itself reports the error */
    fault.dead |= now;
    return fault.dead ? UINT64_MAX : fault.inner->step_run(d, b, p);
}

static uint64_t kv_save(struct device *d, struct kv_pool *p, const uint32_t *pages, void *const *host, uint32_t n)
{
    bool now = strikes(SAVE);
    fault.dead |= now;
    return now ? UINT64_MAX : fault.dead ? 0 : fault.inner->kv_save(d, p, pages, host, n);
}

static uint64_t kv_load(struct device *d, struct kv_pool *p, const uint32_t *pages, const void *const *host, uint32_t n)
{
    bool now = strikes(RESTORE);
    fault.dead |= now;
    return now ? UINT64_MAX : fault.dead ? 0 : fault.inner->kv_load(d, p, pages, host, n);
}

/* --- calls of a failed device ---------------------------------------------------------------------------- */

static int kv_map(struct device *d, struct kv_pool *p, uint32_t extent, struct hearth_err *e)
{
    return fault.dead ? failed(e) : fault.inner->kv_map(d, p, extent, e);
}

static void kv_copy(struct device *d, struct kv_pool *p, uint32_t dst, uint32_t src)
{
    if (!fault.dead)
        fault.inner->kv_copy(d, p, dst, src);
}

static void kv_clear(struct device *d, struct kv_pool *p, uint32_t page)
{
    if (!fault.dead)
        fault.inner->kv_clear(d, p, page);
}

static int reserve(struct device *d, const struct workspace_dims *dims, struct hearth_err *e)
{
    return fault.dead ? failed(e) : fault.inner->reserve(d, dims, e);
}

static int vec_load(struct device *d, const float *src, size_t n, float **out, struct hearth_err *e)
{
    return fault.dead ? failed(e) : fault.inner->vec_load(d, src, n, out, e);
}

static int kv_new(struct device *d, const struct kv_desc *desc, struct kv_pool **out, struct hearth_err *e)
{
    return fault.dead ? failed(e) : fault.inner->kv_new(d, desc, out, e);
}

static int kv_transfer_done(struct device *d, uint64_t ticket, struct hearth_err *e)
{
    return fault.dead ? failed(e) : fault.inner->kv_transfer_done(d, ticket, e);
}

static int kv_transfer_wait(struct device *d, uint64_t ticket, struct hearth_err *e)
{
    return fault.dead ? failed(e) : fault.inner->kv_transfer_wait(d, ticket, e);
}

static int host_alloc(struct device *d, uint64_t bytes, void **out, struct hearth_err *e)
{
    return fault.dead ? failed(e) : fault.inner->host_alloc(d, bytes, out, e);
}

static int step_wait(struct device *d, uint64_t ticket, struct sampled *out, uint32_t n, struct hearth_err *e)
{
    while (strikes(HANG))
        for (;;)
            pause();
    return fault.dead ? failed(e) : fault.inner->step_wait(d, ticket, out, n, e);
}

static int slot_set(struct device *d, uint32_t slot, const struct sample_params *p, const int32_t *history,
                    uint32_t n_history, uint32_t n_vocab, struct hearth_err *e)
{
    return fault.dead ? failed(e) : fault.inner->slot_set(d, slot, p, history, n_history, n_vocab, e);
}

static int act_read(struct device *d, enum act a, uint32_t row0, uint32_t n_row, float *out, struct hearth_err *e)
{
    return fault.dead ? failed(e) : fault.inner->act_read(d, a, row0, n_row, out, e);
}

static int act_write(struct device *d, enum act a, uint32_t row0, uint32_t n_row, uint32_t n_col, const float *in,
                     struct hearth_err *e)
{
    return fault.dead ? failed(e) : fault.inner->act_write(d, a, row0, n_row, n_col, in, e);
}

static int sync_all(struct device *d, struct hearth_err *e)
{
    return fault.dead ? failed(e) : fault.inner->sync(d, e);
}

static int read_rate(struct device *d, bool host, uint64_t bytes, double *bytes_per_s, struct hearth_err *e)
{
    return fault.dead ? failed(e) : fault.inner->read_rate(d, host, bytes, bytes_per_s, e);
}

/* --- the function table ---------------------------------------------------------------------------------- */

const char *fault_when;

const struct backend *fault_wrap(const struct backend *be, struct device *d, struct hearth_err *e)
{
    const char *when = fault_when;
    struct device_info info;
    memset(&fault, 0, sizeof fault);
    if (when[0] == '/') {
        fault.path = when;
    } else if (!parse(when, &fault.point, &fault.left)) {
        err_set(e, HEARTH_EPARAMS,
                "--fault: \"%.40s\" is neither load, step, save, restore, any, hang or hang-load with =N, nor a path",
                when);
        return NULL;
    }
    be->info(d, &info);
    fault.gpu = info.gpu;
    fault.inner = be;
    fault.table =
        *be; /* calls that free and close go straight to the inner backend, which allows them after an error, too */
    fault.table.reserve = reserve;
    fault.table.weight_load = weight_load;
    fault.table.vec_load = vec_load;
    fault.table.kv_new = kv_new;
    fault.table.kv_map = kv_map;
    fault.table.kv_copy = kv_copy;
    fault.table.kv_clear = kv_clear;
    fault.table.kv_save = kv_save;
    fault.table.kv_load = kv_load;
    fault.table.kv_transfer_done = kv_transfer_done;
    fault.table.kv_transfer_wait = kv_transfer_wait;
    fault.table.host_alloc = host_alloc;
    fault.table.step_run = step_run;
    fault.table.step_wait = step_wait;
    fault.table.slot_set = slot_set;
    fault.table.act_read = act_read;
    fault.table.act_write = act_write;
    fault.table.sync = sync_all;
    fault.table.read_rate = read_rate;
    log_warn("the device is going to fail, for a test");
    return &fault.table;
}

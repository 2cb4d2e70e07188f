/*
 * cmd-doctor.c - hearth doctor: which devices there are, and which one each model will run on, and why. It reads what
 * the driver reports in /proc, without any library, and asks the daemon for the rest.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "client/cmd.h"

static const char driver_file[] = "/proc/driver/nvidia/version";
static const char cards_dir[] = "/proc/driver/nvidia/gpus";

/* Tests set $HEARTH_PROC to a directory that is prefixed to paths in /proc. */
static FILE *open_proc(const char *path)
{
    char whole[512];
    const char *root = getenv("HEARTH_PROC");
    snprintf(whole, sizeof whole, "%s%s", root ? root : "", path);
    return fopen(whole, "re");
}

/* Reads the first line of a file or, with a key, the value after "KEY:". Returns false where there is none. */
static bool read_value(const char *path, const char *key, char *out, size_t size)
{
    char line[512];
    bool found = false;
    FILE *f = open_proc(path);
    while (f && !found && fgets(line, sizeof line, f)) {
        const char *value = line;
        if (key) {
            size_t n = strlen(key);
            if (strncmp(line, key, n) || line[n] != ':')
                continue;
            value = line + n + 1;
        }
        value += strspn(value, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}

/* The NVIDIA driver's version line: "NVRM version: NVIDIA UNIX x86_64 Kernel Module 550.54 ...". */
static void tell_driver(struct table *t)
{
    char version[256];
    if (read_value(driver_file, "NVRM version", version, sizeof version))
        table_add(t, 2, "driver", version);
    else
        table_add(t, 2, "driver", "none: this kernel has no NVIDIA driver loaded");
}

static void tell_cards(struct table *t)
{
    char dir[512], path[1024], name[256];
    const char *root = getenv("HEARTH_PROC");
    int n = 0;
    snprintf(dir, sizeof dir, "%s%s", root ? root : "", cards_dir);
    DIR *d = opendir(dir);
    const struct dirent *de;
    while (d && (de = readdir(d))) {
        snprintf(path, sizeof path, "%s/%s/information", cards_dir, de->d_name);
        if (*de->d_name == '.' || !read_value(path, "Model", name, sizeof name))
            continue;
        char what[320];
        snprintf(what, sizeof what, "%s, %.40s", name, de->d_name);
        table_add(t, 2, n++ ? "" : "card", what);
    }
    if (d)
        closedir(d);
    if (!n)
        table_add(t, 2, "card", "none that a driver has");
}

static void tell_engine(struct table *t, const struct hearth_status_result *r)
{
    const struct hearth_engine_status *e = &r->engine;
    char what[512];
    snprintf(what, sizeof what, "hearthd %s, process %lld, at %s", r->version, (long long)r->pid, r->socket);
    table_add(t, 2, "daemon", what);
    for (size_t i = 0; i < r->n_engines || !i; i++) {
        const struct hearth_engine_status *one = r->n_engines ? &r->engines[i] : e;
        snprintf(what, sizeof what, "%s: %s", one->backend ? one->backend : one->state,
                 one->device    ? one->device
                 : one->failure ? one->failure
                                : "-");
        table_add(t, 2, "engine", what);
    }
    if (e->no_gpu)
        table_add(t, 2, "no GPU", e->no_gpu);
    else if (e->backend && !strcmp(e->backend, "cpu"))
        table_add(t, 2, "no GPU", "this build has no CUDA, or the configuration says backend = cpu");
    if (!e->mem_total) /* no engine has told it */
        return;
    snprintf(what, sizeof what, "%s", human_bytes(e->mem_free));
    snprintf(what + strlen(what), sizeof what - strlen(what), " free of %s", human_bytes(e->mem_total));
    table_add(t, 2, "memory", what);
}

/* Returns the loaded model with that path, or NULL. Another user's model has no path. */
static const struct hearth_loaded_model *loaded(const struct hearth_engine_status *e, const char *path)
{
    for (size_t i = 0; i < e->n_models; i++)
        if (!e->models[i].vocab_only && e->models[i].path && !strcmp(e->models[i].path, path))
            return &e->models[i];
    return NULL;
}

/* The memory of the largest device, and the most that is free on one: a model is on a single device. */
static void largest_device(const struct hearth_status_result *r, int64_t *total, int64_t *available)
{
    *total = r->n_engines ? 0 : r->engine.mem_total;
    *available = r->n_engines ? 0 : r->engine.mem_free;
    for (size_t i = 0; i < r->n_engines; i++) {
        const struct hearth_engine_status *e = &r->engines[i];
        *total = e->mem_total > *total ? e->mem_total : *total;
        *available = e->mem_free > *available ? e->mem_free : *available;
    }
}

/* Decides which device a model runs on, and why: known for a loaded model, and predicted for the others. */
static void judge(const struct hearth_model *m, const struct hearth_status_result *r, const char **where,
                  char at[static 64], char *why, size_t size)
{
    const struct hearth_engine_status *e = &r->engine;
    const struct hearth_loaded_model *l = loaded(e, m->path);
    int64_t total, available;
    largest_device(r, &total, &available);
    bool gpu = e->backend && strcmp(e->backend, "cpu") != 0;
    if (l) {
        bool on_gpu = l->where && strcmp(l->where, "cpu") != 0;
        *where = memory_where(l, at, 64);
        snprintf(why, size, "in memory%s%s", l->self_check ? "; self-check: " : "", l->self_check ? l->self_check : "");
        if (!on_gpu && !l->self_check && e->no_gpu)
            snprintf(why, size, "in memory; no GPU is used: %s", e->no_gpu);
    } else if (!m->read) {
        *where = "-";
        snprintf(why, size,
                 e->failure ? "the engine, which reads its header, fails"
                            : "its header has not been read yet; ask again");
    } else if (m->refusal) {
        *where = "nothing";
        snprintf(why, size, "%s", m->refusal);
    } else if (!gpu) {
        *where = "cpu";
        snprintf(why, size, "%s", e->no_gpu ? e->no_gpu : "the engine uses no GPU");
    } else if (m->bytes > total) {
        *where = "gpu";
        snprintf(
            why, size,
            "its weights alone are more than the memory of the device: what has no room stays in the host's, as far "
            "as host_weights lets it; else the CPU runs it");
    } else {
        *where = "gpu";
        snprintf(why, size, "%s, if the self-check at its first load passes",
                 m->bytes > available ? "when what is idle has made room" : "there is room");
    }
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    struct hearth *h;
    struct hearth_models_list_result *models;
    struct hearth_status_result *r;
    struct hearth_err err;
    struct table t = {0}, m = {.has_head = true};
    opts_parse(cmd, &argc, &argv, (const struct opt[]){OPT_END}, NULL);
    if (argc)
        return usage(cmd, "no argument is expected, not '%s'", argv[0]);
    tell_driver(&t);
    tell_cards(&t);
    int status = daemon_open(&h);
    if (status != STATUS_OK) {
        table_print(&t);
        return status;
    }
    if (models_read(h, &models, &err) || hearth_status(h, &r, NULL, &err)) { /* the first call starts an engine */
        table_print(&t);
        return verb_end(h, NULL, fail(&err));
    }
    tell_engine(&t, r);
    table_print(&t);
    table_add(&m, 3, "MODEL", "RUNS ON", "WHY");
    for (size_t i = 0; i < models->n_models; i++) {
        char why[512];
        char at[64];
        const char *where;
        judge(&models->models[i], r, &where, at, why, sizeof why);
        table_add(&m, 3, models->models[i].name, where, why);
    }
    putchar('\n');
    table_print(&m);
    hearth_free(models);
    return verb_end(h, r, STATUS_OK);
}

const struct cmd cmd_doctor = {"doctor", "", "driver, card, and what each model runs on, and why", run};

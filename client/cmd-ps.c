/* cmd-ps.c - hearth ps: lists the models in memory. */
#include <string.h>

#include "client/cmd.h"

/* Writes the first 12 digits of the model's digest (`show` prints all of it), which identifies the file behind a name.
 */
static void model_id(struct hearth *h, const char *path, char id[static 16])
{
    struct hearth_model *m;
    struct hearth_err err;
    snprintf(id, 16, "-");
    if (hearth_models_show(h, path, &m, NULL, &err))
        return; /* the file no longer exists */
    if (m->digest)
        snprintf(id, 16, "%.12s", m->digest);
    hearth_free(m);
}

static const char *until(const struct hearth_loaded_model *m)
{
    return m->vocab_only      ? "-"
           : m->pinned        ? "pinned"
           : m->sequences > 0 ? "in use"
           : m->expires > 0   ? human_in(m->expires)
                              : "stopped";
}

static void print_rows(struct hearth *h, const struct hearth_engine_status *e)
{
    struct table t = {.has_head = true};
    table_add(&t, 8, "NAME", "ID", "SIZE", "WHERE", "CONTEXT", "RUNNING", "KV", "UNTIL");
    for (size_t i = 0; i < e->n_models; i++) {
        const struct hearth_loaded_model *m = &e->models[i];
        char id[16], context[48], running[24], at[64];
        model_id(h, m->path, id);
        snprintf(context, sizeof context, "%lld/%lld", (long long)m->context_used, (long long)m->context);
        snprintf(running, sizeof running, "%lld", (long long)m->sequences);
        table_add(&t, 8, m->name, id, human_bytes(m->bytes), memory_where(m, at, sizeof at), context, running,
                  human_bytes(m->pages_used * m->page_bytes), until(m));
    }
    table_print(&t);
}

/* Prints who holds a device's memory; `name` distinguishes several devices. */
static void print_memory(const struct hearth_engine_status *e, const char *name)
{
    char line[1024];
    memory_own_line(&e->memory, line, sizeof line);
    printf("%s: %s free of ", name, human_bytes(e->mem_free));
    printf("%s; hearth %s", human_bytes(e->mem_total), line);
    memory_others_line(&e->memory, line, sizeof line);
    printf("; others %s\n", line);
}

static void print_memories(const struct hearth_status_result *r)
{
    if (!r->engine.n_models)
        return;
    putchar('\n');
    for (size_t i = 0; i < r->n_engines; i++)
        if (r->engines[i].pid)
            print_memory(&r->engines[i], r->engines[i].device ? r->engines[i].device : r->engines[i].state);
    if (!r->n_engines)
        print_memory(&r->engine, "memory");
}

/* Warns that models are missing in the list, as those of an engine that does not answer are not known. */
static void warn_silent(const struct hearth_status_result *r)
{
    for (size_t i = 0; i < r->n_engines || !i; i++) {
        const struct hearth_engine_status *e = r->n_engines ? &r->engines[i] : &r->engine;
        if (e->pid && !strcmp(e->state, "not answering"))
            say("hearth: the engine, process %lld, does not answer: what it has in memory is not known\n",
                (long long)e->pid);
    }
}

/* Each device's own, where there are several; else it is an empty array, as in the JSON of status. */
static json_t *json_engines(const struct hearth_status_result *r)
{
    json_t *a = json_array();
    for (size_t i = 0; i < r->n_engines; i++) {
        const struct hearth_engine_status *e = &r->engines[i];
        json_array_append_new(a, json_pack("{s:I, s:o, s:o, s:I, s:I, s:o}", "pid", (json_int_t)e->pid, "state",
                                           json_str(e->state), "device", json_str(e->device), "mem_total",
                                           (json_int_t)e->mem_total, "mem_free", (json_int_t)e->mem_free, "memory",
                                           json_memory(&e->memory)));
    }
    return a;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    struct hearth *h;
    bool json;
    int status = verb_begin(cmd, &argc, &argv, NULL, &json, &h);
    if (status != STATUS_OK)
        return status;
    struct hearth_status_result *r;
    struct hearth_err err;
    if (hearth_status(h, &r, NULL, &err))
        return verb_end(h, NULL, fail(&err));
    if (json)
        status = print_json(json_pack("{s:o, s:o, s:o}", "models", json_loaded_models(&r->engine), "memory",
                                      json_memory(&r->engine.memory), "engines", json_engines(r)));
    else {
        print_rows(h, &r->engine);
        print_memories(r);
    }
    warn_silent(r);
    return verb_end(h, r, status);
}

const struct cmd cmd_ps = {"ps", "[--json]", "models in memory", run};

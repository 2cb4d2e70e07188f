/* cmd-status.c - hearth status: prints the state of the daemon and its engine. */
#include <string.h>

#include "client/cmd.h"

static json_t *json_kv(const struct hearth_kv_tiers *k)
{
    const struct {
        const char *key;
        int64_t v;
    } counts[] = {
        {"host_pages", k->host_pages},
        {"host_bytes", k->host_bytes},
        {"host_limit", k->host_limit},
        {"disk_pages", k->disk_pages},
        {"disk_bytes", k->disk_bytes},
        {"pages_saved", k->pages_saved},
        {"bytes_saved", k->bytes_saved},
        {"pages_restored", k->pages_restored},
        {"bytes_restored", k->bytes_restored},
        {"pages_dropped", k->pages_dropped},
        {"files_written", k->files_written},
        {"bytes_written", k->bytes_written},
        {"bytes_read", k->bytes_read},
        {"files_bad", k->files_bad},
        {"moving", k->moving},
    };
    json_t *o = json_pack("{s:f, s:f, s:f, s:f}", "prefill_rate", k->prefill_rate, "device_rate", k->device_rate,
                          "read_rate", k->read_rate, "write_rate", k->write_rate);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        json_object_set_new(o, counts[i].key, json_integer(counts[i].v));
    return o;
}

static json_t *json_engine(const struct hearth_engine_status *e)
{
    json_t *paths = json_object();
    for (size_t i = 0; i < e->n_paths; i++)
        json_object_set_new(paths, e->paths[i].path, json_integer(e->paths[i].rows));
    return json_pack(
        "{s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}",
        "pid", (json_int_t)e->pid, "state", json_str(e->state), "backend", json_str(e->backend), "device",
        json_str(e->device), "no_gpu", json_str(e->no_gpu), "failure", json_str(e->failure), "steps",
        (json_int_t)e->steps, "rows", (json_int_t)e->rows, "rows_max", (json_int_t)e->rows_max, "tokens_computed",
        (json_int_t)e->tokens_computed, "queued", (json_int_t)e->queued, "running", (json_int_t)e->running, "restarts",
        (json_int_t)e->restarts, "mem_total", (json_int_t)e->mem_total, "mem_free", (json_int_t)e->mem_free,
        "mem_cached", (json_int_t)e->mem_cached, "replays", (json_int_t)e->replays, "paths", paths, "memory",
        json_memory(&e->memory), "kv", json_kv(&e->kv), "models", json_loaded_models(e));
}

static json_t *json_kv_files(const struct hearth_kv_files *k)
{
    json_t *a = json_array();
    for (size_t i = 0; i < k->n_shares; i++)
        json_array_append_new(a, json_pack("{s:I, s:I, s:I}", "uid", (json_int_t)k->shares[i].uid, "files",
                                           (json_int_t)k->shares[i].files, "bytes", (json_int_t)k->shares[i].bytes));
    return json_pack("{s:I, s:I, s:o}", "limit", (json_int_t)k->limit, "limit_per_uid", (json_int_t)k->limit_per_uid,
                     "shares", a);
}

static json_t *json_served(const struct hearth_served *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "stop", (json_int_t)s->stop, "length",
                     (json_int_t)s->length, "context_full", (json_int_t)s->context_full, "cancelled",
                     (json_int_t)s->cancelled, "error", (json_int_t)s->error, "prompt_tokens",
                     (json_int_t)s->prompt_tokens, "reused_tokens", (json_int_t)s->reused_tokens, "restored_tokens",
                     (json_int_t)s->restored_tokens, "completion_tokens", (json_int_t)s->completion_tokens);
}

static json_t *json_loop(const struct hearth_loop *l)
{
    return json_pack("{s:I, s:I, s:f}", "bytes", (json_int_t)l->bytes, "rows", (json_int_t)l->rows, "cpu", l->cpu);
}

static json_t *json_status(const struct hearth_status_result *r)
{
    json_t *engines = json_array();
    for (size_t i = 0; i < r->n_engines; i++)
        json_array_append_new(engines, json_engine(&r->engines[i]));
    return json_pack("{s:I, s:o, s:o, s:f, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:I, s:o, s:f, s:o, s:o, s:o, s:o, s:o}",
                     "pid", (json_int_t)r->pid, "version", json_str(r->version), "socket", json_str(r->socket),
                     "uptime", r->uptime, "connections", (json_int_t)r->connections, "streams", (json_int_t)r->streams,
                     "waiting", (json_int_t)r->waiting, "sessions", (json_int_t)r->sessions, "rss_bytes",
                     (json_int_t)r->rss_bytes, "config", json_str(r->config), "no_sessions", json_str(r->no_sessions),
                     "games", (json_int_t)r->games, "no_games", json_str(r->no_games), "yielded", r->yielded,
                     "kv_files", json_kv_files(&r->kv_files), "served", json_served(&r->served), "longest",
                     json_loop(&r->longest), "engine", json_engine(&r->engine), "engines", engines);
}

/* "  paths    gemv 93 %, cublaslt 7 % of rows; 98 % of steps replayed" */
static void print_paths(const struct hearth_engine_status *e)
{
    double rows = 0;
    for (size_t i = 0; i < e->n_paths; i++)
        rows += (double)e->paths[i].rows;
    if (rows == 0 || !e->steps)
        return;
    printf("  paths    ");
    for (size_t i = 0; i < e->n_paths; i++)
        printf("%s%s %.3g %%", i ? ", " : "", e->paths[i].path, 100 * (double)e->paths[i].rows / rows);
    printf(" of rows; %.3g %% of steps replayed\n", 100 * (double)e->replays / (double)e->steps);
}

static void print_memory(const struct hearth_engine_status *e)
{
    printf("  memory   %s free", human_bytes(e->mem_free));
    printf(" of %s", human_bytes(e->mem_total));
    putchar('\n');
    char line[1024];
    memory_own_line(&e->memory, line, sizeof line);
    printf("  hearth   %s\n", line);
    memory_others_line(&e->memory, line, sizeof line);
    printf("  others   %s\n", line);
}

/* Prints the lower KV tiers. `hearth ps` shows the models' own pages on the device. */
static void print_kv(const struct hearth_kv_tiers *k)
{
    printf("  KV       %s in host memory", human_bytes(k->host_bytes));
    printf(", %s in files; %lld pages saved, %lld restored, %lld dropped", human_bytes(k->disk_bytes),
           (long long)k->pages_saved, (long long)k->pages_restored, (long long)k->pages_dropped);
    if (k->files_bad)
        printf("; %lld files damaged", (long long)k->files_bad);
    putchar('\n');
}

static void print_kv_files(const struct hearth_kv_files *k)
{
    if (!k->limit)
        puts("  KV files none are kept");
    for (size_t i = 0; i < k->n_shares; i++) {
        printf("  KV files user %lld: %lld, %s", (long long)k->shares[i].uid, (long long)k->shares[i].files,
               human_bytes(k->shares[i].bytes));
        printf(" of %s\n", human_bytes(k->limit_per_uid));
    }
}

/* Prints how many models are loaded, and of how many only the vocabulary is, which is enough for tokenising. */
static void print_models(const struct hearth_engine_status *e)
{
    size_t n_vocab = 0;
    for (size_t i = 0; i < e->n_models; i++)
        n_vocab += e->models[i].vocab_only;
    printf("  models   %zu in memory", e->n_models - n_vocab);
    if (n_vocab)
        printf(", of %zu%s the vocabulary alone", n_vocab, n_vocab < e->n_models ? " more" : "");
    putchar('\n');
}

static void print_engine(const struct hearth_engine_status *e)
{
    printf("engine %s", e->state);
    if (e->pid)
        printf(", process %lld", (long long)e->pid);
    if (!e->backend) { /* there is none to report anything, or it does not answer */
        putchar('\n');
        if (e->failure)
            printf_text("  WARNING  the last engine failed: %s\n", e->failure);
        return;
    }
    printf(", %s: %s\n", e->backend, e->device);
    if (e->no_gpu)
        printf_text("  WARNING  no GPU is used: %s\n", e->no_gpu);
    printf("  work     %lld running, %lld queued\n", (long long)e->running, (long long)e->queued);
    if (e->steps)
        printf("  steps    %lld of %.2f rows on average, %lld at most; %lld tokens computed\n", (long long)e->steps,
               (double)e->rows / (double)e->steps, (long long)e->rows_max, (long long)e->tokens_computed);
    else
        puts("  steps    none yet");
    print_paths(e);
    print_memory(e);
    print_kv(&e->kv);
    for (size_t i = 0; i < e->n_models; i++)
        if (e->models[i].self_check && strncmp(e->models[i].self_check, "passed", 6) != 0)
            printf_text("  WARNING  %s runs on the CPU, and not on the %s device: %s\n", e->models[i].name, e->backend,
                        e->models[i].self_check);
    for (size_t i = 0; i < e->n_models; i++)
        if (e->models[i].host_bytes)
            printf_text("  slower   %s: %s of its weights are in the host's memory: at most %.1f tokens/s\n",
                        e->models[i].name, human_bytes(e->models[i].host_bytes), e->models[i].speed);
    for (size_t i = 0; i < e->n_models; i++)
        for (size_t k = 0; k < e->models[i].slow.n; k++)
            printf_text("  slower   %s: %s\n", e->models[i].name, e->models[i].slow.v[k]);
    print_models(e);
    if (e->restarts)
        printf("  restarts %lld\n", (long long)e->restarts);
}

static void print_status(const struct hearth_status_result *r)
{
    printf("hearthd %s, process %lld, up %.0f s, %s\n", r->version, (long long)r->pid, r->uptime,
           human_bytes(r->rss_bytes));
    printf("  socket   %s\n", r->socket);
    if (r->config)
        printf("  config   %s\n", r->config);
    printf("  clients  %lld, %lld streams", (long long)r->connections, (long long)r->streams);
    if (r->waiting)
        printf(" and %lld that wait for others to end", (long long)r->waiting);
    printf(", %lld sessions\n", (long long)r->sessions);
    if (r->no_sessions)
        printf_text("  WARNING  named sessions are not available: %s\n", r->no_sessions);
    if (r->no_games)
        printf("  games    not looked for: %s\n", r->no_games);
    else
        printf("  games    %lld%s\n", (long long)r->games, r->games ? ", and memory is yielded to them" : "");
    if (r->yielded > 0)
        printf("  yielded  memory, for %lld s more; `hearth yield --end` ends that\n", (long long)r->yielded + 1);
    print_kv_files(&r->kv_files);
    for (size_t i = 0; i < r->n_engines; i++)
        print_engine(&r->engines[i]);
    if (!r->n_engines)
        print_engine(&r->engine);
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
        status = print_json(json_status(r));
    else
        print_status(r);
    return verb_end(h, r, status);
}

struct kv_bytes kv_bytes_of(const struct hearth_status_result *r)
{
    struct kv_bytes kv = {0, 0, 0};
    for (size_t i = 0; i < r->engine.n_models; i++) {
        const struct hearth_loaded_model *m = &r->engine.models[i];
        kv.used += m->pages_used * m->page_bytes;
        kv.total += m->pages_total * m->page_bytes;
    }
    for (size_t i = 0; i < r->kv_files.n_shares; i++)
        kv.files += r->kv_files.shares[i].bytes;
    return kv;
}

const struct cmd cmd_status = {"status", "[--json]", "the daemon, its engine and their counters", run};

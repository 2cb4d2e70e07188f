/*
 * cmd-metrics.c - hearth metrics: the counters of `status` in Prometheus's text format, for node_exporter's textfile
 * collector or a script, because Prometheus cannot read a Unix socket and hearthd has no web server. --vllm adds the
 * same counters under vLLM's names, which existing dashboards use.
 */
#include "config.h" /* asprintf */

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cmd.h"

static FILE *to;

static void head(const char *name, const char *type, const char *help)
{
    fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Writes a label, with its value quoted as the format requires. */
static void put_label(const char *key, const char *value)
{
    fprintf(to, "%s=\"", key);
    for (; *value; value++)
        if (*value == '\\' || *value == '"')
            fprintf(to, "\\%c", *value);
        else if (*value == '\n')
            fputs("\\n", to);
        else
            putc(*value, to);
    putc('"', to);
}

static void sample(const char *name, const char *key, const char *value, double v)
{
    fputs(name, to);
    if (key) {
        putc('{', to);
        put_label(key, value);
        putc('}', to);
    }
    fprintf(to, " %.15g\n", v);
}

static void metric(const char *name, const char *type, const char *help, double v)
{
    head(name, type, help);
    sample(name, NULL, NULL, v);
}

/* Writes a histogram; all its samples have the label `key`, unless that is NULL. */
static void histogram(const char *name, const char *help, const struct hearth_histogram *h, const char *key,
                      const char *value)
{
    head(name, "histogram", help);
    for (size_t i = 0; i <= h->n_buckets; i++) {
        fprintf(to, "%s_bucket{", name);
        if (key) {
            put_label(key, value);
            putc(',', to);
        }
        if (i < h->n_buckets)
            fprintf(to, "le=\"%.15g\"} %lld\n", h->buckets[i].le, (long long)h->buckets[i].count);
        else
            fprintf(to, "le=\"+Inf\"} %lld\n", (long long)h->count);
    }
    char part[128];
    snprintf(part, sizeof part, "%s_sum", name);
    sample(part, key, value, h->sum);
    snprintf(part, sizeof part, "%s_count", name);
    sample(part, key, value, (double)h->count);
}

/* KV by tier: bytes in use, and limits. */
static void kv_tiers(const struct hearth_status_result *r)
{
    const struct hearth_engine_status *e = &r->engine;
    struct kv_bytes kv = kv_bytes_of(r);
    head("hearth_kv_bytes", "gauge", "KV by tier: pages of the device, host memory, files.");
    sample("hearth_kv_bytes", "tier", "gpu", (double)kv.used);
    sample("hearth_kv_bytes", "tier", "ram", (double)e->kv.host_bytes);
    sample("hearth_kv_bytes", "tier", "disk", (double)kv.files);
    head("hearth_kv_limit_bytes", "gauge", "What KV may take, by tier.");
    sample("hearth_kv_limit_bytes", "tier", "gpu", (double)kv.total);
    sample("hearth_kv_limit_bytes", "tier", "ram", (double)e->kv.host_limit);
    sample("hearth_kv_limit_bytes", "tier", "disk", (double)r->kv_files.limit);
}

/* Writes no sample for the memory of other programs where it is unknown. */
static void memory(const struct hearth_engine_status *e)
{
    const struct hearth_memory *m = &e->memory;
    metric("hearth_device_memory_bytes", "gauge", "Memory of the device.", (double)e->mem_total);
    metric("hearth_device_memory_free_bytes", "gauge", "Of it, what can be had.", (double)e->mem_free);
    head("hearth_memory_bytes", "gauge", "Memory of the device, by who has it and for what.");
    sample("hearth_memory_bytes", "of", "weights", (double)m->weights);
    sample("hearth_memory_bytes", "of", "kv", (double)m->kv);
    sample("hearth_memory_bytes", "of", "workspace", (double)m->workspace);
    sample("hearth_memory_bytes", "of", "cache", (double)m->cache);
    sample("hearth_memory_bytes", "of", "context", (double)m->context);
    if (!m->others_unknown)
        sample("hearth_memory_bytes", "of", "others", (double)m->others);
    metric("hearth_memory_limit_bytes", "gauge", "What hearth may take of it (gpu_memory); 0: any.", (double)m->limit);
    metric("hearth_pinned_bytes", "gauge", "Host memory that is pinned for the device.", (double)m->pinned);
}

static bool is_named(const struct hearth_loaded_model *m, const char *name)
{
    return !m->vocab_only && m->name && !strcmp(m->name, name);
}

/* Writes a sample for each name: the sum of the member at offset `at` over the models of that name. Files in different
 * folders may have the same name, and Prometheus refuses all metrics where one sample is given twice. */
static void by_model(const char *name, const char *help, const struct hearth_engine_status *e, size_t at)
{
    head(name, "gauge", help);
    for (size_t i = 0; i < e->n_models; i++) {
        const char *model = e->models[i].name;
        size_t first = 0;
        int64_t sum = 0;
        if (e->models[i].vocab_only || !model)
            continue;
        while (!is_named(&e->models[first], model))
            first++;
        for (size_t k = i; k < e->n_models; k++)
            if (is_named(&e->models[k], model))
                sum += *(const int64_t *)(const void *)((const char *)&e->models[k] + at);
        if (first == i)
            sample(name, "model", model, (double)sum);
    }
}

static void models(const struct hearth_engine_status *e)
{
    by_model("hearth_model_bytes", "Weights in memory, by model.", e, offsetof(struct hearth_loaded_model, bytes));
    by_model("hearth_model_sequences", "Sequences in the batch, by model.", e,
             offsetof(struct hearth_loaded_model, sequences));
}

/* Labels the sample with the engine's number if there are several engines. */
static void engine_sample(const struct hearth_status_result *r, size_t i, const char *name, double v)
{
    char number[24];
    snprintf(number, sizeof number, "%zu", i);
    sample(name, r->n_engines ? "engine" : NULL, number, v);
}

/* Writes the counter at offset `at` of each engine. Engines that have not reported are left out: after a 0, or a sum
 * over fewer engines, Prometheus would take the next report for an increase by all that it counts. */
static void engine_counter(const struct hearth_status_result *r, const char *name, const char *help, size_t at)
{
    head(name, "counter", help);
    for (size_t i = 0; i < r->n_engines || !i; i++) {
        const struct hearth_engine_status *e = r->n_engines ? &r->engines[i] : &r->engine;
        if (e->backend)
            engine_sample(r, i, name, (double)*(const int64_t *)(const void *)((const char *)e + at));
    }
}

static void engines_up(const struct hearth_status_result *r)
{
    head("hearth_engine_up", "gauge", "Whether the engine runs and answers.");
    for (size_t i = 0; i < r->n_engines || !i; i++) {
        const struct hearth_engine_status *e = r->n_engines ? &r->engines[i] : &r->engine;
        engine_sample(r, i, "hearth_engine_up", e->pid && !strcmp(e->state, "running"));
    }
}

static void own(const struct hearth_status_result *r)
{
#define AT(field) offsetof(struct hearth_engine_status, field)
    const struct hearth_engine_status *e = &r->engine;
    const struct hearth_served *s = &r->served;
    head("hearth_info", "gauge", "The version of hearthd.");
    sample("hearth_info", "version", r->version ? r->version : "", 1);
    metric("hearth_uptime_seconds", "gauge", "Since hearthd started.", r->uptime);
    metric("hearth_connections", "gauge", "Open connections.", (double)r->connections);
    metric("hearth_resident_bytes", "gauge", "Memory of hearthd.", (double)r->rss_bytes);
    metric("hearth_longest_turn_cpu_seconds", "gauge", "The most that others have waited for in one turn of the loop.",
           r->longest.cpu);
    head("hearth_streams", "gauge", "Generations by state.");
    sample("hearth_streams", "state", "running", (double)e->running);
    sample("hearth_streams", "state", "waiting", (double)(e->queued + r->waiting));
    metric("hearth_streams_open", "gauge", "Generations that run, wait, or are being delivered.", (double)r->streams);
    head("hearth_requests_total", "counter", "Generations that ended, by their finish_reason.");
    sample("hearth_requests_total", "end", "stop", (double)s->stop);
    sample("hearth_requests_total", "end", "length", (double)s->length);
    sample("hearth_requests_total", "end", "context_full", (double)s->context_full);
    sample("hearth_requests_total", "end", "cancelled", (double)s->cancelled);
    sample("hearth_requests_total", "end", "error", (double)s->error);
    head("hearth_tokens_total", "counter", "Tokens of generations that ended.");
    sample("hearth_tokens_total", "kind", "prompt", (double)s->prompt_tokens);
    sample("hearth_tokens_total", "kind", "generation", (double)s->completion_tokens);
    head("hearth_prefix_tokens_total", "counter", "Prompt tokens by where their KV came from.");
    sample("hearth_prefix_tokens_total", "hit", "memory", (double)(s->reused_tokens - s->restored_tokens));
    sample("hearth_prefix_tokens_total", "hit", "restored", (double)s->restored_tokens);
    sample("hearth_prefix_tokens_total", "hit", "none", (double)(s->prompt_tokens - s->reused_tokens));
    kv_tiers(r);
    models(e);
    if (e->backend)
        memory(e);
    engine_counter(r, "hearth_steps_total", "Forward passes of this engine.", AT(steps));
    engine_counter(r, "hearth_step_rows_total", "Rows in all of them.", AT(rows));
    engines_up(r);
    metric("hearth_engine_restarts_total", "counter", "Engines that were started in the place of another.",
           (double)e->restarts);
    engine_counter(r, "hearth_kv_saved_bytes_total", "KV saved to host memory.", AT(kv.bytes_saved));
    engine_counter(r, "hearth_kv_restored_bytes_total", "KV restored to the device.", AT(kv.bytes_restored));
    engine_counter(r, "hearth_kv_written_bytes_total", "KV written to files.", AT(kv.bytes_written));
    engine_counter(r, "hearth_kv_read_bytes_total", "KV read from files.", AT(kv.bytes_read));
    engine_counter(r, "hearth_kv_files_bad_total", "Files of KV that were set aside.", AT(kv.files_bad));
#undef AT
    histogram("hearth_time_to_first_token_seconds", "From the request to its first token.", &s->first_token, NULL,
              NULL);
    histogram("hearth_inter_token_latency_seconds", "Between two tokens, on average over a generation.", &s->per_token,
              NULL, NULL);
    histogram("hearth_e2e_request_latency_seconds", "From the request to its end.", &s->total, NULL, NULL);
    histogram("hearth_request_queue_time_seconds", "From the request to its admission.", &s->queue, NULL, NULL);
}

/* Returns the value of the label model_name. vLLM serves a single model; where hearth has none or several in memory,
 * the label is "hearth". */
static const char *model_label(const struct hearth_engine_status *e)
{
    const char *name = NULL;
    for (size_t i = 0; i < e->n_models; i++) {
        if (e->models[i].vocab_only)
            continue;
        if (name)
            return "hearth";
        name = e->models[i].name;
    }
    return name ? name : "hearth";
}

static void vllm(const struct hearth_status_result *r)
{
    const struct hearth_engine_status *e = &r->engine;
    const struct hearth_served *s = &r->served;
    const char *m = model_label(e);
    int64_t used = 0, total = 0;
    for (size_t i = 0; i < e->n_models; i++) {
        used += e->models[i].pages_used;
        total += e->models[i].pages_total;
    }
    const struct {
        const char *name, *type, *help;
        double v;
    } one[] = {
        {"vllm:num_requests_running", "gauge", "Generations in the batch.", (double)e->running},
        {"vllm:num_requests_waiting", "gauge", "Generations that wait.", (double)(e->queued + r->waiting)},
        {"vllm:kv_cache_usage_perc", "gauge", "Pages of the device in use; 1 is all.",
         total ? (double)used / (double)total : 0},
        {"vllm:prefix_cache_queries_total", "counter", "Prompt tokens.", (double)s->prompt_tokens},
        {"vllm:prefix_cache_hits_total", "counter", "Prompt tokens whose KV was there.", (double)s->reused_tokens},
        {"vllm:prompt_tokens_total", "counter", "Prompt tokens.", (double)s->prompt_tokens},
        {"vllm:generation_tokens_total", "counter", "Generated tokens.", (double)s->completion_tokens},
    };
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        head(one[i].name, one[i].type, one[i].help);
        sample(one[i].name, "model_name", m, one[i].v);
    }
    const struct {
        const char *reason;
        int64_t n;
    } ended[] = {
        {"stop", s->stop}, {"length", s->length + s->context_full}, {"abort", s->cancelled}, {"error", s->error}};
    head("vllm:request_success_total", "counter", "Generations that ended, by reason.");
    for (size_t i = 0; i < sizeof ended / sizeof *ended; i++) {
        fputs("vllm:request_success_total{", to);
        put_label("model_name", m);
        fprintf(to, ",finished_reason=\"%s\"} %lld\n", ended[i].reason, (long long)ended[i].n);
    }
    histogram("vllm:time_to_first_token_seconds", "From the request to its first token.", &s->first_token, "model_name",
              m);
    histogram("vllm:inter_token_latency_seconds", "Between two tokens, on average over a generation.", &s->per_token,
              "model_name", m);
    histogram("vllm:e2e_request_latency_seconds", "From the request to its end.", &s->total, "model_name", m);
    histogram("vllm:request_queue_time_seconds", "From the request to its admission.", &s->queue, "model_name", m);
}

static int write_failed(const char *path)
{
    say("hearth: %s: %s\n", path, strerror(errno));
    return STATUS_ERROR;
}

/* Replaces the file atomically, so that no collector reads a half-written one. */
static int write_file(const char *path, const struct hearth_status_result *r, bool with_vllm)
{
    char *fresh;
    struct stat sb;
    if (stat(path, &sb) == 0 && !S_ISREG(sb.st_mode)) { /* rename() by root would replace even /dev/null */
        say("hearth: %s is no file; without --output the counters go to standard output\n", path);
        return STATUS_ERROR;
    }
    if (asprintf(&fresh, "%s.%ld", path, (long)getpid()) < 0)
        abort();
    int status = STATUS_OK;
    if ((to = fopen(fresh, "we"))) {
        own(r);
        if (with_vllm)
            vllm(r);
        bool failed = ferror(to) != 0;
        failed = fclose(to) || failed;
        if (failed || rename(fresh, path)) {
            status = write_failed(path);
            unlink(fresh);
        }
    } else {
        status = write_failed(path);
    }
    free(fresh);
    return status;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    bool with_vllm = false;
    const char *path = NULL;
    const struct opt opts[] = {
        {"vllm", 0, OPT_FLAG, &with_vllm, 0, 0, NULL, "vLLM's names as well, for its dashboards"},
        {"output", 'o', OPT_TEXT, &path, 0, 0, "FILE", "into a file, which is replaced in one step"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, opts, NULL);
    if (argc)
        return usage(cmd, "no argument is expected, not '%s'", argv[0]);
    struct hearth *h;
    struct hearth_status_result *r;
    struct hearth_err err;
    int status = daemon_open_running(&h); /* a collector must not start a daemon */
    if (status != STATUS_OK)
        return status;
    if (hearth_status(h, &r, NULL, &err))
        return verb_end(h, NULL, fail(&err));
    to = stdout;
    if (path) {
        status = write_file(path, r, with_vllm);
    } else {
        own(r);
        if (with_vllm)
            vllm(r);
    }
    return verb_end(h, r, status);
}

const struct cmd cmd_metrics = {"metrics", "[--vllm] [-o FILE]", "counters for Prometheus", run};

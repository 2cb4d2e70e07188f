/*
 * bench-report.c - the statistics of a load, as its clients saw it: the text block of vLLM's serving benchmark, and its
 * keys in JSON.
 *
 * As in that benchmark, a request's TTFT is the time from its sending to its first token, TPOT the mean time of the
 * tokens after that, ITL the time between any two tokens, E2EL the time to its last one, and failed requests are in
 * none of them. Tokens are counted, not frames: of the tokens that arrive in one frame, the first one has the waiting
 * time and the rest have 0 ms.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/bench.h"

/* A latency whose mean and quantiles are reported. */
enum metric { TTFT, TPOT, ITL, E2EL, METRICS };
static const struct {
    const char *title, *label, *key;
} metric_names[METRICS] = {
    {"Time to First Token", "TTFT", "ttft"},
    {"Time per Output Token (excl. 1st token)", "TPOT", "tpot"},
    {"Inter-token Latency", "ITL", "itl"},
    {"End-to-end Latency", "E2EL", "e2el"},
};

struct figures {
    double mean, median, std, p99;
};

struct report {
    const struct load *load;
    int64_t completed, failed, input, output, computed, reused, good;
    double seconds, peak_tokens;
    double *sample[METRICS]; /* milliseconds */
    size_t n_sample[METRICS];
    struct figures of[METRICS];
    int64_t n_late;                               /* late prompts that were answered */
    double late_ttft, keystroke_ttft, others_gap; /* medians over them */
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_quantile(double *v, size_t n, double q)
{
    qsort(v, n, sizeof *v, by_value);
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    return i + 1 < n ? v[i] + (at - (double)i) * (v[i + 1] - v[i]) : v[n - 1];
}

static void add_sample(struct report *rp, enum metric m, double ms)
{
    rp->sample[m][rp->n_sample[m]++] = ms;
}

static void add_request(struct report *rp, const struct load_request *r)
{
    const struct load_params *p = rp->load->params;
    if (r->err.code || r->end <= 0) {
        rp->failed++;
        return;
    }
    double first = r->at[0] - r->sent, last = r->at[r->n - 1] - r->sent;
    double each = r->n > 1 ? (last - first) / (double)(r->n - 1) : 0;
    rp->completed++;
    rp->input += (int64_t)r->n_prompt;
    rp->output += (int64_t)r->n;
    rp->computed += r->usage.computed_tokens;
    rp->reused += r->usage.reused_tokens;
    rp->good +=
        (p->ttft <= 0 || first <= p->ttft) && (p->tpot <= 0 || each <= p->tpot) && (p->e2el <= 0 || last <= p->e2el);
    add_sample(rp, TTFT, first);
    add_sample(rp, E2EL, last);
    if (r->n > 1)
        add_sample(rp, TPOT, each);
    for (size_t i = 1; i < r->n; i++)
        add_sample(rp, ITL, r->at[i] - r->at[i - 1]);
}

static struct figures figures_of(double *v, size_t n)
{
    struct figures f = {0};
    double square = 0;
    for (size_t i = 0; i < n; i++)
        f.mean += v[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        square += (v[i] - f.mean) * (v[i] - f.mean) / (double)n;
    f.std = sqrt(square);
    f.median = n ? bench_quantile(v, n, 0.5) : 0;
    f.p99 = n ? bench_quantile(v, n, 0.99) : 0;
    return f;
}

/* Returns the largest number of tokens of successful requests in one second, counting seconds from the begin of the
 * load. */
static double peak_tokens(const struct load *l)
{
    size_t n = (size_t)((l->end - l->begin) / 1e3) + 1;
    double *in = calloc(n + 1, sizeof *in), most = 0;
    if (!in)
        abort();
    for (int64_t i = 0; i < l->params->requests; i++)
        for (size_t k = 0; k < l->request[i].n && !l->request[i].err.code; k++) {
            size_t second = (size_t)((l->request[i].at[k] - l->begin) / 1e3);
            in[second < n ? second : n]++;
        }
    for (size_t i = 0; i <= n; i++)
        most = fmax(most, in[i]);
    free(in);
    return most;
}

/* Returns the longest time that a regular request waited for a token between the sending of the late prompt and its
 * first token. */
static double others_longest_gap(const struct load *l, const struct load_request *late)
{
    double most = 0;
    for (int64_t i = 0; i < l->params->requests; i++)
        for (size_t k = 1; k < l->request[i].n; k++) {
            double from = l->request[i].at[k - 1], to = l->request[i].at[k];
            if (to > late->sent && from < late->at[0])
                most = fmax(most, to - from);
        }
    return most;
}

static double ttft_of(const struct load_request *r)
{
    return r->at[0] - r->sent;
}

static void add_late(struct report *rp)
{
    const struct load *l = rp->load;
    size_t n = 0, most = (size_t)load_arrivals(l->params);
    double *ms = calloc(3 * most + 1, sizeof *ms);
    if (!ms)
        abort();
    for (int64_t k = 0; k < (int64_t)most; k++) {
        const struct load_request *late = load_late(l, k);
        if (!late[0].n || !late[1].n)
            continue;
        ms[n] = ttft_of(&late[0]);
        ms[most + n] = ttft_of(&late[1]);
        ms[2 * most + n++] = others_longest_gap(l, late);
    }
    rp->n_late = (int64_t)n;
    if (n) {
        rp->late_ttft = bench_quantile(ms, n, 0.5);
        rp->keystroke_ttft = bench_quantile(ms + most, n, 0.5);
        rp->others_gap = bench_quantile(ms + 2 * most, n, 0.5);
    }
    free(ms);
}

static void make_report(struct report *rp, const struct load *l)
{
    size_t n = (size_t)l->params->requests, most = n * (size_t)l->params->output;
    *rp = (struct report){.load = l, .seconds = (l->end - l->begin) / 1e3, .peak_tokens = peak_tokens(l)};
    for (int m = 0; m < METRICS; m++)
        if (!(rp->sample[m] = calloc((m == ITL ? most : n) + 1, sizeof(double))))
            abort();
    for (size_t i = 0; i < n; i++)
        add_request(rp, &l->request[i]);
    for (int m = 0; m < METRICS; m++) {
        rp->of[m] = figures_of(rp->sample[m], rp->n_sample[m]);
        free(rp->sample[m]);
    }
    add_late(rp);
}

/* --- for people --------------------------------------------------------------------------------------------------- */

static void line(const char *label, double value)
{
    printf("%-40s %-10.2f\n", label, value);
}

static void count(const char *label, int64_t value)
{
    printf("%-40s %-10lld\n", label, (long long)value);
}

static void title(const char *text, char fill)
{
    enum { WIDTH = 50 };
    int left = (WIDTH - (int)strlen(text)) / 2, right = WIDTH - left - (int)strlen(text);
    while (left-- > 0)
        putchar(fill);
    fputs(text, stdout);
    while (right-- > 0)
        putchar(fill);
    putchar('\n');
}

static void print_block(const struct report *rp)
{
    const struct load_params *p = rp->load->params;
    title(" Serving Benchmark Result ", '=');
    count("Successful requests:", rp->completed);
    count("Failed requests:", rp->failed);
    if (p->rate > 0)
        line("Request rate configured (RPS):", p->rate);
    else
        count("Maximum request concurrency:", p->clients);
    line("Benchmark duration (s):", rp->seconds);
    count("Total input tokens:", rp->input);
    count("Total generated tokens:", rp->output);
    line("Request throughput (req/s):", (double)rp->completed / rp->seconds);
    if (p->goodput)
        line("Request goodput (req/s):", (double)rp->good / rp->seconds);
    line("Output token throughput (tok/s):", (double)rp->output / rp->seconds);
    line("Peak output token throughput (tok/s):", rp->peak_tokens);
    line("Peak concurrent requests:", (double)rp->load->most_open);
    line("Total token throughput (tok/s):", (double)(rp->input + rp->output) / rp->seconds);
    count("Input tokens computed:", rp->computed);
    for (int m = 0; m < METRICS; m++) {
        char label[64];
        title(metric_names[m].title, '-');
        snprintf(label, sizeof label, "Mean %s (ms):", metric_names[m].label);
        line(label, rp->of[m].mean);
        snprintf(label, sizeof label, "Median %s (ms):", metric_names[m].label);
        line(label, rp->of[m].median);
        snprintf(label, sizeof label, "P99 %s (ms):", metric_names[m].label);
        line(label, rp->of[m].p99);
    }
    if (rp->n_late) {
        title(rp->n_late == 1 ? "A late prompt" : "Late prompts, medians", '-');
        if (rp->n_late > 1)
            count("Late prompts:", rp->n_late);
        line("TTFT of the late prompt (ms):", rp->late_ttft);
        line("TTFT of 16 tokens beside it (ms):", rp->keystroke_ttft);
        line("Longest gap of the others (ms):", rp->others_gap);
    }
    if (rp->load->n_checked) {
        title("Texts", '-');
        count("Compared with the same alone:", (int64_t)rp->load->n_checked);
        count("Different:", (int64_t)rp->load->n_differ);
    }
    title("", '=');
}

/* --- for programs ------------------------------------------------------------------------------------------------- */

static void put(json_t *o, const char *begin, const char *key, double value)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%s_ms", begin, key);
    json_object_set_new(o, name, json_real(value));
}

static json_t *json_report(const struct report *rp)
{
    const struct load *l = rp->load;
    const struct load_params *p = l->params;
    char date[32] = "";
    time_t now = time(NULL);
    strftime(date, sizeof date, "%Y%m%d-%H%M%S", localtime(&now));
    /* In vLLM a prompt is the prefix and, after it, the input: its length is the sum of the two. */
    json_t *o = json_pack("{s:s, s:s, s:o, s:o, s:I, s:o, s:f, s:o, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I}", "date",
                          date, "backend", "hearth", "model_id", json_str(l->model->name), "tokenizer_id",
                          json_str(l->model->name), "num_prompts", (json_int_t)p->requests, "request_rate",
                          p->rate > 0 ? json_real(p->rate) : json_string("inf"), "burstiness", 1.0, "max_concurrency",
                          p->rate > 0 ? json_null() : json_integer(p->clients), "random_input_len",
                          (json_int_t)(p->prompt - p->shared), "random_output_len", (json_int_t)p->output,
                          "random_prefix_len", (json_int_t)p->shared, "duration", rp->seconds, "completed",
                          (json_int_t)rp->completed, "failed", (json_int_t)rp->failed, "total_input_tokens",
                          (json_int_t)rp->input, "total_output_tokens", (json_int_t)rp->output);
    json_t *more = json_pack(
        "{s:f, s:o, s:f, s:f, s:f, s:I, s:I, s:I, s:o, s:o, s:o}", "request_throughput",
        (double)rp->completed / rp->seconds, "request_goodput",
        p->goodput ? json_real((double)rp->good / rp->seconds) : json_null(), "output_throughput",
        (double)rp->output / rp->seconds, "total_token_throughput", (double)(rp->input + rp->output) / rp->seconds,
        "max_output_tokens_per_s", rp->peak_tokens, "max_concurrent_requests", (json_int_t)l->most_open,
        "total_computed_tokens", (json_int_t)rp->computed, "total_reused_tokens", (json_int_t)rp->reused, "where",
        json_str(l->where), "texts_checked", l->n_checked ? json_integer((json_int_t)l->n_checked) : json_null(),
        "texts_different", l->n_checked ? json_integer((json_int_t)l->n_differ) : json_null());
    json_object_update(o, more);
    json_decref(more);
    for (int m = 0; m < METRICS; m++) {
        put(o, "mean", metric_names[m].key, rp->of[m].mean);
        put(o, "median", metric_names[m].key, rp->of[m].median);
        put(o, "std", metric_names[m].key, rp->of[m].std);
        put(o, "p99", metric_names[m].key, rp->of[m].p99);
    }
    if (rp->n_late) {
        json_object_set_new(o, "late_prompts", json_integer((json_int_t)rp->n_late));
        put(o, "late", "ttft", rp->late_ttft);
        put(o, "keystroke", "ttft", rp->keystroke_ttft);
        put(o, "others_longest", "gap", rp->others_gap);
    }
    return o;
}

/* Prints what went wrong, once for all failed requests, late ones among them. Returns the exit status. */
static int explain(const struct load *l)
{
    const struct load_request *first = NULL;
    int64_t arrivals = load_arrivals(l->params), sent = 0, failed = 0, all = 0;
    for (size_t i = l->n_request; i-- > 0;) {
        const struct load_request *r = &l->request[i];
        all += r->sent > 0;
        failed += r->err.code != 0;
        first = r->err.code ? r : first;
    }
    if (first)
        say("hearth bench: %lld of %lld requests failed, the first of them: %s: %s\n", (long long)failed,
            (long long)all, hearth_error_name(first->err.code), first->err.msg);
    for (int64_t k = 0; k < arrivals; k++)
        sent += load_late(l, k)->sent > 0;
    if (sent < arrivals)
        say("hearth bench: there were not moments enough in which all %lld clients were decoding, so that %lld of %lld "
            "late prompts were sent; a larger --output or --requests makes some\n",
            (long long)l->params->clients, (long long)sent, (long long)arrivals);
    if (l->n_differ)
        say("hearth bench: %zu of %zu texts are not what they are alone\n", l->n_differ, l->n_checked);
    return first || l->n_differ || sent < arrivals ? STATUS_ERROR : STATUS_OK;
}

int load_report(const struct load *l)
{
    struct report rp;
    int status = STATUS_OK;
    make_report(&rp, l);
    if (l->params->json)
        status = print_json(json_report(&rp));
    else
        print_block(&rp);
    int wrong = explain(l);
    return wrong != STATUS_OK ? wrong : status;
}

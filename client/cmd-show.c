/* cmd-show.c - hearth show: describes a model. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "client/cmd.h"

/* Appends to a comma-separated line, which is truncated where it is full. */
static void add_word(char *line, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void add_word(char *line, size_t size, const char *fmt, ...)
{
    size_t n = strlen(line);
    va_list ap;
    va_start(ap, fmt);
    if (n)
        n += (size_t)snprintf(line + n, size - n, ", ");
    if (n < size)
        vsnprintf(line + n, size - n, fmt, ap);
    va_end(ap);
}

static void add_traits(struct table *t, const struct hearth_model *m)
{
    char line[3][512] = {{0}};
    for (size_t i = 0; i < m->capabilities.n; i++)
        add_word(line[0], sizeof line[0], "%s", m->capabilities.v[i]);
    for (size_t i = 0; i < m->n_special; i++)
        add_word(line[1], sizeof line[1], "%s %lld %.*s", m->special[i].role, (long long)m->special[i].id,
                 (int)m->special[i].text.len, m->special[i].text.data);
    for (size_t i = 0; i < m->n_sampling; i++)
        add_word(line[2], sizeof line[2], "%s %g", m->sampling[i].name, m->sampling[i].value);
    if (line[0][0])
        table_add(t, 2, "made for", line[0]);
    if (line[1][0])
        table_add(t, 2, "tokens", line[1]);
    if (line[2][0])
        table_add(t, 2, "its sampling", line[2]);
    table_add(t, 2, "runs", m->refusal ? "no" : "yes");
    if (m->refusal)
        table_add(t, 2, "", m->refusal);
}

static void print_model(const struct hearth_model *m)
{
    struct table t = {0};
    char text[4][64];
    table_add(&t, 2, "name", m->name);
    table_add(&t, 2, "path", m->path);
    table_add(&t, 2, "id", m->digest);
    table_add(&t, 2, "size", human_bytes(m->bytes));
    table_add(&t, 2, "architecture", m->arch);
    if (m->kind && strcmp(m->kind, "language") != 0)
        table_add(&t, 2, "kind", m->kind);
    if (m->layers) { /* else its hyperparameters could not be read */
        table_add(&t, 2, "weights", m->type);
        snprintf(text[0], sizeof text[0], "%.1f M", (double)m->parameters / 1e6);
        table_add(&t, 2, "parameters", text[0]);
        snprintf(text[1], sizeof text[1], "%lld tokens", (long long)m->context);
        table_add(&t, 2, "context", text[1]);
        snprintf(text[2], sizeof text[2], "%lld layers of %lld, %lld heads, %lld KV heads of %lld, FFN %lld",
                 (long long)m->layers, (long long)m->d_model, (long long)m->heads, (long long)m->kv_heads,
                 (long long)m->d_head, (long long)m->d_ff);
        table_add(&t, 2, "shape", text[2]);
    }
    snprintf(text[3], sizeof text[3], "%lld tokens", (long long)m->vocab);
    table_add(&t, 2, "vocabulary", text[3]);
    table_add(&t, 2, "tokenizer", m->tokenizer);
    table_add(&t, 2, "chat template", m->chat ? m->chat : m->chat_error ? m->chat_error : "none");
    add_traits(&t, m);
    table_add(&t, 2, "in memory", m->loaded ? "yes" : "no");
    table_print(&t);
}

static const char *or_none(const char *path)
{
    return path ? path : "-";
}

static bool same_op(const struct hearth_op *a, const struct hearth_op *b)
{
    return !strcmp(a->text, b->text) && !strcmp(or_none(a->one), or_none(b->one)) &&
           !strcmp(or_none(a->few), or_none(b->few)) && !strcmp(or_none(a->many), or_none(b->many)) &&
           !strcmp(or_none(a->invariant), or_none(b->invariant));
}

/* Finds the period, at most PERIOD_MAX, with which ops repeat from `i` on (as layers do) so that the repetitions reach
 * furthest. Returns the number of repetitions, 1 for none. */
static size_t repeats(const struct hearth_model *m, size_t i, size_t *period)
{
    enum { PERIOD_MAX = 32 };
    size_t best = 1;
    *period = 1;
    for (size_t p = 1; p <= PERIOD_MAX && i + 2 * p <= m->n_ops; p++) {
        size_t n = p;
        while (i + n < m->n_ops && same_op(&m->ops[i + n], &m->ops[i + n - p]))
            n++;
        if (n / p > 1 && n / p * p > best * *period) {
            best = n / p;
            *period = p;
        }
    }
    return best;
}

static void print_ops(const struct hearth_model *m)
{
    struct table t = {0};
    size_t period, n;
    bool paths = m->loaded && m->n_ops && m->ops[0].one;
    printf("\nprogram, %zu ops\n", m->n_ops);
    if (paths)
        table_add(&t, 7, "", "path at so many rows:", "1", "16", "512", "invariant", "");
    for (size_t i = 0; i < m->n_ops; i += n * period) {
        n = repeats(m, i, &period);
        for (size_t k = i; k < i + period; k++) {
            char index[24], times[64] = "";
            snprintf(index, sizeof index, "%6zu", k);
            if (n > 1 && k > i)
                snprintf(times, sizeof times, "|");
            else if (n > 1)
                snprintf(times, sizeof times, "%zu ops x %zu", period, n);
            const struct hearth_op *o = &m->ops[k];
            if (paths)
                table_add(&t, 7, index, o->text, or_none(o->one), or_none(o->few), or_none(o->many),
                          or_none(o->invariant), times);
            else
                table_add(&t, 3, index, o->text, times);
        }
    }
    table_print(&t);
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    struct hearth *h;
    bool json, ops = false;
    const struct opt opts[] = {{"ops", 0, OPT_FLAG, &ops, 0, 0, NULL, "the ops of its forward pass"}, OPT_END};
    int status = verb_begin_with(cmd, &argc, &argv, opts, "model", &json, &h);
    if (status != STATUS_OK)
        return status;
    char *model = model_resolve(argv[0]);
    struct hearth_model *m;
    struct hearth_err err;
    int rc = (ops ? hearth_models_ops : hearth_models_show)(h, model, &m, NULL, &err);
    free(model);
    if (rc)
        return verb_end(h, NULL, fail(&err));
    if (json)
        status = print_json(json_model(m, true));
    else
        print_model(m);
    if (!json && ops)
        print_ops(m);
    return verb_end(h, m, status);
}

const struct cmd cmd_show = {"show", "MODEL [--ops] [--json]", "what a model is", run};

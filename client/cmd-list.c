/* cmd-list.c - hearth list: the known models, what they are, and whether they run. */
#include <string.h>
#include <unistd.h>

#include "client/cmd.h"

static json_t *json_models(const struct hearth_models_list_result *r)
{
    json_t *a = json_array();
    for (size_t i = 0; i < r->n_models; i++)
        json_array_append_new(a, json_model(&r->models[i], false));
    return json_pack("{s:o, s:o, s:o}", "models", a, "default_model", json_str(r->default_model), "folders",
                     json_strs(r->folders));
}

static const char *parameters(int64_t n, char out[static 32])
{
    if (n >= 1000000000)
        snprintf(out, 32, "%.1f B", (double)n / 1e9);
    else
        snprintf(out, 32, "%.1f M", (double)n / 1e6);
    return out;
}

static void runs(const struct hearth_model *m, char *out, size_t size)
{
    if (!m->read)
        snprintf(out, size, "-");
    else if (m->refusal)
        snprintf(out, size, "no: %s", m->refusal);
    else
        snprintf(out, size, m->loaded ? "yes, in memory" : "yes");
}

static void print_models(const struct hearth_models_list_result *r)
{
    struct table t = {.has_head = true};
    table_add(&t, 8, "NAME", "SIZE", "ARCH", "TYPE", "PARAMS", "CHANGED", "PATH", "RUNS");
    for (size_t i = 0; i < r->n_models; i++) {
        const struct hearth_model *m = &r->models[i];
        char n[32], says[300];
        bool language = m->kind && !strcmp(m->kind, "language");
        runs(m, says, sizeof says);
        table_add(&t, 8, m->name, human_bytes(m->bytes), m->arch, language || !m->kind ? m->type : m->kind,
                  m->parameters ? parameters(m->parameters, n) : NULL, human_ago(m->modified), m->path, says);
    }
    table_print(&t);
}

/* Prints why headers have not been read, if the engine that reads them fails. */
static void print_failure(struct hearth *h, const struct hearth_models_list_result *models)
{
    struct hearth_status_result *r;
    if (models_all_read(models) || hearth_status(h, &r, NULL, NULL))
        return;
    if (r->engine.failure)
        say("hearth: headers have not been read: %s\n", r->engine.failure);
    hearth_free(r);
}

/* Prints in which directories models are found. */
static void print_hint(const struct hearth_models_list_result *r)
{
    style_begin(stderr, STYLE_ASIDE);
    say("hearth: a GGUF file or a Hugging Face folder is found in ");
    for (size_t i = 0; i < r->folders.n; i++)
        say("%s%s", i ? ", " : "", r->folders.v[i]);
    say("; `model_dir = FOLDER` in hearth.conf(5) adds another\n");
    style_end(stderr);
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    struct hearth *h;
    bool json;
    int status = verb_begin(cmd, &argc, &argv, NULL, &json, &h);
    if (status != STATUS_OK)
        return status;
    struct hearth_models_list_result *r;
    struct hearth_err err;
    if (models_read(h, &r, &err))
        return verb_end(h, NULL, fail(&err));
    if (json)
        status = print_json(json_models(r));
    else
        print_models(r);
    if (!json)
        print_failure(h, r);
    if (!json && (r->n_models == 0 || (r->n_models == 1 && isatty(STDERR_FILENO)))) /* one model is part of hearth */
        print_hint(r);
    return verb_end(h, r, status);
}

const struct cmd cmd_list = {"list", "[--json]", "models that can be named, and whether they run", run};

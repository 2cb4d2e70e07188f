/*
 * cmd-render.c - hearth render: renders a conversation with a chat template into the model's input text.
 *
 * A template in a file needs no daemon: the template engine is a library of its own with a single header, and this is
 * the only file of the command that includes it. A model's own template, and the token ids, come from the daemon.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/cmd.h"
#include "daemon/model/chat/jinja.h"

static int print_text_of(const struct jinja_text *text, bool json)
{
    if (json)
        return print_json(json_pack("{s:o}", "text", json_text(text->data, text->n)));
    fwrite(text->data, 1, text->n, stdout);
    return STATUS_OK;
}

/* Reports a template's own error or a problem in it, which concerns the user: with --json as a result, on stdout only.
 */
static int template_said(const char *what, int line, bool json)
{
    char message[1024];
    if (line)
        snprintf(message, sizeof message, "line %d: %s", line, what);
    const char *said = line ? message : what;
    if (!json)
        say("hearth: TEMPLATE: %s\n", said);
    else
        print_json(json_pack("{s:o}", "error", json_str(said)));
    return STATUS_ERROR;
}

static int fail_with(int code, const char *why)
{
    struct hearth_err err = {.code = code};
    snprintf(err.msg, sizeof err.msg, "%.*s", (int)sizeof err.msg - 1, why);
    return fail(&err);
}

/* Uses the same error codes as the daemon. */
static int jinja_failed(const struct jinja_err *e, bool json)
{
    const char *why = e->message ? e->message : "no memory";
    if (e->failure == JINJA_INPUT)
        return fail_with(HEARTH_EPARAMS, why);
    if (e->failure == JINJA_NOMEM)
        return fail_with(HEARTH_ENOMEM, why);
    return template_said(why, e->line, json);
}

static int render(const char *source, size_t n, const struct tm *now, bool json)
{
    struct hearth_err err;
    struct hearth_bytes chat = {0};
    struct jinja *t = NULL;
    struct jinja_text text;
    struct jinja_err e = {0};
    int status;
    if (jinja_compile(&t, source, n, &e)) {
        status = jinja_failed(&e, json);
    } else if (!read_stdin(&chat, &err)) {
        status = fail(&err);
    } else if (jinja_render_chat(t, chat.data, chat.len, now, &text, &e)) {
        status = jinja_failed(&e, json);
    } else {
        status = print_text_of(&text, json);
        jinja_text_fini(&text);
    }
    jinja_err_fini(&e);
    jinja_free(t);
    free((void *)chat.data);
    return status;
}

/* --- with a model ------------------------------------------------------------------------------------------------- */

/* The members of the conversation in the form that the request needs: JSON texts, malloc'd, and strings owned by
 * `chat`. */
struct parts {
    json_t *chat;
    char *text[4];
};

static void parts_fini(struct parts *p)
{
    for (size_t i = 0; i < 4; i++)
        free(p->text[i]);
    json_decref(p->chat);
}

/* Reads the members into the request. Returns false, with the reason in `why`, where stdin is not an object that
 * `hearth render` accepts. */
static bool parts_read(struct parts *p, struct hearth_bytes in, struct hearth_render *r, char *why, size_t size)
{
    const struct {
        const char **to, *name;
    } members[] = {
        {&r->messages, "messages"}, {&r->tools, "tools"}, {&r->documents, "documents"}, {&r->kwargs, "kwargs"}};
    json_error_t e;
    const char *key;
    json_t *v;
    p->chat = json_loadb(in.data, in.len, JSON_ALLOW_NUL, &e);
    if (!json_is_object(p->chat)) {
        snprintf(why, size,
                 "stdin holds no conversation as {\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}: %s",
                 p->chat ? "it is no JSON object" : e.text);
        return false;
    }
    json_object_foreach(p->chat, key, v)
    {
        size_t i = 0;
        while (i < 4 && strcmp(key, members[i].name))
            i++;
        if (json_is_null(v)) {
            continue;
        } else if (i < 4) {
            *members[i].to = p->text[i] = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
        } else if (!strcmp(key, "add_generation_prompt") && json_is_boolean(v)) {
            r->add_generation_prompt = json_is_true(v);
        } else if (!strcmp(key, "bos_token") && json_is_string(v)) {
            r->bos_token = json_string_value(v);
        } else if (!strcmp(key, "eos_token") && json_is_string(v)) {
            r->eos_token = json_string_value(v);
        } else {
            snprintf(why, size, "'%.60s' is not known, or has the wrong type: a template's variables go into kwargs",
                     key);
            return false;
        }
    }
    return true;
}

static int render_model(const char *model, struct hearth_render *r, bool json)
{
    struct hearth *h;
    struct hearth_err err;
    struct hearth_bytes in = {0};
    struct hearth_render_result *got = NULL;
    struct parts p = {0};
    char why[256];
    if (!read_stdin(&in, &err))
        return fail(&err);
    int status = parts_read(&p, in, r, why, sizeof why) ? STATUS_OK : fail_with(HEARTH_EPARAMS, why);
    if (status == STATUS_OK)
        status = daemon_open(&h);
    if (status == STATUS_OK) {
        char *name = model_or_default(h, model);
        r->model = name;
        if (!hearth_render(h, r, &got, NULL, &err))
            status = json ? print_json(json_pack("{s:o, s:o}", "text", json_text(got->text.data, got->text.len), "ids",
                                                 json_ids(got->ids)))
                          : STATUS_OK;
        else
            status = err.code == HEARTH_ETEMPLATE ? template_said(err.msg, 0, json) : fail(&err);
        if (got && !json)
            fwrite(got->text.data, 1, got->text.len, stdout);
        hearth_free(got);
        free(name);
        hearth_close(h);
    }
    parts_fini(&p);
    free((void *)in.data);
    return status;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    const char *file = NULL, *when = NULL, *model = NULL;
    bool json = false;
    const struct opt own[] = {
        {"model", 'm', OPT_TEXT, &model, 0, 0, "MODEL", "the model's own template and tokens; the ids as well"},
        {"template", 0, OPT_TEXT, &file, 0, 0, "FILE", "a chat template; with -m also the name of one of the model's"},
        {"now", 0, OPT_TEXT, &when, 0, 0, "TIME", "what strftime_now() says, as in 2026-11-22T10:00"},
        {"json", 0, OPT_FLAG, &json, 0, 0, NULL, "{\"text\":...}, or {\"error\":...}"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc)
        return usage(cmd, "the conversation is read from stdin");
    if (!file && !model)
        return usage(cmd, "--template FILE or -m MODEL is missing");
    struct tm now;
    jinja_local_now(&now);
    if (when && !jinja_parse_now(when, &now))
        return usage(cmd, "--now takes a local time, as in 2026-11-22T10:00");
    size_t n = 0;
    char *source = file ? template_read(file, &n) : NULL;
    bool is_name = !source && file && model && template_is_name(file);
    if (file && !source && !is_name) {
        char why[256];
        snprintf(why, sizeof why, "%.120s: %s", file, strerror(errno));
        return fail_with(HEARTH_EIO, why);
    }
    int status;
    if (model) {
        struct hearth_render r;
        hearth_render_init(&r, sizeof r);
        r.now = when;
        r.chat_template = source;
        r.template_name = is_name ? file : NULL;
        status = render_model(model, &r, json);
    } else {
        status = render(source, n, &now, json);
    }
    free(source);
    return status;
}

const struct cmd cmd_render = {"render", "(--template FILE | -m MODEL) [--now TIME] [--json] <CHAT",
                               "a conversation through a chat template", run};

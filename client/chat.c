/* chat.c - a conversation: messages in, answers out. */
#include "config.h"

#include "client/chat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/lines.h"

/* Runs one exchange. Returns the exit status that a script would end with. */
static int chat_turn(struct chat *c, struct hearth_bytes line)
{
    struct gen *gen = c->gen;
    struct hearth_message messages[2];
    size_t n = 0;
    if (gen->system)
        messages[n++] = (struct hearth_message){.role = "system", .content = hearth_text(gen->system)};
    messages[n++] = (struct hearth_message){.role = "user", .content = line};
    gen->g.messages = messages;
    gen->g.n_messages = n;

    struct hearth_generate_result *r;
    struct hearth_err err;
    if (gen_run(c->h, gen, &r, &err))
        return gen_fail(gen, &err);
    c->turns++;
    /* An exchange that was cancelled before its first token is not in the session, and creates none. */
    if (r->tokens.n > 0 || strcmp(r->finish_reason, "cancelled") != 0) {
        c->begun = true;
        gen->system = NULL; /* sent once */
    }
    if (gen->json)
        print_json(json_result(r));
    else
        putchar('\n');
    fflush(stdout);
    int status = gen_report(gen, r);
    hearth_free(r);
    chat_name_begun(c);
    return status;
}

void chat_new_session(struct chat *c)
{
    static int number;
    time_t now = time(NULL);
    size_t n = strftime(c->name, sizeof c->name, "chat-%Y%m%d-%H%M%S", localtime(&now));
    n += (size_t)snprintf(c->name + n, sizeof c->name - n, "-%d", (int)getpid());
    if (number++)
        snprintf(c->name + n, sizeof c->name - n, "-%d", number);
    c->gen->session = c->name;
    c->name_later = NULL;
    c->begun = false;
    c->new_name = true;
}

static int chat_loop(struct chat *c)
{
    struct lines in;
    struct hearth_bytes line;
    int status = STATUS_OK;
    lines_open(&in);
    bool person = in.el;
    while (!c->over && lines_next(&in, &line)) {
        if (!line.len || (person && chat_command(c, line)))
            continue;
        status = chat_turn(c, line);
        /* A script stops at the first error; an interactive user sees it and continues, as long as there is a daemon.
         */
        if (status == STATUS_NO_DAEMON || (!person && status != STATUS_OK))
            break;
        status = STATUS_OK;
    }
    if (!person && ferror(stdin)) {
        struct hearth_err err = {.code = HEARTH_EIO};
        snprintf(err.msg, sizeof err.msg, "stdin: %s", strerror(errno));
        status = fail(&err);
    }
    lines_close(&in);
    return status;
}

/* Finds the model that will answer: the session's where the session exists, else the given or the default one;
 * malloc'd. */
static int find_model(struct chat *c, char **model, struct hearth_err *err)
{
    struct hearth_session_show_result *s;
    int rc = c->gen->model || c->new_name ? HEARTH_ENOSESSION
                                          : hearth_sessions_show(c->h, c->gen->session, false, &s, NULL, err);
    if (rc == HEARTH_ENOSESSION) {
        *model = model_or_default(c->h, c->gen->model);
        return 0;
    }
    if (rc)
        return rc;
    c->begun = true;
    *model = strdup(s->session.path);
    hearth_free(s);
    if (!*model)
        abort();
    return 0;
}

/* Checks that the model has a chat template (the one that --template names, if it names one), unless --template gave a
 * file. */
static int check_template(const struct gen *gen, const struct hearth_model *m, struct hearth_err *err)
{
    const char *name = gen->g.template_name, *at = m->chat;
    size_t n = name ? strlen(name) : 0;
    if (gen->g.chat_template || (!name && m->chat))
        return 0;
    for (; name && at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
        if (!strncmp(at, name, n) && (!at[n] || at[n] == ' '))
            return 0;
    err->code = HEARTH_ENOTEMPLATE;
    if (m->chat)
        snprintf(err->msg, sizeof err->msg, "%.60s has no chat template \"%.40s\", but %.60s", m->name, name, m->chat);
    else
        snprintf(err->msg, sizeof err->msg, "%.60s: %.120s", m->name,
                 m->chat_error ? m->chat_error : "the model's file has no chat template");
    return err->code;
}

/* Reports a problem with the model before the user types a message, or else which model answers. */
static int greet(struct chat *c)
{
    char *model;
    struct hearth_model *m = NULL;
    struct hearth_err err;
    int rc = find_model(c, &model, &err);
    if (rc)
        return fail(&err);
    rc = hearth_models_show(c->h, model, &m, NULL, &err);
    free(model);
    if (!rc)
        rc = check_template(c->gen, m, &err);
    if (!rc && !c->gen->told) {
        say_aside("hearth: %s answers%s; /help lists commands\n", m->name,
                  c->gen->model || c->begun ? "" : ", as no model was named");
        c->gen->told = true;
    }
    hearth_free(m);
    return rc ? fail(&err) : STATUS_OK;
}

int chat_begin(struct hearth *h, struct gen *gen)
{
    struct chat c = {.h = h, .gen = gen};
    if (!gen->session)
        chat_new_session(&c);
    int status = STATUS_OK;
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
        status = greet(&c);
    if (status == STATUS_OK)
        status = chat_loop(&c);
    if (c.new_name && c.begun && isatty(STDIN_FILENO)) {
        char *name = shell_operand(gen->session);
        say("`hearth resume %s` goes on with this\n", name);
        free(name);
    }
    for (size_t i = 0; i < c.n_owned; i++)
        free(c.owned[i]);
    free(c.owned);
    return status;
}

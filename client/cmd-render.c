/*
 * cmd-render.c - hearth render: renders a conversation by a chat template to the model's input text.
 *
 * It needs no daemon: the template engine is a library of its own with one header, and this is the one file of the
 * command that includes it.
 */
#include "config.h" /* strptime, timegm */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/cmd.h"
#include "daemon/model/chat/jinja.h"

/* "2026-11-22T10:00", with seconds or without: a local time as it is written, whatever the zone says of it. */
static bool parse_now(const char *text, struct tm *out)
{
    static const char *const formats[] = {"%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"};
    for (int i = 0; i < 2; i++) {
        struct tm t = {0}, same;
        const char *end = strptime(text, formats[i], &t);
        if (!end || *end)
            continue;
        same = t; /* timegm() finds the days of the week and the year, and makes a 30 February a day that is */
        timegm(&same);
        *out = same;
        return same.tm_mday == t.tm_mday && same.tm_mon == t.tm_mon;
    }
    return false;
}

static void local_now(struct tm *out)
{
    time_t t = time(NULL);
    localtime_r(&t, out);
}

/* Reads a whole file, up to one byte more than the limit of a template; malloc'd, NULL with errno. */
static char *read_template(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *data = f ? malloc(JINJA_SOURCE_MAX + 1) : NULL;
    if (data) {
        *n = fread(data, 1, JINJA_SOURCE_MAX + 1, f);
        if (ferror(f)) {
            free(data);
            data = NULL;
        }
    }
    int why = errno;
    if (f)
        fclose(f);
    errno = why;
    return data;
}

static int print_text_of(const struct jinja_text *text, bool json)
{
    if (json)
        return print_json(json_pack("{s:o}", "text", json_text(text->data, text->n)));
    fwrite(text->data, 1, text->n, stdout);
    return STATUS_OK;
}

/* With --json an error is a result, on stdout; what the template itself says stands alone, for that is for the user. */
static int print_failure(const char *what, int line, bool json)
{
    char message[1024];
    if (line)
        snprintf(message, sizeof message, "line %d: %s", line, what);
    const char *said = line ? message : what;
    if (!json)
        fprintf(stderr, "hearth: TEMPLATE: %s\n", said);
    else
        print_json(json_pack("{s:o}", "error", json_str(said)));
    return STATUS_ERROR;
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
        status = print_failure(e.message ? e.message : "no memory", e.line, json);
    } else if (!read_stdin(&chat, &err)) {
        status = print_failure(err.msg, 0, json);
    } else if (jinja_render_chat(t, chat.data, chat.len, now, &text, &e)) {
        status = print_failure(e.message ? e.message : "no memory", e.line, json);
    } else {
        status = print_text_of(&text, json);
        jinja_text_fini(&text);
    }
    jinja_err_fini(&e);
    jinja_free(t);
    free((void *)chat.data);
    return status;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    const char *file = NULL, *when = NULL;
    bool json = false;
    const struct opt own[] = {
        {"template", 0, OPT_TEXT, &file, 0, 0, "FILE", "a chat template"},
        {"now", 0, OPT_TEXT, &when, 0, 0, "TIME", "what strftime_now() says, as in 2026-11-22T10:00"},
        {"json", 0, OPT_FLAG, &json, 0, 0, NULL, "{\"text\":...}, or {\"error\":...}"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc)
        return usage(cmd, "the conversation is read from stdin");
    if (!file)
        return usage(cmd, "--template FILE is missing");
    struct tm now;
    local_now(&now);
    if (when && !parse_now(when, &now))
        return usage(cmd, "--now takes a local time, as in 2026-11-22T10:00");
    size_t n = 0;
    char *source = read_template(file, &n);
    if (!source) {
        char why[512];
        snprintf(why, sizeof why, "%.300s: %s", file, strerror(errno));
        return print_failure(why, 0, json);
    }
    int status = render(source, n, &now, json);
    free(source);
    return status;
}

const struct cmd cmd_render = {"render", "--template FILE [--now TIME] [--json] <CHAT",
                               "a conversation through a chat template", run};

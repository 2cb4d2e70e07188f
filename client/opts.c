/* opts.c - parses the command line by tables: options of every type, ranges, --help. See cmd.h. */
#include "config.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "client/cmd.h"

enum { OPTS_MAX = 48 };

/* The two tables of a parse, joined. The codes that getopt_long returns for them are indices plus CODE_FIRST. */
enum { CODE_FIRST = 1000, CODE_HELP = 900, CODE_NO_START };
struct parser {
    const struct cmd *cmd;
    const struct opt *opt[OPTS_MAX];
    size_t n;
};

static void print_usage(const struct cmd *cmd, FILE *to)
{
    fprintf(to, "usage: hearth %s%s%s\n", cmd->name, *cmd->args ? " " : "", cmd->args);
}

static int vrefuse(const char *who, const struct cmd *cmd, const char *fmt, va_list ap)
{
    char *why;
    int len = vasprintf(&why, fmt, ap);
    if (len < 0)
        abort();
    say("%s%s%s: %s\n", who, cmd ? " " : "", cmd ? cmd->name : "", why);
    if (cmd)
        print_usage(cmd, stderr);
    if (json_errors)
        print_json(json_pack("{s:{s:s, s:o}}", "error", "symbol", hearth_error_name(HEARTH_EPARAMS), "message",
                             json_text(why, (size_t)len)));
    free(why);
    return STATUS_USAGE;
}

int usage(const struct cmd *cmd, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int status = vrefuse("hearth", cmd, fmt, ap);
    va_end(ap);
    return status;
}

int refuse(const char *who, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int status = vrefuse(who, NULL, fmt, ap);
    va_end(ap);
    return status;
}

static void print_help(const struct parser *p)
{
    print_usage(p->cmd, stdout);
    printf("%s\n\n", p->cmd->summary);
    for (size_t i = 0; i < p->n; i++) {
        const struct opt *o = p->opt[i];
        char left[40];
        int used = o->letter ? snprintf(left, sizeof left, "-%c, --%s", o->letter, o->name)
                             : snprintf(left, sizeof left, "    --%s", o->name);
        if (o->arg)
            snprintf(left + used, sizeof left - (size_t)used, " %s", o->arg);
        printf("  %-28s %s\n", left, o->doc);
    }
    printf("  %-28s %s\n  %-28s %s\n", "    --no-start", "never start a daemon", "-h, --help", "this text");
}

static void texts_add(struct hearth_strs *s, const char *text)
{
    const char **v = realloc(s->v, (s->n + 1) * sizeof *v);
    if (!v)
        abort();
    s->v = v;
    s->v[s->n++] = text;
}

bool opt_set(const struct opt *o, const char *text)
{
    char *end;
    errno = 0;
    switch (o->type) {
    case OPT_FLAG:
        *(bool *)o->to = true;
        return true;
    case OPT_TEXT:
        *(const char **)o->to = text;
        return true;
    case OPT_TEXTS:
        if (!*text)
            return false;
        texts_add(o->to, text);
        return true;
    case OPT_CLASS:
        if (strcmp(text, "interactive") != 0 && strcmp(text, "normal") != 0 && strcmp(text, "background") != 0)
            return false;
        *(const char **)o->to = text;
        return true;
    case OPT_INT: {
        long long v = strtoll(text, &end, 10);
        if (end == text || *end || errno || (double)v < o->min || (double)v > o->max)
            return false;
        *(int64_t *)o->to = v;
        return true;
    }
    case OPT_REAL: {
        double v = strtod(text, &end);
        if (end == text || *end || !isfinite(v) || v < o->min || v > o->max)
            return false;
        *(double *)o->to = v;
        return true;
    }
    case OPT_SEED: {
        struct hearth_sampling *s = o->to;
        unsigned long long v = strtoull(text, &end, 10);
        if (end == text || *end || errno || strchr(text, '-'))
            return false;
        s->has_seed = true;
        s->seed = v;
        return true;
    }
    }
    return false;
}

static void parser_add(struct parser *p, const struct opt *table)
{
    for (; table && table->name; table++) {
        assert(p->n < OPTS_MAX);
        p->opt[p->n++] = table;
    }
}

/* Returns how many of the operands, which getopt has moved to the end, stood before the "--" that ended the options. */
static int operands_before_dashes(char *const *given, int n_given, char *const *argv, int argc)
{
    if (optind == 1 || strcmp(argv[optind - 1], "--") != 0)
        return argc - optind;
    int dashes = 0, before = 0;
    while (dashes < n_given && given[dashes] != argv[optind - 1])
        dashes++;
    for (int i = 0; i < dashes; i++)
        for (int k = optind; k < argc; k++)
            before += given[i] == argv[k];
    return before;
}

/* Reports the option that getopt rejects, and exits. */
static void complain(const struct parser *p, int code, const char *word)
{
    const struct cmd *cmd = p->cmd;
    const char *hint = "; text that begins with '-' goes after --";
    if (optopt >= CODE_FIRST) {
        const char *name = p->opt[optopt - CODE_FIRST]->name;
        exit(code == ':' ? usage(cmd, "--%s: its value is missing", name) : usage(cmd, "--%s takes no value", name));
    }
    if (optopt)
        exit(code == ':' ? usage(cmd, "-%c: its value is missing", optopt)
                         : usage(cmd, "-%c: no such option%s", optopt, hint));
    exit(usage(cmd, "%s: no such option%s", word, hint));
}

static char *explanation(const struct opt *o, const char *prefix, const char *text)
{
    char *s;
    int len;
    if (o->type == OPT_SEED)
        len = asprintf(&s, "%s%s wants a whole number from 0 to %llu, not '%s'", prefix, o->name, ULLONG_MAX, text);
    else if (o->type == OPT_CLASS)
        len = asprintf(&s, "%s%s wants interactive, normal or background, not '%s'", prefix, o->name, text);
    else if (o->type == OPT_TEXT || o->type == OPT_TEXTS)
        len = asprintf(&s, "%s%s wants a text that is not empty", prefix, o->name);
    else
        len = asprintf(&s, "%s%s wants %s from %.10g to %.10g, not '%s'", prefix, o->name,
                       o->type == OPT_INT ? "a whole number" : "a number", o->min, o->max, text);
    if (len < 0)
        abort();
    return s;
}

void opt_explain(const struct opt *o, const char *prefix, const char *text)
{
    char *s = explanation(o, prefix, text);
    say("%s\n", s);
    free(s);
}

void opt_check(const struct cmd *cmd, const struct opt *o, const char *text)
{
    if (opt_set(o, text))
        return;
    char *s = explanation(o, "--", text);
    int status = usage(cmd, "%s", s);
    free(s);
    exit(status);
}

/* Converts the table's options to getopt_long's form. */
static void parser_tables(const struct parser *p, struct option *longs, char *shorts)
{
    *longs++ = (struct option){"help", no_argument, NULL, CODE_HELP};
    *longs++ = (struct option){"no-start", no_argument, NULL, CODE_NO_START};
    *shorts++ = ':'; /* makes getopt distinguish a missing value from an unknown option */
    *shorts++ = 'h';
    for (size_t i = 0; i < p->n; i++) {
        const struct opt *o = p->opt[i];
        int has_arg = o->type == OPT_FLAG ? no_argument : required_argument;
        *longs++ = (struct option){o->name, has_arg, NULL, CODE_FIRST + (int)i};
        if (!o->letter)
            continue;
        *shorts++ = (char)o->letter;
        if (has_arg == required_argument)
            *shorts++ = ':';
    }
    *longs = (struct option){0};
    *shorts = '\0';
}

void errors_as_asked(int argc, char *const *argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        size_t n = strcspn(argv[i], "="); /* getopt_long takes --js, too */
        json_errors |= n > 2 && n <= strlen("--json") && !strncmp(argv[i], "--json", n);
    }
}

int opts_parse(const struct cmd *cmd, int *argc, char ***argv, const struct opt *opts, const struct opt *more)
{
    struct parser p = {.cmd = cmd};
    parser_add(&p, opts);
    parser_add(&p, more);
    struct option longs[OPTS_MAX + 3];
    char shorts[2 * OPTS_MAX + 3];
    parser_tables(&p, longs, shorts);

    int code, n_given = *argc;
    char **given = calloc((size_t)n_given + 1, sizeof *given); /* getopt moves the operands to the end */
    if (!given)
        abort();
    memcpy(given, *argv, (size_t)n_given * sizeof *given);
    optind = 1;
    opterr = 0;
    while ((code = getopt_long(*argc, *argv, shorts, longs, NULL)) != -1) {
        if (code == CODE_HELP || code == 'h') {
            print_help(&p);
            exit(finish(STATUS_OK));
        }
        if (code == '?' || code == ':')
            complain(&p, code, (*argv)[optind - 1]);
        if (code == CODE_NO_START)
            no_start = true;
        for (size_t i = 0; i < p.n; i++)
            if (code == CODE_FIRST + (int)i || code == p.opt[i]->letter)
                opt_check(cmd, p.opt[i], optarg);
    }
    json_errors = false; /* what looked like it may be a value */
    for (size_t i = 0; i < p.n; i++)
        if (!strcmp(p.opt[i]->name, "json"))
            json_errors = *(bool *)p.opt[i]->to;
    int before = operands_before_dashes(given, n_given, *argv, *argc);
    free(given);
    *argc -= optind;
    *argv += optind;
    return before;
}

bool ids_parse(const char *text, size_t len, struct hearth_ids *out)
{
    size_t n = 0, cap = len / 2 + 1;
    int32_t *v = strlen(text) == len ? malloc(cap * sizeof *v) : NULL; /* what follows a NUL would be dropped */
    if (!v)
        return false;
    for (;;) {
        text += strspn(text, " ,\t\r\n");
        if (!*text)
            break;
        char *end;
        errno = 0;
        long id = strtol(text, &end, 10);
        if (end == text || errno || id < 0 || id > INT32_MAX || !strchr(" ,\t\r\n", *end)) {
            free(v);
            return false;
        }
        v[n++] = (int32_t)id;
        text = end;
    }
    out->v = v;
    out->n = n;
    return true;
}

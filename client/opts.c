/* opts.c - the command line, from tables: options of every type, ranges, --help. See cmd.h. */
#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "client/cmd.h"

enum { OPTS_MAX = 48 };

/* The two tables of a parse, as one; getopt_long's codes are indices from CODE_FIRST on. */
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

int usage(const struct cmd *cmd, const char *fmt, ...)
{
    fprintf(stderr, "hearth %s: ", cmd->name);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    print_usage(cmd, stderr);
    return STATUS_USAGE;
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

/* Sets *o->to from the text after it; false where the text is not of its type or range. */
static bool opt_set(const struct opt *o, const char *text)
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
        texts_add(o->to, text);
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

void opts_parse(const struct cmd *cmd, int *argc, char ***argv, const struct opt *opts, const struct opt *more)
{
    struct parser p = {.cmd = cmd};
    parser_add(&p, opts);
    parser_add(&p, more);

    struct option longs[OPTS_MAX + 3] = {
        {"help", no_argument, NULL, CODE_HELP},
        {"no-start", no_argument, NULL, CODE_NO_START},
    };
    char shorts[2 * OPTS_MAX + 3] = "h";
    size_t n_short = 1;
    for (size_t i = 0; i < p.n; i++) {
        const struct opt *o = p.opt[i];
        int has_arg = o->type == OPT_FLAG ? no_argument : required_argument;
        longs[i + 2] = (struct option){o->name, has_arg, NULL, CODE_FIRST + (int)i};
        if (o->letter) {
            shorts[n_short++] = (char)o->letter;
            if (has_arg == required_argument)
                shorts[n_short++] = ':';
        }
    }

    int code;
    optind = 1;
    opterr = 0;
    while ((code = getopt_long(*argc, *argv, shorts, longs, NULL)) != -1) {
        if (code == CODE_HELP || code == 'h') {
            print_help(&p);
            exit(STATUS_OK);
        }
        if (code == CODE_NO_START) {
            no_start = true;
            continue;
        }
        const struct opt *o = NULL;
        for (size_t i = 0; i < p.n; i++)
            if (code == CODE_FIRST + (int)i || code == p.opt[i]->letter)
                o = p.opt[i];
        if (!o) /* getopt's '?': unknown, ambiguous, or without its value */
            exit(usage(cmd, "%s: no such option, or its value is missing", (*argv)[optind - 1]));
        if (opt_set(o, optarg))
            continue;
        if (o->type == OPT_SEED)
            exit(usage(cmd, "--%s wants a whole number from 0 on, not '%s'", o->name, optarg));
        exit(usage(cmd, "--%s wants %s from %.10g to %.10g, not '%s'", o->name,
                   o->type == OPT_INT ? "a whole number" : "a number", o->min, o->max, optarg));
    }
    *argc -= optind;
    *argv += optind;
}

bool ids_parse(const char *text, struct hearth_ids *out)
{
    size_t n = 0, cap = strlen(text) / 2 + 1;
    int32_t *v = malloc(cap * sizeof *v);
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

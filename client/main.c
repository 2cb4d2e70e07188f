/* main.c - the hearth command: finds the verb in the table and runs it. See cmd.h. */
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "client/cmd.h"
#include "config.h"
#include "libclient/distance.h"
#include "libclient/standard-fds.h"

static const struct cmd *const commands[] = {
    &cmd_run,   &cmd_chat,   &cmd_resume, &cmd_attach,   &cmd_streams, &cmd_sessions, &cmd_fork,
    &cmd_rm,    &cmd_backup, &cmd_purge,  &cmd_list,     &cmd_show,    &cmd_load,     &cmd_ps,
    &cmd_pin,   &cmd_stop,   &cmd_status, &cmd_trace,    &cmd_top,     &cmd_metrics,  &cmd_doctor,
    &cmd_yield, &cmd_serve,  &cmd_eval,   &cmd_tokenize, &cmd_render,  &cmd_bench,
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static void print_help(FILE *to)
{
    fputs("usage: hearth [--no-start] VERB [OPTION...] [ARGUMENT...]\n\n", to);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-9s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n`hearth VERB --help` lists a verb's options; hearth(1) has them all. Models are files of\n"
          "yours: `hearth rm` removes sessions, and no verb removes a model.\n",
          to);
}

/* Verbs that users of similar programs may try. */
static const struct {
    const char *word, *verb; /* hearth's verb for it, or NULL with */
    const char *instead;     /* what to do instead */
} aliases[] = {
    {"ls", "list", NULL},
    {"models", "list", NULL},
    {"start", NULL, "every verb starts the daemon where none answers; `hearth serve` keeps it in the foreground"},
    {"restart", NULL, "`hearth stop --daemon` ends it, and the next verb starts it"},
    {"pull", NULL,
     "models are files of yours: put a GGUF file into a folder that hearth.conf(5) names, or give its path"},
    {"logs", NULL, "the log is hearthd.log in the state folder, or the journal of its systemd unit"},
};

static const struct cmd *verb_find(const char *word)
{
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (aliases[i].verb && !strcmp(word, aliases[i].word))
            word = aliases[i].verb;
    for (size_t c = 0; c < N_COMMANDS; c++)
        if (!strcmp(word, commands[c]->name))
            return commands[c];
    return NULL;
}

/* Makes the candidate the nearest one if it is nearer than `best` edits. */
static void compare(const char *word, const char *candidate, size_t *best, const char **near)
{
    size_t d = text_distance(word, strlen(word), candidate, strlen(candidate));
    if (d < *best) {
        *best = d;
        *near = candidate;
    }
}

static int refuse_verb(const char *word)
{
    const char *near = NULL, *instead = NULL;
    size_t best = strlen(word) / 3 + 2; /* a transposition of two letters is two edits */
    for (size_t c = 0; c < N_COMMANDS; c++)
        compare(word, commands[c]->name, &best, &near);
    compare(word, "help", &best, &near);
    compare(word, "version", &best, &near);
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(word, aliases[i].word))
            instead = aliases[i].instead;
    if (instead)
        return refuse("hearth", "no verb '%s': %s", word, instead);
    if (near)
        return refuse("hearth", "no verb '%s'; did you mean `hearth %s`?", word, near);
    return refuse("hearth", "no verb '%s'; `hearth help` lists them", word);
}

static bool asks_for_help(const char *word)
{
    return !strcmp(word, "--help") || !strcmp(word, "-h");
}

/* version, which has no options, and so no help of its own. */
static int version(int n, char **words)
{
    if (n == 1 && asks_for_help(words[0]))
        print_help(stdout);
    else if (n)
        return refuse("hearth version", "no argument is expected, not '%s'", words[0]);
    else
        puts("hearth " PACKAGE_VERSION);
    return STATUS_OK;
}

/* help [VERB]: with a verb, the verb prints its own help and exits; `sessions` has verbs of its own. */
static int help(int n, char **words)
{
    const struct cmd *cmd = n ? verb_find(words[0]) : NULL;
    bool general = n && (asks_for_help(words[0]) || !strcmp(words[0], "help") || !strcmp(words[0], "version"));
    if (n && !cmd && !general)
        return refuse_verb(words[0]);
    if (n > (cmd == &cmd_sessions ? 2 : 1))
        return refuse("hearth help", "one verb is expected");
    if (!cmd) {
        print_help(stdout);
        return STATUS_OK;
    }
    char *argv[] = {(char *)cmd->name, (char *)"--help", words[1], NULL};
    return cmd->run(cmd, n + 1, argv);
}

/* Handles the options before the verb. Returns an exit status, or -1 where a verb follows. */
static int leading_options(int argc, char **argv, int *i)
{
    for (; *i < argc && argv[*i][0] == '-'; ++*i) {
        if (!strcmp(argv[*i], "--no-start")) {
            no_start = true;
        } else if (!strcmp(argv[*i], "--version") || !strcmp(argv[*i], "-v")) {
            return version(0, NULL);
        } else if (asks_for_help(argv[*i])) {
            print_help(stdout);
            return STATUS_OK;
        } else {
            return refuse("hearth", "no option %s before the verb", argv[*i]);
        }
    }
    return -1;
}

static int run(int argc, char **argv)
{
    errors_as_asked(argc, argv);
    int i = 1, status = leading_options(argc, argv, &i);
    if (status >= 0)
        return status;
    if (i == argc) {
        print_help(stderr);
        return STATUS_USAGE;
    }
    if (!strcmp(argv[i], "version"))
        return version(argc - i - 1, argv + i + 1);
    if (!strcmp(argv[i], "help"))
        return help(argc - i - 1, argv + i + 1);
    const struct cmd *cmd = verb_find(argv[i]);
    if (!cmd)
        return refuse_verb(argv[i]);
    return cmd->run(cmd, argc - i, argv + i);
}

int main(int argc, char **argv)
{
    if (!standard_fds_open())
        return STATUS_ERROR;
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8")) /* without a locale, as over ssh; hearth reads and writes UTF-8 anyway */
        setlocale(LC_CTYPE, "C.UTF-8");
    return finish(run(argc, argv));
}

/* main.c - the hearth command: finds the verb in the table and runs it. See cmd.h. */
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "client/cmd.h"
#include "config.h"

static const struct cmd *const commands[] = {
    &cmd_run,   &cmd_chat, &cmd_resume,   &cmd_attach, &cmd_sessions, &cmd_rm,     &cmd_backup,
    &cmd_list,  &cmd_show, &cmd_load,     &cmd_ps,     &cmd_stop,     &cmd_status, &cmd_trace,
    &cmd_serve, &cmd_eval, &cmd_tokenize, &cmd_render, &cmd_bench,
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static void print_help(FILE *to)
{
    fputs("usage: hearth [--no-start] VERB [OPTION...] [ARGUMENT...]\n\n", to);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-9s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n`hearth VERB --help` lists a verb's options; hearth(1) has them all.\n", to);
}

int main(int argc, char **argv)
{
    setlocale(LC_CTYPE, "");
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "--no-start")) {
            no_start = true;
        } else if (!strcmp(argv[i], "--version")) {
            puts("hearth " PACKAGE_VERSION);
            return STATUS_OK;
        } else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            print_help(stdout);
            return STATUS_OK;
        } else {
            fprintf(stderr, "hearth: no option %s before the verb\n", argv[i]);
            return STATUS_USAGE;
        }
    }
    if (i == argc) {
        print_help(stderr);
        return STATUS_USAGE;
    }
    for (size_t c = 0; c < N_COMMANDS; c++) {
        if (strcmp(argv[i], commands[c]->name))
            continue;
        int status = commands[c]->run(commands[c], argc - i, argv + i);
        /* A full disk behind stdout must not look like success. */
        if ((fflush(stdout) || ferror(stdout)) && status == STATUS_OK) {
            fputs("hearth: the output could not be written\n", stderr);
            status = STATUS_ERROR;
        }
        return status;
    }
    fprintf(stderr, "hearth: no verb '%s'; `hearth --help` lists them\n", argv[i]);
    return STATUS_USAGE;
}

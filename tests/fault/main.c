/*
 * main.c - the engine with another device than it has: one that fails, hearth-engine --fault WHEN [OPTION...], one with
 * little memory, --small BYTES, or one that is as quick as a GPU, --paced FACTOR; and one with its own device and no
 * memory for vocabularies while a file is there, --no-vocab PATH. For tests and measurements alone.
 *
 * It is the engine's own program with fault.h, small.h or paced.h between the engine and its device. It bears the
 * engine's name because kill-at.c knows the engine by it.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "daemon/engine/serve.h"
#include "tests/fault/fault.h"
#include "tests/fault/no-vocab.h"
#include "tests/fault/paced.h"
#include "tests/fault/small.h"

static const struct {
    const char *option, **value;
    const struct backend *(*wrap)(const struct backend *be, struct device *d, struct hearth_err *e);
} devices[] = {{"--fault", &fault_when, fault_wrap},
               {"--small", &small_bytes, small_wrap},
               {"--paced", &paced_by, paced_wrap},
               {"--no-vocab", &no_vocab_while, no_vocab_wrap}};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof devices / sizeof *devices && argc >= 3; i++)
        if (!strcmp(argv[1], devices[i].option)) {
            *devices[i].value = argv[2];
            argv[2] = argv[0];
            return serve_main(argc - 2, argv + 2, devices[i].wrap);
        }
    fputs("usage: hearth-engine --fault WHAT=N|PATH | --small BYTES | --paced FACTOR[,trials][,slow] | "
          "--no-vocab PATH [OPTION OF THE ENGINE...]\n",
          stderr);
    return 2;
}

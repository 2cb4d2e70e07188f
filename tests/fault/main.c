/*
 * main.c - the engine with another device than its own: one that fails, hearth-engine --fault WHEN [OPTION...], one
 * with little memory, --small BYTES, or one with the speed of a GPU, --paced FACTOR; or with its own device, but no
 * memory for vocabularies while a file exists, --no-vocab PATH. Only for tests and measurements.
 *
 * It is the engine's own program with fault.h, small.h or paced.h between the engine and its device. It has the
 * engine's name because kill-at.c recognises the engine by it.
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
    fputs("usage: hearth-engine --fault WHAT=N|PATH | --small BYTES | --paced FACTOR[,trials][,slow][,computes] | "
          "--no-vocab PATH [OPTION OF THE ENGINE...]\n",
          stderr);
    return 2;
}

/*
 * main.c - the engine with a device that fails: hearth-engine --fault WHEN [OPTION...]. For tests alone.
 *
 * It is the engine's own program with fault.h between the engine and its device. It bears the engine's name because
 * kill-at.c knows the engine by it.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "daemon/engine/serve.h"
#include "tests/fault/fault.h"

int main(int argc, char **argv)
{
    if (argc < 3 || strcmp(argv[1], "--fault")) {
        fputs("usage: hearth-engine --fault WHAT=N|PATH [OPTION OF THE ENGINE...]\n", stderr);
        return 2;
    }
    fault_when = argv[2];
    argv[2] = argv[0];
    return serve_main(argc - 2, argv + 2, fault_wrap);
}

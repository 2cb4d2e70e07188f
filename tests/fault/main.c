/*
 * main.c - the engine with a device that fails, hearth-engine --fault WHEN [OPTION...], or has little memory,
 * hearth-engine
 * --small BYTES [OPTION...]. For tests alone.
 *
 * It is the engine's own program with fault.h or small.h between the engine and its device. It bears the engine's name
 * because kill-at.c knows the engine by it.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "daemon/engine/serve.h"
#include "tests/fault/fault.h"
#include "tests/fault/small.h"

int main(int argc, char **argv)
{
    bool small = argc >= 3 && !strcmp(argv[1], "--small");
    if (argc < 3 || (!small && strcmp(argv[1], "--fault"))) {
        fputs("usage: hearth-engine --fault WHAT=N|PATH | --small BYTES [OPTION OF THE ENGINE...]\n", stderr);
        return 2;
    }
    *(small ? &small_bytes : &fault_when) = argv[2];
    argv[2] = argv[0];
    return serve_main(argc - 2, argv + 2, small ? small_wrap : fault_wrap);
}

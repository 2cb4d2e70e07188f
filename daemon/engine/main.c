/* main.c - hearth-engine: the program is in serve.c, where the tests' engine with a failing device finds it, too. */
#include "config.h"

#include "daemon/engine/serve.h"

int main(int argc, char **argv)
{
    return serve_main(argc, argv, NULL);
}

/* main.c - hearth-engine. The program itself is in serve.c, which the tests link into an engine with a failing
 * device. */
#include "config.h"

#include "daemon/engine/serve.h"

int main(int argc, char **argv)
{
    return serve_main(argc, argv, NULL);
}

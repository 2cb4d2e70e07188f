/* verb.c - the frame that most verbs share: options, a connection, an answer, its end. See cmd.h. */
#include "client/cmd.h"

int verb_begin(const struct cmd *cmd, int *argc, char ***argv, const char *operand, bool *json, struct hearth **out)
{
    const struct opt own[] = {{"json", 0, OPT_FLAG, json, 0, 0, NULL, "one JSON object"}, OPT_END};
    *json = false;
    opts_parse(cmd, argc, argv, own, NULL);
    if (!operand && *argc)
        return usage(cmd, "no argument is expected");
    if (operand && *argc != 1)
        return usage(cmd, "name one %s", operand);
    return daemon_open(out);
}

int verb_end(struct hearth *h, void *result, int status)
{
    hearth_free(result);
    hearth_close(h);
    return status;
}

/* verb.c - what most verbs have in common: options, a connection, an answer, its end. See cmd.h. */
#include "client/cmd.h"

int verb_begin(const struct cmd *cmd, int *argc, char ***argv, const char *operand, bool *json, struct hearth **out)
{
    return verb_begin_with(cmd, argc, argv, NULL, operand, json, out);
}

int verb_begin_with(const struct cmd *cmd, int *argc, char ***argv, const struct opt *more, const char *operand,
                    bool *json, struct hearth **out)
{
    const struct opt own[] = {{"json", 0, OPT_FLAG, json, 0, 0, NULL, "one JSON object"}, OPT_END};
    *json = false;
    opts_parse(cmd, argc, argv, own, more);
    if (!operand && *argc)
        return usage(cmd, "no argument is expected, not '%s'", (*argv)[0]);
    if (operand && *argc != 1)
        return usage(cmd, "name one %s", operand);
    return daemon_open(out);
}

int sessions_each(struct hearth *h, bool ephemeral, void (*on_session)(void *arg, const struct hearth_session *s),
                  void *arg)
{
    struct hearth_sessions_list_result *r = NULL;
    do {
        struct hearth_sessions_list_result *page;
        struct hearth_err err;
        int rc =
            (ephemeral ? hearth_sessions_list_all : hearth_sessions_list)(h, r ? r->next : NULL, &page, NULL, &err);
        hearth_free(r);
        if (rc)
            return fail(&err);
        r = page;
        for (size_t i = 0; i < r->n_sessions; i++)
            on_session(arg, &r->sessions[i]);
    } while (r->next);
    hearth_free(r);
    return STATUS_OK;
}

int verb_end(struct hearth *h, void *result, int status)
{
    hearth_free(result);
    hearth_close(h);
    return status;
}

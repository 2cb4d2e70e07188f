/* models.c - finds the models that the user may mean by a word. See cmd.h. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/cmd.h"

static bool is_called(const struct hearth_model *m, const char *word)
{
    const char *slash = strrchr(m->path, '/');
    return !strcmp(m->name, word) || !strcmp(m->path, word) || (slash && !strcmp(slash + 1, word));
}

bool model_is_present(struct hearth *h, const char *word)
{
    if (model_is_file(word))
        return true;
    struct hearth_models_list_result *r;
    struct hearth_err err;
    if (!*word || hearth_models_list(h, &r, NULL, &err))
        return false; /* the next request returns the same error, which is then printed */
    char *path = model_resolve(word);
    bool present = false;
    for (size_t i = 0; i < r->n_models && !present; i++)
        present = is_called(&r->models[i], word) || is_called(&r->models[i], path);
    free(path);
    hearth_free(r);
    return present;
}

static bool all_read(const struct hearth_models_list_result *r)
{
    for (size_t i = 0; i < r->n_models; i++)
        if (!r->models[i].read)
            return false;
    return true;
}

/* Headers are read in the background: most lists are complete on the second request. The wait is limited to little more
 * than a second. */
int models_read(struct hearth *h, struct hearth_models_list_result **out, struct hearth_err *err)
{
    static const struct timespec pause = {0, 40 * 1000 * 1000};
    enum { TIMES = 30 };
    int rc = hearth_models_details(h, out, NULL, err);
    for (int i = 0; i < TIMES && !rc && !all_read(*out); i++) {
        nanosleep(&pause, NULL);
        hearth_free(*out);
        rc = hearth_models_details(h, out, NULL, err);
    }
    return rc;
}

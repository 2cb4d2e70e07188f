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

bool models_all_read(const struct hearth_models_list_result *r)
{
    for (size_t i = 0; i < r->n_models; i++)
        if (!r->models[i].read)
            return false;
    return true;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Headers are read in the background: most lists are complete on the second request. Nothing is asked for after a
 * second; the time of the requests counts, because an engine that cannot start fails each of them. */
int models_read(struct hearth *h, struct hearth_models_list_result **out, struct hearth_err *err)
{
    static const struct timespec pause = {0, 40 * 1000 * 1000};
    double end = now() + 1;
    int rc = hearth_models_details(h, out, NULL, err);
    while (!rc && !models_all_read(*out) && now() < end) {
        nanosleep(&pause, NULL);
        hearth_free(*out);
        rc = hearth_models_details(h, out, NULL, err);
    }
    return rc;
}

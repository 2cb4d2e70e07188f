/* models.c - finds the models that the user may mean by a word. See cmd.h. */
#include "config.h" /* asprintf */

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/cmd.h"

/* A word means a file in the working directory only if that file is a model by its name or its content: `hearth run -m
 * tale` next to an unrelated file "tale" means the model of that name. */
static bool is_gguf(const char *path)
{
    size_t len = strlen(path);
    if (len > 5 && !strcmp(path + len - 5, ".gguf") && !access(path, F_OK))
        return true; /* even if it is damaged: the error then names the file */
    char magic[4];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool yes = read(fd, magic, sizeof magic) == sizeof magic && !memcmp(magic, "GGUF", sizeof magic);
    close(fd);
    return yes;
}

static bool is_folder_model(const char *path)
{
    char config[PATH_MAX];
    return snprintf(config, sizeof config, "%s/config.json", path) < (int)sizeof config && !access(config, F_OK);
}

bool model_is_file(const char *word)
{
    return is_gguf(word) || is_folder_model(word);
}

/* "org/name" is a model's name in the Hugging Face hub's cache: a word with a slash is a path only if something exists
 * there, or it looks like a path (a leading dot, a name in .gguf). */
static bool is_path(const char *model)
{
    size_t len = strlen(model);
    bool gguf = len > 5 && !strcmp(model + len - 5, ".gguf");
    if (strchr(model, '/'))
        return *model == '.' || gguf || !access(model, F_OK);
    return model_is_file(model);
}

char *model_or_default(struct hearth *h, const char *model)
{
    const char *env = getenv("HEARTH_MODEL");
    if (!model && env && *env)
        model = env;
    if (model)
        return model_resolve(model);
    struct hearth_models_list_result *r;
    if (hearth_models_list(h, &r, NULL, NULL))
        return model_resolve("tale"); /* the next request returns the error */
    char *path = model_resolve(r->default_model ? r->default_model : "tale");
    hearth_free(r);
    return path;
}

char *model_resolve(const char *model)
{
    char *path = strdup(model);
    if (path && *model != '/' && is_path(model)) {
        /* The directory is resolved and the file name kept: a download cache has symbolic links with the models' names
         * to files that are named by hash. */
        char *for_dir = strdup(model), *for_base = strdup(model), *dir = NULL, *whole = NULL;
        if (for_dir && for_base && (dir = realpath(dirname(for_dir), NULL)) &&
            asprintf(&whole, "%s/%s", strcmp(dir, "/") ? dir : "", basename(for_base)) >= 0) {
            free(path);
            path = whole;
        }
        free(dir);
        free(for_dir);
        free(for_base);
    }
    if (!path)
        abort();
    return path;
}

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

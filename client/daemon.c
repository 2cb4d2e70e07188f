/* daemon.c - finds hearthd, which the library starts where none answers, and the model that the user means. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cmd.h"

bool no_start;

bool program_find(const char *name, char *path, size_t size)
{
    /* %1$s is this program's directory, %2$s the other program's name: first the build directory, then an installed
     * tree that may have been moved as a whole, then the directories that configure set. */
    static const char *const places[] = {
        "%1$s/%2$s", "%1$s/../sbin/%2$s", "%1$s/../libexec/%2$s", SBINDIR "/%2$s", LIBEXECDIR "/%2$s",
    };
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len < 0)
        return false;
    self[len] = '\0';
    const char *dir = dirname(self);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        int n = snprintf(path, size, places[i], dir, name);
#pragma GCC diagnostic pop
        if (n > 0 && (size_t)n < size && !access(path, X_OK))
            return true;
    }
    return false;
}

static int open_named(struct hearth **out, struct hearth_err *err)
{
    int rc = hearth_open(out, NULL, err);
    if (!rc)
        hearth_set_client(*out, "hearth");
    return rc;
}

int daemon_open_running(struct hearth **out)
{
    struct hearth_err err;
    return open_named(out, &err) ? fail(&err) : STATUS_OK;
}

int daemon_open(struct hearth **out)
{
    char path[PATH_MAX];
    struct hearth_err err;
    if (no_start || getenv("HEARTH_NO_START"))
        return daemon_open_running(out);
    int rc = hearth_open_or_start(out, program_find("hearthd", path, sizeof path) ? path : NULL, &err);
    if (rc)
        return fail(&err);
    hearth_set_client(*out, "hearth");
    return STATUS_OK;
}

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

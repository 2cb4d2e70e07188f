/* model-names.h - the models in the configured directories (GGUF files, Hugging Face folders), known only by name and
 * stat: hearthd never opens one. Loop thread. */
#ifndef DAEMON_SUPERVISOR_MODEL_NAMES_H
#define DAEMON_SUPERVISOR_MODEL_NAMES_H

#include <stdint.h>
#include <sys/stat.h>

#include "daemon/conf.h"
#include "daemon/supervisor/model-fds.h"

struct model_entry {
    char *name; /* the file's name without .gguf; the folder's name; or ORG/NAME in the Hugging Face hub's cache */
    char *path;
    int64_t bytes;
    double modified;
};

/* Lists every model in the configured directories: the directories in their order, the models of each sorted by
 * name. */
int model_names_scan(const struct conf *conf, struct model_entry **out, size_t *n, struct hearth_err *e);
void model_names_free(struct model_entry *v, size_t n);

/*
 * Resolves a client's name for a model to a path. The name is the absolute path of a file or folder; or a file's name,
 * with or without .gguf; or that name without its quantisation suffix, if only one model matches. Root and hearthd's
 * own user may name any path, others only the models that model_names_scan() lists and the files that they have passed.
 * *path is malloc'd.
 */
int model_names_resolve(const struct conf *conf, const struct model_fds *passed, uid_t uid, const char *model,
                        char **path, struct hearth_err *e);

/* The size of a model file; of the first of several parts, that of all of them. A part that is missing has none. */
int64_t model_names_bytes(const char *path, const struct stat *first);

/* The name of a model file, from its path; malloc'd. */
char *model_name_of(const struct conf *conf, const char *path);

#endif

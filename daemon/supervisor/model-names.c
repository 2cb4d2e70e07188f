/* model-names.c - scans directories for model files and resolves names. Loop thread; the scan is bounded, because
 * directories are untrusted input too. */
#include "config.h"

#include "daemon/supervisor/model-names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/acl.h"
#include "daemon/supervisor/model-nearest.h"
#include "libclient/utf8.h"

enum {
    DEPTH_MAX = 5,        /* the Hugging Face cache: hub/models--A--B/snapshots/HASH/file.gguf */
    ENTRIES_MAX = 100000, /* directory entries that one scan reads of each configured directory */
    FOLDER_ENTRIES_MAX = 4096,
};

struct scan {
    const struct conf *conf;
    struct model_entry *v;
    size_t n, cap;
    int entries;     /* of the current directory */
    const char *cut; /* a configured directory that has more than ENTRIES_MAX; NULL: none has */
    struct hearth_err *e;
};

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n > m && strcasecmp(s + n - m, tail) == 0;
}

/* "-00001-of-00003", the end of a split model's file names. */
enum { PART_LEN = 15 };

/* Whether a name of n bytes, without .gguf, ends as that of a part. */
static bool is_part(const char *stem, size_t n, unsigned *part, unsigned *parts)
{
    int used = 0;
    return n > PART_LEN && sscanf(stem + n - PART_LEN, "-%5u-of-%5u%n", part, parts, &used) == 2 && used == PART_LEN;
}

/* A model that is split into several files is listed once, by its first file. */
static bool is_later_part(const char *stem)
{
    unsigned part, parts;
    return is_part(stem, strlen(stem), &part, &parts) && part != 1;
}

int64_t model_names_bytes(const char *path, const struct stat *first)
{
    enum { PARTS_MAX = 128 }; /* as the engine reads */
    char other[PATH_MAX];
    size_t n = ends_with(path, ".gguf") ? strlen(path) - strlen(".gguf") : 0;
    unsigned part, parts;
    struct stat sb;
    int64_t bytes = first->st_size;
    if (!is_part(path, n, &part, &parts) || part != 1 || parts > PARTS_MAX)
        return bytes;
    for (unsigned i = 2; i <= parts; i++) {
        int len = snprintf(other, sizeof other, "%.*s-%05u-of-%05u%s", (int)(n - PART_LEN), path, i, parts, path + n);
        bytes += len < (int)sizeof other && stat(other, &sb) == 0 ? sb.st_size : 0;
    }
    return bytes;
}

static char *stem_of(const char *file)
{
    return strndup(file, strlen(file) - strlen(".gguf"));
}

/* The model that comes with hearth is called by its name alone, so that no other file can make that name ambiguous. */
static bool is_built_in(const struct conf *conf, const char *path)
{
    const char *dir = conf->built_in_models, *slash = strrchr(path, '/');
    size_t n = dir ? strlen(dir) : 0;
    return n && slash == path + n && !strncmp(path, dir, n);
}

char *model_name_of(const struct conf *conf, const char *path)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    char *name = ends_with(base, ".gguf") ? stem_of(base) : strdup(base);
    if (name && is_built_in(conf, path))
        name[model_name_length(name)] = '\0';
    return name;
}

/* Adds a model; takes ownership of `name`, malloc'd. */
static int add_named(struct scan *s, const char *path, char *name, int64_t bytes, double modified)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 16;
        struct model_entry *v = reallocarray(s->v, cap, sizeof *v);
        if (!v) {
            free(name);
            return err_set(s->e, HEARTH_ENOMEM, "out of memory");
        }
        s->v = v;
        s->cap = cap;
    }
    struct model_entry *m = &s->v[s->n];
    *m = (struct model_entry){.name = name, .path = strdup(path), .bytes = bytes, .modified = modified};
    if (!m->path) {
        free(name);
        return err_set(s->e, HEARTH_ENOMEM, "out of memory");
    }
    s->n++;
    return 0;
}

/* --- the Hugging Face cache ----------------------------------------------------------------------------- */

/* Reads the first line of a file, truncated to `size`; "" if the file is empty. False if it cannot be read or is not a
 * regular file, so that a FIFO cannot block it. */
static bool read_line(const char *path, char *line, size_t size)
{
    struct stat sb;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd >= 0 && !fstat(fd, &sb) && S_ISREG(sb.st_mode) ? read(fd, line, size - 1) : -1;
    if (fd >= 0)
        close(fd);
    line[n > 0 ? n : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return n >= 0;
}

/* Returns where "/snapshots/HASH" begins in the path of what is in a repository of the cache, with the repository's
 * name in *repo, or NULL. */
static const char *snapshot_in(const char *path, const char **repo)
{
    const char *name = NULL;
    for (const char *at = path; (at = strstr(at, "/models--")) != NULL; at++)
        name = at + strlen("/models--");
    *repo = name;
    return name ? strstr(name, "/snapshots/") : NULL;
}

/* Reads the hash of the snapshot that refs/main names; `path` is that of the repository, of n bytes. */
static bool read_main(const char *path, size_t n, char *hash, size_t size)
{
    char ref[PATH_MAX];
    int len = snprintf(ref, sizeof ref, "%.*s/refs/main", (int)n, path);
    return len < (int)sizeof ref && read_line(ref, hash, size);
}

/* Whether the file is an older download: refs/main names another snapshot, which has a file of that name. Files that
 * only an older snapshot has are listed, because a repository's files are downloaded one by one. */
static bool is_outdated(const char *path)
{
    char hash[80], current[PATH_MAX];
    const char *repo, *end = snapshot_in(path, &repo), *own = end ? end + strlen("/snapshots/") : NULL,
                      *file = own ? strchr(own, '/') : NULL;
    if (!file || !read_main(path, (size_t)(end - path), hash, sizeof hash) || strchr(hash, '/'))
        return false;
    if (strlen(hash) == (size_t)(file - own) && !memcmp(hash, own, strlen(hash)))
        return false;
    int len = snprintf(current, sizeof current, "%.*s%s%s", (int)(own - path), path, hash, file);
    return len < (int)sizeof current && access(current, F_OK) == 0;
}

static int add(struct scan *s, const char *path, const char *file, const struct stat *sb)
{
    char *name = stem_of(file);
    if (!name)
        return err_set(s->e, HEARTH_ENOMEM, "out of memory");
    bool later = is_later_part(name);
    free(name);
    if (later || is_outdated(path))
        return 0;
    name = model_name_of(s->conf, path);
    if (!name)
        return err_set(s->e, HEARTH_ENOMEM, "out of memory");
    return add_named(s, path, name, model_names_bytes(path, sb),
                     (double)sb->st_mtim.tv_sec + (double)sb->st_mtim.tv_nsec * 1e-9);
}

/* --- Hugging Face folders ------------------------------------------------------------------------------- */

/* "models--ORG--NAME/snapshots/HASH" is called ORG/NAME, and only the snapshot that refs/main names is listed: others
 * are older downloads of the same model. Any other folder is called by its own name. NULL with *skip set if the folder
 * is not to be listed. */
static char *folder_name(const char *path, bool *skip)
{
    const char *hash = strrchr(path, '/') + 1, *repo, *end = snapshot_in(path, &repo);
    char line[80];
    *skip = false;
    if (!end || end + strlen("/snapshots/") != hash)
        return strdup(hash);
    const char *org_end = strstr(repo, "--");
    *skip = read_main(path, (size_t)(end - path), line, sizeof line) && strcmp(line, hash) != 0;
    char *name = NULL;
    if (*skip)
        return NULL;
    if (org_end && org_end < end) {
        if (asprintf(&name, "%.*s/%.*s", (int)(org_end - repo), repo, (int)(end - org_end - 2), org_end + 2) < 0)
            name = NULL;
    } else {
        name = strndup(repo, (size_t)(end - repo));
    }
    return name;
}

/* Whether the directory is a model: it contains config.json and safetensors. *bytes is the sum of their sizes,
 * *modified the latest change. *indexed: there is config.json and an index of safetensors, whether or not there are
 * any. */
static bool folder_stat(const char *dir, int64_t *bytes, double *modified, bool *indexed)
{
    DIR *d = opendir(dir);
    struct dirent *de;
    bool config = false, weights = false, index = false;
    *bytes = 0;
    *modified = 0;
    for (int n = 0; d && n < FOLDER_ENTRIES_MAX && (de = readdir(d)) != NULL; n++) {
        struct stat sb;
        bool safetensors = ends_with(de->d_name, ".safetensors");
        config |= strcmp(de->d_name, "config.json") == 0;
        index |= strcmp(de->d_name, "model.safetensors.index.json") == 0;
        if (!safetensors || fstatat(dirfd(d), de->d_name, &sb, 0) != 0 || !S_ISREG(sb.st_mode))
            continue;
        double at = (double)sb.st_mtim.tv_sec + (double)sb.st_mtim.tv_nsec * 1e-9;
        weights = true;
        *bytes += sb.st_size;
        *modified = at > *modified ? at : *modified;
    }
    if (d)
        closedir(d);
    *indexed = config && index;
    return config && weights;
}

static int add_folder(struct scan *s, const char *path, int64_t bytes, double modified)
{
    bool skip;
    char *name = folder_name(path, &skip);
    if (!name)
        return skip ? 0 : err_set(s->e, HEARTH_ENOMEM, "out of memory");
    return add_named(s, path, name, bytes, modified);
}

/* A directory that cannot be read contains no models for us, which is not an error. Of a model's folder, only the GGUF
 * files in it are listed (depth 0): converters write them there unless told otherwise. Links to files are followed,
 * because the Hugging Face cache consists of them, and so are links to a model's folder. No other link to a directory
 * is followed, so there are no loops. */
static int walk(struct scan *s, const char *dir, int depth)
{
    DIR *d = opendir(dir);
    if (!d && (errno == EMFILE || errno == ENFILE)) /* running out of descriptors must not look like a missing model */
        return err_set(s->e, HEARTH_ELIMIT, "%.120s cannot be read: %s", dir, strerror(errno));
    if (!d)
        return 0;
    int rc = 0;
    struct dirent *de;
    while (!rc && (de = readdir(d)) != NULL && ++s->entries <= ENTRIES_MAX) {
        char path[PATH_MAX];
        struct stat sb;
        bool gguf = ends_with(de->d_name, ".gguf");
        if (de->d_name[0] == '.' ||
            (!gguf && de->d_type != DT_DIR && de->d_type != DT_LNK && de->d_type != DT_UNKNOWN) ||
            snprintf(path, sizeof path, "%s/%s", dir, de->d_name) >= (int)sizeof path)
            continue;
        size_t len = strlen(path);
        if (utf8_prefix(path, len) != len) /* strings of the protocol are UTF-8, so no client could name it */
            continue;
        if (lstat(path, &sb) != 0)
            continue;
        bool link = S_ISLNK(sb.st_mode);
        if (link && stat(path, &sb) != 0)
            continue;
        int64_t bytes;
        double modified;
        bool indexed;
        if (S_ISDIR(sb.st_mode) && !gguf && depth > 0 && folder_stat(path, &bytes, &modified, &indexed)) {
            rc = add_folder(s, path, bytes, modified);
            rc = rc ? rc : walk(s, path, 0);
        } else if (S_ISDIR(sb.st_mode) && !link && depth > 1)
            rc = walk(s, path, depth - 1);
        else if (S_ISREG(sb.st_mode) && gguf)
            rc = add(s, path, de->d_name, &sb);
    }
    closedir(d);
    return rc;
}

/* Resolves the directory but keeps the file's name, because in the Hugging Face cache file names are links to files
 * that are named by their hash. So a file has one path, however a client named it. NULL with errno. */
static char *canonical(const char *given)
{
    char path[PATH_MAX];
    size_t len = strlen(given);
    while (len > 1 && given[len - 1] == '/') /* a directory's name may end with a slash */
        len--;
    if (len >= sizeof path) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    memcpy(path, given, len);
    path[len] = '\0';
    const char *base = strrchr(path, '/');
    char *dir = strndup(path, base > path ? (size_t)(base - path) : 1), *whole = NULL;
    char *real = dir ? realpath(dir, NULL) : NULL;
    if (real && asprintf(&whole, "%s%s", strcmp(real, "/") != 0 ? real : "", base) < 0)
        whole = NULL;
    free(dir);
    free(real);
    return whole;
}

static int by_name(const void *a, const void *b)
{
    const struct model_entry *x = a, *y = b;
    int c = strcmp(x->name, y->name);
    return c ? c : strcmp(x->path, y->path);
}

static int by_path(const void *a, const void *b)
{
    const struct model_entry *const *x = a, *const *y = b;
    int c = strcmp((*x)->path, (*y)->path);
    return c ? c : (*x > *y) - (*x < *y);
}

/* Keeps the first of the entries of one path: one configured directory may be inside another. */
static int drop_repeated(struct scan *s)
{
    const struct model_entry **v = calloc(s->n + 1, sizeof *v);
    size_t n = 0;
    if (!v)
        return err_set(s->e, HEARTH_ENOMEM, "out of memory");
    for (size_t i = 0; i < s->n; i++)
        v[i] = &s->v[i];
    qsort(v, s->n, sizeof *v, by_path);
    for (size_t i = s->n; i-- > 1;) /* from the end, so that v[i - 1] still has its path */
        if (strcmp(v[i]->path, v[i - 1]->path) == 0) {
            struct model_entry *m = &s->v[v[i] - s->v];
            free(m->name);
            free(m->path);
            *m = (struct model_entry){0};
        }
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].path)
            s->v[n++] = s->v[i];
    s->n = n;
    free(v);
    return 0;
}

/* On success the caller frees s->v, s->n of them. */
static int scan_all(struct scan *s)
{
    int rc = 0;
    for (size_t i = 0; i < s->conf->n_model_dirs; i++) {
        size_t before = s->n;
        char *dir = realpath(s->conf->model_dirs[i], NULL);
        s->entries = 0; /* a directory full of other things must not hide the models of those after it */
        rc = dir ? walk(s, dir, DEPTH_MAX) : 0;
        free(dir);
        if (rc)
            break;
        if (s->entries > ENTRIES_MAX && !s->cut)
            s->cut = s->conf->model_dirs[i];
        if (s->n > before)
            qsort(s->v + before, s->n - before, sizeof *s->v, by_name);
    }
    if (!rc && s->conf->n_model_dirs > 1)
        rc = drop_repeated(s);
    if (rc)
        model_names_free(s->v, s->n);
    return rc;
}

int model_names_scan(const struct conf *conf, struct model_entry **out, size_t *n, struct hearth_err *e)
{
    struct scan s = {.conf = conf, .e = e};
    int rc = scan_all(&s);
    if (rc)
        return rc;
    *out = s.v;
    *n = s.n;
    return 0;
}

void model_names_free(struct model_entry *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(v[i].name);
        free(v[i].path);
    }
    free(v);
}

/* --- names ---------------------------------------------------------------------------------------------- */

static bool is_exact(const struct model_entry *m, const char *want)
{
    const char *file = strrchr(m->path, '/') + 1;
    size_t stem = strlen(file) - (ends_with(file, ".gguf") ? strlen(".gguf") : 0);
    return strcasecmp(m->name, want) == 0 || strcasecmp(file, want) == 0 ||
           (strlen(want) == stem && strncasecmp(file, want, stem) == 0);
}

static bool is_quant_of(const struct model_entry *m, const char *want)
{
    size_t n = model_name_length(m->name);
    return strlen(want) == n && strncasecmp(m->name, want, n) == 0;
}

/* Whether an earlier directory has a model of the same name. */
static bool is_shadowed(const struct model_entry *v, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcasecmp(v[k].name, v[i].name) == 0)
            return true;
    return false;
}

static void append(char *to, size_t size, const char *before, const char *text)
{
    size_t used = strlen(to);
    snprintf(to + used, size - used, "%s%s", before, text);
}

/* Appends the directories that were searched, as many as fit in an error message, and how many others there are. */
static void append_folders(char *msg, size_t size, const struct conf *conf)
{
    enum { REST = 24 }; /* ", and 12 more" */
    for (size_t i = 0; i < conf->n_model_dirs; i++) {
        const char *before = i ? ", " : "; searched: ";
        size_t used = strlen(msg);
        if (used + strlen(before) + strlen(conf->model_dirs[i]) + REST >= size) {
            snprintf(msg + used, size - used, i ? ", and %zu more" : "; folders searched: %zu", conf->n_model_dirs - i);
            return;
        }
        append(msg, size, before, conf->model_dirs[i]);
    }
}

/* Returns the error that there is no such model, with the most similar names and the directories searched. */
static int refuse(const struct scan *s, const char *want, struct hearth_err *e)
{
    char names[80] = "", msg[HEARTH_ERR_MSG];
    const char **all = calloc(s->n + 1, sizeof *all);
    for (size_t i = 0; all && i < s->n; i++)
        all[i] = s->v[i].name;
    if (all)
        model_names_near(all, s->n, want, names, sizeof names);
    free(all);
    int used = snprintf(msg, sizeof msg, "there is no model \"%.60s\"%s%s", want, *names ? "; near it: " : "", names);
    if (s->cut)
        snprintf(msg + used, sizeof msg - (size_t)used, "; of %.80s, only the first %d entries were searched", s->cut,
                 ENTRIES_MAX);
    append_folders(msg, sizeof msg, s->conf);
    return err_set(e, HEARTH_ENOMODEL, "%s", msg);
}

/* If several directories have the name, the first one wins; if a shortened name fits several models, the error lists
 * them. */
static int pick(const struct scan *s, const char *want, const struct model_entry **out, struct hearth_err *e)
{
    const struct model_entry *v = s->v;
    size_t n = s->n;
    for (size_t i = 0; i < n; i++)
        if (is_exact(&v[i], want)) {
            *out = &v[i];
            return 0;
        }
    const struct model_entry *found = NULL;
    char names[120] = "";
    size_t used = 0, n_found = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_quant_of(&v[i], want) || is_shadowed(v, i))
            continue;
        if (!found)
            found = &v[i];
        n_found++;
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", n_found > 1 ? ", " : "", v[i].name);
    }
    if (n_found == 0)
        return refuse(s, want, e);
    if (n_found > 1)
        return err_set(e, HEARTH_ENOMODEL, "model \"%.40s\" may be any of %s", want, names);
    *out = found;
    return 0;
}

/* Also true if an index names files that are not in the folder: the engine then reports which. */
static bool is_folder(const char *path)
{
    int64_t bytes;
    double modified;
    bool indexed;
    return folder_stat(path, &bytes, &modified, &indexed) || indexed;
}

static int resolve_path(const struct model_entry *v, size_t n, const char *model, int trusted, char **path,
                        struct hearth_err *e)
{
    struct stat sb;
    char *real = canonical(model);
    int rc = 0;
    if (!real || stat(real, &sb) != 0)
        rc = err_set(e, HEARTH_ENOMODEL, "%.120s: %s", model, strerror(errno));
    else if (!S_ISREG(sb.st_mode) && !(S_ISDIR(sb.st_mode) && is_folder(real)))
        rc = err_set(e, HEARTH_ENOMODEL, "%.120s: not a regular file, nor a folder with config.json and safetensors",
                     model);
    size_t i = 0;
    while (!trusted && i < n && (!real || strcmp(v[i].path, real) != 0))
        i++;
    if (!trusted && i == n) /* the same error for every other path, so that no client can probe which files exist */
        rc = err_set(
            e, HEARTH_EDENIED,
            "\"%.80s\" is not in hearthd's model folders, and hearthd runs as another user: pass it (models.pass)",
            model);
    if (rc)
        free(real);
    else
        *path = real;
    return rc;
}

int model_names_resolve(const struct conf *conf, const struct model_fds *passed, uid_t uid, const char *model,
                        char **path, struct hearth_err *e)
{
    int trusted = acl_trusts_paths(uid);
    const char *slash = strchr(model, '/'); /* ORG/NAME is a name */
    bool is_name = model[0] != '.' && (!slash || (!strchr(slash + 1, '/') && slash[1] != '\0'));
    if (model[0] == '\0' || (model[0] != '/' && !is_name))
        return err_set(e, HEARTH_EPARAMS, "model: \"%.100s\" is neither a name nor an absolute path", model);
    struct scan s = {.conf = conf, .e = e};
    bool is_path = model[0] == '/';
    int rc = is_path && trusted ? 0 : scan_all(&s);
    if (rc)
        return rc;
    const struct model_entry *m = NULL;
    if (is_path && (rc = resolve_path(s.v, s.n, model, trusted, path, e)) != 0)
        rc = (*path = model_fds_find(passed, uid, model)) ? 0 : rc;
    else if (!is_path && (rc = pick(&s, model, &m, e)) == 0 && (*path = strdup(m->path)) == NULL)
        rc = err_set(e, HEARTH_ENOMEM, "out of memory");
    model_names_free(s.v, s.n);
    return rc;
}

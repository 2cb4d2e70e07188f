/*
 * pass.c - passes a model's files to a daemon that runs as another user and may have no access to this user's home. A
 * request that names such a model by its path is preceded by a models.pass for each of its files, with the file's
 * descriptor.
 */
#include "config.h"

#include "libclient/conn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/wire-table.h"

enum {
    PARTS_MAX = 128,     /* files of a split model */
    FILES_MAX = 512,     /* files of a model in a directory */
    ENTRIES_MAX = 65536, /* directory entries that are examined */
    TAIL = 20,           /* "-00001-of-00003.gguf" */
};

/* One pass over a model's files, with the requests that it sent. */
struct passing {
    struct hearth *h;
    uint32_t *ids; /* their numbers, where the caller waits for the answers; NULL: the answers are discarded */
    size_t n;
    struct hearth_err *e;
};

static int pass_file(struct passing *p, const char *path)
{
    struct wire_model_pass params = {.path = path};
    struct stat st;
    uint32_t id;
    size_t before;
    int rc, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* no wait for a FIFO's writer */
    if (fd < 0)
        return err_set(p->e, errno == ENOENT ? HEARTH_ENOMODEL : HEARTH_EDENIED, "%.120s: %s", path, strerror(errno));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(p->e, HEARTH_ENOMODEL, "%.120s is not a regular file", path);
    }
    if ((rc = stream_send_hello(p->h, p->e))) {
        close(fd);
        return rc;
    }
    before = frames_pending(&p->h->frames);
    if ((rc = stream_submit(p->h, &wire_methods[WIRE_MODELS_PASS], &params, NULL, &id, p->e))) {
        close(fd);
        return rc;
    }
    if (p->ids)
        p->ids[p->n++] = id;
    else
        stream_abandon(p->h, id);
    return frames_attach(&p->h->frames, before, fd, p->e);
}

/* --- what a model's files are ---------------------------------------------------------------------------------- */

static int pass_parts(struct passing *p, const char *path)
{
    size_t n = strlen(path);
    unsigned part, parts;
    int used = 0, rc = 0;
    char one[PATH_MAX];
    if (n <= TAIL || n >= PATH_MAX || sscanf(path + n - TAIL, "-%5u-of-%5u.gguf%n", &part, &parts, &used) != 2 ||
        used != TAIL || parts < 2 || parts > PARTS_MAX)
        return pass_file(p, path);
    for (unsigned i = 1; i <= parts && !rc; i++) {
        snprintf(one, sizeof one, "%.*s-%05u-of-%05u.gguf", (int)(n - TAIL), path, i, parts);
        rc = pass_file(p, one);
    }
    return rc;
}

static bool is_of_model(const char *name)
{
    static const char *const ends[] = {".json", ".safetensors", ".jinja", ".txt", ".model"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && !strcasecmp(name + n - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

/* Passes a model's files in a directory; at most `*room` more are allowed. */
static int pass_files(struct passing *p, const char *folder, int *room)
{
    DIR *d = opendir(folder);
    const struct dirent *de;
    int rc = 0;
    if (!d && errno != ENOENT && errno != ENOTDIR)
        return err_set(p->e, HEARTH_EDENIED, "%.120s: %s", folder, strerror(errno));
    for (int i = 0; d && i < ENTRIES_MAX && !rc && (de = readdir(d)); i++) {
        char path[PATH_MAX];
        struct stat st;
        if (!is_of_model(de->d_name) || snprintf(path, sizeof path, "%s/%s", folder, de->d_name) >= PATH_MAX ||
            stat(path, &st) || !S_ISREG(st.st_mode) || !st.st_size)
            continue;
        if (--*room < 0)
            rc = err_set(p->e, HEARTH_ELIMIT, "%.120s has more than %d files of a model", folder, FILES_MAX);
        else
            rc = pass_file(p, path);
    }
    if (d)
        closedir(d);
    return rc;
}

static int pass_model(struct passing *p, const char *path)
{
    struct stat st;
    char folder[PATH_MAX], templates[PATH_MAX + 32];
    size_t n = strlen(path);
    int room = FILES_MAX;
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n >= sizeof folder)
        return err_set(p->e, HEARTH_EPARAMS, "a path of %zu bytes", n);
    memcpy(folder, path, n);
    folder[n] = '\0';
    if (stat(folder, &st) || !S_ISDIR(st.st_mode))
        return pass_parts(p, folder);
    int rc = pass_files(p, folder, &room);
    if (!rc && room == FILES_MAX)
        rc = err_set(p->e, HEARTH_ENOMODEL, "%.120s has no files of a model", folder);
    snprintf(templates, sizeof templates, "%s/additional_chat_templates", folder);
    return rc ? rc : pass_files(p, templates, &room);
}

/* --- for stream.c and run.c --------------------------------------------------------------------------------------- */

bool pass_is_needed(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid != geteuid();
}

/* Returns the model that the params name: every method names it in a field "model". NULL where there is none. */
static const char *model_of(const struct wire_method *m, const void *params)
{
    for (const struct wire_field *f = m->params->fields; f->name; f++)
        if (f->type == WIRE_STR && !strcmp(f->name, "model"))
            return *(const char *const *)((const char *)params + f->offset);
    return NULL;
}

static bool is_same(const struct passed_model *p, const char *path, const struct stat *st)
{
    return p->path && !strcmp(p->path, path) && p->dev == st->st_dev && p->ino == st->st_ino &&
           p->size == st->st_size && p->mtime.tv_sec == st->st_mtim.tv_sec && p->mtime.tv_nsec == st->st_mtim.tv_nsec;
}

/* For a directory the comparison uses its own mtime, which changes when files are added or removed; hearthd keeps the
 * descriptors of the others. */
int pass_before(struct hearth *h, const struct wire_method *m, const void *params, bool *by_path)
{
    const char *path = model_of(m, params);
    struct stat st;
    *by_path = h->passes && path && path[0] == '/' && path[1] != '/';
    if (!*by_path)
        return 0;
    h->pass_err.code = 0;
    if (stat(path, &st)) {
        err_set(&h->pass_err, errno == EACCES ? HEARTH_EDENIED : HEARTH_ENOMODEL, "%.120s: %s", path, strerror(errno));
        return 0;
    }
    for (size_t i = 0; i < PASSED_KEPT; i++)
        if (is_same(&h->passed[i], path, &st))
            return 0;
    struct passed_model *p = &h->passed[h->n_passed++ % PASSED_KEPT];
    free(p->path);
    *p = (struct passed_model){.path = strdup(path), .dev = st.st_dev, .ino = st.st_ino, .size = st.st_size};
    p->mtime = st.st_mtim;
    pass_model(&(struct passing){.h = h, .e = &h->pass_err}, path); /* error: reported if hearthd refuses the path */
    return h->dead.code;
}

void pass_forget(struct hearth *h)
{
    for (size_t i = 0; i < PASSED_KEPT; i++) {
        free(h->passed[i].path);
        h->passed[i].path = NULL;
    }
}

int pass_all(struct hearth *h, const char *path, uint32_t **ids, size_t *n, struct hearth_err *e)
{
    struct passing p = {.h = h, .ids = calloc(FILES_MAX, sizeof *p.ids), .e = e};
    if (!p.ids)
        return err_set(e, HEARTH_ENOMEM, "no memory for a model's files");
    int rc = !path ? err_set(e, HEARTH_EPARAMS, "models.pass.path: is missing")
             : path[0] == '/' && path[1] != '/'
                 ? pass_model(&p, path)
                 : err_set(e, HEARTH_EPARAMS, "models.pass: \"%.100s\" is not an absolute path", path);
    for (size_t i = 0; rc && i < p.n; i++)
        stream_abandon(h, p.ids[i]);
    if (rc)
        free(p.ids);
    else
        *ids = p.ids;
    *n = p.n;
    return rc;
}

/* model-fds.c - see model-fds.h. */
#include "config.h"

#include "daemon/supervisor/model-fds.h"

#include <assert.h>
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/supervisor/engines.h"

enum { FILES_MIN = 16, TAIL = 20 /* "-00001-of-00003.gguf" */ };

struct model_fd {
    TAILQ_ENTRY(model_fd) entry;
    uid_t uid;
    int fd;
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
    int64_t link[ENGINES_MAX]; /* for each engine: the number of its link over which it got the file; 0 if it did not */
    unsigned holds;            /* connections that hold it */
    char path[];               /* "//UID/PATH" */
};

struct model_fds {
    TAILQ_HEAD(, model_fd) list;
    size_t n, most, most_of_uid;
};

/* --- names ------------------------------------------------------------------------------------------------- */

bool model_fds_owner(const char *path, uid_t *uid)
{
    static const size_t n = sizeof WIRE_PASSED - 1;
    if (strncmp(path, WIRE_PASSED, n) != 0 || !isdigit((unsigned char)path[n]))
        return false;
    *uid = (uid_t)strtoul(path + n, NULL, 10);
    return true;
}

const char *model_fds_label(const char *path)
{
    uid_t uid;
    const char *slash = model_fds_owner(path, &uid) ? strchr(path + sizeof WIRE_PASSED - 1, '/') : NULL;
    return slash ? slash : path;
}

static char *name_of(uid_t uid, const char *label)
{
    char *path;
    return asprintf(&path, WIRE_PASSED "%lu%s", (unsigned long)uid, label) < 0 ? NULL : path;
}

/* The length of the path before "-00001-of-00003.gguf"; 0 if the file is not a part of a split model. */
static size_t split_stem(const char *path)
{
    size_t n = strlen(path);
    unsigned part, parts;
    int used = 0;
    return n > TAIL && sscanf(path + n - TAIL, "-%5u-of-%5u.gguf%n", &part, &parts, &used) == 2 && used == TAIL
               ? n - TAIL
               : 0;
}

bool model_fds_is_of(const char *file, const char *model)
{
    size_t n = strlen(model), stem = split_stem(file);
    return !strcmp(file, model) || (!strncmp(file, model, n) && file[n] == '/') ||
           (stem && split_stem(model) == stem && !strncmp(file, model, stem));
}

/* --- the table ---------------------------------------------------------------------------------------------- */

struct model_fds *model_fds_new(void)
{
    struct rlimit most = {.rlim_cur = 1024};
    struct model_fds *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    getrlimit(RLIMIT_NOFILE, &most);
    TAILQ_INIT(&t->list);
    t->most = most.rlim_cur < 4 * 1024 ? (size_t)most.rlim_cur / 4 : 1024;
    t->most = t->most < FILES_MIN ? FILES_MIN : t->most;
    t->most_of_uid = t->most / 2;
    return t;
}

size_t model_fds_most(const struct model_fds *t)
{
    return t->most;
}

static void forget(struct model_fds *t, struct model_fd *f)
{
    TAILQ_REMOVE(&t->list, f, entry);
    t->n--;
    close(f->fd);
    free(f);
}

void model_fds_free(struct model_fds *t)
{
    struct model_fd *f;
    while (t && (f = TAILQ_FIRST(&t->list)) != NULL)
        forget(t, f);
    free(t);
}

static struct model_fd *find(const struct model_fds *t, const char *path)
{
    struct model_fd *f;
    TAILQ_FOREACH (f, &t->list, entry)
        if (strcmp(f->path, path) == 0)
            break;
    return f;
}

static size_t count(const struct model_fds *t, uid_t uid)
{
    const struct model_fd *f;
    size_t n = 0;
    TAILQ_FOREACH (f, &t->list, entry)
        n += f->uid == uid;
    return n;
}

static int add(struct model_fds *t, uid_t uid, const char *path, struct model_fd **out, struct hearth_err *e)
{
    size_t own = count(t, uid), n = strlen(path) + 1;
    if (own >= t->most_of_uid || t->n >= t->most)
        return err_set(e, HEARTH_ELIMIT, "%zu model files of user %u, and %zu in all, are open already, the limit", own,
                       (unsigned)uid, t->n);
    struct model_fd *f = malloc(sizeof *f + n);
    if (!f)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    *f = (struct model_fd){.uid = uid, .fd = -1};
    memcpy(f->path, path, n);
    TAILQ_INSERT_TAIL(&t->list, f, entry);
    t->n++;
    *out = f;
    return 0;
}

static bool is_same(const struct model_fd *f, const struct stat *sb)
{
    return f->fd >= 0 && f->dev == sb->st_dev && f->ino == sb->st_ino && f->size == sb->st_size &&
           f->mtime.tv_sec == sb->st_mtim.tv_sec && f->mtime.tv_nsec == sb->st_mtim.tv_nsec;
}

static int hold_file(struct model_hold *hold, struct model_fd *f, struct hearth_err *e)
{
    for (size_t i = 0; i < hold->n; i++)
        if (hold->v[i] == f)
            return 0;
    struct model_fd **v = reallocarray(hold->v, hold->n + 1, sizeof *v);
    if (!v)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    hold->v = v;
    v[hold->n++] = f;
    f->holds++;
    return 0;
}

static int check_label(const char *label, struct hearth_err *e)
{
    size_t n = strlen(label);
    if (label[0] != '/' || label[1] == '/' || label[n - 1] == '/')
        return err_set(e, HEARTH_EPARAMS, "models.pass.path: \"%.100s\" is not the absolute path of a file", label);
    if (n > MODEL_FDS_LABEL)
        return err_set(e, HEARTH_EPARAMS, "models.pass.path: has %zu bytes, the limit is %d", n, MODEL_FDS_LABEL);
    return 0;
}

int model_fds_put(struct model_fds *t, uid_t uid, const char *label, int fd, const struct stat *sb,
                  struct model_hold *hold, struct hearth_err *e)
{
    char *path = NULL;
    int rc = check_label(label, e);
    if (!rc && !(path = name_of(uid, label)))
        rc = err_set(e, HEARTH_ENOMEM, "out of memory");
    struct model_fd *f = rc ? NULL : find(t, path);
    if (!rc && !f)
        rc = add(t, uid, path, &f, e);
    free(path);
    if (!rc && (rc = hold_file(hold, f, e)) && f->fd < 0)
        forget(t, f);
    if (rc || is_same(f, sb)) {
        close(fd);
        return rc;
    }
    if (f->fd >= 0)
        close(f->fd);
    f->fd = fd;
    f->dev = sb->st_dev;
    f->ino = sb->st_ino;
    f->size = sb->st_size;
    f->mtime = sb->st_mtim;
    memset(f->link, 0, sizeof f->link);
    return 0;
}

void model_fds_release(struct model_hold *hold)
{
    for (size_t i = 0; i < hold->n; i++) {
        assert(hold->v[i]->holds > 0);
        hold->v[i]->holds--;
    }
    free(hold->v);
    *hold = (struct model_hold){0};
}

size_t model_fds_idle(const struct model_fds *t)
{
    const struct model_fd *f;
    size_t n = 0;
    TAILQ_FOREACH (f, &t->list, entry)
        n += !f->holds;
    return n;
}

char *model_fds_find(const struct model_fds *t, uid_t uid, const char *label)
{
    const struct model_fd *f;
    char *path = name_of(uid, label);
    size_t n = path ? strlen(path) : 0;
    while (n > 1 && path[n - 1] == '/') /* a directory's name may end with a slash */
        path[--n] = '\0';
    TAILQ_FOREACH (f, &t->list, entry)
        if (path && (!strcmp(f->path, path) || (!strncmp(f->path, path, n) && f->path[n] == '/')))
            return path;
    free(path);
    return NULL;
}

/* --- the engine ----------------------------------------------------------------------------------------------- */

static void on_notified(void *arg, const void *result, const struct hearth_err *err)
{
    (void)arg;
    if (!result && err->code != HEARTH_EENGINE) /* the next engine is passed it again */
        log_warn("the engine does not take a model's descriptor: %s", err->msg);
}

void model_fds_tell(struct model_fds *t, struct engine_client *ec)
{
    struct model_fd *f;
    struct hearth_err e;
    TAILQ_FOREACH (f, &t->list, entry) {
        int64_t *link = &f->link[engine_number(ec)];
        if (*link == engine_link_number(ec) || f->fd < 0)
            continue;
        int fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 0);
        struct wire_engine_pass p = {.path = f->path};
        if (fd < 0 || engine_give(ec, &p, fd, on_notified, &e))
            log_warn("%s is not passed to the engine: %s", f->path, fd < 0 ? "no descriptor is free" : e.msg);
        else
            *link = engine_link_number(ec);
    }
}

size_t model_fds_sweep(struct model_fds *t, const struct engines *es, bool (*is_used)(void *arg, const char *path),
                       void *arg)
{
    struct model_fd *f, *next;
    for (f = TAILQ_FIRST(&t->list); f; f = next) {
        next = TAILQ_NEXT(f, entry);
        if (f->holds || is_used(arg, f->path))
            continue;
        struct wire_engine_pass p = {.path = f->path, .gone = true};
        for (size_t i = 0; es && i < engines_count(es); i++) {
            struct engine_client *ec = engines_at(es, i);
            if (engine_pid(ec) && f->link[i] == engine_link_number(ec))
                engine_give(ec, &p, -1, on_notified, NULL);
        }
        log_debug("%s, which was passed, is closed", f->path);
        forget(t, f);
    }
    return model_fds_idle(t);
}

/* journal.c - files of records, one per stream; see journal.h. Loop thread. */
#include "config.h"

#include "daemon/stream/journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/stream/journal-read.h"
#include "daemon/stream/journal-sync.h"
#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/store/store.h"
#include "daemon/retention/kvdir.h"
#include "daemon/retention/retention.h"

enum {
    SYNC_MS = 50, /* from the first unsynced record to the sync request; the disk has the other 50 of the 100 ms */
    KEEP_S = 24 * 3600,
    BUF_KEEP = 64 << 10, /* a larger buffer is freed, as it was needed for one large request */
};

TAILQ_HEAD(journal_list, journal_entry);

struct journal {
    struct server *server;
    int dir_fd;
    struct journal_list entries; /* ordered by number */
    int64_t bytes, files;
    struct timer *timer;
    struct wire_buf buf; /* the record under construction */
    struct journal_sync *sync;
    bool dir_dirty;
    bool has_bad; /* there are files set aside as NUMBER.bad */
};

static void arm(struct journal *j)
{
    if (!timer_is_set(j->timer))
        timer_set(j->timer, SYNC_MS);
}

static void on_timer(void *arg)
{
    struct journal *j = arg;
    bool left = false;
    struct journal_entry *je;
    TAILQ_FOREACH (je, &j->entries, entry) {
        if (je->dirty)
            je->dirty = !journal_sync_request(j->sync, je->number);
        left |= je->dirty;
    }
    if (j->dir_dirty)
        j->dir_dirty = !journal_sync_request(j->sync, JOURNAL_SYNC_DIR);
    if (left || j->dir_dirty)
        arm(j);
}

/* --- life ----------------------------------------------------------------------------------------------- */

static int open_dir(struct journal *j, const char *state_dir, struct hearth_err *e)
{
    struct stat sb;
    int state = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (state < 0)
        return err_set(e, HEARTH_ESTORE, "%.150s: %s", state_dir, strerror(errno));
    if (mkdirat(state, "journal", 0700) == 0 || errno == EEXIST)
        j->dir_fd = openat(state, "journal", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    int why = errno;
    close(state);
    if (j->dir_fd < 0 || fstat(j->dir_fd, &sb) != 0)
        return err_set(e, HEARTH_ESTORE, "%.120s/journal: %s", state_dir, strerror(why));
    if (sb.st_uid != geteuid())
        return err_set(e, HEARTH_ESTORE, "%.120s/journal belongs to user %u", state_dir, (unsigned)sb.st_uid);
    return 0;
}

int journal_open(struct journal **out, struct server *s, const char *state_dir, struct hearth_err *e)
{
    struct journal *j = calloc(1, sizeof *j);
    if (!j)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    *j = (struct journal){.server = s, .dir_fd = -1};
    TAILQ_INIT(&j->entries);
    j->timer = timer_new(s->base, on_timer, j);
    int rc = j->timer != NULL ? open_dir(j, state_dir, e) : err_set(e, HEARTH_ENOMEM, "out of memory");
    if (!rc)
        rc = journal_sync_start(&j->sync, j->dir_fd, e);
    if (rc) {
        journal_close(j);
        return rc;
    }
    *out = j;
    return 0;
}

/* Counts bytes of a file, and files, for all and for its user. */
static void count(struct journal *j, struct journal_entry *je, int64_t bytes, int files)
{
    je->bytes += bytes;
    j->bytes += bytes;
    je->account->journal_bytes += bytes;
    j->files += files;
    je->account->journal_files += files;
}

static void entry_free(struct journal_entry *je)
{
    acl_put(je->account);
    free(je->request);
    free(je->name);
    free(je->model);
    free(je);
}

static void forget(struct journal *j, struct journal_entry *je)
{
    TAILQ_REMOVE(&j->entries, je, entry);
    count(j, je, -je->bytes, -1);
    if (je->fd >= 0)
        close(je->fd);
    entry_free(je);
}

void journal_close(struct journal *j)
{
    if (!j)
        return;
    on_timer(j);
    journal_sync_stop(j->sync);
    struct journal_entry *je;
    while ((je = TAILQ_FIRST(&j->entries)) != NULL)
        forget(j, je);
    if (j->dir_fd >= 0)
        close(j->dir_fd);
    timer_free(j->timer);
    wire_buf_fini(&j->buf);
    free(j);
}

void journal_remove(struct journal *j, struct journal_entry *je)
{
    char name[32];
    journal_name(je->number, name);
    if (unlinkat(j->dir_fd, name, 0) != 0)
        log_warn("journal of stream %s: %s", name, strerror(errno));
    forget(j, je);
}

/* Whether an ended stream is past its retention. Nothing counts as old while the clock is not trusted, because a
 * retried request must find its stream even if the clock has jumped. */
static bool old(const struct journal *j, const struct journal_entry *je)
{
    return je->ended && je->time + KEEP_S < server_now() && retention_trusts_clock(j->server);
}

/* The oldest finished stream, other than `newest`, of the user who has most of what exceeds its limit; NULL: there is
 * no finished stream, or no limit is exceeded. */
static struct journal_entry *surplus(const struct journal *j, const struct journal_entry *newest)
{
    bool bytes = j->bytes > j->server->conf->journal_bytes;
    struct journal_entry *je, *found = NULL;
    int64_t most = 0;
    if (!bytes && j->files <= JOURNAL_FILES_MAX)
        return NULL;
    TAILQ_FOREACH (je, &j->entries, entry) {
        int64_t has = bytes ? je->account->journal_bytes : je->account->journal_files;
        if (je->ended && je != newest && has > most) {
            most = has;
            found = je;
        }
    }
    return found;
}

/* Removes finished streams that are too old, and others while all files together exceed a limit. Nothing else depends
 * on the clock. */
static void expire(struct journal *j, const struct journal_entry *newest)
{
    struct journal_entry *je = TAILQ_FIRST(&j->entries), *next;
    bool any = false;
    for (; je != NULL; je = next) {
        next = TAILQ_NEXT(je, entry);
        if (je != newest && old(j, je)) {
            journal_remove(j, je);
            any = true;
        }
    }
    for (; (je = surplus(j, newest)) != NULL; any = true)
        journal_remove(j, je);
    if (any && j->server->store && (je = TAILQ_FIRST(&j->entries)) != NULL)
        store_forget_streams(j->server->store, je->number);
}

static bool copy(char **to, const char *s)
{
    return !s || (*to = strdup(s)) != NULL;
}

static struct journal_entry *entry_new(struct journal *j, const struct wire_journal_head *head, struct hearth_err *e)
{
    struct journal_entry *je = calloc(1, sizeof *je);
    if (!je || !copy(&je->request, head->req.request) || !copy(&je->name, head->name) ||
        !copy(&je->model, head->model) || !(je->account = acl_get(&j->server->acl, (uid_t)head->uid))) {
        if (je)
            entry_free(je);
        err_set(e, HEARTH_ENOMEM, "out of memory");
        return NULL;
    }
    je->number = head->stream;
    je->choice = head->choice;
    je->uid = (uid_t)head->uid;
    je->hash = head->hash;
    if (head->name)
        snprintf(je->session, sizeof je->session, "%s", head->session);
    je->fd = -1;
    TAILQ_INSERT_TAIL(&j->entries, je, entry);
    count(j, je, 0, 1);
    return je;
}

/* --- writing -------------------------------------------------------------------------------------------- */

/* Makes room on a full disk by evicting cached KV, as for turns (commit.c): some at the first attempt, all of it at the
 * second. Keeps errno. */
static bool make_room(struct journal *j, int times)
{
    int why = errno;
    bool full = why == ENOSPC || why == EDQUOT;
    bool room = full && times < 2 && kvdir_give_way(j->server->kv, times == 0 ? 64 << 20 : INT64_MAX);
    errno = why;
    return room;
}

/* Returns 0, or the errno that kept all of it from being written. */
static int write_all(struct journal *j, int fd, const uint8_t *data, size_t len)
{
    for (int times = 0; len > 0;) {
        ssize_t n = write(fd, data, len);
        if (n > 0)
            data += n, len -= (size_t)n;
        else if (n == 0 || (errno != EINTR && !make_room(j, times++)))
            return n == 0 ? ENOSPC : errno;
    }
    return 0;
}

int journal_add(struct journal *j, struct journal_entry *je, const struct wire_method *m, const void *body,
                struct hearth_err *e)
{
    if (je->fd < 0)
        return err_set(e, HEARTH_ESTORE, "stream %lld's journal has ended", (long long)je->number);
    int rc = journal_pack(&j->buf, je->bytes, m, body, e);
    if (!rc) {
        int why = write_all(j, je->fd, j->buf.data, j->buf.len);
        if (why)
            rc = err_set(e, HEARTH_ESTORE, "stream %lld's journal cannot be written: %s", (long long)je->number,
                         strerror(why));
    }
    if (rc) {
        if (ftruncate(je->fd, je->bytes) != 0)
            log_warn("journal of stream %lld: %s", (long long)je->number, strerror(errno));
        close(je->fd);
        je->fd = -1;
        return rc;
    }
    count(j, je, (int64_t)j->buf.len, 0);
    if (j->buf.cap > BUF_KEEP)
        wire_buf_fini(&j->buf);
    je->dirty = true;
    arm(j);
    return 0;
}

int journal_begin(struct journal *j, const struct wire_journal_head *head, struct journal_entry **out,
                  struct hearth_err *e)
{
    char name[32];
    journal_name(head->stream, name);
    struct journal_entry *je = entry_new(j, head, e);
    if (!je)
        return HEARTH_ENOMEM;
    int times = 0;
    do
        je->fd = openat(j->dir_fd, name, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    while (je->fd < 0 && make_room(j, times++));
    if (je->fd < 0) {
        int rc = err_set(e, HEARTH_ESTORE, "stream %s's journal cannot be made: %s", name, strerror(errno));
        forget(j, je);
        return rc;
    }
    j->dir_dirty = true;
    int rc = journal_add(j, je, &wire_methods[WIRE_JOURNAL_HEAD], head, e);
    if (rc) {
        journal_remove(j, je);
        return rc;
    }
    *out = je;
    return 0;
}

static void set_tokens(struct journal_entry *je, const struct wire_usage *u)
{
    je->tokens = u->completion_tokens;
    je->reach = u->prompt_tokens + u->completion_tokens;
}

int journal_end(struct journal *j, struct journal_entry *je, const struct wire_journal_end *end, struct hearth_err *e)
{
    int rc = journal_add(j, je, &wire_methods[WIRE_JOURNAL_END], end, e);
    if (rc)
        return rc;
    close(je->fd);
    je->fd = -1;
    je->ended = true;
    je->time = end->time;
    set_tokens(je, &end->result.usage);
    expire(j, je);
    return 0;
}

/* --- reading -------------------------------------------------------------------------------------------- */

struct journal_entry *journal_find(struct journal *j, uid_t uid, int64_t number, const char *request, int64_t choice)
{
    struct journal_entry *je;
    TAILQ_FOREACH_REVERSE(je, &j->entries, journal_list, entry)
    {
        if (je->uid != uid)
            continue;
        bool is_choice = choice < 0 || choice == je->choice;
        if (request ? je->request != NULL && strcmp(je->request, request) == 0 && is_choice : je->number == number)
            if (!old(j, je))
                return je;
    }
    return NULL;
}

void journal_end_again(struct journal *j, uid_t uid, int64_t number, const char *why,
                       const struct wire_engine_result *result)
{
    struct journal_entry *je = j ? journal_find(j, uid, number, NULL, -1) : NULL;
    char name[32], error[256];
    struct hearth_err e;
    if (!je || !je->ended)
        return;
    snprintf(error, sizeof error, "%s: the turn was not written: %s", err_name(HEARTH_ESTORE), why);
    struct wire_journal_end end = {.time = je->time, .error = error, .result = *result};
    end.result.finish_reason = "error";
    journal_name(number, name);
    je->fd = openat(j->dir_fd, name, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    if (je->fd < 0)
        log_warn("journal of stream %s: %s", name, strerror(errno));
    else if (journal_add(j, je, &wire_methods[WIRE_JOURNAL_END], &end, &e) != 0)
        log_warn("%s", e.msg);
    if (je->fd >= 0)
        close(je->fd);
    je->fd = -1;
}

struct journal_entry *journal_before(struct journal *j, uid_t uid, const struct journal_entry *je)
{
    je = je ? TAILQ_PREV(je, journal_list, entry) : TAILQ_LAST(&j->entries, journal_list);
    while (je && (je->uid != uid || !je->ended || old(j, je)))
        je = TAILQ_PREV(je, journal_list, entry);
    return (struct journal_entry *)je;
}

void journal_expire(struct journal *j)
{
    if (j)
        expire(j, NULL);
}

static bool is_bad(const char *name)
{
    char *rest;
    return strtoll(name, &rest, 10) > 0 && strcmp(rest, ".bad") == 0;
}

/* Removes all files that were set aside: nobody knows whose text they contain. Their numbers are not used again. */
static void remove_bad(struct journal *j)
{
    int fd = openat(j->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *d; dir != NULL && (d = readdir(dir)) != NULL;) {
        if (!is_bad(d->d_name) || unlinkat(j->dir_fd, d->d_name, 0) != 0)
            continue;
        store_commit_nothing(j->server->store, strtoll(d->d_name, NULL, 10), NULL);
        log_info("damaged journal %s removed: a session was removed", d->d_name);
    }
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    j->has_bad = false;
}

void journal_forget(struct journal *j, const char *session, int64_t from)
{
    struct journal_entry *je = j != NULL ? TAILQ_FIRST(&j->entries) : NULL, *next;
    if (j && j->has_bad)
        remove_bad(j);
    for (; je != NULL; je = next) {
        next = TAILQ_NEXT(je, entry);
        bool beyond = je->ended ? from == 0 || je->reach > from : je->left && from == 0;
        if (beyond && strcmp(je->session, session) == 0)
            journal_remove(j, je);
    }
}

/* --- interrupted removals --------------------------------------------------------------------------------- */

enum { REMOVAL_NAME = 48, REMOVAL_TEXT = 40 };

static void removal_name(uid_t uid, const char *session, char name[static REMOVAL_NAME])
{
    snprintf(name, REMOVAL_NAME, "removing-%u-%s", (unsigned)uid, session);
}

void journal_begin_removal(struct journal *j, uid_t uid, const char *session, const char *parent, int64_t from)
{
    char name[REMOVAL_NAME], text[REMOVAL_TEXT];
    if (!j || session[0] == '\0')
        return;
    removal_name(uid, session, name);
    int len = parent ? snprintf(text, sizeof text, "%s %lld\n", parent, (long long)from) : 0;
    int fd = openat(j->dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool written = fd >= 0 && write(fd, text, (size_t)len) == len;
    if (!written)
        log_warn("journal/%s: %s: a kill in the middle of the removal would leave its streams", name, strerror(errno));
    if (fd >= 0)
        close(fd);
}

void journal_end_removal(struct journal *j, uid_t uid, const char *session)
{
    char name[REMOVAL_NAME];
    if (!j || session[0] == '\0')
        return;
    removal_name(uid, session, name);
    unlinkat(j->dir_fd, name, 0);
}

/* Forgets the streams of the part that an adopting parent was about to lose, as recorded by journal_begin_removal(). */
static void finish_adoption(struct journal *j, const char *name)
{
    char text[REMOVAL_TEXT], parent[STORE_ID_LEN + 1], end;
    long long from;
    int fd = openat(j->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t len = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    text[len > 0 ? len : 0] = '\0';
    if (sscanf(text, "%16s %lld%c", parent, &from, &end) == 3 && end == '\n' && store_is_id(parent) && from >= 0)
        journal_forget(j, parent, from);
    if (fd >= 0)
        close(fd);
}

void journal_finish_removals(struct journal *j, bool (*is_there)(void *arg, uid_t uid, const char *session), void *arg)
{
    int fd = openat(j->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *d; dir != NULL && (d = readdir(dir)) != NULL;) {
        char session[STORE_ID_LEN + 1], name[REMOVAL_NAME];
        unsigned uid;
        if (sscanf(d->d_name, "removing-%u-%16s", &uid, session) != 2 || !store_is_id(session))
            continue;
        removal_name((uid_t)uid, session, name);
        if (strcmp(name, d->d_name) != 0)
            continue;
        if (!is_there(arg, (uid_t)uid, session)) {
            journal_forget(j, session, 0);
            finish_adoption(j, name);
        }
        unlinkat(j->dir_fd, name, 0);
    }
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
}

int journal_load(struct journal *j, const struct journal_entry *je, struct journal_copy *c, struct hearth_err *e)
{
    char name[32];
    journal_name(je->number, name);
    int64_t good;
    int fd = journal_read(j->dir_fd, name, je->number, c, &good, e);
    if (fd < 0)
        return fd;
    close(fd);
    if (c->end)
        return 0;
    journal_copy_fini(c);
    return err_set(e, HEARTH_ESTORE, "stream %s's journal is damaged", name);
}

static void replay_one(struct journal *j, int64_t number, journal_visit *take, void *arg)
{
    char name[32], bad[40];
    struct journal_copy c;
    struct hearth_err e = {0};
    struct stat sb;
    int64_t good;
    journal_name(number, name);
    if (fstatat(j->dir_fd, name, &sb, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(sb.st_mode) && !sb.st_size) {
        /* Either hearthd was killed before it wrote the head, and no client knows the stream; or power was lost, so the
         * number must not be used again. */
        unlinkat(j->dir_fd, name, 0);
        store_commit_nothing(j->server->store, number, NULL);
        return;
    }
    int fd = journal_read(j->dir_fd, name, number, &c, &good, &e);
    if (fd < 0) {
        snprintf(bad, sizeof bad, "%s.bad", name);
        bool moved = renameat(j->dir_fd, name, j->dir_fd, bad) == 0;
        log_error("journal of stream %s: %s: %s", name, e.msg, moved ? "set aside as NUMBER.bad" : strerror(errno));
        j->has_bad = true;
        return;
    }
    if (e.code != 0) {
        log_warn("journal of stream %s: %s: what follows byte %lld is dropped", name, e.msg, (long long)good);
        if (ftruncate(fd, good) != 0)
            log_warn("journal of stream %s: %s", name, strerror(errno));
    }
    struct journal_entry *je = entry_new(j, c.head, &e);
    if (!je) {
        log_error("journal of stream %s: %s", name, e.msg);
        close(fd);
    } else {
        count(j, je, good, 0);
        je->ended = c.end != NULL;
        je->time = je->ended ? c.end->time : 0;
        if (je->ended)
            set_tokens(je, &c.end->result.usage);
        je->fd = fd;
        if (je->ended) {
            close(fd);
            je->fd = -1;
        }
        take(arg, je, &c);
    }
    journal_copy_fini(&c);
}

static int by_number(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

int64_t journal_replay(struct journal *j, journal_visit *take, void *arg)
{
    int64_t *numbers = NULL, highest = 0;
    size_t n = 0, cap = 0;
    int fd = openat(j->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *d; dir != NULL && (d = readdir(dir)) != NULL;) {
        char *end, name[32];
        long long number = strtoll(d->d_name, &end, 10);
        if (number > STORE_STREAM_MAX)
            log_warn("journal/%.60s: no stream has that number: left as it is", d->d_name);
        if (number <= 0 || number > STORE_STREAM_MAX)
            continue;
        j->has_bad = j->has_bad || is_bad(d->d_name);
        if (number > highest)
            highest = number; /* a file that was set aside reserves its number */
        journal_name(number, name);
        if (strcmp(name, d->d_name) != 0)
            continue;
        if (n == cap) {
            int64_t *grown = reallocarray(numbers, cap = cap * 2 + 64, sizeof *numbers);
            if (!grown)
                break;
            numbers = grown;
        }
        numbers[n++] = number;
    }
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    if (n > 0)
        qsort(numbers, n, sizeof *numbers, by_number);
    for (size_t i = 0; i < n; i++)
        replay_one(j, numbers[i], take, arg);
    free(numbers);
    return highest;
}

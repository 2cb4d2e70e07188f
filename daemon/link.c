/* link.c - the engine process at the other end of a socketpair. Loop thread. */
#include "config.h"

#include "daemon/link.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/dispatch.h"
#include "daemon/kvdir.h"
#include "daemon/log.h"

enum {
    ENGINE_FD = 3, /* the link in the engine, after stdin, stdout, stderr */
    READ_SIZE = 64 << 10,
    PAUSE_FIRST_MS = 100, /* after a crash, doubling with every crash before another token, up to ... */
    PAUSE_MOST_MS = 3000,
    HELLO_S = 30,
};

struct ask {
    uint32_t id;
    const struct wire_method *method;
    link_done *done;
    void *arg;
    TAILQ_ENTRY(ask) entry;
};
TAILQ_HEAD(ask_list, ask);

struct link {
    struct server *server;
    char *engine;
    enum link_state state;
    pid_t pid; /* 0: none */
    int fd;    /* -1: none */
    struct wire_buf in, out;
    size_t out_pos;
    struct wire_scan scan;
    struct event *readable, *writable; /* on fd */
    struct event *child;               /* SIGCHLD */
    struct event *timer;               /* the pause, or hello's deadline */
    struct ask_list asks;
    uint32_t last_id;
    bool was_ready; /* this engine, or the last one, has said hello */
    bool lost_device;
    int64_t pause_ms, starts;
    char why[120]; /* what is known about a death, before the exit status is */
};

static void on_readable(evutil_socket_t fd, short what, void *arg);
static void on_writable(evutil_socket_t fd, short what, void *arg);
static void on_child(evutil_socket_t fd, short what, void *arg);
static void on_timer(evutil_socket_t fd, short what, void *arg);

static void set_timer(struct link *l, int64_t ms)
{
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    event_add(l->timer, &tv);
}

int link_new(struct link **out, struct server *s, const char *engine, struct hearth_err *e)
{
    struct link *l = calloc(1, sizeof(*l));
    if (l == NULL)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    l->server = s;
    l->fd = -1;
    l->pause_ms = PAUSE_FIRST_MS;
    TAILQ_INIT(&l->asks);
    l->child = evsignal_new(s->base, SIGCHLD, on_child, l);
    l->timer = event_new(s->base, -1, 0, on_timer, l);
    if ((engine != NULL && (l->engine = strdup(engine)) == NULL) || l->child == NULL || l->timer == NULL ||
        event_add(l->child, NULL) != 0) {
        link_free(l);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    *out = l;
    return 0;
}

static void close_fd(struct link *l)
{
    if (l->readable != NULL)
        event_free(l->readable);
    if (l->writable != NULL)
        event_free(l->writable);
    l->readable = l->writable = NULL;
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    wire_buf_fini(&l->in);
    wire_buf_fini(&l->out);
    l->in = l->out = (struct wire_buf){0};
    l->out_pos = 0;
    l->scan = (struct wire_scan){0};
}

void link_free(struct link *l)
{
    if (l == NULL)
        return;
    close_fd(l);
    if (l->pid > 0) {
        kill(l->pid, SIGKILL);
        waitpid(l->pid, NULL, 0);
    }
    struct ask *a;
    while ((a = TAILQ_FIRST(&l->asks)) != NULL) {
        TAILQ_REMOVE(&l->asks, a, entry);
        free(a);
    }
    if (l->child != NULL)
        event_free(l->child);
    if (l->timer != NULL)
        event_free(l->timer);
    free(l->engine);
    free(l);
}

/* --- the process ---------------------------------------------------------------------------------------- */

/* In the child, between fork and exec: nothing that is not async-signal-safe. */
static void become_engine(const char *engine, char *const argv[], int fd, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    static const int handled[] = {SIGTERM, SIGINT, SIGCHLD, SIGPIPE, SIGHUP, SIGXFSZ};
    for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++)
        signal(handled[i], SIG_DFL);
    /* The engine exits when the link closes; this is for one that is too busy to see it, or it would hold the GPU. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
    }
    if (fd == ENGINE_FD)
        fcntl(fd, F_SETFD, 0);
    else
        dup2(fd, ENGINE_FD);
    execv(engine, argv);
    static const char msg[] = "hearthd: the engine cannot be executed\n";
    (void)!write(STDERR_FILENO, msg, sizeof(msg) - 1);
    _exit(127);
}

static int spawn(struct link *l, struct hearth_err *e)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
        return err_set(e, HEARTH_EENGINE, "the engine cannot be started: %s", strerror(errno));
    const struct conf *conf = l->server->conf;
    char threads[24], kv_bytes[24], kv_ram[24], idle[24], lock[PATH_MAX], checked[PATH_MAX];
    snprintf(threads, sizeof(threads), "%lld", (long long)conf->threads);
    snprintf(kv_bytes, sizeof(kv_bytes), "%lld", (long long)conf->kv_bytes);
    snprintf(idle, sizeof(idle), "%lld", (long long)conf->idle_unload * 60000); /* ms */
    snprintf(lock, sizeof(lock), "%s/engine.lock", conf->state_dir);
    snprintf(checked, sizeof(checked), "%s/checked", conf->state_dir);
    char *argv[20] = {l->engine, "--threads", threads, "--kv-bytes", kv_bytes, "--idle-unload", idle};
    size_t n = 7;
    if (conf->backend != NULL) {
        argv[n++] = "--backend";
        argv[n++] = conf->backend;
    }
    if (l->server->store != NULL) { /* two engines never hold the device at once; the state directory has the lock */
        argv[n++] = "--lock";
        argv[n++] = lock;
        argv[n++] = "--checked"; /* what its self-checks found is the state directory's too */
        argv[n++] = checked;
    }
    if (conf->kv_ram != CONF_IS_AUTO) {
        snprintf(kv_ram, sizeof(kv_ram), "%lld", (long long)conf->kv_ram);
        argv[n++] = "--kv-ram";
        argv[n++] = kv_ram;
    }
    if (l->server->kv != NULL && conf->kv_disk != 0) {
        argv[n++] = "--kv-dir";
        argv[n++] = (char *)kvdir_path(l->server->kv);
    }
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become_engine(l->engine, argv, pair[1], parent);
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return err_set(e, HEARTH_EENGINE, "the engine cannot be started: %s", strerror(errno));
    }
    l->why[0] = '\0';
    l->was_ready = l->lost_device = false;
    l->pid = pid;
    l->fd = pair[0];
    l->readable = event_new(l->server->base, l->fd, EV_READ | EV_PERSIST, on_readable, l);
    l->writable = event_new(l->server->base, l->fd, EV_WRITE, on_writable, l);
    l->starts++;
    if (l->readable == NULL || l->writable == NULL || event_add(l->readable, NULL) != 0) {
        kill(pid, SIGKILL); /* and on_child clears up */
        snprintf(l->why, sizeof(l->why), "out of memory");
    }
    log_info("engine %d started: %s", (int)pid, l->engine);
    return 0;
}

static void on_hello(void *arg, const void *result, const struct hearth_err *err)
{
    struct link *l = arg;
    const struct wire_engine_hello_result *r = result;
    if (l->state != LINK_STARTING)
        return;
    if (err != NULL) { /* it has no device, and is about to exit */
        snprintf(l->why, sizeof(l->why), "%.119s", err->msg);
        return;
    }
    if (r->version != WIRE_VERSION) {
        snprintf(l->why, sizeof(l->why), "it speaks version %lld of the link, hearthd %d", (long long)r->version,
                 WIRE_VERSION);
        kill(l->pid, SIGKILL);
        return;
    }
    event_del(l->timer);
    l->state = LINK_RUNNING;
    l->was_ready = true;
    log_info("engine %d runs on %s (%s)", (int)l->pid, r->backend != NULL ? r->backend : "?",
             r->device != NULL ? r->device : "?");
}

static int ask(struct link *l, const struct wire_method *m, const void *params, link_done *done, void *arg,
               struct hearth_err *e)
{
    struct ask *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    *a = (struct ask){.id = ++l->last_id, .method = m, .done = done, .arg = arg};
    int rc = wire_pack_request(&l->out, a->id, m, params, e);
    if (rc != 0) {
        free(a);
        return rc;
    }
    TAILQ_INSERT_TAIL(&l->asks, a, entry);
    return 0;
}

/* Spawns and says hello, ahead of what may be waiting already. */
static int start(struct link *l, struct hearth_err *e)
{
    if (l->engine == NULL)
        return err_set(e, HEARTH_EENGINE,
                       "hearth-engine was not found: it belongs beside hearthd, see \"engine\" in "
                       "hearth.conf(5)");
    int rc = spawn(l, e);
    if (rc != 0)
        return rc;
    l->state = LINK_STARTING;
    set_timer(l, HELLO_S * 1000);

    struct wire_buf waiting = l->out;
    l->out = (struct wire_buf){0};
    static const struct wire_engine_hello hello = {.version = WIRE_VERSION};
    rc = ask(l, &wire_methods[WIRE_ENGINE_HELLO], &hello, on_hello, l, e);
    uint8_t *data = rc == 0 ? realloc(l->out.data, l->out.len + waiting.len) : NULL;
    if (data != NULL) {
        if (waiting.len > 0)
            memcpy(data + l->out.len, waiting.data, waiting.len);
        l->out.data = data;
        l->out.len += waiting.len;
        l->out.cap = l->out.len;
    } else {
        snprintf(l->why, sizeof(l->why), "out of memory");
        kill(l->pid, SIGKILL); /* its end answers whoever waits */
    }
    wire_buf_fini(&waiting);
    return 0;
}

/* Every question that is open gets its answer. They may ask again meanwhile: those are not of this round. */
static void fail_all(struct link *l, const struct hearth_err *e)
{
    struct ask_list asks = TAILQ_HEAD_INITIALIZER(asks);
    TAILQ_CONCAT(&asks, &l->asks, entry);
    struct ask *a;
    while ((a = TAILQ_FIRST(&asks)) != NULL) {
        TAILQ_REMOVE(&asks, a, entry);
        a->done(a->arg, NULL, e);
        free(a);
    }
}

/* The one place where an engine is over: its status is known and its last words have been read. */
static void over(struct link *l, int status)
{
    bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0; /* an idle engine may leave by itself */
    bool wanted = l->state == LINK_STOPPING || (clean && TAILQ_EMPTY(&l->asks));
    char how[64];
    if (l->why[0] != '\0') /* what it died of is our doing */
        snprintf(how, sizeof(how), "failed");
    else if (WIFSIGNALED(status))
        snprintf(how, sizeof(how), "was killed by signal %d", WTERMSIG(status));
    else
        snprintf(how, sizeof(how), "exited with status %d", WEXITSTATUS(status));
    struct hearth_err e;
    err_set(&e, HEARTH_EENGINE, "the engine %s%s%s%s", how, l->was_ready ? "" : " before it was ready",
            l->why[0] != '\0' ? ": " : "", l->why);
    if (wanted && clean)
        log_info("engine %d has exited", (int)l->pid);
    else
        log_error("engine %d: %s", (int)l->pid, e.msg);

    l->pid = 0;
    close_fd(l);
    event_del(l->timer);
    if (wanted) {
        l->state = LINK_ABSENT;
    } else {
        l->state = LINK_PAUSE;
        set_timer(l, l->pause_ms);
        l->pause_ms = l->pause_ms * 2 < PAUSE_MOST_MS ? l->pause_ms * 2 : PAUSE_MOST_MS;
    }
    fail_all(l, &e);
    server_step(l->server);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct link *l = arg;
    (void)fd, (void)what;
    if (l->state == LINK_STARTING) {
        snprintf(l->why, sizeof(l->why), "no hello within %d s", HELLO_S);
        kill(l->pid, SIGKILL);
    } else if (l->state == LINK_PAUSE) {
        l->state = LINK_ABSENT;
        struct hearth_err e;
        if (!TAILQ_EMPTY(&l->asks) && start(l, &e) != 0) {
            log_error("%s", e.msg);
            fail_all(l, &e);
        }
    }
}

/* --- frames --------------------------------------------------------------------------------------------- */

static void on_response(struct link *l, const struct wire_frame *f)
{
    struct ask *a;
    TAILQ_FOREACH (a, &l->asks, entry)
        if (a->id == f->id)
            break;
    if (a == NULL) {
        log_warn("engine %d answered what nobody asked (id %lu)", (int)l->pid, (unsigned long)f->id);
        return;
    }
    struct hearth_err e = f->err;
    void *result = NULL;
    if (f->is_error && e.code == HEARTH_EDEVICE) {
        /* All that it holds was on that device, and a driver may take long to let it go. Its end answers this too. */
        snprintf(l->why, sizeof(l->why), "%.119s", e.msg);
        l->lost_device = l->was_ready;
        return;
    }
    if (!f->is_error && wire_unpack(a->method->result, f->body, f->body_len, &result, &e) != 0)
        err_set(&e, HEARTH_EENGINE, "the engine's answer to %s: %.120s", a->method->name, f->is_error ? "" : e.msg);
    TAILQ_REMOVE(&l->asks, a, entry);
    a->done(a->arg, result, result != NULL ? NULL : &e);
    wire_free(result);
    free(a);
}

static void on_event(struct link *l, const struct wire_frame *f)
{
    const struct wire_method *m = wire_method_find(f->method, f->method_len);
    struct hearth_err e;
    void *body;
    if (m == NULL || m->kind != WIRE_EVENT) {
        log_warn("engine %d sent an unknown event", (int)l->pid);
    } else if (wire_unpack(m->params, f->body, f->body_len, &body, &e) != 0) {
        log_warn("engine %d: %s: %s", (int)l->pid, m->name, e.msg);
    } else {
        if (m == &wire_methods[WIRE_ENGINE_TOKENS])
            l->pause_ms = PAUSE_FIRST_MS; /* it works */
        dispatch_engine_event(l->server, m, body);
        wire_free(body);
    }
}

/* 0, or HEARTH_EPROTOCOL where the engine talks nonsense. */
static int handle_frames(struct link *l)
{
    size_t pos = 0;
    int rc = 0;
    struct hearth_err e;
    while (pos < l->in.len) {
        ptrdiff_t len = wire_scan(&l->scan, l->in.data + pos, l->in.len - pos, WIRE_LINK_FRAME_MAX, &e);
        if (len == 0)
            break;
        struct wire_frame f = {0};
        if (len < 0 || wire_frame_open(&f, l->in.data + pos, (size_t)len, &e) != 0 || f.kind == WIRE_FRAME_REQUEST) {
            snprintf(l->why, sizeof(l->why), "it sent what is not the protocol: %.70s",
                     f.kind == WIRE_FRAME_REQUEST && len > 0 ? "a request" : e.msg);
            rc = HEARTH_EPROTOCOL;
            break;
        }
        if (f.kind == WIRE_FRAME_RESPONSE)
            on_response(l, &f);
        else
            on_event(l, &f);
        pos += (size_t)len;
        l->scan = (struct wire_scan){0};
        if (l->why[0] != '\0') { /* condemned by what it said: the rest does not count */
            rc = HEARTH_EPROTOCOL;
            break;
        }
    }
    if (pos > 0) {
        memmove(l->in.data, l->in.data + pos, l->in.len - pos);
        l->in.len -= pos;
    }
    if (l->in.len == 0 && l->in.cap > READ_SIZE)
        wire_buf_fini(&l->in);
    return rc;
}

/* Reads once; 1 where something came, 0 where nothing is there now, negative at the end. */
static int read_some(struct link *l)
{
    if (l->in.cap - l->in.len < READ_SIZE / 2) {
        size_t cap = l->in.cap == 0 ? READ_SIZE : l->in.cap * 2;
        uint8_t *data = realloc(l->in.data, cap);
        if (data == NULL)
            return HEARTH_ENOMEM;
        l->in.data = data;
        l->in.cap = cap;
    }
    ssize_t n = recv(l->fd, l->in.data + l->in.len, l->in.cap - l->in.len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return HEARTH_EIO;
    l->in.len += (size_t)n;
    return handle_frames(l) == 0 ? 1 : HEARTH_EPROTOCOL;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct link *l = arg;
    (void)fd, (void)what;
    if (read_some(l) >= 0)
        return;
    /* Closed or broken: whatever it still is, it is of no use. SIGCHLD brings the rest. One that was told to exit is
     * doing so, and server_step() does not wait for it for ever. */
    event_del(l->readable);
    event_del(l->writable);
    if (l->state != LINK_STOPPING)
        kill(l->pid, SIGKILL);
}

static void on_child(evutil_socket_t fd, short what, void *arg)
{
    struct link *l = arg;
    (void)fd, (void)what;
    int status;
    if (l->pid == 0 || waitpid(l->pid, &status, WNOHANG) != l->pid)
        return;
    /* What it said before it died counts: tokens that were made are tokens. */
    while (l->readable != NULL && event_pending(l->readable, EV_READ, NULL) && read_some(l) > 0)
        continue;
    over(l, status);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    link_flush(arg);
}

void link_flush(struct link *l)
{
    if (l->fd < 0 || event_pending(l->writable, EV_WRITE, NULL))
        return;
    while (l->out_pos < l->out.len) {
        ssize_t n = send(l->fd, l->out.data + l->out_pos, l->out.len - l->out_pos, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            event_add(l->writable, NULL);
        if (n < 0)
            return; /* the end of the link is seen where it is read */
        l->out_pos += (size_t)n;
    }
    l->out.len = l->out_pos = 0;
    if (l->out.cap > READ_SIZE)
        wire_buf_fini(&l->out);
}

/* --- the rest ------------------------------------------------------------------------------------------- */

int link_ask(struct link *l, const struct wire_method *m, const void *params, link_done *done, void *arg,
             struct hearth_err *e)
{
    if (l->state == LINK_STOPPING)
        return err_set(e, HEARTH_ESHUTDOWN, "the engine is being stopped");
    if (l->state == LINK_ABSENT) {
        int rc = start(l, e);
        if (rc != 0)
            return rc;
    }
    return ask(l, m, params, done, arg, e);
}

static void on_stopped(void *arg, const void *result, const struct hearth_err *err)
{
    (void)arg, (void)result, (void)err; /* its exit says it all */
}

void link_stop(struct link *l)
{
    if (l->pid == 0) {
        struct hearth_err e;
        err_set(&e, HEARTH_ESHUTDOWN, "the engine is being stopped");
        event_del(l->timer);
        l->state = LINK_ABSENT;
        fail_all(l, &e);
        return;
    }
    static const struct wire_empty nothing;
    if (l->state == LINK_STOPPING || ask(l, &wire_methods[WIRE_ENGINE_SHUTDOWN], &nothing, on_stopped, NULL, NULL) != 0)
        kill(l->pid, SIGKILL);
    l->state = LINK_STOPPING;
}

enum link_state link_state(const struct link *l)
{
    return l->state;
}

const char *link_state_name(const struct link *l)
{
    static const char *const names[] = {"absent", "restarting", "starting", "running", "stopping"};
    return names[l->state];
}

bool link_was_ready(const struct link *l)
{
    return l->was_ready;
}

bool link_lost_device(const struct link *l)
{
    return l->lost_device;
}

int64_t link_restarts(const struct link *l)
{
    return l->starts > 0 ? l->starts - 1 : 0;
}

pid_t link_pid(const struct link *l)
{
    return l->pid;
}

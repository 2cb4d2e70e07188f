/* engine-client.c - the engine process at the other end of a socketpair. Loop thread. */
#include "config.h"

#include "daemon/supervisor/engine-client.h"

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

#include "daemon/rpc/dispatch.h"
#include "daemon/retention/kvdir.h"
#include "daemon/log.h"
#include "libclient/frames.h"

enum {
    ENGINE_FD = 3,        /* the link in the engine, after stdin, stdout, stderr */
    BACKOFF_MIN_MS = 100, /* after a crash, doubling with every crash before another token, up to ... */
    BACKOFF_MAX_MS = 3000,
    HELLO_TIMEOUT_S = 30,
};

/* There are no watermarks: what hearthd asks the engine is bounded by what its peers may ask hearthd. */
static const struct frames_limits limits = {.frame = WIRE_LINK_FRAME_MAX, .read = 64 << 10};

struct request {
    uint32_t id;
    const struct wire_method *method;
    engine_completion *complete;
    void *arg;
    TAILQ_ENTRY(request) entry;
};
TAILQ_HEAD(request_list, request);

struct engine_client {
    struct server *server;
    char *engine;
    enum engine_state state;
    pid_t pid; /* 0: none */
    int fd;    /* -1: none */
    struct frames frames;
    struct event *readable, *writable; /* on fd */
    struct event *sigchld;             /* SIGCHLD */
    struct event *timer;               /* the pause, or hello's deadline */
    struct request_list requests;
    uint32_t last_id;
    bool was_ready; /* this engine, or the last one, has said hello */
    bool lost_device;
    int64_t backoff_ms, starts;
    char why[120]; /* what is known about a death, before the exit status is */
};

static void on_readable(evutil_socket_t fd, short what, void *arg);
static void on_writable(evutil_socket_t fd, short what, void *arg);
static void on_sigchld(evutil_socket_t fd, short what, void *arg);
static void on_timer(evutil_socket_t fd, short what, void *arg);

static void set_timer(struct engine_client *ec, int64_t ms)
{
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    event_add(ec->timer, &tv);
}

int engine_client_new(struct engine_client **out, struct server *s, const char *engine, struct hearth_err *e)
{
    struct engine_client *ec = calloc(1, sizeof *ec);
    if (!ec)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    ec->server = s;
    ec->fd = -1;
    frames_init(&ec->frames, &limits);
    ec->backoff_ms = BACKOFF_MIN_MS;
    TAILQ_INIT(&ec->requests);
    ec->sigchld = evsignal_new(s->base, SIGCHLD, on_sigchld, ec);
    ec->timer = event_new(s->base, -1, 0, on_timer, ec);
    if ((engine != NULL && (ec->engine = strdup(engine)) == NULL) || !ec->sigchld || !ec->timer ||
        event_add(ec->sigchld, NULL) != 0) {
        engine_client_free(ec);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    *out = ec;
    return 0;
}

static void close_fd(struct engine_client *ec)
{
    if (ec->readable)
        event_free(ec->readable);
    if (ec->writable)
        event_free(ec->writable);
    ec->readable = ec->writable = NULL;
    if (ec->fd >= 0)
        close(ec->fd);
    ec->fd = -1;
    frames_fini(&ec->frames);
}

void engine_client_free(struct engine_client *ec)
{
    if (!ec)
        return;
    close_fd(ec);
    if (ec->pid > 0) {
        kill(ec->pid, SIGKILL);
        waitpid(ec->pid, NULL, 0);
    }
    struct request *a;
    while ((a = TAILQ_FIRST(&ec->requests)) != NULL) {
        TAILQ_REMOVE(&ec->requests, a, entry);
        free(a);
    }
    if (ec->sigchld)
        event_free(ec->sigchld);
    if (ec->timer)
        event_free(ec->timer);
    free(ec->engine);
    free(ec);
}

/* --- the process ---------------------------------------------------------------------------------------- */

/* In the child, between fork and exec: nothing that is not async-signal-safe. */
static void exec_engine(const char *engine, char *const argv[], int fd, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    static const int handled[] = {SIGTERM, SIGINT, SIGCHLD, SIGPIPE, SIGHUP, SIGXFSZ};
    for (size_t i = 0; i < sizeof handled / sizeof handled[0]; i++)
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
    (void)!write(STDERR_FILENO, msg, sizeof msg - 1);
    _exit(127);
}

static int spawn(struct engine_client *ec, struct hearth_err *e)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
        return err_set(e, HEARTH_EENGINE, "the engine cannot be started: %s", strerror(errno));
    const struct conf *conf = ec->server->conf;
    char threads[24], kv_bytes[24], kv_ram[24], idle[24], lock[PATH_MAX], checked[PATH_MAX];
    snprintf(threads, sizeof threads, "%lld", (long long)conf->threads);
    snprintf(kv_bytes, sizeof kv_bytes, "%lld", (long long)conf->kv_bytes);
    snprintf(idle, sizeof idle, "%lld", (long long)conf->idle_unload * 60000); /* ms */
    snprintf(lock, sizeof lock, "%s/engine.lock", conf->state_dir);
    snprintf(checked, sizeof checked, "%s/checked", conf->state_dir);
    char *argv[20] = {ec->engine, "--threads", threads, "--kv-bytes", kv_bytes, "--idle-unload", idle};
    size_t n = 7;
    if (conf->backend) {
        argv[n++] = "--backend";
        argv[n++] = conf->backend;
    }
    if (ec->server->store) { /* two engines never hold the device at once; the state directory has the lock */
        argv[n++] = "--lock";
        argv[n++] = lock;
        argv[n++] = "--checked"; /* what its self-checks found is the state directory's too */
        argv[n++] = checked;
    }
    if (conf->kv_ram != CONF_IS_AUTO) {
        snprintf(kv_ram, sizeof kv_ram, "%lld", (long long)conf->kv_ram);
        argv[n++] = "--kv-ram";
        argv[n++] = kv_ram;
    }
    if (ec->server->kv && conf->kv_disk != 0) {
        argv[n++] = "--kv-dir";
        argv[n++] = (char *)kvdir_path(ec->server->kv);
    }
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        exec_engine(ec->engine, argv, pair[1], parent);
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return err_set(e, HEARTH_EENGINE, "the engine cannot be started: %s", strerror(errno));
    }
    ec->why[0] = '\0';
    ec->was_ready = ec->lost_device = false;
    ec->pid = pid;
    ec->fd = pair[0];
    ec->readable = event_new(ec->server->base, ec->fd, EV_READ | EV_PERSIST, on_readable, ec);
    ec->writable = event_new(ec->server->base, ec->fd, EV_WRITE, on_writable, ec);
    ec->starts++;
    if (!ec->readable || !ec->writable || event_add(ec->readable, NULL) != 0) {
        kill(pid, SIGKILL); /* and on_sigchld clears up */
        snprintf(ec->why, sizeof ec->why, "out of memory");
    }
    log_info("engine %d started: %s", (int)pid, ec->engine);
    return 0;
}

static void on_hello(void *arg, const void *result, const struct hearth_err *err)
{
    struct engine_client *ec = arg;
    const struct wire_engine_hello_result *r = result;
    if (ec->state != ENGINE_STARTING)
        return;
    if (err) { /* it has no device, and is about to exit */
        snprintf(ec->why, sizeof ec->why, "%.119s", err->msg);
        return;
    }
    if (r->version != WIRE_VERSION) {
        snprintf(ec->why, sizeof ec->why, "it speaks version %lld of the link, hearthd %d", (long long)r->version,
                 WIRE_VERSION);
        kill(ec->pid, SIGKILL);
        return;
    }
    event_del(ec->timer);
    ec->state = ENGINE_RUNNING;
    ec->was_ready = true;
    log_info("engine %d runs on %s (%s)", (int)ec->pid, r->backend != NULL ? r->backend : "?",
             r->device != NULL ? r->device : "?");
}

static int request(struct engine_client *ec, const struct wire_method *m, const void *params,
                   engine_completion *complete, void *arg, struct hearth_err *e)
{
    struct request *a = calloc(1, sizeof *a);
    if (!a)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    *a = (struct request){.id = ++ec->last_id, .method = m, .complete = complete, .arg = arg};
    int rc = wire_pack_request(frames_out(&ec->frames), a->id, m, params, e);
    if (rc) {
        free(a);
        return rc;
    }
    TAILQ_INSERT_TAIL(&ec->requests, a, entry);
    return 0;
}

/* Spawns and says hello, ahead of what may be waiting already. */
static int start(struct engine_client *ec, struct hearth_err *e)
{
    if (!ec->engine)
        return err_set(e, HEARTH_EENGINE,
                       "hearth-engine was not found: it belongs beside hearthd, see \"engine\" in "
                       "hearth.conf(5)");
    int rc = spawn(ec, e);
    if (rc)
        return rc;
    ec->state = ENGINE_STARTING;
    set_timer(ec, HELLO_TIMEOUT_S * 1000);

    struct wire_buf *out = frames_out(&ec->frames), waiting = *out;
    *out = (struct wire_buf){0};
    static const struct wire_engine_hello hello = {.version = WIRE_VERSION};
    rc = request(ec, &wire_methods[WIRE_ENGINE_HELLO], &hello, on_hello, ec, e);
    uint8_t *data = rc == 0 ? realloc(out->data, out->len + waiting.len) : NULL;
    if (data) {
        if (waiting.len > 0)
            memcpy(data + out->len, waiting.data, waiting.len);
        out->data = data;
        out->len += waiting.len;
        out->cap = out->len;
    } else {
        snprintf(ec->why, sizeof ec->why, "out of memory");
        kill(ec->pid, SIGKILL); /* its end answers whoever waits */
    }
    wire_buf_fini(&waiting);
    return 0;
}

/* Every question that is open gets its answer. They may ask again meanwhile: those are not of this round. */
static void fail_all(struct engine_client *ec, const struct hearth_err *e)
{
    struct request_list requests = TAILQ_HEAD_INITIALIZER(requests);
    TAILQ_CONCAT(&requests, &ec->requests, entry);
    struct request *a;
    while ((a = TAILQ_FIRST(&requests)) != NULL) {
        TAILQ_REMOVE(&requests, a, entry);
        a->complete(a->arg, NULL, e);
        free(a);
    }
}

/* The one place where an engine is over: its status is known and its last words have been read. */
static void on_engine_exit(struct engine_client *ec, int status)
{
    bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0; /* an idle engine may leave by itself */
    bool wanted = ec->state == ENGINE_STOPPING || (clean && TAILQ_EMPTY(&ec->requests));
    char how[64];
    if (ec->why[0] != '\0') /* what it died of is our doing */
        snprintf(how, sizeof how, "failed");
    else if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "was killed by signal %d", WTERMSIG(status));
    else
        snprintf(how, sizeof how, "exited with status %d", WEXITSTATUS(status));
    struct hearth_err e;
    err_set(&e, HEARTH_EENGINE, "the engine %s%s%s%s", how, ec->was_ready ? "" : " before it was ready",
            ec->why[0] != '\0' ? ": " : "", ec->why);
    if (wanted && clean)
        log_info("engine %d has exited", (int)ec->pid);
    else
        log_error("engine %d: %s", (int)ec->pid, e.msg);

    ec->pid = 0;
    close_fd(ec);
    event_del(ec->timer);
    if (wanted) {
        ec->state = ENGINE_ABSENT;
    } else {
        ec->state = ENGINE_BACKOFF;
        set_timer(ec, ec->backoff_ms);
        ec->backoff_ms = ec->backoff_ms * 2 < BACKOFF_MAX_MS ? ec->backoff_ms * 2 : BACKOFF_MAX_MS;
    }
    fail_all(ec, &e);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct engine_client *ec = arg;
    (void)fd, (void)what;
    if (ec->state == ENGINE_STARTING) {
        snprintf(ec->why, sizeof ec->why, "no hello within %d s", HELLO_TIMEOUT_S);
        kill(ec->pid, SIGKILL);
    } else if (ec->state == ENGINE_BACKOFF) {
        ec->state = ENGINE_ABSENT;
        struct hearth_err e;
        if (!TAILQ_EMPTY(&ec->requests) && start(ec, &e) != 0) {
            log_error("%s", e.msg);
            fail_all(ec, &e);
        }
    }
}

/* --- frames --------------------------------------------------------------------------------------------- */

static void on_response(struct engine_client *ec, const struct wire_frame *f)
{
    struct request *a;
    TAILQ_FOREACH (a, &ec->requests, entry)
        if (a->id == f->id)
            break;
    if (!a) {
        log_warn("engine %d answered what nobody asked (id %lu)", (int)ec->pid, (unsigned long)f->id);
        return;
    }
    struct hearth_err e = f->err;
    void *result = NULL;
    if (f->is_error && e.code == HEARTH_EDEVICE) {
        /* All that it holds was on that device, and a driver may take long to let it go. Its end answers this too. */
        snprintf(ec->why, sizeof ec->why, "%.119s", e.msg);
        ec->lost_device = ec->was_ready;
        return;
    }
    if (!f->is_error && wire_unpack(a->method->result, f->body, f->body_len, &result, &e) != 0)
        err_set(&e, HEARTH_EENGINE, "the engine's answer to %s: %.120s", a->method->name, f->is_error ? "" : e.msg);
    TAILQ_REMOVE(&ec->requests, a, entry);
    a->complete(a->arg, result, result != NULL ? NULL : &e);
    wire_free(result);
    free(a);
}

static void on_event(struct engine_client *ec, const struct wire_frame *f)
{
    const struct wire_method *m = wire_method_find(f->method, f->method_len);
    struct hearth_err e;
    void *body;
    if (!m || m->kind != WIRE_EVENT) {
        log_warn("engine %d sent an unknown event", (int)ec->pid);
    } else if (wire_unpack(m->params, f->body, f->body_len, &body, &e) != 0) {
        log_warn("engine %d: %s: %s", (int)ec->pid, m->name, e.msg);
    } else {
        if (m == &wire_methods[WIRE_ENGINE_TOKENS])
            ec->backoff_ms = BACKOFF_MIN_MS; /* it works */
        dispatch_engine_event(ec->server, m, body);
        wire_free(body);
    }
}

/* 0, or HEARTH_EPROTOCOL where the engine talks nonsense. */
static int handle_frame(struct engine_client *ec, const uint8_t *data, size_t len)
{
    struct wire_frame f;
    struct hearth_err e;
    int rc = wire_frame_open(&f, data, len, &e);
    if (!rc && f.kind == WIRE_FRAME_REQUEST)
        rc = err_set(&e, HEARTH_EPROTOCOL, "a request");
    if (rc)
        snprintf(ec->why, sizeof ec->why, "it sent what is not the protocol: %.70s", e.msg);
    else if (f.kind == WIRE_FRAME_RESPONSE)
        on_response(ec, &f);
    else
        on_event(ec, &f);
    return ec->why[0] != '\0' ? HEARTH_EPROTOCOL : 0; /* condemned by what it said: the rest does not count */
}

static int handle_frames(struct engine_client *ec)
{
    const uint8_t *data;
    ptrdiff_t len;
    struct hearth_err e;
    while ((len = frames_next(&ec->frames, &data, &e)) > 0) {
        int rc = handle_frame(ec, data, (size_t)len);
        if (rc)
            return rc;
        frames_drop(&ec->frames);
    }
    if (len < 0)
        snprintf(ec->why, sizeof ec->why, "it sent what is not the protocol: %.70s", e.msg);
    return len < 0 ? HEARTH_EPROTOCOL : 0;
}

/* Reads once; 1 where something came, 0 where nothing is there now, negative at the end. */
static int read_some(struct engine_client *ec)
{
    ssize_t n = frames_fill(&ec->frames, ec->fd);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0)
        return HEARTH_EIO;
    return handle_frames(ec) == 0 ? 1 : HEARTH_EPROTOCOL;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct engine_client *ec = arg;
    (void)fd, (void)what;
    if (read_some(ec) >= 0)
        return;
    /* Closed or broken: whatever it still is, it is of no use. SIGCHLD brings the rest. One that was told to exit is
     * doing so, and the shutdown does not wait for it for ever. */
    event_del(ec->readable);
    event_del(ec->writable);
    if (ec->state != ENGINE_STOPPING)
        kill(ec->pid, SIGKILL);
}

static void on_sigchld(evutil_socket_t fd, short what, void *arg)
{
    struct engine_client *ec = arg;
    (void)fd, (void)what;
    int status;
    if (ec->pid == 0 || waitpid(ec->pid, &status, WNOHANG) != ec->pid)
        return;
    /* What it said before it died counts: tokens that were made are tokens. */
    while (ec->readable && event_pending(ec->readable, EV_READ, NULL) && read_some(ec) > 0)
        continue;
    on_engine_exit(ec, status);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    engine_client_flush(arg);
}

void engine_client_flush(struct engine_client *ec)
{
    if (ec->fd < 0 || event_pending(ec->writable, EV_WRITE, NULL))
        return;
    if (frames_flush(&ec->frames, ec->fd) == EAGAIN)
        event_add(ec->writable, NULL); /* any other error is the link's end, which is seen where it is read */
}

/* --- the rest ------------------------------------------------------------------------------------------- */

int engine_call(struct engine_client *ec, const struct wire_method *m, const void *params, engine_completion *complete,
                void *arg, struct hearth_err *e)
{
    if (ec->state == ENGINE_STOPPING)
        return err_set(e, HEARTH_ESHUTDOWN, "the engine is being stopped");
    if (ec->state == ENGINE_ABSENT) {
        int rc = start(ec, e);
        if (rc)
            return rc;
    }
    return request(ec, m, params, complete, arg, e);
}

static void on_stopped(void *arg, const void *result, const struct hearth_err *err)
{
    (void)arg, (void)result, (void)err; /* its exit says it all */
}

void engine_client_stop(struct engine_client *ec)
{
    if (ec->pid == 0) {
        struct hearth_err e;
        err_set(&e, HEARTH_ESHUTDOWN, "the engine is being stopped");
        event_del(ec->timer);
        ec->state = ENGINE_ABSENT;
        fail_all(ec, &e);
        return;
    }
    static const struct wire_empty nothing;
    if (ec->state == ENGINE_STOPPING ||
        request(ec, &wire_methods[WIRE_ENGINE_SHUTDOWN], &nothing, on_stopped, NULL, NULL) != 0)
        kill(ec->pid, SIGKILL);
    ec->state = ENGINE_STOPPING;
}

enum engine_state engine_state(const struct engine_client *ec)
{
    return ec->state;
}

const char *engine_state_name(const struct engine_client *ec)
{
    static const char *const names[] = {"absent", "restarting", "starting", "running", "stopping"};
    return names[ec->state];
}

bool engine_was_ready(const struct engine_client *ec)
{
    return ec->was_ready;
}

bool engine_lost_device(const struct engine_client *ec)
{
    return ec->lost_device;
}

int64_t engine_restarts(const struct engine_client *ec)
{
    return ec->starts > 0 ? ec->starts - 1 : 0;
}

pid_t engine_pid(const struct engine_client *ec)
{
    return ec->pid;
}

/* server.c - the lock, the listening socket, the loop, and the order of the shutdown. Loop thread. */
#include "config.h"

#include "daemon/server.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "daemon/loop.h"
#include "daemon/rpc/pins.h"
#include "daemon/rpc/backup.h"
#include "daemon/rpc/games.h"
#include "daemon/rpc/conn.h"
#include "daemon/rpc/dispatch.h"
#include "daemon/rpc/show.h"
#include "daemon/stream/journal.h"
#include "daemon/stream/sessions.h"
#include "daemon/retention/kvdir.h"
#include "daemon/supervisor/engines.h"
#include "daemon/log.h"
#include "daemon/store/store.h"
#include "daemon/stream/stream.h"
#include "daemon/rpc/queue.h"
#include "daemon/rpc/takeover.h"
#include "daemon/rpc/yields.h"
#include "daemon/retention/retention.h"
#include "daemon/socket.h"

enum {
    ACCEPT_PAUSE_MS = 500, /* pause between accepts when the process is out of descriptors */
    CANCEL_MS = 2000,      /* for cancelled streams to end at a shutdown */
    ENGINE_MS = 12000,     /* for the engines to write their KV files and exit */
    SENDING_MS = 1000,     /* for the last answers to be read */
};

static void set_timer(struct event *ev, int64_t ms)
{
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    event_add(ev, &tv);
}

/* --- the socket ----------------------------------------------------------------------------------------- */

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
    struct server *s = arg;
    (void)what;
    for (int i = 0; i < 16; i++) { /* at most so many, then other events are handled */
        int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (peer < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
            return;
        if (peer < 0) { /* out of descriptors or memory: the event is level-triggered, and would spin */
            log_error("accept: %s", strerror(errno));
            event_del(s->accept);
            set_timer(s->again, ACCEPT_PAUSE_MS);
            return;
        }
        struct conn *c;
        struct hearth_err e;
        if (conn_new(s, peer, &dispatch_conn_ops, &c, &e) != 0)
            log_often(LOG_LEVEL_WARN, "connection refused: %s", e.msg);
    }
}

/* Clients that connected to the deleted socket before are accepted first. */
static void on_rebound(struct server *s, int fd)
{
    on_accept(s->listen_fd, EV_READ, s);
    event_del(s->accept);
    dup3(fd, s->listen_fd, O_CLOEXEC);
    close(fd);
    event_add(s->accept, NULL);
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
    struct server *s = arg;
    (void)fd, (void)what;
    if (s->listen_fd >= 0)
        event_add(s->accept, NULL);
}

static void stop_listening(struct server *s)
{
    if (s->listen_fd < 0)
        return;
    if (s->accept)
        event_del(s->accept);
    if (s->again)
        event_del(s->again);
    if (!s->activated)
        socket_remove(s);
    close(s->listen_fd);
    s->listen_fd = -1;
}

/* --- the shutdown -------------------------------------------------------------------------------------------- */

static void enter(struct server *s, enum server_phase phase)
{
    static const char *const names[] = {"running", "finishing", "cancelling", "stopping", "sending", "done"};
    s->phase = phase;
    log_debug("shutdown: %s", names[phase]);
    switch (phase) {
    case SERVER_RUNNING:
        break;
    case SERVER_FINISHING:
        sd_notify(s->sd, "STOPPING=1");
        stop_listening(s);
        set_timer(s->phase_timer, s->conf->shutdown_grace * 1000);
        break;
    case SERVER_CANCELLING:
        set_timer(s->phase_timer, CANCEL_MS);
        stream_cancel_all(s);
        break;
    case SERVER_STOPPING:
        set_timer(s->phase_timer, ENGINE_MS);
        engines_stop(s->engines);
        break;
    case SERVER_SENDING:
        set_timer(s->phase_timer, SENDING_MS);
        break;
    case SERVER_DONE:
        event_base_loopbreak(s->base);
        break;
    }
}

/* Enters the next phase of the shutdown if nothing is left that this phase waits for; false if it stays. */
static bool next_phase(struct server *s)
{
    bool streams = s->phase == SERVER_FINISHING || s->phase == SERVER_CANCELLING;
    if (streams && streams_open(s->streams) == 0)
        enter(s, SERVER_STOPPING);
    else if (s->phase == SERVER_STOPPING && engines_absent(s->engines))
        enter(s, SERVER_SENDING);
    else if (s->phase == SERVER_SENDING && conn_all_sent(s))
        enter(s, SERVER_DONE);
    else
        return false;
    return true;
}

static void on_phase_timer(evutil_socket_t fd, short what, void *arg)
{
    struct server *s = arg;
    (void)fd, (void)what;
    if (s->phase == SERVER_FINISHING && streams_live(s->streams) > 0)
        enter(s, SERVER_CANCELLING);
    else if (s->phase == SERVER_FINISHING || s->phase == SERVER_CANCELLING)
        enter(s, SERVER_STOPPING);
    else
        enter(s, SERVER_DONE);
}

static void begin_shutdown(struct server *s, bool now)
{
    if (s->phase == SERVER_RUNNING)
        enter(s, SERVER_FINISHING);
    else
        now = true;
    if (now && s->phase < SERVER_DONE)
        enter(s, SERVER_DONE);
}

static void on_signal(evutil_socket_t signal, short what, void *arg)
{
    struct server *s = arg;
    (void)what;
    log_info("%s: shutting down%s", signal == SIGINT ? "SIGINT" : "SIGTERM",
             s->phase == SERVER_RUNNING ? "" : " at once");
    begin_shutdown(s, false);
}

static void on_watchdog(evutil_socket_t fd, short what, void *arg)
{
    struct server *s = arg;
    (void)fd, (void)what;
    sd_notify(s->sd, "WATCHDOG=1");
}

/* --- life ----------------------------------------------------------------------------------------------- */

static int init_events(struct server *s, struct hearth_err *e)
{
    struct event_config *cfg = event_config_new();
    if (cfg) {
        event_config_set_flag(cfg, EVENT_BASE_FLAG_NOLOCK);
        s->base = event_base_new_with_config(cfg);
        event_config_free(cfg);
    }
    if (!s->base)
        return err_set(e, HEARTH_EINTERNAL, "the event loop cannot be made");
    s->sigterm = evsignal_new(s->base, SIGTERM, on_signal, s);
    s->sigint = evsignal_new(s->base, SIGINT, on_signal, s);
    s->again = event_new(s->base, -1, 0, on_again, s);
    s->phase_timer = event_new(s->base, -1, 0, on_phase_timer, s);
    s->watchdog = event_new(s->base, -1, EV_PERSIST, on_watchdog, s);
    s->accept = event_new(s->base, s->listen_fd, EV_READ | EV_PERSIST, on_accept, s);
    if (!s->sigterm || !s->sigint || !s->again || !s->phase_timer || !s->watchdog || !s->accept ||
        event_add(s->sigterm, NULL) != 0 || event_add(s->sigint, NULL) != 0 || event_add(s->accept, NULL) != 0)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    if (s->sd->watchdog_us > 0)
        set_timer(s->watchdog, (int64_t)(s->sd->watchdog_us / 2000));
    return 0;
}

static void on_engine_event(void *arg, const struct wire_method *m, const void *body)
{
    dispatch_engine_event(arg, m, body);
}

static void before_engine_calls(void *arg, struct engine_client *ec)
{
    struct server *s = arg;
    model_fds_tell(s->passed, ec);
    yields_tell(s, ec);
    games_tell(s, ec, false);
    pins_tell(s, ec);
}

static void on_engine_ready(void *arg, struct engine_client *ec)
{
    yields_tell(arg, ec); /* a yield may have begun while calls were waiting already */
    games_tell(arg, ec, true);
    pins_restore(arg, ec);
}

/* Without an engine nobody writes KV files: what a dead one left unfinished, or unreported, is of no use. */
static void on_no_engine(void *arg)
{
    struct server *s = arg;
    kvdir_sweep(s->kv);
}

/* An engine's command line is built from the configuration and from what the state directory has. */
static void engine_command(void *arg, int number, bool first, size_t count, const char *argv[])
{
    const struct server *s = arg;
    const struct conf *conf = s->conf;
    static char engine_idle[24], threads[24], gpu_memory[24], gpu_headroom[24], kv_bytes[24], kv_ram[24],
        host_weights[24], idle[24], device[24], sharers[24], lock[PATH_MAX],
        checked[PATH_MAX]; /* reused for each engine: the caller copies them */
    snprintf(threads, sizeof threads, "%lld", (long long)conf->threads);
    snprintf(kv_bytes, sizeof kv_bytes, "%lld", (long long)conf->kv_bytes);
    snprintf(gpu_headroom, sizeof gpu_headroom, "%lld", (long long)conf->gpu_headroom);
    snprintf(gpu_memory, sizeof gpu_memory, conf->gpu_memory < 0 ? "%lld%%" : "%lld",
             llabs((long long)conf->gpu_memory));
    snprintf(host_weights, sizeof host_weights, "%lld", (long long)conf->host_weights);
    snprintf(kv_ram, sizeof kv_ram, "%lld", (long long)conf->kv_ram);
    snprintf(idle, sizeof idle, "%lld", (long long)conf->idle_unload * 60000);              /* ms */
    snprintf(engine_idle, sizeof engine_idle, "%lld", (long long)conf->engine_idle * 1000); /* ms */
    snprintf(device, sizeof device, number ? "-%d" : "", number);
    snprintf(lock, sizeof lock, "%s/engine.lock%s", conf->state_dir, device);
    snprintf(checked, sizeof checked, "%s/checked%s", conf->state_dir, device);
    snprintf(device, sizeof device, "%d", number);
    snprintf(sharers, sizeof sharers, "%zu", count);
    /* The first engine may fall back to the CPU; the others exist for GPUs only. */
    const char *backend = !first && (!conf->backend || !strcmp(conf->backend, "auto")) ? "cuda" : conf->backend;
    const struct {
        const char *option, *value;
        bool given;
    } options[] = {
        {"--threads", threads, true},
        {"--gpu-memory", gpu_memory, conf->gpu_memory},
        {"--gpu-headroom", gpu_headroom, conf->gpu_headroom},
        {"--kv-bytes", kv_bytes, true},
        {"--idle-unload", idle, true},
        {"--engine-idle", engine_idle, true},
        {"--log-level", log_level_name((enum log_level)conf->log_level), true},
        {"--backend", backend, backend},
        {"--device", device, number},
        {"--sharers", sharers, count},
        {"--lock", lock, s->store},       /* ensures that two engines never use the device at once */
        {"--checked", checked, s->store}, /* where the results of its self-checks are stored */
        {"--kv-type", conf->kv_type, conf->kv_type},
        {"--invariant", conf->invariant, conf->invariant},
        {"--kv-pool", conf->kv_pool, conf->kv_pool},
        {"--host-weights", host_weights, conf->host_weights != CONF_IS_AUTO},
        {"--kv-ram", kv_ram, conf->kv_ram != CONF_IS_AUTO},
        {"--kv-dir", s->kv ? kvdir_path(s->kv) : NULL, s->kv && conf->kv_disk},
    };
    enum { N_OPTIONS = sizeof options / sizeof *options };
    _Static_assert(1 + 2 * N_OPTIONS <= ENGINE_ARGS, "the command line has room");
    argv[0] = s->engine;
    for (size_t i = 0, n = 1; i < N_OPTIONS; i++)
        if (options[i].given) {
            argv[n++] = options[i].option;
            argv[n++] = options[i].value;
        }
}

static int init_engines(struct server *s, struct hearth_err *e)
{
    static const struct engines_calls calls = {
        .command = engine_command,
        .event = on_engine_event,
        .before = before_engine_calls,
        .ready = on_engine_ready,
        .none = on_no_engine,
    };
    return engines_new(&s->engines, s->base, s->conf->gpus ? s->conf->gpus : "all", s->conf->engine_timeout, &calls, s,
                       e);
}

/* Records why a part of the state directory cannot be opened; false if that is in the log already. */
static bool is_news(struct hearth_err *known, const struct hearth_err *e)
{
    bool news = strcmp(known->msg, e->msg) != 0;
    *known = *e;
    return news;
}

/* Opens what of the state directory is not open yet. Without the database hearthd still serves what needs no session;
 * requests that need one get the reason as an error. */
static void open_state(struct server *s)
{
    enum { REASON = 160 }; /* bytes of it that leave room for what to do */
    struct hearth_err e, why;
    const char *dir = s->conf->state_dir;
    double begun = server_boot();
    if (!s->store && store_open(&s->store, dir, &e) != 0) {
        err_set(&why, e.code, "%.*s; when that is mended, ask again", REASON, e.msg);
        if (is_news(&s->store_err, &why))
            log_error("%s; named sessions are not available, and streams have no journal", e.msg);
    }
    if (s->store && !s->journal && journal_open(&s->journal, s, dir, &e) != 0 && is_news(&s->journal_err, &e))
        log_error("%s; streams have no journal", e.msg);
    if (s->store && !s->kv && kvdir_open(&s->kv, s, &e) != 0 && is_news(&s->kv_err, &e))
        log_error("%s; KV is not kept on the disk", e.msg);
    /* What failed is tried again after a second, or later if it takes long, as it blocks the loop. */
    s->state_again = server_boot() + 1 + 20 * (server_boot() - begun);
}

int server_init(struct server *s, const struct conf *conf, const struct sd *sd, const char *engine,
                struct hearth_err *e)
{
    *s = (struct server){
        .conf = conf,
        .sd = sd,
        .lock_fd = -1,
        .listen_fd = -1,
        .started = server_boot(),
        .send_pending = conn_send_all,
        .shutdown = begin_shutdown,
    };
    LIST_INIT(&s->acl);
    TAILQ_INIT(&s->conns);
    TAILQ_INIT(&s->dirty);
    TAILQ_INIT(&s->dead);
    TAILQ_INIT(&s->waiting);
    TAILQ_INIT(&s->forwards);
    TAILQ_INIT(&s->queue);
    TAILQ_INIT(&s->waiters);
    TAILQ_INIT(&s->pins);
    s->streams = streams_new(e);
    int rc = s->streams ? 0 : HEARTH_ENOMEM;
    if (!rc && sd->listen_fd >= 0) {
        s->listen_fd = sd->listen_fd;
        s->activated = true;
    } else if (!rc) {
        rc = socket_listen(s, e);
    }
    if (!rc)
        rc = init_events(s, e);
    s->passed = model_fds_new();
    s->passed_sweep = s->base ? timer_new(s->base, msg_sweep_passed, s) : NULL;
    if (!rc && (!s->passed || !s->passed_sweep))
        rc = err_set(e, HEARTH_ENOMEM, "out of memory");
    if (!rc && !s->activated)
        rc = socket_watch_new(s, on_rebound, e);
    if (rc) {
        server_fini(s);
        return rc;
    }
    open_state(s);
    s->engine = engine;
    rc = yields_open(s, e);
    if (!rc)
        rc = init_engines(s, e);
    if (rc) {
        server_fini(s);
        return rc;
    }
    games_open(s, yields_rest);
    s->peers_below = socket_peers_below((size_t)conf->streams + model_fds_most(s->passed));
    if (s->lock_fd >= 0)
        socket_lock_byte(s->lock_fd, F_OFD_SETLK, F_UNLCK, 0);
    return 0;
}

void server_fini(struct server *s)
{
    s->phase = SERVER_DONE; /* a failed loop leaves another phase */
    stop_listening(s);
    backup_stop(s->backup);
    shows_free(s->shows);
    s->shows = NULL;
    games_close(s);
    yields_close(s);
    retention_free(s->retention);
    s->retention = NULL; /* turns that are committed from here on are trimmed at the next start */
    engines_free(s->engines);
    pins_fini(s);
    s->engines = NULL;
    stream_end_all(s);
    takeover_resume(s);
    queue_resume(s);
    conn_flush_all(s);
    struct conn *c;
    while ((c = TAILQ_FIRST(&s->conns)) != NULL)
        conn_drop(c, "hearthd ends");
    conn_reap(s);
    timer_free(s->passed_sweep);
    timer_free(s->queue_turn);
    model_fds_free(s->passed);
    commit_fini(s);
    journal_close(s->journal);
    kvdir_close(s->kv);
    streams_free(s->streams);
    store_close(s->store);
    socket_watch_free(s->socket_watch);
    struct event *events[] = {s->accept, s->again, s->sigterm, s->sigint, s->sighup, s->watchdog, s->phase_timer};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        if (events[i])
            event_free(events[i]);
    if (s->base)
        event_base_free(s->base);
    if (s->lock_fd >= 0)
        close(s->lock_fd);
}

/* Ends a turn of the loop: one write to each peer and to the engines, for everything that the turn has produced. */
static void end_turn(struct server *s)
{
    do {
        stream_probe_next(s);
        conn_flush_all(s); /* a peer that is no longer throttled is read here, and its requests may go to the engine */
        engines_flush(s->engines);
        conn_reap(s);
    } while (takeover_resume(s) || queue_resume(s) || next_phase(s));
}

static void count_turn(struct server *s, const struct store_work *before, int64_t link, double cpu)
{
    struct turn *most = &s->most;
    if (s->store) {
        struct store_work work;
        store_work(s->store, &work);
        s->turn.rows += work.rows - before->rows;
        s->turn.bytes += work.bytes - before->bytes;
    }
    s->turn.bytes += engines_link_bytes(s->engines) - link;
    s->turn.cpu = server_cpu() - cpu;
    most->bytes = s->turn.bytes > most->bytes ? s->turn.bytes : most->bytes;
    most->rows = s->turn.rows > most->rows ? s->turn.rows : most->rows;
    most->cpu = s->turn.cpu > most->cpu ? s->turn.cpu : most->cpu;
}

static void expire_streams(struct server *s)
{
    journal_expire(s->journal);
}

static const struct retention_calls retention_calls = {
    .is_busy = session_is_in_use, .remove = session_remove, .expire_streams = expire_streams};

static void recover(struct server *s)
{
    struct hearth_err e;
    stream_recover(s);
    /* After the recovery, so that recovered sessions count as busy. */
    if (s->store && !s->retention && retention_new(&s->retention, s, &retention_calls, &e))
        log_error("%s; no session is removed for its age", e.msg);
}

static void on_kv_dir_told(void *arg, const void *result, const struct hearth_err *err)
{
    (void)arg, (void)result;
    if (err && err->code != HEARTH_EENGINE) /* the next engine's command line has it */
        log_warn("an engine keeps no KV on the disk: %s", err->msg);
}

/* Names the directory of KV files to the engines that run. */
static void tell_kv_dir(struct server *s)
{
    for (size_t i = 0; s->kv && s->conf->kv_disk && i < engines_count(s->engines); i++) {
        struct engine_client *ec = engines_at(s->engines, i);
        const struct wire_engine_kv_dir dir = {kvdir_path(s->kv)};
        struct hearth_err e;
        if ((engine_state(ec) == ENGINE_STARTING || engine_state(ec) == ENGINE_RUNNING) &&
            engine_call(ec, &wire_methods[WIRE_ENGINE_KV_DIR], &dir, on_kv_dir_told, NULL, &e))
            on_kv_dir_told(NULL, NULL, &e);
    }
}

/* If the state directory, or a folder in it, could not be used, for instance on a full disk, that is tried again, until
 * it can be; while no stream is open, because one could have the number of a stream in a journal. True if something has
 * been opened: calls to the engine may then wait to be sent. */
static bool open_state_again(struct server *s)
{
    const char *dir = s->conf->state_dir;
    bool store = !s->store, journal = !s->journal, kv = !s->kv; /* is missing, and then: has been opened */
    if ((!store && !journal && !kv) || s->phase != SERVER_RUNNING || streams_open(s->streams) > 0 ||
        server_boot() < s->state_again)
        return false;
    open_state(s);
    store = store && s->store;
    journal = journal && s->journal;
    kv = kv && s->kv;
    if (store)
        log_info("%s can be used now", dir);
    if (journal && !store)
        log_info("%s/journal can be used now", dir);
    if (kv && !store)
        log_info("%s/kv can be used now", dir);
    if (store || kv)
        engines_renew_commands(s->engines); /* first, as a stream that is recovered may start one */
    if (kv)
        tell_kv_dir(s);
    if (store || journal)
        recover(s);
    return store || journal || kv;
}

/* One turn of the loop: frames that have waited, of which one may be long, and then the active events. */
static int turn(struct server *s, struct hearth_err *e)
{
    struct store_work before = {0};
    double cpu = server_cpu();
    int64_t link = engines_link_bytes(s->engines);
    bool any = open_state_again(s);
    if (s->store)
        store_work(s->store, &before);
    s->turn = (struct turn){0};
    any |= conn_is_waiting(s);
    conn_handle_waiting(s);
    if (event_base_loop(s->base, EVLOOP_ONCE | (any ? EVLOOP_NONBLOCK : 0)) < 0)
        return err_set(e, HEARTH_EINTERNAL, "the event loop failed: %s", strerror(errno));
    end_turn(s);
    count_turn(s, &before, link, cpu);
    return 0;
}

struct reloading {
    void (*fn)(void *arg);
    void *arg;
};

static void on_hangup(evutil_socket_t signal, short what, void *arg)
{
    struct reloading *r = arg;
    (void)signal, (void)what;
    r->fn(r->arg);
}

int server_run(struct server *s, void (*reload)(void *arg), void *arg, struct hearth_err *e)
{
    struct reloading r = {reload, arg};
    if (reload && (!(s->sighup = evsignal_new(s->base, SIGHUP, on_hangup, &r)) || event_add(s->sighup, NULL)))
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    recover(s);
    int rc = 0;
    while (!rc && s->phase != SERVER_DONE)
        rc = turn(s, e);
    return rc;
}

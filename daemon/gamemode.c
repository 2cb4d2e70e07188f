/* gamemode.c - see gamemode.h. libdbus's headers need not be installed: the types below match its ABI. */
#include "config.h"

#include "daemon/gamemode.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "daemon/loop.h"

struct dbus_error {
    const char *name, *message;
    unsigned bits;
    void *padding;
};
struct dbus_connection;
struct dbus_message;

/* libdbus's functions; a dbus_bool_t is an unsigned int. */
#define CALLS(X)                                                                                              \
    X(void, dbus_error_init, (struct dbus_error * e))                                                         \
    X(void, dbus_error_free, (struct dbus_error * e))                                                         \
    X(struct dbus_connection *, dbus_connection_open_private, (const char *address, struct dbus_error *e))    \
    X(unsigned, dbus_bus_register, (struct dbus_connection * c, struct dbus_error * e))                       \
    X(void, dbus_connection_set_exit_on_disconnect, (struct dbus_connection * c, unsigned yes))               \
    X(void, dbus_connection_set_max_message_size, (struct dbus_connection * c, long bytes))                   \
    X(void, dbus_connection_set_max_received_size, (struct dbus_connection * c, long bytes))                  \
    X(void, dbus_bus_add_match, (struct dbus_connection * c, const char *rule, struct dbus_error *e))         \
    X(unsigned, dbus_connection_get_unix_fd, (struct dbus_connection * c, int *fd))                           \
    X(unsigned, dbus_connection_read_write, (struct dbus_connection * c, int ms))                             \
    X(struct dbus_message *, dbus_connection_pop_message, (struct dbus_connection * c))                       \
    X(void, dbus_message_unref, (struct dbus_message * m))                                                    \
    X(const char *, dbus_message_get_destination, (struct dbus_message * m))                                  \
    X(unsigned, dbus_message_is_signal, (struct dbus_message * m, const char *interface, const char *member)) \
    X(unsigned, dbus_message_get_args, (struct dbus_message * m, struct dbus_error * e, int first, ...))      \
    X(void, dbus_connection_close, (struct dbus_connection * c))                                              \
    X(void, dbus_connection_unref, (struct dbus_connection * c))

struct library {
#define X(type, name, params) type(*name) params;
    CALLS(X)
#undef X
};

enum {
    TYPE_END = 0,
    TYPE_INT32 = 'i',
    TYPE_STRING = 's',
    TYPE_PATH = 'o',
    MESSAGE_MAX = 64 << 10, /* in bytes; GameMode's messages have about a hundred */
    RECEIVED_MAX = 1 << 20,
    AGAIN_SECONDS = 10, /* before a missing bus is looked for again */
    CLOSE_MS = 200,     /* for the thread to end; a thread that blocks on the bus for longer is abandoned */
};

static const char name_of_gamemode[] = "com.feralinteractive.GameMode";
static const char *const rules[] = {
    "type='signal',sender='com.feralinteractive.GameMode',interface='com.feralinteractive.GameMode',"
    "member='GameRegistered'",
    "type='signal',sender='com.feralinteractive.GameMode',interface='com.feralinteractive.GameMode',"
    "member='GameUnregistered'",
    "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',member='NameOwnerChanged',"
    "arg0='com.feralinteractive.GameMode'",
};

struct gamemode {
    char *file, *address; /* of the library; of the bus, where NULL is the user's own */
    void (*changed)(void *arg);
    void *arg;
    struct watch *watch;
    int told, stop; /* eventfds */
    pthread_t thread;
    struct library lib;   /* used by the thread only */
    pthread_mutex_t lock; /* protects the fields below */
    uint32_t n;
    int32_t game[GAMES_MAX]; /* [n] process ids */
    char why[HEARTH_ERR_MSG];
};

static void tell(struct gamemode *g)
{
    uint64_t one = 1;
    (void)!write(g->told, &one, sizeof one); /* notifications that were not read yet add up */
}

/* --- the count of games; runs on the thread --------------------------------------------------------------------- */

static void set_why(struct gamemode *g, const char *why)
{
    pthread_mutex_lock(&g->lock);
    bool differs = g->n > 0 || strcmp(g->why, why) != 0;
    g->n = 0;
    snprintf(g->why, sizeof g->why, "%s", why);
    pthread_mutex_unlock(&g->lock);
    if (differs)
        tell(g);
}

static void set_game(struct gamemode *g, int32_t pid, bool runs)
{
    pthread_mutex_lock(&g->lock);
    uint32_t i = 0, n = g->n;
    while (i < n && g->game[i] != pid)
        i++;
    if (runs && i == n && n < GAMES_MAX)
        g->game[g->n++] = pid;
    else if (!runs && i < n)
        g->game[i] = g->game[--g->n];
    bool differs = g->n != n;
    pthread_mutex_unlock(&g->lock);
    if (differs)
        tell(g);
}

/* --- the bus; runs on the thread -------------------------------------------------------------------------------- */

static void take(struct gamemode *g, struct dbus_message *m)
{
    const struct library *l = &g->lib;
    struct dbus_error err;
    int32_t pid;
    const char *path, *name, *from, *to;
    if (l->dbus_message_get_destination(m)) /* addressed to us alone: no rule selected it, anybody may be its sender */
        return;
    l->dbus_error_init(&err);
    for (int runs = 0; runs < 2; runs++)
        if (l->dbus_message_is_signal(m, name_of_gamemode, runs ? "GameRegistered" : "GameUnregistered") &&
            l->dbus_message_get_args(m, &err, TYPE_INT32, &pid, TYPE_PATH, &path, TYPE_END))
            set_game(g, pid, runs);
    /* gamemoded has exited, and its registrations with it; another one that waited for the name has it at once. */
    if (l->dbus_message_is_signal(m, "org.freedesktop.DBus", "NameOwnerChanged") &&
        l->dbus_message_get_args(m, &err, TYPE_STRING, &name, TYPE_STRING, &from, TYPE_STRING, &to, TYPE_END) &&
        strcmp(name, name_of_gamemode) == 0)
        set_why(g, "");
    l->dbus_error_free(&err);
}

/* Waits for the stop request, for the descriptor (-1: none) to be readable, or for `ms` milliseconds (-1: no limit).
 * True if it is the stop request. */
static bool rest(const struct gamemode *g, int fd, int ms)
{
    struct pollfd p[2] = {{g->stop, POLLIN, 0}, {fd, POLLIN, 0}};
    while (poll(p, 2, ms) < 0 && errno == EINTR)
        continue;
    return p[0].revents != 0;
}

static void follow(struct gamemode *g, struct dbus_connection *c)
{
    struct dbus_message *m;
    int fd;
    if (!g->lib.dbus_connection_get_unix_fd(c, &fd))
        return;
    do {
        unsigned open = g->lib.dbus_connection_read_write(c, 0);
        while ((m = g->lib.dbus_connection_pop_message(c))) {
            take(g, m);
            g->lib.dbus_message_unref(m);
        }
        if (!open)
            return;
    } while (!rest(g, fd, -1));
}

static bool add_rules(struct gamemode *g, struct dbus_connection *c, struct dbus_error *err)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules && !err->name; i++)
        g->lib.dbus_bus_add_match(c, rules[i], err);
    return !err->name;
}

/* Finds the bus's address; false where there is none. D-Bus addresses can also name a program to run, so only sockets
 * are accepted. */
static bool find_address(const struct gamemode *g, char *out, size_t size)
{
    const char *given = g->address ? g->address : getenv("DBUS_SESSION_BUS_ADDRESS"), *dir = getenv("XDG_RUNTIME_DIR");
    if (given && *given) {
        int n = snprintf(out, size, "%s", given);
        return n > 0 && (size_t)n < size && !strncmp(given, "unix:", 5) && !strchr(given, ';');
    }
    int n = dir && *dir ? snprintf(out, size, "unix:path=%s/bus", dir) : -1;
    return n > 0 && (size_t)n < size && access(out + strlen("unix:path="), F_OK) == 0;
}

/* Listens until the bus closes the connection or the stop request comes. */
static void listen_to(struct gamemode *g)
{
    const struct library *l = &g->lib;
    struct dbus_error err;
    char address[512], why[HEARTH_ERR_MSG] = "the session bus has gone";
    if (!find_address(g, address, sizeof address)) {
        set_why(g, "there is no session bus");
        return;
    }
    l->dbus_error_init(&err);
    struct dbus_connection *c = l->dbus_connection_open_private(address, &err);
    if (c) {
        l->dbus_connection_set_exit_on_disconnect(c, 0);
        l->dbus_connection_set_max_message_size(c, MESSAGE_MAX);
        l->dbus_connection_set_max_received_size(c, RECEIVED_MAX);
        if (l->dbus_bus_register(c, &err) && add_rules(g, c, &err)) {
            set_why(g, "");
            follow(g, c);
        }
        l->dbus_connection_close(c);
        l->dbus_connection_unref(c);
    }
    if (err.name)
        snprintf(why, sizeof why, "the session bus: %.150s", err.message ? err.message : err.name);
    l->dbus_error_free(&err);
    set_why(g, why);
}

static bool find_library(struct gamemode *g)
{
    char why[HEARTH_ERR_MSG];
    void *lib = dlopen(g->file, RTLD_NOW | RTLD_LOCAL); /* never closed: the library has thread-local data */
    if (!lib) {
        snprintf(why, sizeof why, "%.180s", dlerror());
        set_why(g, why);
        return false;
    }
#define X(type, name, params)                                          \
    g->lib.name = (type(*) params)dlsym(lib, #name);                   \
    if (!g->lib.name) {                                                \
        snprintf(why, sizeof why, "%.100s has no %s", g->file, #name); \
        set_why(g, why);                                               \
        return false;                                                  \
    }
    CALLS(X)
#undef X
    return true;
}

static void *gamemode_main(void *arg)
{
    struct gamemode *g = arg;
    char address[512];
    if (!find_address(g, address, sizeof address)) /* the library is not loaded before it is needed */
        set_why(g, "there is no session bus");
    while (!find_address(g, address, sizeof address))
        if (rest(g, -1, AGAIN_SECONDS * 1000))
            return NULL;
    if (!find_library(g))
        return NULL;
    do
        listen_to(g);
    while (!rest(g, -1, AGAIN_SECONDS * 1000));
    return NULL;
}

/* --- the loop thread -------------------------------------------------------------------------------------------- */

static void on_news(void *arg)
{
    struct gamemode *g = arg;
    uint64_t n;
    if (read(g->told, &n, sizeof n) == sizeof n)
        g->changed(g->arg);
}

static void gamemode_free(struct gamemode *g)
{
    watch_free(g->watch);
    if (g->told >= 0)
        close(g->told);
    if (g->stop >= 0)
        close(g->stop);
    pthread_mutex_destroy(&g->lock);
    free(g->file);
    free(g->address);
    free(g);
}

static int start(struct gamemode *g)
{
    sigset_t all, before;
    sigfillset(&all); /* signals are handled by the loop thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&g->thread, NULL, gamemode_main, g);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int gamemode_open(struct gamemode **out, struct event_base *base, const char *library, const char *address,
                  void (*changed)(void *arg), void *arg, struct hearth_err *e)
{
    struct gamemode *g = calloc(1, sizeof *g);
    if (!g)
        return err_set(e, HEARTH_ENOMEM, "no memory for GameMode");
    *g = (struct gamemode){.changed = changed, .arg = arg};
    snprintf(g->why, sizeof g->why, "it was not looked for yet");
    pthread_mutex_init(&g->lock, NULL);
    g->file = strdup(library);
    g->address = address ? strdup(address) : NULL;
    g->told = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    g->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    g->watch = g->told >= 0 ? watch_new(base, g->told, on_news, g) : NULL;
    if (!g->file || (address && !g->address) || g->stop < 0 || !g->watch || start(g)) {
        gamemode_free(g);
        return err_set(e, HEARTH_ENOMEM, "no thread can listen to GameMode");
    }
    *out = g;
    return 0;
}

void gamemode_close(struct gamemode *g)
{
    struct timespec until;
    uint64_t one = 1;
    if (!g)
        return;
    watch_free(g->watch);
    g->watch = NULL;
    (void)!write(g->stop, &one, sizeof one);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += CLOSE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_timedjoin_np(g->thread, NULL, &until)) {
        pthread_detach(g->thread); /* it is blocked on the bus; the process is about to exit */
        return;
    }
    gamemode_free(g);
}

uint32_t gamemode_games(struct gamemode *g, char why[static HEARTH_ERR_MSG])
{
    pthread_mutex_lock(&g->lock);
    uint32_t n = g->n;
    memcpy(why, g->why, HEARTH_ERR_MSG);
    pthread_mutex_unlock(&g->lock);
    return n;
}

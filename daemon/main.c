/* main.c - hearthd: command-line options, daemonising, and the paths of its parts. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/conf.h"
#include "daemon/log.h"
#include "daemon/purge.h"
#include "daemon/sd.h"
#include "daemon/server.h"
#include "daemon/socket.h"
#include "daemon/store/store.h"
#include "libclient/standard-fds.h"

/* The options have no letters on the command line: those here only tell them apart. */
static const struct option options[] = {
    {"check", no_argument, NULL, 'k'},
    {"config", required_argument, NULL, 'c'},
    {"engine", required_argument, NULL, 'e'},
    {"foreground", no_argument, NULL, 'f'},
    {"help", no_argument, NULL, 'h'},
    {"purge", no_argument, NULL, 'p'},
    {"log-level", required_argument, NULL, 'l'},
    {"ready-fd", required_argument, NULL, 'r'},
    {"socket", required_argument, NULL, 's'},
    {"state", required_argument, NULL, 'd'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

static const char usage[] =
    "Usage: hearthd [--foreground] [--check] [--purge] [--config FILE] [--socket PATH] [--state DIR] [--engine PATH]\n"
    "               [--log-level error|warn|info|debug] [--ready-fd FD]\n"
    "Keeps language models warm and shares them. See hearthd(8).\n";

struct args {
    const char *config, *engine, *log_level, *socket, *state;
    bool foreground, check, purge;
    int ready_fd;
    char cwd[PATH_MAX]; /* at the start; "": not known */
};

/* Returns 0, or the exit status plus one where hearthd shall exit. */
static int parse(int argc, char **argv, struct args *a)
{
    *a = (struct args){.ready_fd = -1};
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        char *end;
        long fd;
        switch (c) {
        case 'c':
            a->config = optarg;
            break;
        case 'k':
            a->check = true;
            break;
        case 'e':
            a->engine = optarg;
            break;
        case 'f':
            a->foreground = true;
            break;
        case 'h':
            fputs(usage, stdout);
            return 1;
        case 'p':
            a->purge = true;
            break;
        case 'l':
            a->log_level = optarg;
            break;
        case 'r':
            fd = strtol(optarg, &end, 10);
            if (*optarg == '\0' || *end != '\0' || fd < 0 || fd > INT_MAX || fcntl((int)fd, F_GETFD) < 0) {
                fprintf(stderr, "hearthd: --ready-fd: \"%s\" is not an open descriptor\n", optarg);
                return 3;
            }
            a->ready_fd = (int)fd;
            fcntl(a->ready_fd, F_SETFD, FD_CLOEXEC);
            break;
        case 's':
            a->socket = optarg;
            break;
        case 'd':
            a->state = optarg;
            break;
        case 'V':
            puts("hearthd " PACKAGE_VERSION);
            return 1;
        default:
            fputs(usage, stderr);
            return 3;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "hearthd: \"%s\" is not an option\n%s", argv[optind], usage);
        return 3;
    }
    return 0;
}

/* --- paths ----------------------------------------------------------------------------------- */

/* Finds the folder of this program. When run from its build folder, hearthd uses the engine and the models of the
 * source tree. */
static void own_dir(char dir[static PATH_MAX])
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    snprintf(dir, PATH_MAX, "%s", n > 0 ? dirname(self) : ".");
}

/* Looks for the engine beside this program; in an installed tree, which may have been moved as a whole; and in the
 * configured libexec directory. */
static bool find_engine(const char *dir, char path[static PATH_MAX])
{
    static const char *const names[] = {"hearth-engine-cuda", "hearth-engine"}; /* the former is a separate package */
    if (snprintf(path, PATH_MAX, "%s/hearth-engine", dir) < PATH_MAX && access(path, X_OK) == 0)
        return true;
    for (int i = 0; i < 2; i++)
        if (snprintf(path, PATH_MAX, "%s/../libexec/%s", dir, names[i]) < PATH_MAX && access(path, X_OK) == 0)
            return true;
    for (int i = 0; i < 2; i++)
        if (snprintf(path, PATH_MAX, "%s/%s", HEARTH_LIBEXECDIR, names[i]) < PATH_MAX && access(path, X_OK) == 0)
            return true;
    return false;
}

/* Finds the folder of the shipped models by the same rule. Clients see this path, so it must not contain "..". */
static void find_models(const char *dir, char path[static PATH_MAX])
{
    char tree[PATH_MAX], moved[PATH_MAX];
    /* `dir` has no links and no "..", which configure's names of the build's and the sources' folders may have */
    if (realpath(HEARTH_BUILDDIR, tree) && strcmp(dir, tree) == 0 && realpath(HEARTH_SRCDIR "/contrib/models", path))
        return;
    if (snprintf(moved, sizeof moved, "%s/../share/hearth/models", dir) >= PATH_MAX || !realpath(moved, path))
        snprintf(path, PATH_MAX, "%s/models", HEARTH_DATADIR);
}

/* --- configuration -------------------------------------------------------------------------------------- */

/* A file named by --config must exist; the default one may be missing. */
static int load_file(struct conf *c, const struct args *a, struct hearth_err *e)
{
    char *file = NULL;
    if (a->config)
        return conf_load(c, a->config, e);
    if (conf_default_file(&file, NULL) != 0)
        return 0;
    int rc = access(file, F_OK) == 0 ? conf_load(c, file, e) : 0;
    free(file);
    return rc;
}

/* What the configuration is built from, so that it can be built again, and the configurations that were replaced. */
struct configuration {
    const struct args *args;
    const char *dir;
    int listen_fd;
    struct conf conf;
    struct old_conf {
        struct conf conf;
        struct old_conf *next;
    } * old;
};

static int set(struct conf *c, const struct args *a, const char *key, const char *value, struct hearth_err *e)
{
    if (!value)
        return 0;
    char path[PATH_MAX]; /* paths on the command line may be relative, but not empty; they are made absolute */
    if (value[0] != '/' && value[0] != '\0' && strcmp(key, "log_level") != 0) {
        if (!a->cwd[0] || snprintf(path, sizeof path, "%s/%s", a->cwd, value) >= (int)sizeof path)
            return err_set(e, HEARTH_EPARAMS, "%s: \"%.100s\" cannot be made an absolute path", key, value);
        value = path;
    }
    return conf_set(c, key, value, e);
}

/* The path of the socket that the supervisor bound, which takes precedence over the configuration; "" where there is
 * none. */
static void bound_path(int fd, char path[static sizeof((struct sockaddr_un *)0)->sun_path + 1])
{
    struct sockaddr_un at = {0};
    socklen_t len = sizeof at;
    path[0] = '\0';
    if (fd >= 0 && getsockname(fd, (struct sockaddr *)&at, &len) == 0 && at.sun_family == AF_UNIX)
        snprintf(path, sizeof at.sun_path + 1, "%.*s", (int)sizeof at.sun_path, at.sun_path);
}

static int configure(struct conf *c, const struct args *a, int listen_fd, const char *dir, struct hearth_err *e)
{
    const char *socket = a->socket != NULL ? a->socket : getenv("HEARTH_SOCKET");
    char bound[sizeof((struct sockaddr_un *)0)->sun_path + 1];
    bound_path(listen_fd, bound);
    if (bound[0])
        socket = bound;
    if (!bound[0] && !a->socket && socket && socket[0] == '\0')
        socket = NULL; /* an empty variable counts as unset, as it does to clients */
    conf_init(c);
    int rc = load_file(c, a, e);
    if (!rc)
        rc = set(c, a, "socket", socket, e);
    if (!rc)
        rc = set(c, a, "state_dir", a->state, e);
    if (!rc)
        rc = set(c, a, "engine", a->engine, e);
    if (!rc)
        rc = set(c, a, "log_level", a->log_level, e);
    char models[PATH_MAX];
    find_models(dir, models);
    if (!rc)
        rc = conf_finish(c, models, e);
    return rc;
}

/* Opens the log file; O_CREAT in `create` allows creating it. Returns -1 with errno set. A FIFO is refused, as it would
 * block hearthd. */
static int open_log_file(const char *path, int create)
{
    struct stat sb;
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | create, 0600);
    if (fd >= 0 && (fstat(fd, &sb) != 0 || S_ISFIFO(sb.st_mode))) {
        close(fd);
        errno = EINVAL;
        return -1;
    }
    if (fd >= 0)
        fcntl(fd, F_SETFL, O_APPEND);
    return fd;
}

/* Reads the configuration again and applies the keys that are not fixed. An invalid configuration changes nothing. */
static void reload(void *arg)
{
    struct configuration *c = arg;
    struct old_conf *fresh = malloc(sizeof *fresh);
    struct conf_change change;
    struct hearth_err e;
    if (!fresh)
        return;
    if (configure(&fresh->conf, c->args, c->listen_fd, c->dir, &e)) {
        log_error("the configuration stays as it is: %s", e.msg);
        conf_fini(&fresh->conf);
        free(fresh);
        return;
    }
    conf_reload(&c->conf, &fresh->conf, &change);
    fresh->next = c->old;
    c->old = fresh;
    log_threshold = (enum log_level)c->conf.log_level;
    int log = c->conf.log_file ? open_log_file(c->conf.log_file, O_CREAT) : -1; /* it may have been moved away */
    if (log >= 0) {
        dup2(log, STDERR_FILENO);
        close(log);
    }
    log_info("the configuration was read again; %s%s", *change.keys ? "changed: " : "nothing has changed", change.keys);
    if (*change.fixed)
        log_warn("not before hearthd is started again: %s", change.fixed);
}

static void configuration_fini(struct configuration *c)
{
    for (struct old_conf *o; (o = c->old) != NULL;) {
        c->old = o->next;
        conf_fini(&o->conf);
        free(o);
    }
    conf_fini(&c->conf);
}

/* --- the background ------------------------------------------------------------------------------------- */

/* Forks the daemon into the background and returns in the daemon only. The original process exits once the daemon
 * listens, or has found another one that does, so that a caller can connect at once. */
static int detach(struct hearth_err *e)
{
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0)
        return err_set(e, HEARTH_EIO, "pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0)
        return err_set(e, HEARTH_EIO, "fork: %s", strerror(errno));
    if (pid == 0) {
        close(ready[0]);
        setsid();
        return ready[1];
    }
    close(ready[1]);
    char status;
    ssize_t n;
    while ((n = read(ready[0], &status, 1)) < 0 && errno == EINTR)
        continue;
    if (n == 1)
        _exit(EXIT_SUCCESS);
    int wstatus;
    if (waitpid(pid, &wstatus, 0) != pid || !WIFEXITED(wstatus))
        _exit(EXIT_FAILURE);
    _exit(WEXITSTATUS(wstatus));
}

/* Closes inherited descriptors, so that nobody reading from an inherited pipe has to wait for hearthd to exit. a and b
 * stay open; -1 is none. */
static void close_inherited(int a, int b)
{
    int lo = a < b ? a : b, hi = a < b ? b : a;
    unsigned from = STDERR_FILENO + 1;
    if (lo >= (int)from) {
        close_range(from, (unsigned)lo - 1, 0);
        from = (unsigned)lo + 1;
    }
    if (hi >= (int)from) {
        close_range(from, (unsigned)hi - 1, 0);
        from = (unsigned)hi + 1;
    }
    close_range(from, ~0U, 0);
}

/* Detaches from the caller's terminal and working directory; from here on lines go to the log file. */
static int let_go(const struct conf *c, struct hearth_err *e)
{
    char path[PATH_MAX];
    if (c->log_file)
        snprintf(path, sizeof path, "%s", c->log_file);
    else
        snprintf(path, sizeof path, "%s/hearthd.log", c->state_dir);
    int log = open_log_file(path, O_CREAT);
    if (log < 0 && c->log_file)
        return err_set(e, HEARTH_EIO, "%s: %s", path, strerror(errno));
    if (log < 0) /* the state directory is not writable, or something else has the file's name */
        log_warn("%s: %s; there is no log", path, strerror(errno));
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return err_set(e, HEARTH_EIO, "/dev/null: %s", strerror(errno));
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(log >= 0 ? log : null, STDERR_FILENO);
    if (log >= 0)
        close(log);
    close(null);
    log_open((enum log_level)c->log_level);
    log_keep_within(path, c->log_bytes);
    return chdir("/") == 0 ? 0 : err_set(e, HEARTH_EIO, "/: %s", strerror(errno));
}

/* In the foreground, lines go to a file only where log_file names one. That may be in the state directory, which does
 * not exist before the first start. */
static int open_log(const struct conf *c, struct hearth_err *e)
{
    if (c->log_file) {
        int fd = open_log_file(c->log_file, O_CREAT);
        if (fd < 0 && errno == ENOENT && store_make_dirs(c->state_dir, e) == 0)
            fd = open_log_file(c->log_file, O_CREAT);
        if (fd < 0)
            return err_set(e, HEARTH_EIO, "%s: %s", c->log_file, strerror(errno));
        dup2(fd, STDERR_FILENO); /* the engine inherits it */
        close(fd);
        log_keep_within(c->log_file, c->log_bytes);
    }
    log_open((enum log_level)c->log_level);
    return 0;
}

/* --- --check --------------------------------------------------------------------------------------------- */

/* Why `path` cannot be used as a file of that type with that access mode; NULL: it can. */
static const char *fault_of(const char *path, mode_t type, int mode)
{
    struct stat sb;
    if (stat(path, &sb) != 0)
        return strerror(errno);
    if ((sb.st_mode & S_IFMT) != type)
        return type == S_IFDIR ? strerror(ENOTDIR) : S_ISDIR(sb.st_mode) ? strerror(EISDIR) : "it is no plain file";
    return access(path, mode) == 0 ? NULL : strerror(errno);
}

static bool tell_place(const char *what, const char *path, const char *fault)
{
    printf("%-10s %s%s%s\n", what, path, fault ? ": " : "", fault ? fault : "");
    return !fault;
}

/* A missing folder is no fault, because it is skipped; one that cannot be used is. */
static bool tell_folder(const char *what, const char *path, int mode)
{
    return tell_place(what, path, access(path, F_OK) != 0 && errno == ENOENT ? NULL : fault_of(path, S_IFDIR, mode));
}

/* The state directory is created with its parents, so the nearest folder that exists decides. */
static bool tell_state(const char *path)
{
    char dir[PATH_MAX];
    const char *at = dir;
    snprintf(dir, sizeof dir, "%s", path);
    while (access(at, F_OK) != 0 && errno == ENOENT)
        at = dirname(dir);
    const char *fault = fault_of(at, S_IFDIR, R_OK | W_OK | X_OK);
    return tell_place("state", fault ? at : path, fault);
}

/* A missing log file is created when hearthd starts. Its folder must exist, unless it is the state directory. */
static bool tell_log(const struct conf *c)
{
    char dir[PATH_MAX];
    const char *fault = NULL;
    int fd = open_log_file(c->log_file, 0);
    if (fd >= 0) {
        close(fd);
    } else if (errno != ENOENT) {
        fault = strerror(errno);
    } else {
        snprintf(dir, sizeof dir, "%s", c->log_file);
        const char *folder = dirname(dir), *state = c->state_dir;
        size_t n = strlen(folder);
        if (strncmp(folder, state, n) != 0 || state[n + strspn(state + n, "/")] != '\0')
            fault = fault_of(folder, S_IFDIR, W_OK | X_OK);
    }
    return tell_place("log", c->log_file, fault);
}

/* Prints what this configuration results in, and what is wrong with it, without starting anything. */
static int check(const struct conf *c, const struct args *a, const char *dir)
{
    char engine[PATH_MAX];
    char *file = NULL;
    struct hearth_err e;
    bool fine = true;
    if (!a->config)
        conf_default_file(&file, NULL);
    const char *read = a->config ? a->config : file;
    printf("%-10s %s%s\n", "file", read ? read : "-", read && access(read, F_OK) ? " (there is none)" : "");
    free(file);
    if (socket_check(c->socket, &e)) {
        printf("%-10s %s\n", "socket", e.msg); /* the message names the path or the folder */
        fine = false;
    } else {
        tell_place("socket", c->socket, NULL);
    }
    fine = tell_state(c->state_dir) && fine;
    for (size_t i = 0; i < c->n_model_dirs; i++)
        fine = tell_folder("models", c->model_dirs[i], R_OK | X_OK) && fine;
    if (!c->engine && !find_engine(dir, engine)) {
        puts("engine     there is none beside hearthd, nor where it is installed");
        fine = false;
    } else {
        const char *found = c->engine ? c->engine : engine;
        fine = tell_place("engine", found, fault_of(found, S_IFREG, X_OK)) && fine;
    }
    if (c->log_file)
        fine = tell_log(c) && fine;
    return fine ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* `status`, or a failure where what was printed could not be written, as on a full disk. */
static int printed(int status)
{
    if (!fflush(stdout) && !ferror(stdout))
        return status;
    fputs("hearthd: the output could not be written\n", stderr);
    return status ? status : EXIT_FAILURE;
}

/* Removes hearthd's files from the state directory of this configuration. */
static int remove_state(const struct conf *c)
{
    struct purged p;
    struct hearth_err e;
    if (purge(c->state_dir, &p, &e)) {
        fprintf(stderr, "hearthd: %s\n", e.msg);
        return EXIT_FAILURE;
    }
    printf("%zu files of %.1f MB were removed from %s", p.files, 1e-6 * (double)p.bytes, c->state_dir);
    if (p.left)
        printf("; %zu that are not hearthd's stay", p.left);
    putchar('\n');
    return EXIT_SUCCESS;
}

/* The program that starts hearthd may block or ignore signals, which exec(2) hands on: with SIGCHLD blocked hearthd
 * would not notice that its engine has died, and with SIGTERM blocked it could not be ended. An ignored SIGHUP stays so
 * until hearthd handles it. */
static void reset_signals(void)
{
    static const int used[] = {SIGTERM, SIGINT, SIGCHLD};
    sigset_t none;
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        signal(used[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void notify_ready(int fd)
{
    if (fd < 0)
        return;
    (void)!write(fd, "R", 1);
    close(fd);
}

int main(int argc, char **argv)
{
    struct args a;
    struct configuration c = {.args = &a};
    struct sd sd;
    struct server server;
    struct hearth_err e;
    char dir[PATH_MAX], engine[PATH_MAX], config[PATH_MAX];

    if (!standard_fds_open())
        return EXIT_FAILURE;
    int rc = parse(argc, argv, &a);
    if (rc)
        return printed(rc - 1);
    reset_signals();
    umask(077);
    /* A fixed threshold: otherwise glibc raises it after one large allocation, and keeps freed memory from then on. */
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* reaching the file size limit becomes an error of write(2), like a full disk */
    own_dir(dir);
    c.dir = dir;
    /* A reload happens with another working directory. */
    if (!getcwd(a.cwd, sizeof a.cwd))
        a.cwd[0] = '\0';
    if (a.config && realpath(a.config, config))
        a.config = config;
    int detached = -1;
    rc = sd_init(&sd, &e);
    c.listen_fd = sd.listen_fd;
    if (!rc)
        rc = configure(&c.conf, &a, sd.listen_fd, dir, &e);
    if (!rc && (a.check || a.purge)) {
        int status = a.check ? check(&c.conf, &a, dir) : remove_state(&c.conf);
        configuration_fini(&c);
        return printed(status);
    }
    if (!rc && a.foreground)
        rc = open_log(&c.conf, &e);
    if (!rc && !a.foreground) {
        log_open((enum log_level)c.conf.log_level);
        close_inherited(a.ready_fd, sd.listen_fd);
        detached = rc = detach(&e);
        rc = rc < 0 ? rc : 0;
    }
    if (rc) {
        fprintf(stderr, "hearthd: %s\n", e.msg);
        return EXIT_FAILURE;
    }

    const char *found = c.conf.engine;
    if (!found && find_engine(dir, engine))
        found = engine;
    rc = server_init(&server, &c.conf, &sd, found, &e);
    if (!rc && detached >= 0 && (rc = let_go(&c.conf, &e)) < 0)
        server_fini(&server); /* also removes the socket */
    if (rc >= 0) {
        notify_ready(a.ready_fd); /* also where another hearthd answers already, as clients can connect to it */
        notify_ready(detached);
    }
    if (!rc) {
        log_info("hearthd %s listens on %s", PACKAGE_VERSION, c.conf.socket);
        sd_notify(&sd, "READY=1");
        /* When a terminal is closed, SIGHUP must end what runs in it, so it is not used for reloading there. */
        bool is_terminals = a.foreground && isatty(STDIN_FILENO);
        rc = server_run(&server, is_terminals ? NULL : reload, &c, &e);
        server_fini(&server);
        log_info("hearthd ends");
    }
    if (rc < 0)
        log_error("%s", e.msg);
    configuration_fini(&c);
    return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/*
 * serve.c - hearth-engine: the process that holds models. hearthd starts it with the link on descriptor 3.
 *
 * It has two main threads: this one, the loop thread (link, templates, tokenizers, text), and the device thread behind
 * engine.h. The process ends when the link closes: without its daemon an engine would hold a GPU for nobody.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/engine/front/rpc.h"
#include "daemon/engine/serve.h"
#include "daemon/log.h"
#include "daemon/model/map.h"
#include "daemon/trace.h"

static const char usage[] =
    "usage: hearth-engine [--link FD] [--lock PATH] [--checked PATH] [--log-level error|warn|info|debug]\n"
    "                     [--backend auto|cpu|cuda] [--device N] [--sharers N] [--variant NAME] [--threads N]\n"
    "                     [--ahead N] [--gpu-memory N|N%] [--gpu-headroom N] [--host-weights N|auto]\n"
    "                     [--kv-bytes N] [--kv-ram N|auto] [--kv-dir PATH] [--kv-type auto|f16|q8_0]\n"
    "                     [--kv-pool auto|whole|growing] [--restore cost|always|never]\n"
    "                     [--invariant auto|nothing|prompts|all] [--step-seconds N] [--idle-unload MS]\n"
    "                     [--engine-idle MS]\n"
    "       hearth-engine --help | --version\n"
    "\n"
    "Started by hearthd, with a socket pair as descriptor 3 (--link).\n";

/* --- options -------------------------------------------------------------------------------------------- */

struct args {
    struct engine_params engine;
    const char *lock;
    uint64_t link;
    uint32_t device; /* the only GPU that the process sees; 0: the first of all that it sees */
    enum log_level log_level;
};

/* The type of an option's field; those before OPT_BENCH take an argument. */
enum opt_type {
    OPT_TEXT,         /* const char * */
    OPT_SIZE,         /* uint64_t, up to max */
    OPT_SIZE_OR_AUTO, /* the same; "auto" keeps the default */
    OPT_SHARE,        /* engine.gpu_memory, or with a % sign engine.gpu_percent */
    OPT_COUNT,        /* uint32_t, up to max */
    OPT_WORD,         /* an enum, whose values have the words of opt.words */
    OPT_LEVEL,        /* enum log_level */
    OPT_BENCH,        /* refused: it has become hearth-bench */
    OPT_HELP,
    OPT_VERSION
};

/* Words by the value of an enum, up to a NULL. */
static const char *const restore_words[] = {
    [TIER_BY_COST] = "cost", [TIER_ALWAYS] = "always", [TIER_NEVER] = "never", NULL};
static const char *const kv_type_words[] = {
    [KV_TYPE_AUTO] = "auto", [KV_TYPE_F16] = "f16", [KV_TYPE_Q8_0] = "q8_0", [KV_TYPES] = NULL};
static const char *const kv_pool_words[] = {
    [KV_POOL_AUTO] = "auto", [KV_POOL_WHOLE] = "whole", [KV_POOL_GROWING] = "growing", [KV_POOLS] = NULL};
static const char *const invariant_words[] = {[INVARIANT_AUTO] = "auto",
                                              [INVARIANT_NOTHING] = "nothing",
                                              [INVARIANT_PROMPTS] = "prompts",
                                              [INVARIANT_ALL] = "all",
                                              [INVARIANTS] = NULL};

#define AT(field) offsetof(struct args, field)
static const struct opt {
    const char *name;
    enum opt_type type;
    size_t offset;
    uint64_t max;
    const char *const *words;
} opts[] = {
    {"link", OPT_SIZE, AT(link), 1 << 20},
    {"device", OPT_COUNT, AT(device), 1023},
    {"sharers", OPT_COUNT, AT(engine.sharers), 1024},
    {"lock", OPT_TEXT, AT(lock), 0},
    {"checked", OPT_TEXT, AT(engine.checked), 0},
    {"backend", OPT_TEXT, AT(engine.backend), 0},
    {"variant", OPT_TEXT, AT(engine.variant), 0},
    {"threads", OPT_COUNT, AT(engine.threads), 1024},
    {"ahead", OPT_COUNT, AT(engine.max_in_flight), 8},
    {"host-weights", OPT_SIZE_OR_AUTO, AT(engine.host_weights), INT64_MAX},
    {"kv-bytes", OPT_SIZE, AT(engine.kv_bytes), UINT64_MAX},
    {"kv-ram", OPT_SIZE_OR_AUTO, AT(engine.kv_ram), INT64_MAX},
    {"gpu-memory", OPT_SHARE, 0, 0},
    {"gpu-headroom", OPT_SIZE, AT(engine.gpu_headroom), INT64_MAX},
    {"kv-type", OPT_WORD, AT(engine.kv_type), 0, kv_type_words},
    {"kv-pool", OPT_WORD, AT(engine.kv_pool), 0, kv_pool_words},
    {"kv-dir", OPT_TEXT, AT(engine.kv_dir), 0},
    {"invariant", OPT_WORD, AT(engine.invariant), 0, invariant_words},
    {"restore", OPT_WORD, AT(engine.restore), 0, restore_words},
    {"step-seconds", OPT_COUNT, AT(engine.step_seconds), 1 << 20},
    {"idle-unload", OPT_SIZE, AT(engine.idle_ms), INT64_MAX},
    {"engine-idle", OPT_SIZE, AT(engine.empty_ms), INT64_MAX},
    {"log-level", OPT_LEVEL, AT(log_level), 0},
    {"bench", OPT_BENCH, 0, 0},
    {"help", OPT_HELP, 0, 0},
    {"version", OPT_VERSION, 0, 0},
};
enum { OPTS = sizeof opts / sizeof *opts };

static bool number(const char *name, const char *s, uint64_t max, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (errno || end == s || *end || *s == '-' || v > max) {
        fprintf(stderr, "hearth-engine: --%s: \"%s\" is not a number within 0..%llu\n", name, s,
                (unsigned long long)max);
        return false;
    }
    *out = v;
    return true;
}

static bool share(const char *name, const char *s, struct args *a)
{
    size_t n = strlen(s);
    char percent[4] = "";
    uint64_t v;
    if (!n || s[n - 1] != '%')
        return number(name, s, INT64_MAX, &a->engine.gpu_memory);
    if (n <= sizeof percent)
        memcpy(percent, s, n - 1);
    if (!number(name, percent, 100, &v))
        return false;
    a->engine.gpu_percent = (uint32_t)v;
    return true;
}

/* `out` is the enum's field: enums without negative values are unsigned to the compiler. */
static bool word(const struct opt *o, const char *s, unsigned *out)
{
    for (unsigned i = 0; o->words[i]; i++)
        if (!strcmp(s, o->words[i])) {
            *out = i;
            return true;
        }
    fprintf(stderr, "hearth-engine: --%s: \"%s\" is not one of ", o->name, s);
    for (unsigned i = 0; o->words[i]; i++)
        fprintf(stderr, "%s%s", i ? ", " : "", o->words[i]);
    fputc('\n', stderr);
    return false;
}

static bool level(const char *s, enum log_level *out)
{
    int found = log_level_find(s);
    if (found < 0)
        fprintf(stderr, "hearth-engine: --log-level: \"%s\" is not one of error, warn, info, debug\n", s);
    else
        *out = (enum log_level)found;
    return found >= 0;
}

/* False if the option was refused; the reason has then been printed. */
static bool opt_take(const struct opt *o, const char *s, struct args *a)
{
    void *field = (char *)a + o->offset;
    uint64_t v;
    switch (o->type) {
    case OPT_TEXT:
        *(const char **)field = s;
        return true;
    case OPT_SIZE_OR_AUTO:
        if (!strcmp(s, "auto"))
            return true;
        return number(o->name, s, o->max, field);
    case OPT_SIZE:
        return number(o->name, s, o->max, field);
    case OPT_SHARE:
        return share(o->name, s, a);
    case OPT_COUNT:
        if (!number(o->name, s, o->max, &v))
            return false;
        *(uint32_t *)field = (uint32_t)v;
        return true;
    case OPT_WORD:
        return word(o, s, field);
    case OPT_LEVEL:
        return level(s, field);
    case OPT_BENCH:
        fputs("hearth-engine: --bench is a program of its own: hearth-bench MODEL, or hearth bench MODEL\n", stderr);
        return false;
    case OPT_HELP:
        fputs(usage, stdout);
        exit(EXIT_SUCCESS);
    case OPT_VERSION:
        puts("hearth-engine " PACKAGE_VERSION);
        exit(EXIT_SUCCESS);
    }
    return false;
}

static bool args_parse(struct args *a, int argc, char **argv)
{
    struct option options[OPTS + 1] = {0};
    int i, opt;
    for (i = 0; i < OPTS; i++) {
        options[i].name = opts[i].name;
        options[i].has_arg = opts[i].type < OPT_BENCH ? required_argument : no_argument;
    }
    while ((opt = getopt_long(argc, argv, "", options, &i)) != -1)
        if (opt != 0 || !opt_take(&opts[i], optarg, a))
            return false;
    if (optind < argc)
        fprintf(stderr, "hearth-engine: \"%s\" is not an option\n", argv[optind]);
    return optind == argc;
}

/* --- serving --------------------------------------------------------------------------------------------- */

/* Two engines never hold the device at once: a new one waits until the old one has exited. */
static int take_lock(const char *path, int *fd, struct hearth_err *e)
{
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*fd < 0)
        return err_set(e, HEARTH_EIO, "%.120s: %s", path, strerror(errno));
    while (flock(*fd, LOCK_EX) < 0)
        if (errno != EINTR)
            return err_set(e, HEARTH_EIO, "cannot lock %.120s: %s", path, strerror(errno));
    return 0;
}

/* Seconds that closing the engine waits for the step under way. */
static const double patience = 0.5;

static int serve(const struct engine_params *p, int link_fd)
{
    struct hearth_err err;
    struct engine *engine;
    struct rpc_server rpc_server;
    trace_keep();
    int rc = engine_open(&engine, p, &err);
    if (rc) {
        log_error("%s", err.msg);
        rpc_server_refuse(link_fd, &err);
        return EXIT_FAILURE;
    }
    if ((rc = rpc_server_init(&rpc_server, engine, link_fd, &err))) {
        log_error("%s", err.msg);
        if (engine_close(engine, patience))
            rpc_server_refuse(link_fd, &err);
        return EXIT_FAILURE;
    }
    if ((rc = rpc_server_run(&rpc_server, &err)))
        log_error("%s: %s", err_name(rc), err.msg);
    rc = rc ? EXIT_FAILURE : EXIT_SUCCESS;
    if (!engine_close(engine, patience))
        _exit(rc); /* nobody waits for the tokens of that step, and the next engine waits for the lock and the device */
    if (!rpc_server_fini(&rpc_server))
        _exit(rc); /* a worker is blocked on a disk that does not respond */
    return rc;
}

/* Restricts the process to one of the GPUs that CUDA would show it. This is done through the environment, because
 * otherwise each thread that uses CUDA would start on the first GPU, and this process must use no other one. */
static bool see_device(uint32_t device, struct hearth_err *e)
{
    char name[64];
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    snprintf(name, sizeof name, "%u", device);
    for (uint32_t i = 0; visible && i < device; i++)
        visible = (visible = strchr(visible, ',')) ? visible + 1 : "";
    if (visible) {
        size_t n = strcspn(visible, ",");
        if (!n || n >= sizeof name) {
            err_set(e, HEARTH_EDEVICE, "CUDA_VISIBLE_DEVICES has no device %u", device);
            return false;
        }
        snprintf(name, sizeof name, "%.*s", (int)n, visible);
    }
    return setenv("CUDA_VISIBLE_DEVICES", name, 1) == 0;
}

/* Each file of a model takes a descriptor as long as it is mapped, and a model may have hundreds. */
static void allow_files(void)
{
    struct rlimit files;
    rlim_t want = MAPS_MAX + 1024;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= want)
        return;
    files.rlim_cur = files.rlim_max < want ? files.rlim_max : want;
    setrlimit(RLIMIT_NOFILE, &files);
}

int serve_main(int argc, char **argv, engine_wrap *wrap)
{
    struct args a = {
        .engine =
            {.backend = "auto", .variant = "auto", .kv_ram = TIER_RAM_AUTO, .host_weights = UINT64_MAX, .wrap = wrap},
        .link = 3,
        .log_level = LOG_LEVEL_INFO,
    };
    struct hearth_err err;
    int lock;

    if (!args_parse(&a, argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    log_open(a.log_level);
    signal(SIGPIPE, SIG_IGN); /* writing to a closed link is reported by write() instead */
    signal(SIGXFSZ, SIG_IGN); /* so is exceeding a limit on the size of files */
    signal(SIGINT, SIG_IGN);  /* Ctrl+C also reaches a daemon in the foreground, which then closes the link */
    if (a.device && !see_device(a.device, &err)) {
        log_error("%s", err.msg);
        rpc_server_refuse((int)a.link, &err);
        return EXIT_FAILURE;
    }
    if (a.lock && take_lock(a.lock, &lock, &err)) {
        log_error("%s", err.msg);
        rpc_server_refuse((int)a.link, &err); /* the client that waits for the engine learns why there is none */
        return EXIT_FAILURE;
    }
    allow_files();
    return serve(&a.engine, (int)a.link); /* the lock is released when the process exits */
}

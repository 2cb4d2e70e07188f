/*
 * main.c - hearth-engine: the process that holds models. hearthd starts it with the link on descriptor 3.
 *
 * Two threads of ours: this one, the loop thread (link, templates, tokenizers, text), and the device thread behind
 * engine.h. It ends when the link closes: an engine without its daemon would hold a GPU for nobody.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "commit.h"
#include "daemon/engine/bench.h"
#include "daemon/engine/serve.h"

static const char usage[] =
    "usage: hearth-engine [--link FD] [--lock PATH] [--checked PATH] [--backend auto|cpu|cuda]\n"
    "                     [--variant NAME] [--threads N] [--ahead N] [--kv-bytes N] [--kv-ram N|auto] [--kv-dir PATH]\n"
    "                     [--restore cost|always|never]\n"
    "       hearth-engine --bench MODEL [--prompt N,...] [--depth N,...] [--batch N,...] [--resume N,...]\n"
    "                     [--kv N,...] [--load] [--anyway] [--json | --csv] [--name NAME] [--commit ID]\n"
    "                     [--backend ...]\n"
    "\n"
    "Started by hearthd, with a socket pair as descriptor 3 (--link). --bench measures a model and exits.\n";

/* Two engines never hold the device at once: the new one waits until the old one has ended. */
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

static bool restore_policy(const char *s, enum tier_policy *out)
{
    static const char *const names[] = {[TIER_BY_COST] = "cost", [TIER_ALWAYS] = "always", [TIER_NEVER] = "never"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(s, names[i])) {
            *out = (enum tier_policy)i;
            return true;
        }
    fprintf(stderr, "hearth-engine: --restore: \"%s\" is not one of cost, always, never\n", s);
    return false;
}

/* How long the end waits for the step under way. */
static const double patience = 0.5;

static int serve(const struct engine_params *p, int link_fd)
{
    struct hearth_err err;
    struct engine *engine;
    struct server server;
    int rc = engine_open(&engine, p, &err);
    if (rc) {
        fprintf(stderr, "hearth-engine: %s\n", err.msg);
        return EXIT_FAILURE;
    }
    if ((rc = server_init(&server, engine, link_fd, &err))) {
        fprintf(stderr, "hearth-engine: %s\n", err.msg);
        engine_close(engine, patience);
        return EXIT_FAILURE;
    }
    if ((rc = server_run(&server, &err)))
        fprintf(stderr, "hearth-engine: %s: %s\n", err_name(rc), err.msg);
    rc = rc ? EXIT_FAILURE : EXIT_SUCCESS;
    if (!engine_close(engine, patience))
        _exit(rc); /* a step of seconds, for nobody: the lock and the device are wanted */
    server_fini(&server);
    return rc;
}

int main(int argc, char **argv)
{
    enum {
        OPT_LINK = 256,
        OPT_LOCK,
        OPT_CHECKED,
        OPT_BACKEND,
        OPT_VARIANT,
        OPT_THREADS,
        OPT_AHEAD,
        OPT_KV_BYTES,
        OPT_KV_RAM,
        OPT_KV_DIR,
        OPT_RESTORE,
        OPT_BENCH,
        OPT_PROMPT,
        OPT_DEPTH,
        OPT_BATCH,
        OPT_RESUME,
        OPT_KV,
        OPT_LOAD,
        OPT_ANYWAY,
        OPT_NAME,
        OPT_COMMIT,
        OPT_JSON,
        OPT_CSV,
        OPT_HELP,
        OPT_VERSION
    };
    static const struct option options[] = {
        {"link", required_argument, 0, OPT_LINK},
        {"lock", required_argument, 0, OPT_LOCK},
        {"checked", required_argument, 0, OPT_CHECKED},
        {"backend", required_argument, 0, OPT_BACKEND},
        {"variant", required_argument, 0, OPT_VARIANT},
        {"threads", required_argument, 0, OPT_THREADS},
        {"ahead", required_argument, 0, OPT_AHEAD},
        {"kv-bytes", required_argument, 0, OPT_KV_BYTES},
        {"kv-ram", required_argument, 0, OPT_KV_RAM},
        {"kv-dir", required_argument, 0, OPT_KV_DIR},
        {"restore", required_argument, 0, OPT_RESTORE},
        {"bench", required_argument, 0, OPT_BENCH},
        {"prompt", required_argument, 0, OPT_PROMPT},
        {"depth", required_argument, 0, OPT_DEPTH},
        {"batch", required_argument, 0, OPT_BATCH},
        {"resume", required_argument, 0, OPT_RESUME},
        {"kv", required_argument, 0, OPT_KV},
        {"load", no_argument, 0, OPT_LOAD},
        {"anyway", no_argument, 0, OPT_ANYWAY},
        {"name", required_argument, 0, OPT_NAME},
        {"commit", required_argument, 0, OPT_COMMIT},
        {"json", no_argument, 0, OPT_JSON},
        {"csv", no_argument, 0, OPT_CSV},
        {"help", no_argument, 0, OPT_HELP},
        {"version", no_argument, 0, OPT_VERSION},
        {0},
    };
    struct engine_params p = {.backend = "auto", .variant = "auto", .kv_ram = TIER_RAM_AUTO};
    struct bench_params bench = {
        .prompt = "128", .depth = "0", .batch = "none", .resume = "none", .kv = "none", .commit = HEARTH_COMMIT};
    const char *lock = NULL;
    struct hearth_err err;
    uint64_t v, link_fd = 3;
    int opt, lock_fd = -1;

    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        bool ok = true;
        switch (opt) {
        case OPT_LINK:
            ok = number("link", optarg, 1 << 20, &link_fd);
            break;
        case OPT_LOCK:
            lock = optarg;
            break;
        case OPT_CHECKED:
            p.checked = optarg;
            break;
        case OPT_BACKEND:
            p.backend = optarg;
            break;
        case OPT_VARIANT:
            p.variant = optarg;
            break;
        case OPT_THREADS:
            if ((ok = number("threads", optarg, 1024, &v)))
                p.threads = (uint32_t)v;
            break;
        case OPT_AHEAD:
            if ((ok = number("ahead", optarg, 8, &v)))
                p.ahead = (uint32_t)v;
            break;
        case OPT_KV_BYTES:
            ok = number("kv-bytes", optarg, UINT64_MAX, &p.kv_bytes);
            break;
        case OPT_KV_RAM:
            ok = !strcmp(optarg, "auto") || number("kv-ram", optarg, INT64_MAX, &p.kv_ram);
            break;
        case OPT_KV_DIR:
            p.kv_dir = optarg;
            break;
        case OPT_RESTORE:
            ok = restore_policy(optarg, &p.restore);
            break;
        case OPT_BENCH:
            bench.model = optarg;
            break;
        case OPT_PROMPT:
            bench.prompt = optarg;
            break;
        case OPT_DEPTH:
            bench.depth = optarg;
            break;
        case OPT_BATCH:
            bench.batch = optarg;
            break;
        case OPT_RESUME:
            bench.resume = optarg;
            break;
        case OPT_KV:
            bench.kv = optarg;
            break;
        case OPT_LOAD:
            bench.load = true;
            break;
        case OPT_ANYWAY:
            bench.anyway = true;
            break;
        case OPT_NAME:
            bench.name = optarg;
            break;
        case OPT_COMMIT:
            bench.commit = optarg;
            break;
        case OPT_JSON:
            bench.format = BENCH_JSON;
            break;
        case OPT_CSV:
            bench.format = BENCH_CSV;
            break;
        case OPT_HELP:
            fputs(usage, stdout);
            return EXIT_SUCCESS;
        case OPT_VERSION:
            puts("hearth-engine " PACKAGE_VERSION);
            return EXIT_SUCCESS;
        default:
            ok = false;
        }
        if (!ok) {
            fputs(usage, stderr);
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "hearth-engine: what is \"%s\"?\n%s", argv[optind], usage);
        return 2;
    }
    if (bench.model) {
        bench.engine = &p;
        return bench_main(&bench);
    }
    signal(SIGPIPE, SIG_IGN); /* a closed link is an error of write(), not a death */
    signal(SIGXFSZ, SIG_IGN); /* nor is a limit on the size of files */
    signal(SIGINT, SIG_IGN);  /* Ctrl+C at a daemon in the foreground is for the daemon, which then closes the link */
    if (lock && take_lock(lock, &lock_fd, &err)) {
        fprintf(stderr, "hearth-engine: %s\n", err.msg);
        return EXIT_FAILURE;
    }
    return serve(&p, (int)link_fd); /* the lock goes with the process */
}

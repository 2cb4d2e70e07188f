/*
 * main.c - hearth-bench: parses the options. The measurements are behind bench.h.
 *
 * It is a separate program so that a serving engine contains none of it. `hearth bench` runs it.
 */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "commit.h"
#include "daemon/bench/bench.h"
#include "libclient/standard-fds.h"

static const char usage[] =
    "usage: hearth-bench MODEL [--prompt N,...] [--depth N,...] [--batch N,...] [--resume N,...] [--kv N,...]\n"
    "                    [--kv-dir PATH] [--load] [--anyway] [--json | --csv] [--name NAME] [--commit ID]\n"
    "                    [--backend auto|cpu|cuda] [--variant NAME] [--threads N] [--invariant nothing|prompts|all]\n"
    "                    [--kv-type auto|f16|q8_0] [--gpu-weights MIB] [--rows N]\n"
    "\n"
    "Checks a model's file on this machine's processors, then measures it: prompts, decoding, batches, the KV cache.\n"
    "--gpu-weights: what weights may take of a GPU's memory; what has no room there stays in the host's.\n"
    "--rows: prompts in steps of so many rows.\n"
    "A list may be \"none\". --anyway measures a model whose check failed, and fails in the end.\n";

enum { THREADS_MAX = 256, MIB_MAX = 1 << 30 };

enum {
    OPT_PROMPT = 1,
    OPT_DEPTH,
    OPT_BATCH,
    OPT_RESUME,
    OPT_KV,
    OPT_KV_DIR,
    OPT_LOAD,
    OPT_ANYWAY,
    OPT_JSON,
    OPT_CSV,
    OPT_NAME,
    OPT_COMMIT,
    OPT_BACKEND,
    OPT_VARIANT,
    OPT_INVARIANT,
    OPT_KV_TYPE,
    OPT_GPU_WEIGHTS,
    OPT_ROWS,
    OPT_THREADS,
    OPT_HELP,
    OPT_VERSION
};
static const struct option options[] = {
    {"prompt", required_argument, NULL, OPT_PROMPT},
    {"depth", required_argument, NULL, OPT_DEPTH},
    {"batch", required_argument, NULL, OPT_BATCH},
    {"resume", required_argument, NULL, OPT_RESUME},
    {"kv", required_argument, NULL, OPT_KV},
    {"kv-dir", required_argument, NULL, OPT_KV_DIR},
    {"load", no_argument, NULL, OPT_LOAD},
    {"anyway", no_argument, NULL, OPT_ANYWAY},
    {"json", no_argument, NULL, OPT_JSON},
    {"csv", no_argument, NULL, OPT_CSV},
    {"name", required_argument, NULL, OPT_NAME},
    {"commit", required_argument, NULL, OPT_COMMIT},
    {"backend", required_argument, NULL, OPT_BACKEND},
    {"variant", required_argument, NULL, OPT_VARIANT},
    {"invariant", required_argument, NULL, OPT_INVARIANT},
    {"kv-type", required_argument, NULL, OPT_KV_TYPE},
    {"gpu-weights", required_argument, NULL, OPT_GPU_WEIGHTS},
    {"rows", required_argument, NULL, OPT_ROWS},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static struct bench_params params = {.prompt = "128",
                                     .depth = "0",
                                     .batch = "none",
                                     .resume = "none",
                                     .kv = "none",
                                     .commit = HEARTH_COMMIT,
                                     .backend = "auto",
                                     .variant = "auto",
                                     .invariant = "nothing",
                                     .kv_type = "auto"};

static bool number_parse(const char *option, const char *s, uint32_t most, uint32_t *out)
{
    char *end;
    errno = 0;
    unsigned long v = strtoul(s, &end, 10);
    if (errno || end == s || *end || *s == '-' || v > most) {
        fprintf(stderr, "hearth-bench: %s: \"%s\" is not a number within 0..%u\n", option, s, most);
        return false;
    }
    *out = (uint32_t)v;
    return true;
}

/* Where the values of text options are stored. */
static const char **const texts[] = {
    [OPT_PROMPT] = &params.prompt,
    [OPT_DEPTH] = &params.depth,
    [OPT_BATCH] = &params.batch,
    [OPT_RESUME] = &params.resume,
    [OPT_KV] = &params.kv,
    [OPT_KV_DIR] = &params.kv_dir,
    [OPT_NAME] = &params.name,
    [OPT_COMMIT] = &params.commit,
    [OPT_BACKEND] = &params.backend,
    [OPT_VARIANT] = &params.variant,
    [OPT_INVARIANT] = &params.invariant,
    [OPT_KV_TYPE] = &params.kv_type,
};

/* Applies an option. Returns false where it was refused, after printing the reason. */
static bool option_take(int opt)
{
    switch (opt) {
    case OPT_LOAD:
        return params.load = true;
    case OPT_ANYWAY:
        return params.force = true;
    case OPT_JSON:
        params.format = BENCH_JSON;
        return true;
    case OPT_CSV:
        params.format = BENCH_CSV;
        return true;
    case OPT_THREADS:
        return number_parse("--threads", optarg, THREADS_MAX, &params.threads);
    case OPT_GPU_WEIGHTS:
        return number_parse("--gpu-weights", optarg, MIB_MAX, &params.gpu_weights);
    case OPT_ROWS:
        return number_parse("--rows", optarg, BATCH_ROWS_MAX, &params.rows);
    case OPT_HELP:
        fputs(usage, stdout);
        exit(EXIT_SUCCESS);
    case OPT_VERSION:
        puts("hearth-bench " PACKAGE_VERSION);
        exit(EXIT_SUCCESS);
    case '?': /* getopt_long has printed the reason */
        return false;
    }
    *texts[opt] = optarg;
    return true;
}

static bool params_parse(int argc, char **argv)
{
    int opt;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1)
        if (!option_take(opt))
            return false;
    if (optind != argc - 1) {
        fputs("hearth-bench: name one model\n", stderr);
        return false;
    }
    params.model = argv[optind];
    return true;
}

int main(int argc, char **argv)
{
    if (!standard_fds_open())
        return EXIT_FAILURE;
    if (!params_parse(argc, argv)) {
        fputs(usage, stderr);
        return BENCH_USAGE;
    }
    return bench_main(&params);
}

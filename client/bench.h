/*
 * bench.h - what the files of `hearth bench` share: cmd-bench.c (options, a model alone), bench-load.c (many clients of
 * the daemon) and bench-report.c (what they saw, in figures).
 */
#ifndef CLIENT_BENCH_H
#define CLIENT_BENCH_H

#include "client/cmd.h"

/* Milliseconds on a monotonic clock. */
double bench_now(void);

/* 64 random bits from a state, by SplitMix64 (Steele, Lea, Flood 2014); and a state that no other process begins with,
 * as the daemon may have the KV of an earlier one's prompts. */
uint64_t bench_random(uint64_t *state);
uint64_t bench_fresh(void);

/* Sorts v[0..n), n > 0, and returns its quantile q of 0..1, between two values by their distances from it. */
double bench_quantile(double *v, size_t n, double q);

/* A load on the daemon. */
/* Ids of all prompts and tokens of all answers together: they and their times are kept, some 24 bytes for each. */
#define LOAD_IDS_MAX (INT64_C(1) << 26)

struct load_params {
    int64_t clients, prompt, output; /* connections; ids in and out of a request */
    int64_t requests;                /* in all */
    int64_t shared;                  /* of the ids in, those that all begin with */
    int64_t late;                    /* ids of one more client's prompt while all decode; 0: there is none */
    int64_t arrivals;                /* of such prompts, one after another */
    double rate;                     /* requests per second that arrive at random; 0: each client asks when answered */
    uint64_t seed;                   /* of the arrivals */
    double ttft, tpot, e2el;         /* goodput: milliseconds, 0: any */
    bool goodput, json;
};

/* A request of the load and what was seen of it. Times are bench_now()'s. */
struct load_request {
    int32_t *prompt;
    size_t n_prompt, n_output;
    double due;            /* it is sent then */
    double sent;           /* 0: not yet */
    double *at;            /* [n]: when each token came */
    int32_t *id;           /* [n] */
    size_t n;              /* at most n_output */
    double end;            /* 0: it runs */
    struct hearth_err err; /* code 0, or why it failed */
    struct hearth_usage usage;
    struct load_client *by;
    uint32_t number;           /* hearth_submit()'s */
    struct load_request *next; /* of those that the client waits for */
};

struct load {
    const struct load_params *params;
    const struct hearth_model *model;
    const char *where;            /* cpu, cuda:0 */
    struct load_request *request; /* [params->requests], then a late one and its keystroke, for each arrival */
    size_t n_request;
    double begin, end;
    size_t most_open;           /* requests that were not answered, at most */
    size_t n_checked, n_differ; /* texts, and those that were another alone */
};

enum { LATE_REQUESTS = 2 }; /* of an arrival */

/* Both requests of an arrival, k < load_arrivals(). */
static inline struct load_request *load_late(const struct load *l, int64_t k)
{
    return l->request + l->params->requests + LATE_REQUESTS * k;
}

static inline int64_t load_arrivals(const struct load_params *p)
{
    return p->late ? p->arrivals : 0;
}

/* Runs the load, checks its texts where the device promises it, and prints what came of it. */
int bench_load(struct hearth *h, const struct hearth_model *m, const struct load_params *p);

/* bench-report.c: the exit status. */
int load_report(const struct load *l);

#endif

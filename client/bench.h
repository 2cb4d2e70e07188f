/*
 * bench.h - what the files of `hearth bench` share: cmd-bench.c (options; a model measured alone), bench-load.c (a load
 * of many clients on the daemon) and bench-report.c (the load's statistics).
 */
#ifndef CLIENT_BENCH_H
#define CLIENT_BENCH_H

#include "client/cmd.h"

/* Milliseconds on a monotonic clock. */
double bench_now(void);

/* bench_random() returns 64 random bits from a state, by SplitMix64 (Steele, Lea, Flood 2014). bench_fresh() returns a
 * state that no other process starts with, because the daemon may still have the KV of an earlier process's prompts. */
uint64_t bench_random(uint64_t *state);
uint64_t bench_fresh(void);

/* Sorts v[0..n), n > 0, and returns its quantile q in 0..1, interpolated linearly between two values. */
double bench_quantile(double *v, size_t n, double q);

/* The most prompt ids and answer tokens of a load, in all: they and their times are kept, in some 24 bytes each. */
#define LOAD_IDS_MAX (INT64_C(1) << 26)

struct load_params {
    int64_t clients, prompt, output; /* connections; prompt ids and answer tokens of a request */
    int64_t requests;                /* in all */
    int64_t shared;                  /* leading prompt ids that all requests share */
    int64_t late;                    /* prompt ids of one more client's late request, sent while all clients decode; 0:
                                        none */
    int64_t arrivals;                /* number of such late requests, one after another */
    double rate;                     /* random arrivals per second (Poisson); 0: each client sends its next request when
                                        the last one is answered */
    uint64_t seed;                   /* seed of the arrival times */
    double ttft, tpot, e2el;         /* goodput limits in milliseconds; 0: none */
    bool goodput, json;
};

/* A request of the load and its measurements. Times are those of bench_now(). */
struct load_request {
    int32_t *prompt;
    size_t n_prompt, n_output;
    double due;            /* when it is to be sent, from the load's begin */
    double sent;           /* 0: not sent yet */
    double *at;            /* [n]: when each token arrived */
    int32_t *id;           /* [n] */
    size_t n;              /* at most n_output */
    double end;            /* 0: still running */
    struct hearth_err err; /* why it failed; code 0: it did not */
    struct hearth_usage usage;
    struct load_client *by;
    uint32_t number;           /* from hearth_submit() */
    struct load_request *next; /* next request that the client waits for */
};

struct load {
    const struct load_params *params;
    const struct hearth_model *model;
    const char *where;            /* cpu, cuda:0 */
    struct load_request *request; /* [params->requests], followed by a late request and its keystroke request for each
                                     arrival */
    size_t n_request;
    double begin, end;
    size_t most_open;           /* largest number of unanswered requests */
    size_t n_checked, n_differ; /* texts that were compared with the model's own, and those that differ from what it
                                   computes without the load */
};

enum { LATE_REQUESTS = 2 }; /* requests of an arrival: the late prompt, and a keystroke */

/* Returns the two requests of arrival k < load_arrivals(). */
static inline struct load_request *load_late(const struct load *l, int64_t k)
{
    return l->request + l->params->requests + LATE_REQUESTS * k;
}

static inline int64_t load_arrivals(const struct load_params *p)
{
    return p->late ? p->arrivals : 0;
}

/* Runs the load, checks its texts where the device guarantees that they do not depend on the batch, and prints the
 * results. Returns the exit status. */
int bench_load(struct hearth *h, const struct hearth_model *m, const struct load_params *p);

/* bench-report.c: prints the results and returns the exit status. */
int load_report(const struct load *l);

#endif

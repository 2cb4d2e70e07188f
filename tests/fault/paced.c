/* paced.c - see paced.h. Thread: the device's. */
#include "config.h"

#include "tests/fault/paced.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "daemon/engine/clock.h"

enum {
    IN_FLIGHT = 4,
    SHAPE = 64,
    WHOLE = 512 /* rows beyond a multiple of these are computed by a product of their own */
};

static struct {
    const struct backend *inner;
    struct backend table;
    double factor;
    bool trials, slowly, computes;
    bool tried[BATCH_ROWS_MAX / SHAPE + 1];
    bool slow;   /* the next submission is slow */
    double idle; /* when the last step will be done */
    uint64_t ticket, waited;
    uint32_t n_vocab[SLOTS_MAX];
    struct step {
        uint64_t inner; /* the inner backend's ticket; 0: the step was not computed */
        double done;
        uint32_t n;
        struct sampled s[BATCH_SEQS_MAX];
        struct hearth_err err; /* of a step that was computed at once */
    } ring[IN_FLIGHT];
} paced;

/* --- how long steps take: milliseconds of an H100 ------------------------------------------------------------- */

/* What a step is made of. */
struct shape {
    uint32_t decode, prompt; /* rows */
    double keys;             /* keys that the decoding rows see */
    double attention;        /* of the prompts, in ms */
};

static struct shape shape_of(const struct batch *b)
{
    struct shape s = {0};
    for (uint32_t i = 0; i < b->n_seq; i++) {
        const struct batch_seq *q = &b->seq[i];
        double n = q->n_row, deep = (q->pos0 + n / 2) / 1000;
        if (q->n_row == 1) {
            s.decode++;
            s.keys += q->pos0;
            continue;
        }
        s.prompt += q->n_row;
        /* A few rows at a great depth occupy few SMs: 128 rows take more than half of the time of 512. */
        s.attention += fmin(1, n / 64) * (deep * (0.5 + 0.00145 * n) + 1.3 * fmin(1, deep / 1.5) * n / 512);
    }
    return s;
}

/* The time of a step of so many decoding rows without context. */
static double decode_ms(uint32_t rows)
{
    static const struct {
        uint32_t rows;
        double ms;
    } at[] = {{1, 1.75}, {2, 2.05}, {4, 2.85}, {16, 2.85}, {32, 3.1}, {64, 4.0}, {BATCH_SEQS_MAX + 64, 6.5}};
    int i = 1;
    while (at[i].rows < rows)
        i++;
    return at[i - 1].ms + (at[i].ms - at[i - 1].ms) * (rows - at[i - 1].rows) / (double)(at[i].rows - at[i - 1].rows);
}

static double step_ms(const struct shape *s)
{
    uint32_t rows = s->decode + s->prompt;
    double keys = 4.3e-5 * s->keys;
    if (!s->prompt)
        return decode_ms(rows) + keys;
    return (rows <= 128 ? 2.3 + 0.0232 * rows : 2.2 + 0.0236 * rows) + s->attention + 0.075 * s->decode + keys;
}

/* The time of the host for a submission: a graph, or some hundred launches. */
static double submission_ms(const struct shape *s)
{
    static const double more = 4.4;
    if (!s->prompt)
        return 0.05;
    if (!s->decode || s->decode + s->prompt <= 128)
        return s->decode ? 1.6 : 2.0;
    paced.slow = !paced.slow && paced.slowly;
    return 4.0 + (paced.slow ? more : 0);
}

static double seconds(double ms)
{
    return 1e-3 * paced.factor * ms;
}

static void sleep_until(double t)
{
    struct timespec at = {(time_t)t, (long)(1e9 * (t - floor(t)))};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL)) {
    }
}

static void try_rows(uint32_t rows)
{
    static const double trial = 60;
    uint32_t shape = (rows + SHAPE - 1) / SHAPE;
    if (paced.trials && shape && !paced.tried[shape]) {
        paced.tried[shape] = true;
        paced.idle = fmax(paced.idle, engine_now()) + seconds(trial);
        sleep_until(paced.idle);
    }
}

/* Waits if the step is the first one with its shapes. */
static void try_shapes(const struct shape *s)
{
    uint32_t rows = s->decode + s->prompt;
    if (!s->prompt || rows <= SHAPE)
        return;
    try_rows(rows / WHOLE * WHOLE);
    try_rows(rows % WHOLE);
}

/* --- the function table ----------------------------------------------------------------------------------------- */

static void info(struct device *d, struct device_info *out)
{
    paced.inner->info(d, out);
    out->gpu = true;
    out->max_in_flight = IN_FLIGHT;
    out->decode_rows = 4;
    out->kv_granule = 0;
}

static void sample(struct step *f, const struct batch_sample *op)
{
    f->n = op->n;
    for (uint32_t i = 0; i < op->n; i++) {
        uint32_t n = paced.n_vocab[op->slot[i]];
        f->s[i] = (struct sampled){.slot = op->slot[i], .token = n ? (n / 2 + op->index[i] % 64) % n : 0, .logprob = 1};
    }
}

/* Has the inner backend compute the step at once; its results are handed out when the GPU would have them. */
static void compute(struct device *d, struct step *f, const struct batch *b, const struct program *p)
{
    struct batch whole = *b;
    whole.stop = NULL;
    f->n = b->sample.n;
    paced.inner->step_wait(d, paced.inner->step_run(d, &whole, p), f->s, f->n, &f->err);
}

/* The engine's steps may be stopped; those of the self-check, which are really computed, may not. */
static uint64_t step_run(struct device *d, const struct batch *b, const struct program *p)
{
    struct step *f = &paced.ring[++paced.ticket % IN_FLIGHT];
    struct shape s = shape_of(b);
    if (paced.ticket - paced.waited > IN_FLIGHT)
        abort(); /* more steps are in flight than device_info allows */
    f->n = 0;
    f->inner = b->stop ? 0 : paced.inner->step_run(d, b, p);
    f->done = 0;
    if (!b->stop)
        return paced.ticket;
    try_shapes(&s);
    double begin = engine_now();
    paced.idle = f->done = fmax(paced.idle, begin) + seconds(step_ms(&s));
    f->err.code = 0;
    if (paced.computes)
        compute(d, f, b, p);
    else
        sample(f, &b->sample);
    sleep_until(begin + seconds(submission_ms(&s)));
    return paced.ticket;
}

static int step_wait(struct device *d, uint64_t ticket, struct sampled *out, uint32_t n, struct hearth_err *e)
{
    const struct step *f = &paced.ring[ticket % IN_FLIGHT];
    paced.waited = ticket;
    if (f->inner)
        return paced.inner->step_wait(d, f->inner, out, n, e);
    sleep_until(f->done);
    if (f->err.code) {
        *e = f->err;
        return e->code;
    }
    memcpy(out, f->s, (n < f->n ? n : f->n) * sizeof *out);
    return 0;
}

static int slot_set(struct device *d, uint32_t slot, const struct sample_params *p, const int32_t *history,
                    uint32_t n_history, uint32_t n_vocab, struct hearth_err *e)
{
    paced.n_vocab[slot] = n_vocab;
    return paced.inner->slot_set(d, slot, p, history, n_history, n_vocab, e);
}

const char *paced_by;

static bool parse(const char *s)
{
    char *end;
    paced.factor = strtod(s, &end);
    for (; *end == ','; end += strcspn(end, ",")) {
        end++;
        if (!strncmp(end, "trials", 6))
            paced.trials = true;
        else if (!strncmp(end, "slow", 4))
            paced.slowly = true;
        else if (!strncmp(end, "computes", 8))
            paced.computes = true;
        else
            return false;
    }
    return paced.factor > 0 && !*end;
}

const struct backend *paced_wrap(const struct backend *be, struct device *d, struct hearth_err *e)
{
    (void)d;
    if (!parse(paced_by)) {
        err_set(e, HEARTH_EPARAMS, "--paced: \"%.40s\" is not FACTOR[,trials][,slow][,computes]", paced_by);
        return NULL;
    }
    prctl(PR_SET_TIMERSLACK, 1000); /* as the GPU's backend does, so that sleeps are precise */
    paced.inner = be;
    paced.table = *be;
    paced.table.info = info;
    paced.table.step_run = step_run;
    paced.table.step_wait = step_wait;
    paced.table.slot_set = slot_set;
    return &paced.table;
}

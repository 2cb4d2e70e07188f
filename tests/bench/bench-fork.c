/*
 * bench-fork.c - how long sessions.fork takes, including its commit, for a client of the daemon at $HEARTH_SOCKET: a
 * session of TOKENS ids in TURNS turns is imported for `MODEL`, forked RUNS times at its end and in its middle, and
 * removed with its forks.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libclient/hearth.h"

enum { TOKENS = 32000, TURNS = 2000, IDS = TOKENS / TURNS, RUNS = 200 };

static struct hearth_err err;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void must(int rc)
{
    if (!rc)
        return;
    fprintf(stderr, "%s: %s\n", hearth_error_name(err.code), err.msg);
    exit(1);
}

static void import(struct hearth *h, const char *model)
{
    static int32_t ids[IDS];
    static struct hearth_turn turns[TURNS];
    struct hearth_session_import page;
    struct hearth_imported *r;
    for (int i = 0; i < IDS; i++)
        ids[i] = 300 + i;
    for (int i = 0; i < TURNS; i++)
        turns[i] = (struct hearth_turn){.role = i % 2 ? "assistant" : "user",
                                        .text = hearth_text("some words, as many as there are ids"),
                                        .tokens = {ids, IDS}};
    hearth_session_import_init(&page, sizeof page);
    page.version = HEARTH_EXPORT_VERSION;
    page.name = "bench fork";
    page.model = model;
    page.turns = turns;
    page.n_turns = TURNS;
    page.replace = true;
    must(hearth_sessions_import(h, &page, &r, NULL, &err));
    hearth_free(r);
}

/* The median and the longest of RUNS forks at `at`; -1: at the end. */
static void measure(struct hearth *h, int64_t at)
{
    double ms[RUNS];
    for (int i = 0; i < RUNS; i++) {
        struct hearth_session_fork f;
        struct hearth_forked *r;
        hearth_session_fork_init(&f, sizeof f);
        f.session = "bench fork";
        f.at = at;
        double begun = now_ms();
        must(hearth_sessions_fork(h, &f, &r, NULL, &err));
        ms[i] = now_ms() - begun;
        must(hearth_sessions_remove(h, r->sessions[0].id, NULL, &err));
        hearth_free(r);
    }
    qsort(ms, RUNS, sizeof *ms, by_value);
    printf("%d tokens in %d turns, %s: median %.3f ms, p99 %.3f ms, longest %.3f ms\n", TOKENS, TURNS,
           at < 0 ? "at the end" : "in the middle", ms[RUNS / 2], ms[RUNS * 99 / 100], ms[RUNS - 1]);
}

int main(int argc, char **argv)
{
    struct hearth *h;
    must(hearth_open_or_start(&h, NULL, &err));
    import(h, argc > 1 ? argv[1] : "tale");
    measure(h, -1);
    measure(h, TOKENS / 2);
    must(hearth_sessions_remove(h, "bench fork", NULL, &err));
    hearth_close(h);
    return 0;
}

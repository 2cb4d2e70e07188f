/*
 * lives.c - KV moves between the toy device, host memory and files, through engine.h.
 *
 * The toy's tokens are a hash of the contents of its pages, and it performs transfers as late as it may. So a page that
 * was restored wrongly, too early or for another sequence shows in the text, and one that was released too early stops
 * the test. Turns of many sessions of two users arrive in any order, with cancellations, unloads, changed sizes of host
 * memory and new engines on the same folder; in one test files are damaged and removed while the engine runs. The seed
 * of a run is printed; HEARTH_SEED repeats it, HEARTH_TURNS makes it longer. Also run under the thread sanitizer.
 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/core/toy.h"

enum { SESSIONS = 40, LIVE = 6, TURNS = 400 };

static struct session {
    int32_t token[MAX_LEN];
    uint32_t n;
    bool busy;
    struct heard heard;
} session[SESSIONS];

static char folder[64];
static uint32_t seed, turns;
static struct sum {
    uint64_t prompt, reused, restored, computed, files, bad;
} sum;

/* Adds the results of some turns to their sessions. */
static void collect(void)
{
    for (struct session *s = session; s < session + SESSIONS; s++) {
        if (!s->busy || !s->heard.ended)
            continue;
        const struct heard *h = &s->heard;
        check_heard(h);
        assert_int_not_equal(h->end.reason, END_ERROR);
        assert_true(h->end.n_restored <= h->end.n_reused);
        if (h->end.reason != END_CANCELLED) {
            assert_int_equal(h->end.n_reused + h->end.n_computed, h->n_prompt);
            sum.prompt += h->n_prompt;
            sum.reused += h->end.n_reused;
            sum.restored += h->end.n_restored;
            sum.computed += h->end.n_computed;
        }
        memcpy(s->token + s->n, h->got, h->n_got * sizeof *h->got);
        s->n += h->n_got;
        s->busy = false;
    }
}

/* Begins the next turn of a session. A session that has become long starts anew, often with the beginning of another
 * session of either user. */
static void turn(struct world *w, struct session *s)
{
    if (s->n > MAX_LEN - 100) {
        const struct session *other = &session[rnd(SESSIONS)];
        s->n = rnd(2) ? rnd(other->n + 1) : 0;
        memmove(s->token, other->token, s->n * sizeof *s->token);
    }
    for (uint32_t k = 1 + rnd(60); k; k--)
        s->token[s->n++] = (int32_t)(1 + rnd(VOCAB - 1));
    struct seq *q = make(w, &s->heard, s->token, s->n, 1 + rnd(30));
    q->uid = 1000 + (s - session) % 2;
    s->busy = true;
    engine_submit(w->eng, q);
}

/* Truncates, corrupts or renames some of the files. */
static void damage(void)
{
    DIR *d = opendir(folder);
    struct dirent *en;
    while ((en = readdir(d))) {
        const char *dot = strrchr(en->d_name, '.');
        struct stat st;
        unsigned char c;
        int fd;
        if (!dot || strcmp(dot, ".kv") || rnd(12) || (fd = openat(dirfd(d), en->d_name, O_RDWR)) < 0)
            continue;
        assert_int_equal(fstat(fd, &st), 0);
        off_t at = st.st_size ? rnd((uint32_t)st.st_size) : 0;
        switch (st.st_size ? rnd(3) : 0) { /* an empty one was truncated before, and can only be removed */
        case 0:
            unlinkat(dirfd(d), en->d_name, 0);
            break;
        case 1:
            assert_int_equal(ftruncate(fd, at), 0);
            break;
        default:
            assert_int_equal(pread(fd, &c, 1, at), 1);
            c ^= (unsigned char)(1 << rnd(8));
            assert_int_equal(pwrite(fd, &c, 1, at), 1);
        }
        close(fd);
    }
    closedir(d);
}

/* Some turns on one engine. */
static void life(bool damages)
{
    struct world w;
    struct engine_params p = {
        .kv_dir = folder, .kv_ram = rnd(3) ? TOY_PAGE_BYTES * (1 + rnd(300)) : 0, .restore = TIER_ALWAYS};
    toy_moves_late = rnd(3);
    world_open_with(&w, &p, 1 + rnd(MAX_IN_FLIGHT), toy_moves_late);
    for (uint32_t n = 20 + rnd(130); n && turns; n--, turns--) {
        struct session *s = &session[rnd(SESSIONS)];
        while (s->busy) {
            hear_one(&w);
            collect();
        }
        turn(&w, s);
        if (rnd(12) == 0)
            engine_cancel(w.eng, session[rnd(SESSIONS)].heard.id);
        if (rnd(25) == 0)
            engine_unload(w.eng, &w.m, &w);
        if (damages && rnd(15) == 0)
            damage();
        while (w.live > LIVE)
            hear_one(&w);
        collect();
    }
    hear_all(&w);
    collect();
    if (rnd(2)) { /* ends after its saves, or in the middle of them */
        engine_finish(w.eng, 30);
        while (!w.finished)
            hear_one(&w);
    }
    sum.files += atomic_load(&engine_tiers(w.eng)->files_written);
    sum.bad += atomic_load(&engine_tiers(w.eng)->files_bad);
    world_close(&w);
}

static void lives(bool damages)
{
    const char *s = getenv("HEARTH_SEED"), *n = getenv("HEARTH_TURNS");
    rng = seed = s ? (uint32_t)strtoul(s, NULL, 10) : 1;
    turns = n ? (uint32_t)strtoul(n, NULL, 10) : TURNS;
    memset(session, 0, sizeof session);
    memset(&sum, 0, sizeof sum);
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/hearth-tier-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(folder));
    toy_pages = 160;
    while (turns)
        life(damages);
    print_message("# seed %u: of %llu prompt tokens %llu reused, %llu of them restored; %llu files, %llu bad\n", seed,
                  (unsigned long long)sum.prompt, (unsigned long long)sum.reused, (unsigned long long)sum.restored,
                  (unsigned long long)sum.files, (unsigned long long)sum.bad);
    DIR *d = opendir(folder);
    struct dirent *en;
    while ((en = readdir(d))) {
        assert_null(strstr(en->d_name, ".tmp")); /* no partial file is left */
        unlinkat(dirfd(d), en->d_name, 0);
    }
    closedir(d);
    assert_int_equal(rmdir(folder), 0);
}

static void sessions_go_on_from_where_they_were(void **state)
{
    (void)state;
    lives(false);
    assert_int_equal(sum.bad, 0);
    assert_true(sum.files > 20);              /* with a slow disk fewer are written before an engine ends */
    assert_true(sum.reused > sum.prompt / 2); /* the rest is new, or was not saved yet when an engine ended */
    assert_true(sum.restored > sum.prompt / 10);
}

static void damaged_files_are_computed_again(void **state)
{
    (void)state;
    lives(true);
    assert_true(sum.bad > 0);
    assert_true(sum.restored > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_go_on_from_where_they_were),
        cmocka_unit_test(damaged_files_are_computed_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* kv-world.c - see kv-world.h. */
#include "tests/unit/sched/kv-world.h"

static uint64_t rng_state;
uint32_t rnd(uint32_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

uint32_t len_max = 120;
struct kv_shape shape[KV_GROUPS_MAX];
uint32_t n_group;
static uint64_t memory[KV_GROUPS_MAX][MAX_PAGES][KV_PAGE]; /* 0: the row was cleared */
static uint64_t owner[KV_GROUPS_MAX][MAX_PAGES];           /* uid + 1 of the writer since the page was cleared */

uint32_t extent;
struct extents extents;
bool states_within;

static bool map(void *arg, uint32_t group, uint32_t x)
{
    struct extents *e = arg;
    assert_true(x * extent < shape[group].n_page && !e->has[group][x]);
    if (e->full)
        return false;
    e->has[group][x] = true;
    e->mapped++;
    memset(memory[group][x * extent], 0, extent * sizeof memory[0][0]);
    memset(&owner[group][x * extent], 0, extent * sizeof owner[0][0]);
    return true;
}

/* Fills the pages as if another sequence had written them, so that any use is noticed. */
static void unmap(void *arg, uint32_t group, uint32_t x)
{
    struct extents *e = arg;
    assert_true(e->has[group][x]);
    e->has[group][x] = false;
    e->unmapped++;
    memset(memory[group][x * extent], 0xee, extent * sizeof memory[0][0]);
    memset(&owner[group][x * extent], 0xee, extent * sizeof owner[0][0]);
}

void carry_out(struct kv *kv)
{
    struct kv_action a;
    while (kv_next_action(kv, &a)) {
        if (a.kind == KV_COPY) {
            memcpy(memory[a.group][a.page], memory[a.group][a.from], sizeof memory[0][0]);
            owner[a.group][a.page] = owner[a.group][a.from];
        } else {
            memset(memory[a.group][a.page], 0, sizeof memory[0][0]);
            owner[a.group][a.page] = 0;
        }
    }
}

static uint64_t prefix_hash(int64_t uid, const int32_t *id, uint32_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15u * (uint64_t)(uid + 3);
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ (uint64_t)(uint32_t)id[i]) * 0xff51afd7ed558ccdu + 0x632be59bd9b4e019u;
    return h | 1;
}

void compute_states(struct timeline *s, uint32_t upto, bool stopped)
{
    for (uint32_t g = 0; g < n_group; g++) {
        const struct kv_state *own = &s->t.state[g];
        if (!shape[g].state)
            continue;
        assert_true(own->has[1] && own->page[1] < shape[g].n_page && (!own->has[0] || own->page[0] != own->page[1]));
        assert_true(owner[g][own->page[1]] == 0 || owner[g][own->page[1]] == (uint64_t)s->t.uid + 1);
        owner[g][own->page[1]] = (uint64_t)s->t.uid + 1;
        assert_int_equal(s->t.at, s->done);
        assert_true(own->has[0] == (s->done > 0));
        if (s->done)
            assert_true(memory[g][own->page[0]][0] == prefix_hash(s->t.uid, s->id, s->done));
        memory[g][own->page[1]][0] = stopped ? rnd(1000) : prefix_hash(s->t.uid, s->id, upto);
        if (!s->t.within)
            continue;
        assert_true(own->has[2] && s->t.within > s->done && s->t.within < upto && s->t.within % KV_PAGE == 0);
        assert_true(own->page[2] != own->page[1] && (!own->has[0] || own->page[2] != own->page[0]));
        assert_true(owner[g][own->page[2]] == 0 || owner[g][own->page[2]] == (uint64_t)s->t.uid + 1);
        owner[g][own->page[2]] = (uint64_t)s->t.uid + 1;
        memory[g][own->page[2]][0] = stopped ? rnd(1000) : prefix_hash(s->t.uid, s->id, s->t.within);
    }
}

void compute(struct timeline *s, uint32_t upto)
{
    compute_states(s, upto, false);
    for (; s->done < upto; s->done++)
        for (uint32_t g = 0; g < n_group; g++) {
            if (shape[g].state)
                continue;
            uint32_t page = s->t.page[g][s->done / KV_PAGE];
            assert_true(page < shape[g].n_page);
            assert_true(owner[g][page] == 0 ||
                        owner[g][page] == (uint64_t)s->t.uid + 1); /* no KV of another user is seen */
            owner[g][page] = (uint64_t)s->t.uid + 1;
            memory[g][page][s->done % KV_PAGE] = prefix_hash(s->t.uid, s->id, s->done + 1);
        }
}

void verify(const struct timeline *s)
{
    for (uint32_t g = 0; g < n_group; g++) {
        const struct kv_state *own = &s->t.state[g];
        if (shape[g].state && s->done) /* the state that was just written, or the one from which it will continue */
            assert_true(memory[g][own->page[s->t.at != s->done]][0] == prefix_hash(s->t.uid, s->id, s->done));
        for (uint32_t i = kv_first_visible(s->done, shape[g].window); i < s->done && !shape[g].state; i++) {
            assert_true(s->t.page[g][i / KV_PAGE] < shape[g].n_page);
            assert_true(memory[g][s->t.page[g][i / KV_PAGE]][i % KV_PAGE] == prefix_hash(s->t.uid, s->id, i + 1));
        }
    }
}

/* Timelines that were released, against which the length of a match is checked. */
struct past {
    int64_t uid;
    int32_t id[MAX_LEN];
    uint32_t n;
};
static struct past past[4096];
static uint32_t n_past;

uint32_t longest_past(int64_t uid, const int32_t *id, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < n_past; i++) {
        uint32_t k = 0;
        while (past[i].uid == uid && k < n && k < past[i].n && past[i].id[k] == id[k])
            k++;
        best = k > best ? k : best;
    }
    return best;
}

void draw_timeline(struct timeline *s, uint32_t n_uid)
{
    memset(s, 0, sizeof *s);
    s->t.uid = rnd(n_uid);
    s->n = 1 + rnd(len_max - 1);
    uint32_t k = 0;
    if (n_past && rnd(4)) {
        const struct past *p = &past[rnd(n_past)];
        k = rnd(p->n + 1);
        k = k < s->n ? k : s->n;
        memcpy(s->id, p->id, k * sizeof *s->id);
    }
    for (; k < s->n; k++)
        s->id[k] = (int32_t)rnd(3);
}

void remember(const struct timeline *s)
{
    if (n_past == sizeof past / sizeof *past)
        return;
    past[n_past].uid = s->t.uid;
    past[n_past].n = s->done;
    memcpy(past[n_past++].id, s->id, sizeof s->id);
}

struct kv *fresh_groups(uint32_t n_page, const uint32_t *window, uint32_t n, uint64_t seed)
{
    struct kv *kv;
    struct hearth_err e;
    rng_state = seed * 77777 + 1;
    memset(memory, 0, sizeof memory);
    memset(owner, 0, sizeof owner);
    n_past = 0;
    n_group = n;
    for (uint32_t g = 0; g < n; g++)
        shape[g] =
            (struct kv_shape){n_page, window[g] == STATES ? 0 : window[g], window[g] == STATES, extent, states_within};
    assert_int_equal(kv_cache_new(&kv, shape, n, &e), 0);
    memset(&extents, 0, sizeof extents);
    if (extent)
        memset(owner, 0xee, sizeof owner);
    kv_set_memory(kv, &(struct kv_memory){map, unmap, &extents});
    return kv;
}

struct kv *fresh(uint32_t n_page, uint64_t seed)
{
    return fresh_groups(n_page, (uint32_t[]){0}, 1, seed);
}

struct kv_counts counted(const struct kv *kv, uint32_t group)
{
    struct kv_counts c;
    kv_count(kv, group, &c);
    return c;
}

void feed(struct kv *kv, struct timeline *s, uint32_t n)
{
    while (s->done < n) {
        uint32_t upto = n - s->done < LOOKAHEAD ? n : s->done + LOOKAHEAD;
        assert_true(kv_grow(kv, &s->t, s->done, n, LOOKAHEAD));
        carry_out(kv);
        verify(s);
        compute(s, upto);
        kv_publish(kv, &s->t, s->id, s->done);
        assert_true(kv_check(kv));
    }
}

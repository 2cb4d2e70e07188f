/* engines.c - places models on engines. Loop thread. */
#include "config.h"

#include "daemon/supervisor/engines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <time.h>

#include "daemon/log.h"

enum { FAILED_S = 60 }; /* an engine that did not start is not chosen for so long if there is another */

struct engine {
    struct engines *all;
    struct engine_client *client;
    int device;
    size_t count; /* for calls.command */
    bool known;   /* whether the engine has reported the following values */
    int64_t free, ours;
    double failed; /* when it ended before it was ready; 0 if it did not */
};

/* A model that is placed on an engine. */
struct placed {
    TAILQ_ENTRY(placed) entry;
    struct engine *on;
    int64_t bytes;
    bool seen;      /* the engine has reported it as loaded */
    uint32_t tried; /* bit mask of the engines whose devices had no room for it */
    char path[];
};

/* A status request to all engines whose answers are being gathered. */
struct gathering {
    TAILQ_ENTRY(gathering) entry;
    struct engines *all;
    engines_told *told; /* NULL: the answers are needed only for the placement */
    void *arg;
    size_t left;
    struct part {
        struct gathering *of;
        struct engine *from;
        struct wire_engine_status *status;
        bool silent;
    } part[ENGINES_MAX];
};

struct engines {
    struct event_base *base;
    struct engines_calls calls;
    void *arg;
    int64_t timeout;
    bool grows; /* "all": engines are added for the devices that the first one reports */
    size_t n;
    struct engine of[ENGINES_MAX];
    TAILQ_HEAD(, placed) placed;
    TAILQ_HEAD(, gathering) gatherings;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --- placement of models ----------------------------------------------------------------------------------- */

static void forget(struct engines *es, struct placed *p)
{
    TAILQ_REMOVE(&es->placed, p, entry);
    free(p);
}

static void forget_all(struct engine *en)
{
    struct placed *p, *next;
    for (p = TAILQ_FIRST(&en->all->placed); p; p = next) {
        next = TAILQ_NEXT(p, entry);
        if (p->on == en)
            forget(en->all, p);
    }
}

static struct placed *find(const struct engines *es, const char *path)
{
    struct placed *p;
    TAILQ_FOREACH (p, &es->placed, entry)
        if (strcmp(p->path, path) == 0)
            break;
    return p;
}

/*
 * Bytes that are free for another model: what the engine reported, less the models placed on it since. Nothing is known
 * of an engine that does not run, and none of our memory is on its device, so it is preferred to those that hold
 * something. The reported free memory may be some seconds old, so the models' own sizes count too.
 */
static int64_t room(const struct engine *en)
{
    const struct placed *p;
    int64_t fresh = 0, all = 0;
    TAILQ_FOREACH (p, &en->all->placed, entry) {
        if (p->on != en)
            continue;
        all += p->bytes + 1;
        fresh += p->seen ? 0 : p->bytes + 1;
    }
    int64_t told = en->free - fresh, sizes = en->ours - all;
    return !en->known ? INT64_MAX - all : told < sizes ? told : sizes;
}

static bool has_failed(const struct engine *en)
{
    return en->failed > 0 && now() - en->failed < FAILED_S;
}

/* A model placed here would wait: for an engine that did not start, or for one that does not answer. */
static bool is_bad(const struct engine *en)
{
    return has_failed(en) || engine_is_overdue(en->client);
}

/* Chooses an engine for a model among those not in `tried`; NULL if all are. */
static struct engine *choose(struct engines *es, uint32_t tried)
{
    struct engine *best = NULL;
    for (size_t i = 0; i < es->n; i++) {
        struct engine *en = &es->of[i];
        if (tried >> i & 1)
            continue;
        bool bad = is_bad(en), other = best && is_bad(best);
        if (!best || (bad != other ? other : room(en) > room(best)))
            best = en;
    }
    return best;
}

struct engine_client *engines_of(const struct engines *es, const char *path)
{
    const struct placed *p = find(es, path);
    return p ? p->on->client : NULL;
}

struct engine_client *engines_near(const struct engines *es, const char *path)
{
    struct engine_client *ec = engines_of(es, path);
    for (size_t i = 0; !ec && i < es->n; i++)
        if (engine_pid(es->of[i].client) && !engine_is_overdue(es->of[i].client))
            ec = es->of[i].client;
    for (size_t i = 0; !ec && i < es->n; i++)
        if (engine_pid(es->of[i].client))
            ec = es->of[i].client;
    return ec ? ec : es->of[0].client;
}

struct engine_client *engines_for(struct engines *es, const char *path)
{
    struct placed *p = find(es, path);
    if (p)
        return p->on->client;
    struct engine *en = choose(es, 0);
    size_t n = strlen(path) + 1;
    if (!(p = malloc(sizeof *p + n))) /* the engine that serves it is found again from the engines' reports */
        return en->client;
    struct stat sb;
    *p = (struct placed){.on = en, .bytes = stat(path, &sb) == 0 && S_ISREG(sb.st_mode) ? sb.st_size : 0};
    memcpy(p->path, path, n);
    TAILQ_INSERT_TAIL(&es->placed, p, entry);
    if (es->n > 1) {
        log_debug("%s is for device %d", path, en->device);
        engines_ask_status(es, NULL, NULL); /* so that the next model is placed with current values */
    }
    return en->client;
}

static void on_loaded(void *arg, const void *result, const struct hearth_err *err)
{
    (void)arg, (void)result, (void)err; /* whoever needs the model requests it, and gets the error */
}

void engines_move(struct engines *es, const char *path, const struct engine_client *from)
{
    struct placed *p = find(es, path);
    if (!p || p->on->client != from) /* an earlier answer has moved it already, or its engine no longer exists */
        return;
    struct engine *full = p->on;
    if (!full->known) /* until the engine reports more */
        full->known = true, full->free = full->ours = 0;
    p->on = NULL; /* so that it takes no room itself */
    p->seen = false;
    p->tried |= UINT32_C(1) << (full - es->of);
    struct engine *en = choose(es, p->tried);
    bool here = !en || has_failed(en);
    p->on = here ? choose(es, 0) : en;
    if (!here) {
        log_info("%s has no room on device %d: other programs have its memory; device %d is tried", path, full->device,
                 en->device);
        return;
    }
    p->tried = 0;
    log_warn("%s has no room on any device: other programs have the memory", path);
    engine_call(p->on->client, &wire_methods[WIRE_ENGINE_LOAD], &(struct wire_engine_path){.path = path, .here = true},
                on_loaded, es, NULL);
}

const char *engines_find(const struct engines *es, bool (*is)(const char *path, void *arg), void *arg)
{
    const struct placed *p;
    TAILQ_FOREACH (p, &es->placed, entry)
        if (is(p->path, arg))
            return p->path;
    return NULL;
}

bool engines_has(const struct engines *es, const char *path)
{
    const struct placed *p = find(es, path);
    return p && p->seen;
}

bool engines_has_other(const struct engines *es, const struct engine_client *ec)
{
    for (size_t i = 0; i < es->n; i++)
        if (es->of[i].client != ec && !has_failed(&es->of[i]))
            return true;
    return false;
}

/* --- status of the engines ----------------------------------------------------------------------------------- */

static bool lists(const struct wire_engine_status *s, const char *path)
{
    for (size_t i = 0; i < s->n_models; i++)
        if (s->models[i].path && !s->models[i].vocab_only && strcmp(s->models[i].path, path) == 0)
            return true;
    return false;
}

/* Takes over an engine's status. A model that the engine had loaded and no longer has is forgotten, so that it may be
 * placed where there is more room. */
static void note(struct engine *en, const struct wire_engine_status *s)
{
    const struct wire_memory *m = &s->memory;
    int64_t held = m->weights + m->kv + m->workspace;
    en->known = true;
    en->free = s->mem_free;
    en->ours = s->mem_total - m->others;
    if (m->limit) {
        en->free = m->limit - held < en->free ? m->limit - held : en->free;
        en->ours = m->limit < en->ours ? m->limit : en->ours;
    }
    struct placed *p, *next;
    for (p = TAILQ_FIRST(&en->all->placed); p; p = next) {
        next = TAILQ_NEXT(p, entry);
        if (p->on != en)
            continue;
        if (lists(s, p->path)) {
            p->seen = true;
            p->tried = 0;
        } else if (p->seen) {
            forget(en->all, p);
        }
    }
}

static void gathering_free(struct gathering *g)
{
    TAILQ_REMOVE(&g->all->gatherings, g, entry);
    for (size_t i = 0; i < ENGINES_MAX; i++)
        wire_free(g->part[i].status);
    free(g);
}

static void tell(struct gathering *g)
{
    struct engines_status s = {.n = g->all->n};
    for (size_t i = 0; i < s.n; i++) {
        s.of[i].told = g->part[i].status;
        s.of[i].silent = g->part[i].silent;
    }
    if (g->told)
        g->told(g->arg, &s);
    gathering_free(g);
}

static void on_status(void *arg, const void *result, const struct hearth_err *err)
{
    struct part *p = arg;
    const struct wire_bytes *packed = result;
    void *status = NULL;
    (void)err;
    p->silent = !packed || wire_unpack(wire_methods[WIRE_ENGINE_STATUS].result, (const uint8_t *)packed->data,
                                       packed->len, &status, NULL);
    if (!p->silent) {
        p->status = status;
        note(p->from, p->status);
    }
    if (--p->of->left == 0)
        tell(p->of);
}

int engines_ask_status(struct engines *es, engines_told *told, void *arg)
{
    struct gathering *g = calloc(1, sizeof *g);
    if (!g)
        return HEARTH_ENOMEM;
    g->all = es;
    g->told = told;
    g->arg = arg;
    TAILQ_INSERT_TAIL(&es->gatherings, g, entry);
    bool any_silent = false;
    for (size_t i = 0; i < es->n; i++) {
        g->part[i].of = g;
        g->part[i].from = &es->of[i];
        if (engine_ask_status(es->of[i].client, on_status, &g->part[i]) == 0)
            g->left++;
        else if (engine_is_overdue(es->of[i].client))
            g->part[i].silent = any_silent = true;
    }
    if (g->left)
        return 0;
    if (any_silent) {
        tell(g);
        return 0;
    }
    gathering_free(g);
    return HEARTH_EENGINE;
}

static void on_event(void *arg, const struct wire_method *m, const void *body)
{
    struct engine *en = arg;
    if (m == &wire_methods[WIRE_ENGINE_IDLE])
        engine_client_may_leave(en->client);
    else
        en->all->calls.event(en->all->arg, m, body);
}

/* --- life cycle ----------------------------------------------------------------------------------------------- */

static int add(struct engines *es, int device, size_t count, struct hearth_err *e);

static void on_before(void *arg)
{
    struct engine *en = arg;
    en->all->calls.before(en->all->arg, en->client);
}

static void on_ready(void *arg)
{
    struct engine *en = arg;
    struct engines *es = en->all;
    struct hearth_err e;
    en->failed = 0;
    int64_t devices = engine_devices(en->client);
    size_t count = devices < ENGINES_MAX ? (size_t)devices : ENGINES_MAX;
    while (es->grows && es->n < count)
        if (add(es, (int)es->n, count, &e)) {
            log_error("device %zu is not used: %s", es->n, e.msg);
            break;
        }
    if (es->n > 1)
        engines_ask_status(es, NULL, NULL);
    es->calls.ready(es->arg, en->client);
}

/* Models stay on their engine when it dies, so that a request that crashes engines repeatedly crashes only this one;
 * but not if the engine did not even start. */
static void on_end(void *arg)
{
    struct engine *en = arg;
    struct engines *es = en->all;
    struct placed *p;
    en->known = false;
    bool any = false;
    for (size_t i = 0; i < es->n; i++)
        any = any || engine_pid(es->of[i].client);
    if (!any && es->calls.none)
        es->calls.none(es->arg);
    TAILQ_FOREACH (p, &en->all->placed, entry)
        if (p->on == en)
            p->seen = false;
    if (engine_was_ready(en->client))
        return;
    en->failed = now();
    forget_all(en);
}

/* Nothing is left on the device: the context is destroyed with the process. */
static void on_leave(void *arg)
{
    struct engine *en = arg;
    en->known = false;
    forget_all(en);
}

static int add(struct engines *es, int device, size_t count, struct hearth_err *e)
{
    struct engine *en = &es->of[es->n];
    const char *argv[ENGINE_ARGS + 1] = {0};
    *en = (struct engine){.all = es, .device = device, .count = count};
    es->calls.command(es->arg, device, es->n == 0, count, argv);
    int rc = engine_client_new(&en->client, es->base, argv, es->timeout, (int)es->n, on_event, en, e);
    if (rc)
        return rc;
    engine_client_before_calls(en->client, on_before);
    engine_client_on_ready(en->client, on_ready);
    engine_client_on_end(en->client, on_end);
    engine_client_on_leave(en->client, on_leave);
    es->n++;
    return 0;
}

int engines_new(struct engines **out, struct event_base *base, const char *gpus, int64_t timeout,
                const struct engines_calls *calls, void *arg, struct hearth_err *e)
{
    struct engines *es = calloc(1, sizeof *es);
    if (!es)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    *es = (struct engines){.base = base, .calls = *calls, .arg = arg, .timeout = timeout};
    es->grows = strcmp(gpus, "all") == 0;
    TAILQ_INIT(&es->placed);
    TAILQ_INIT(&es->gatherings);
    size_t count = 1;
    for (const char *at = gpus; *at; at++)
        count += *at == ',';
    count = count < ENGINES_MAX ? count : ENGINES_MAX;
    int rc = es->grows ? add(es, 0, 0, e) : 0;
    for (const char *at = gpus; !rc && !es->grows && *at && es->n < ENGINES_MAX; at += *at == ',') {
        char *end;
        rc = add(es, (int)strtol(at, &end, 10), count, e);
        at = end;
    }
    if (rc) {
        engines_free(es);
        return rc;
    }
    *out = es;
    return 0;
}

void engines_free(struct engines *es)
{
    if (!es)
        return;
    for (size_t i = 0; i < es->n; i++)
        engine_client_free(es->of[i].client);
    struct placed *p;
    while ((p = TAILQ_FIRST(&es->placed)))
        forget(es, p);
    struct gathering *g;
    while ((g = TAILQ_FIRST(&es->gatherings)))
        gathering_free(g);
    free(es);
}

void engines_renew_commands(struct engines *es)
{
    for (size_t i = 0; i < es->n; i++) {
        const char *argv[ENGINE_ARGS + 1] = {0};
        struct hearth_err e;
        es->calls.command(es->arg, es->of[i].device, i == 0, es->of[i].count, argv);
        if (engine_client_set_command(es->of[i].client, argv, &e))
            log_warn("device %d: the next engine is started like the last one: %s", es->of[i].device, e.msg);
    }
}

/* --- all engines ----------------------------------------------------------------------------------------------- */

size_t engines_count(const struct engines *es)
{
    return es->n;
}

struct engine_client *engines_at(const struct engines *es, size_t i)
{
    return es->of[i].client;
}

int engines_device(const struct engines *es, size_t i)
{
    return es->of[i].device;
}

char *engines_where(const struct engines *es, const struct engine_client *ec, const char *where)
{
    int device = es->of[engine_number(ec)].device;
    const char *colon = where ? strchr(where, ':') : NULL;
    char *name = NULL;
    if (!device || !colon || asprintf(&name, "%.*s:%d", (int)(colon - where), where, device) < 0)
        return NULL;
    return name;
}

bool engines_absent(const struct engines *es)
{
    for (size_t i = 0; i < es->n; i++)
        if (engine_state(es->of[i].client) != ENGINE_ABSENT)
            return false;
    return true;
}

void engines_stop(struct engines *es)
{
    for (size_t i = 0; i < es->n; i++)
        engine_client_stop(es->of[i].client);
}

void engines_flush(struct engines *es)
{
    for (size_t i = 0; i < es->n; i++)
        engine_client_flush(es->of[i].client);
}

int64_t engines_link_bytes(const struct engines *es)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < es->n; i++)
        bytes += engine_link_bytes(es->of[i].client);
    return bytes;
}

/* pins.c - see pins.h. Loop thread. */
#include "daemon/rpc/pins.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/supervisor/engines.h"

enum { DEATHS_MAX = 3 }; /* of engines in a row that died before they had loaded it: no further one is asked */

struct pin {
    TAILQ_ENTRY(pin) entry;
    struct server *server;
    const struct engine_client *asked; /* the engine that was asked to load it and has not answered; NULL: none */
    int64_t link;                      /* identifies the engine that was asked last, by its link's number */
    bool refused;                      /* it was refused for lack of memory */
    bool again; /* memory may be taken again since that engine was asked: a refusal may be older */
    bool gone;  /* it was unpinned, and stays in the list only until that engine answers */
    int deaths;
    char path[];
};

static struct pin *find(struct server *s, const char *path)
{
    struct pin *p;
    TAILQ_FOREACH (p, &s->pins, entry)
        if (!p->gone && strcmp(p->path, path) == 0)
            break;
    return p;
}

static void forget(struct server *s, struct pin *p)
{
    p->gone = true;
    if (p->asked)
        return;
    TAILQ_REMOVE(&s->pins, p, entry);
    free(p);
}

int pins_set(struct server *s, const char *path, bool pinned, struct hearth_err *e)
{
    struct pin *p = find(s, path);
    if (p && !pinned)
        forget(s, p);
    else if (p)
        p->deaths = 0;
    if (p || !pinned)
        return 0;
    size_t n = strlen(path) + 1;
    if (!(p = malloc(sizeof *p + n)))
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    const struct engine_client *ec = engines_of(s->engines, path); /* it has just pinned it */
    *p = (struct pin){.server = s, .link = ec ? engine_link_number(ec) : 0};
    memcpy(p->path, path, n);
    TAILQ_INSERT_TAIL(&s->pins, p, entry);
    return 0;
}

const char *pins_find(const struct server *s, bool (*is)(const char *path, void *arg), void *arg)
{
    const struct pin *p;
    TAILQ_FOREACH (p, &s->pins, entry)
        if (!p->gone && is(p->path, arg))
            return p->path;
    return NULL;
}

static void ask(struct pin *p);

static void on_pinned(void *arg, const void *result, const struct hearth_err *err)
{
    struct pin *p = arg;
    const struct engine_client *asked = p->asked;
    p->asked = NULL;
    if (p->gone) {
        forget(p->server, p);
    } else if (!result && err->code == HEARTH_EELSEWHERE && p->server->phase == SERVER_RUNNING) {
        engines_move(p->server->engines, p->path, asked);
        ask(p);
    } else if (!result && err->code == HEARTH_ENOMEM && p->again && p->server->phase == SERVER_RUNNING) {
        ask(p);
    } else if (!result) {
        p->refused = err->code == HEARTH_ENOMEM;
        p->deaths += err->code == HEARTH_EENGINE;
        log_warn("a pinned model was not loaded%s: %s",
                 p->deaths == DEATHS_MAX ? ", and will not be until it is pinned again" : "", err->msg);
    } else {
        p->deaths = 0;
    }
}

static void ask(struct pin *p)
{
    struct hearth_err e;
    struct wire_engine_pin pin = {.path = p->path, .pinned = true};
    struct engine_client *ec = engines_for(p->server->engines, p->path);
    p->refused = p->again = false;
    p->asked = ec; /* before the call, which may come back to pins_tell() */
    p->link = engine_link_number(ec);
    if (engine_call(ec, &wire_methods[WIRE_ENGINE_PIN], &pin, on_pinned, p, &e)) {
        p->asked = NULL;
        log_warn("%s is not pinned: %s", p->path, e.msg);
    }
}

void pins_tell(struct server *s, struct engine_client *ec)
{
    struct pin *p;
    TAILQ_FOREACH (p, &s->pins, entry)
        if (!p->gone && !p->asked && p->deaths < DEATHS_MAX && p->link != engine_link_number(ec) &&
            engines_of(s->engines, p->path) == ec)
            ask(p);
}

void pins_restore(struct server *s, const struct engine_client *ec)
{
    struct pin *p;
    TAILQ_FOREACH (p, &s->pins, entry) {
        const struct engine_client *has = engines_of(s->engines, p->path);
        if (!p->gone && !p->asked && p->deaths < DEATHS_MAX && (!has || has == ec))
            ask(p);
    }
}

void pins_retry(struct server *s)
{
    struct pin *p;
    TAILQ_FOREACH (p, &s->pins, entry) {
        p->again = p->asked;
        if (!p->gone && p->refused && s->phase == SERVER_RUNNING)
            ask(p);
    }
}

void pins_on_relieved(struct server *s, const void *body)
{
    (void)body;
    pins_retry(s);
}

void pins_fini(struct server *s)
{
    struct pin *p;
    while ((p = TAILQ_FIRST(&s->pins))) {
        p->asked = NULL; /* the engines were freed and will not answer */
        forget(s, p);
    }
}

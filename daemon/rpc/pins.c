/* pins.c - see pins.h. Loop thread. */
#include "daemon/rpc/pins.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/supervisor/engines.h"

struct pin {
    TAILQ_ENTRY(pin) entry;
    char path[];
};

static struct pin *find(struct server *s, const char *path)
{
    struct pin *p;
    TAILQ_FOREACH (p, &s->pins, entry)
        if (strcmp(p->path, path) == 0)
            break;
    return p;
}

static void forget(struct server *s, struct pin *p)
{
    TAILQ_REMOVE(&s->pins, p, entry);
    free(p);
}

int pins_set(struct server *s, const char *path, bool pinned, struct hearth_err *e)
{
    struct pin *p = find(s, path);
    if (p && !pinned)
        forget(s, p);
    if (p || !pinned)
        return 0;
    size_t n = strlen(path) + 1;
    if (!(p = malloc(sizeof *p + n)))
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    memcpy(p->path, path, n);
    TAILQ_INSERT_TAIL(&s->pins, p, entry);
    return 0;
}

static void on_pinned(void *arg, const void *result, const struct hearth_err *err)
{
    (void)arg;
    if (!result)
        log_warn("a pinned model was not loaded: %s", err->msg);
}

void pins_restore(struct server *s, const struct engine_client *ec)
{
    struct hearth_err e;
    const struct pin *p;
    TAILQ_FOREACH (p, &s->pins, entry) {
        struct wire_engine_pin ask = {.path = p->path, .pinned = true};
        const struct engine_client *has = engines_of(s->engines, p->path);
        if (has && has != ec)
            continue;
        if (engine_call(engines_for(s->engines, p->path), &wire_methods[WIRE_ENGINE_PIN], &ask, on_pinned, s, &e))
            log_warn("%s is not pinned: %s", p->path, e.msg);
    }
}

void pins_fini(struct server *s)
{
    struct pin *p;
    while ((p = TAILQ_FIRST(&s->pins)))
        forget(s, p);
}

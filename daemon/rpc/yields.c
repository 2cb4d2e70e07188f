/* yields.c - see yields.h. Loop thread. */
#include "config.h"

#include "daemon/rpc/yields.h"

#include <stdlib.h>

#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/rpc/dispatch.h"
#include "daemon/rpc/games.h"
#include "daemon/rpc/pins.h"
#include "daemon/supervisor/engines.h"

enum { AGAIN_MS = 1000 }; /* until an engine is told again that a yield is over, after it could not be */

struct yields {
    double until;       /* by server_boot(); in the past: no yield is in effect */
    struct timer *over; /* set until then */
    bool asking;        /* an engine has not answered the call that requested this yield */
    struct {
        int64_t link; /* identifies the engine that was notified, by its link's number */
        int64_t held; /* bytes that it held after yielding, the limit of the next engine as well; 0: none ran */
    } engine[ENGINES_MAX];
};

static void on_over(void *arg);

int yields_open(struct server *s, struct hearth_err *e)
{
    s->yields = calloc(1, sizeof *s->yields);
    if (s->yields && (s->yields->over = timer_new(s->base, on_over, s)))
        return 0;
    yields_close(s);
    return err_set(e, HEARTH_ENOMEM, "out of memory");
}

void yields_close(struct server *s)
{
    if (s->yields)
        timer_free(s->yields->over);
    free(s->yields);
    s->yields = NULL;
}

double yields_left(const struct server *s)
{
    double left = s->yields ? s->yields->until - server_boot() : 0;
    return left > 0 ? left : 0;
}

struct wire_engine_yield yields_rest(const struct server *s, const struct engine_client *ec)
{
    struct wire_engine_yield yield = {.seconds = yields_left(s), .most = -1};
    if (yield.seconds > 0)
        yield.most = s->yields->engine[engine_number(ec)].held;
    return yield;
}

/* --- engines that start meanwhile -------------------------------------------------------------------------- */

static void on_notified(void *arg, const void *result, const struct hearth_err *err)
{
    (void)arg, (void)result;
    if (err && err->code != HEARTH_EENGINE) /* the next engine is notified */
        log_warn("an engine does not keep to the memory that is yielded: %s", err->msg);
}

void yields_tell(struct server *s, struct engine_client *ec)
{
    struct yields *y = s->yields;
    size_t i = (size_t)engine_number(ec);
    struct wire_engine_yield yield = yields_rest(s, ec);
    struct hearth_err e;
    if (yield.seconds == 0 || y->engine[i].link == engine_link_number(ec))
        return;
    y->engine[i].link = engine_link_number(ec);
    if (engine_call(ec, &wire_methods[WIRE_ENGINE_YIELD], &yield, on_notified, s, &e))
        on_notified(s, NULL, &e);
}

/* --- the end of a yield ------------------------------------------------------------------------------------ */

static void expect_end(struct server *s)
{
    double left = yields_left(s);
    if (left > 0)
        timer_set(s->yields->over, (int64_t)(1e3 * left) + 1);
    else
        timer_clear(s->yields->over);
}

static void on_told_over(void *arg, const void *result, const struct hearth_err *err)
{
    struct server *s = arg;
    if (result)
        pins_retry(s);
    else if (s->yields && err->code == HEARTH_ELIMIT) /* it is still giving back memory */
        timer_set(s->yields->over, AGAIN_MS);
}

/* An engine ends a yield by itself, but as it began it later than hearthd, and may be busy, pinned models could be
 * refused once more. If there are any, it is told, so that they are asked for after that. If none runs, because it was
 * refused all that it was to hold and has left, they are asked for now. */
static void on_over(void *arg)
{
    static const struct wire_engine_yield over = {.most = -1};
    struct server *s = arg;
    char why[HEARTH_ERR_MSG];
    if (yields_left(s) > 0) {
        expect_end(s);
        return;
    }
    if (TAILQ_EMPTY(&s->pins) || games_running(s, why) > 0) /* when the game ends, the engines are told */
        return;
    bool told = false;
    for (size_t i = 0; i < engines_count(s->engines); i++) {
        struct engine_client *ec = engines_at(s->engines, i);
        if (engine_state(ec) == ENGINE_STARTING || engine_state(ec) == ENGINE_RUNNING)
            told |= engine_call(ec, &wire_methods[WIRE_ENGINE_YIELD], &over, on_told_over, s, NULL) == 0;
    }
    if (!told)
        pins_retry(s);
}

/* --- yield ------------------------------------------------------------------------------------------------- */

/* A yield requested from several devices. */
struct yielding {
    struct call *call;
    struct server *server;
    size_t left;
    bool over;            /* the call ends yields */
    bool any;             /* at least one engine has yielded */
    struct yields before; /* the yield before, restored if all engines refuse because they yield to a game just now */
    struct yield_part {
        struct yielding *of;
        size_t number;
    } part[ENGINES_MAX];
    struct wire_yield_result sum;
    struct hearth_err err; /* of an engine that failed; code 0: none did */
};

static void yield_end(struct yielding *y)
{
    if (!y->any && y->err.code == HEARTH_ELIMIT && y->server->yields)
        *y->server->yields = y->before;
    if (y->server->yields) {
        y->server->yields->asking = false;
        expect_end(y->server);
    }
    if (y->err.code)
        call_fail(y->call, &y->err);
    else
        call_reply(y->call, &y->sum);
    free(y);
}

static void on_yielded(void *arg, const void *result, const struct hearth_err *err)
{
    const struct yield_part *part = arg;
    struct yielding *y = part->of;
    const struct wire_engine_yield_result *r = result;
    if (err && y->over && err->code == HEARTH_EENGINE) {
        /* an engine that has died yields nothing any more */
    } else if (err) {
        y->err = *err;
    } else {
        y->sum.freed += r->freed;
        if (!y->any || r->free < y->sum.free)
            y->sum.free = r->free;
        y->any = true;
        if (y->server->yields)
            y->server->yields->engine[part->number].held = r->held;
        games_on_yield(y->server, engines_at(y->server->engines, part->number), y->over);
        if (y->over)
            pins_retry(y->server);
        if (r->why)
            err_set(&y->err, HEARTH_ELIMIT, "%s", r->why);
    }
    if (--y->left == 0)
        yield_end(y);
}

/* Asks each running engine to free memory of its device. Without an engine no memory is held, and none is started for
 * this. */
void msg_yield(struct call *call)
{
    const struct wire_yield *p = call->params;
    struct server *s = call->server;
    struct yielding *y = NULL;
    struct hearth_err e;
    if (s->yields->asking) /* the engines would refuse it, too, and which yield is in effect would not be known */
        err_set(&e, HEARTH_ELIMIT, "memory is being yielded already: try again in a moment");
    else if (!(y = calloc(1, sizeof *y)))
        err_set(&e, HEARTH_ENOMEM, "out of memory");
    if (!y) {
        call_fail(call, &e);
        return;
    }
    y->call = call;
    y->server = s;
    y->over = p->seconds == 0;
    y->before = *s->yields;
    *s->yields = (struct yields){.over = s->yields->over, .asking = true};
    s->yields->until = p->seconds > 0 ? server_boot() + p->seconds : 0;
    for (size_t i = 0; i < engines_count(s->engines); i++) {
        struct engine_client *ec = engines_at(s->engines, i);
        const struct wire_engine_yield yield = {p->bytes, p->all, p->seconds, .most = -1};
        if (engine_state(ec) != ENGINE_RUNNING && engine_state(ec) != ENGINE_STARTING)
            continue;
        s->yields->engine[i].link = engine_link_number(ec); /* this call notifies it */
        y->part[i] = (struct yield_part){y, i};
        if (engine_call(ec, &wire_methods[WIRE_ENGINE_YIELD], &yield, on_yielded, &y->part[i], &e))
            y->err = e;
        else
            y->left++;
    }
    if (!y->left)
        yield_end(y);
}

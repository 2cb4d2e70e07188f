/* games.c - see games.h. At most one call to each engine is outstanding, however often games start and end. */
#include "daemon/rpc/games.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gamemode.h"
#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/rpc/pins.h"
#include "daemon/supervisor/engines.h"

enum {
    SECONDS = 86400,     /* the longest duration of a yield */
    RENEW_MS = 43200000, /* after which the yield is renewed */
    AGAIN_MS = 1000, /* before the next attempt after an error, such as a refusal while another yield is in progress */
};

/* What an engine was told last. */
struct told {
    struct server *server;
    struct timer *again; /* until it is told again */
    int64_t link;        /* identifies the engine by its link's number */
    bool yielded;        /* whether it was last told to yield */
    bool asking;         /* a call to it is outstanding */
    bool ask_for;        /* the value of `yielded` that this call sets */
    bool failed;         /* the last attempt failed, which is in the log */
};

struct games {
    struct gamemode *mode; /* NULL: not listening */
    games_rest *rest;      /* what an engine is told when no game runs any more */
    bool run;              /* whether a game runs, as last logged */
    struct told told[ENGINES_MAX];
};

static void tell(struct told *t, bool starting);

/* An engine that could not be told is told again soon, as nothing else may happen for as long as the game runs. */
static void try_again(struct told *t, const struct hearth_err *err)
{
    if (err->code != HEARTH_ELIMIT && !t->failed)
        log_warn("memory is not yielded to a game: %s", err->msg);
    t->failed = err->code != HEARTH_ELIMIT;
    timer_set(t->again, AGAIN_MS);
}

static void on_answer(void *arg, const void *result, const struct hearth_err *err)
{
    struct told *t = arg;
    (void)result;
    if (!t->server->games)
        return;
    t->asking = false;
    if (err && err->code != HEARTH_EENGINE) { /* the next engine is notified when it is ready */
        try_again(t, err);
        return;
    }
    t->failed = false;
    t->yielded = t->ask_for && !err;
    if (t->yielded)
        timer_set(t->again, RENEW_MS);
    else if (!err)
        pins_retry(t->server);
    tell(t, false);
}

/* Tells the engine to yield or to stop yielding, unless it was told already. An engine that does not run holds no
 * memory and is not started for this. */
static void tell(struct told *t, bool starting)
{
    struct games *g = t->server->games;
    char why[HEARTH_ERR_MSG];
    bool want = games_running(t->server, why) > 0;
    struct engine_client *ec = engines_at(t->server->engines, (size_t)(t - g->told));
    bool runs = engine_state(ec) == ENGINE_STARTING || engine_state(ec) == ENGINE_RUNNING;
    if (t->asking || want == t->yielded || (!starting && !runs))
        return;
    struct wire_engine_yield yield = {.all = true, .seconds = SECONDS, .most = -1};
    if (!want)
        yield = g->rest(t->server, ec);
    struct hearth_err e;
    t->ask_for = want;
    t->asking = true;
    if (engine_call(ec, &wire_methods[WIRE_ENGINE_YIELD], &yield, on_answer, t, &e)) {
        t->asking = false;
        try_again(t, &e);
    }
}

static void tell_all(struct server *s)
{
    struct games *g = s->games;
    char why[HEARTH_ERR_MSG];
    bool run = games_running(s, why) > 0;
    if (run != g->run)
        log_info("%s", run ? "a game runs: memory is yielded to it (gamemode)"
                           : "no game runs any more: memory may be taken again");
    g->run = run;
    for (size_t i = 0; i < engines_count(s->engines); i++)
        tell(&g->told[i], false);
}

static void on_changed(void *arg)
{
    tell_all(arg);
}

static void on_again(void *arg)
{
    struct told *t = arg;
    t->yielded = t->yielded && !t->server->games->run;
    tell(t, false);
}

static void games_free(struct games *g)
{
    if (!g)
        return;
    gamemode_close(g->mode);
    for (size_t i = 0; i < ENGINES_MAX; i++)
        timer_free(g->told[i].again);
    free(g);
}

void games_open(struct server *s, games_rest *rest)
{
    struct hearth_err e;
    struct games *g = calloc(1, sizeof *g);
    bool made = g != NULL;
    for (size_t i = 0; made && i < ENGINES_MAX; i++) {
        g->told[i].server = s;
        made = (g->told[i].again = timer_new(s->base, on_again, &g->told[i])) != NULL;
    }
    if (!made) {
        games_free(g);
        log_warn("games are not looked for: no memory");
        return;
    }
    g->rest = rest;
    s->games = g;
    bool wanted = !s->conf->gamemode || !strcmp(s->conf->gamemode, "on");
    if (wanted && gamemode_open(&g->mode, s->base, "libdbus-1.so.3", NULL, on_changed, s, &e))
        log_warn("games are not looked for: %s", e.msg);
}

void games_close(struct server *s)
{
    struct games *g = s->games;
    s->games = NULL;
    games_free(g);
}

void games_tell(struct server *s, struct engine_client *ec, bool ready)
{
    struct told *t = s->games ? &s->games->told[engine_number(ec)] : NULL;
    if (!t || (t->link == engine_link_number(ec) && !ready))
        return;
    if (t->link != engine_link_number(ec))
        t->yielded = false;
    t->link = engine_link_number(ec);
    tell(t, !ready);
}

void games_on_yield(struct server *s, struct engine_client *ec, bool over)
{
    struct told *t = s->games ? &s->games->told[engine_number(ec)] : NULL;
    if (!t || !t->yielded)
        return;
    t->yielded = false;
    if (!over)
        tell(t, false);
}

uint32_t games_running(const struct server *s, char why[static HEARTH_ERR_MSG])
{
    if (s->games && s->games->mode)
        return gamemode_games(s->games->mode, why);
    snprintf(why, HEARTH_ERR_MSG,
             s->conf->gamemode && !strcmp(s->conf->gamemode, "off") ? "gamemode is off in the configuration"
                                                                    : "nobody listens: the log says why");
    return 0;
}

/* games.c - see games.h. At most one call to each engine is outstanding, however often games start and end. */
#include "daemon/rpc/games.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gamemode.h"
#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/supervisor/engines.h"

enum {
    SECONDS = 86400,     /* the longest duration of a yield */
    RENEW_MS = 43200000, /* after which the yield is renewed */
    AGAIN_MS = 1000,     /* before the next attempt after a refusal, when another yield is in progress */
};

/* What an engine was told last. */
struct told {
    struct server *server;
    int64_t link; /* identifies the engine by its link's number */
    bool yielded; /* whether it was last told to yield */
    bool asking;  /* a call to it is outstanding */
    bool ask_for; /* the value of `yielded` that this call sets */
};

struct games {
    struct gamemode *mode; /* NULL: not listening */
    struct timer *again;
    bool run; /* whether a game runs, as last logged */
    struct told told[ENGINES_MAX];
};

static void tell(struct told *t, bool starting);

static void on_answer(void *arg, const void *result, const struct hearth_err *err)
{
    struct told *t = arg;
    struct games *g = t->server->games;
    (void)result;
    if (!g)
        return;
    t->asking = false;
    if (err && err->code == HEARTH_ELIMIT) {
        timer_set(g->again, AGAIN_MS);
        return;
    }
    if (err && err->code != HEARTH_EENGINE) /* the next engine is notified when it is ready */
        log_warn("memory is not yielded to a game: %s", err->msg);
    t->yielded = t->ask_for && !(err && err->code == HEARTH_EENGINE);
    if (t->yielded)
        timer_set(g->again, RENEW_MS);
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
    if (t->asking || want == t->yielded || (!starting && engine_pid(ec) == 0))
        return;
    struct wire_engine_yield yield = {.all = want, .seconds = want ? SECONDS : 0, .most = -1};
    struct hearth_err e;
    t->ask_for = want;
    t->asking = true;
    if (engine_call(ec, &wire_methods[WIRE_ENGINE_YIELD], &yield, on_answer, t, &e)) {
        t->asking = false;
        log_warn("memory is not yielded to a game: %s", e.msg);
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
    struct server *s = arg;
    for (size_t i = 0; i < ENGINES_MAX; i++)
        s->games->told[i].yielded = s->games->told[i].yielded && !s->games->run;
    tell_all(s);
}

void games_open(struct server *s)
{
    struct hearth_err e;
    struct games *g = calloc(1, sizeof *g);
    if (!g || !(g->again = timer_new(s->base, on_again, s))) {
        free(g);
        log_warn("games are not looked for: no memory");
        return;
    }
    for (size_t i = 0; i < ENGINES_MAX; i++)
        g->told[i].server = s;
    s->games = g;
    bool wanted = !s->conf->gamemode || !strcmp(s->conf->gamemode, "on");
    if (wanted && gamemode_open(&g->mode, s->base, "libdbus-1.so.3", NULL, on_changed, s, &e))
        log_warn("games are not looked for: %s", e.msg);
}

void games_close(struct server *s)
{
    struct games *g = s->games;
    s->games = NULL;
    if (!g)
        return;
    gamemode_close(g->mode);
    timer_free(g->again);
    free(g);
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

uint32_t games_running(const struct server *s, char why[static HEARTH_ERR_MSG])
{
    if (s->games && s->games->mode)
        return gamemode_games(s->games->mode, why);
    snprintf(why, HEARTH_ERR_MSG,
             s->conf->gamemode && !strcmp(s->conf->gamemode, "off") ? "gamemode is off in the configuration"
                                                                    : "nobody listens: the log says why");
    return 0;
}

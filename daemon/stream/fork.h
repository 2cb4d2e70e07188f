/*
 * fork.h - forks of a session, and the way back. A fork has the first turns of its parent by reference, and what is cut
 * inside of a turn, or has been made by a generation that still runs, for its own. Loop thread.
 */
#ifndef DAEMON_FORK_H
#define DAEMON_FORK_H

#include "daemon/stream/session.h"

/* What forks of a session will be made of. */
struct fork_plan {
    struct store_session row; /* all but id and name */
    struct store_turn own[WIRE_MESSAGES_MAX + 1];
    size_t n_own;
    /* The ids of which the last own turn's text is made, where only the engine can tell it; n 0: it is there. */
    struct wire_ids untold;
    int32_t *timeline; /* [n_timeline] of the forks, where it was in memory; NULL */
    size_t n_timeline;
    /* Private. */
    struct store_session *parent;
    struct session_rows *rows;
    struct store_turn *cut;
    char *text;
    struct wire_turn_generation *info; /* the cut turn's generation metadata, unpacked; NULL: it has none */
    struct wire_buf generation;
};

/* Plans forks of the uid's session `ref` at `at` ids (-1: all that there is). HEARTH_ENOSESSION, HEARTH_EPARAMS. It
 * borrows from a generation that runs in the session: it is for now. fork_plan_free() in any case. */
int fork_plan(struct server *s, uid_t uid, const char *ref, int64_t at, struct fork_plan **out, struct hearth_err *e);
void fork_plan_free(struct fork_plan *p);

/* The engine's text of p->untold. */
int fork_plan_told(struct fork_plan *p, const struct wire_detokenize_result *told, struct hearth_err *e);

/* Makes them, all or none. Their rows, which the caller frees as the array. HEARTH_ESESSIONEXISTS, HEARTH_ELIMIT. */
int fork_make(struct server *s, const struct fork_plan *p, const struct wire_session_fork *f,
              struct store_session ***out, struct hearth_err *e);

/* The fork's parent has what the fork has, and the fork is gone. *out is the parent, as it is now. HEARTH_ECONFLICT. */
int fork_adopt(struct server *s, uid_t uid, const char *ref, bool replace, struct store_session **out,
               struct hearth_err *e);

#endif

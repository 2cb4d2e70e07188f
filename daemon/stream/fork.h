/*
 * fork.h - forks of a session, and adopting a fork back into its parent. A fork refers to the first turns of its
 * parent, and has copies of the part of a turn that was cut, or that a running generation has made. Loop thread.
 */
#ifndef DAEMON_FORK_H
#define DAEMON_FORK_H

#include "daemon/stream/session.h"

/* What forks of a session will consist of. */
struct fork_plan {
    struct store_session row; /* all fields but id and name */
    const char *name;         /* the name of the session that is forked */
    struct store_turn own[WIRE_MESSAGES_MAX + 1];
    size_t n_own;
    /* The ids whose text is needed for the last own turn and which the engine must decode; n 0: none. */
    struct wire_ids untold;
    struct wire_ids answer; /* all ids of the answer that these are the first of */
    int32_t *timeline;      /* [n_timeline] the parent's timeline, if it was cached; NULL */
    size_t n_timeline;
    /* Private. */
    struct store_session *parent;
    struct timeline_hash means; /* what the parent's first ids meant to its model; "": not known */
    struct session_rows *rows;
    struct store_turn *cut;
    char *text;
    struct wire_turn_generation *info; /* the cut turn's generation metadata, unpacked; NULL: it has none */
    struct wire_buf generation;
};

/* Plans forks of the uid's session `ref` after `at` ids (-1: after all of them). HEARTH_ENOSESSION, HEARTH_EPARAMS. The
 * plan borrows from a generation running in the session, so it must be used before the loop continues. fork_plan_free()
 * frees it. */
int fork_plan(struct server *s, uid_t uid, const char *ref, int64_t at, struct fork_plan **out, struct hearth_err *e);
void fork_plan_free(struct fork_plan *p);

/* Fills in what the engine is asked about p->untold, borrowed from the plan. */
void fork_plan_ask(const struct fork_plan *p, struct wire_detokenize *ask);

/* Completes the plan with the engine's text of p->untold. */
int fork_plan_told(struct fork_plan *p, const struct wire_engine_detokenize_result *told, struct hearth_err *e);

/* Creates the forks, all or none. *out receives their rows; the caller frees each and the array. HEARTH_ESESSIONEXISTS,
 * HEARTH_ELIMIT. */
int fork_make(struct server *s, const struct fork_plan *p, const struct wire_session_fork *f,
              struct store_session ***out, struct hearth_err *e);

/* Replaces the content of the fork's parent by the fork's, and removes the fork. *out is the parent as it is then.
 * HEARTH_ECONFLICT. */
int fork_adopt(struct server *s, uid_t uid, const char *ref, bool replace, struct store_session **out,
               struct hearth_err *e);

#endif

/*
 * session.h - a session's token timeline while a generation runs on it. Its stream owns it. Loop thread.
 *
 * A session in the store is read when a generation opens it (sessions.h) and written when the generation ends. In
 * between it is busy: no other generation may run in it. A session that a generation creates is in the store only from
 * the end of that on; until then the running stream reserves its name.
 */
#ifndef DAEMON_SESSION_H
#define DAEMON_SESSION_H

#include "daemon/context.h"
#include "daemon/store/store.h"

/* What the first n ids of a timeline stand for, by a hash that an engine told; "": nobody knows. */
struct timeline_hash {
    char hash[WIRE_NAME_MAX + 1];
    int64_t n;
};

struct session {
    struct store_session row; /* name NULL: unnamed, neither listed nor kept */
    bool is_new;              /* not in the store yet */
    int32_t *ids;             /* the timeline before this generation */
    size_t n_ids;
    struct timeline_hash means;
};

/* Draws a random id. HEARTH_EINTERNAL without random numbers. */
int session_new_id(char id[STORE_ID_LEN + 1], struct hearth_err *e);

void session_free(struct session *ss);

/* 0 where the string may name a session; HEARTH_EPARAMS says why it may not, of that field. */
int session_check_name(const char *field, const char *name, struct hearth_err *e);

/* Reads from the store what the timeline's ids stand for. */
int session_read_meaning(struct server *s, struct session *ss, struct hearth_err *e);

/* 0 where nothing has been written to the stored session since it was opened; HEARTH_ESTORE. */
int session_check_unchanged(struct server *s, const struct session *ss, struct hearth_err *e);

/* What a generation adds to its session; all of it borrowed. */
struct session_turn {
    const struct wire_generate *request; /* the messages or the text that people read */
    struct wire_ids appended;            /* the request's input as ids, the template's among them */
    struct wire_ids completion;
    struct wire_bytes text;           /* of the completion */
    struct wire_turn_generation info; /* generation metadata, and what was thought */
    bool turn_open;                   /* the completion does not end the assistant's turn */
    int64_t stream;                   /* number of the stream, which counts as written in the same transaction */
};
/* The turn as rows, which borrow from it and from `generation` (packed; NULL: none). */
struct session_rows {
    struct store_turn *v; /* [n], the completion's the last */
    size_t n;
    char **joined;
};
int session_rows_make(const struct session_turn *t, double now, const struct wire_buf *generation,
                      struct session_rows **out, struct hearth_err *e);
void session_rows_free(struct session_rows *r);

/* Writes the turn to the store, all or nothing; a new session is created by it. */
int session_commit(struct server *s, struct session *ss, const struct session_turn *t, struct hearth_err *e);

/* Makes the session of a stream that the journal has: as its head says, to be looked at; or with its timeline, to
 * continue in it. The timeline must be as long as it was when the stream began, else HEARTH_ESTORE. */
int session_of_head(const struct wire_journal_head *head, struct session **out, struct hearth_err *e);
int session_reopen(struct server *s, const struct wire_journal_head *head, struct session **out, struct hearth_err *e);

#endif

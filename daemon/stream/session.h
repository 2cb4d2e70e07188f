/*
 * session.h - a session's token timeline while a generation runs on it. The stream owns it. Loop thread.
 *
 * A stored session is read when a generation opens it (sessions.h) and written when the generation ends. In between it
 * is busy: no other generation may run in it. A session that a generation creates is stored only when that generation
 * ends; until then the running stream reserves its name.
 */
#ifndef DAEMON_SESSION_H
#define DAEMON_SESSION_H

#include "daemon/context.h"
#include "daemon/store/store.h"

/* A hash, reported by an engine, of what the first n ids of a timeline mean in its vocabulary; "": unknown. */
struct timeline_hash {
    char hash[WIRE_NAME_MAX + 1];
    int64_t n;
};

struct session {
    struct store_session row; /* name NULL: an unnamed session, which is neither listed nor stored */
    bool is_new;              /* not in the store yet */
    int32_t *ids;             /* the timeline before this generation */
    size_t n_ids;
    struct timeline_hash means;
};

/* Draws a random id. HEARTH_EINTERNAL if there are no random numbers. */
int session_new_id(char id[STORE_ID_LEN + 1], struct hearth_err *e);

void session_free(struct session *ss);

/* 0 if the string may name a session; HEARTH_EPARAMS, which names `field` and the reason. */
int session_check_name(const char *field, const char *name, struct hearth_err *e);

/* Reads ss->means from the metadata of the session's last generated turn. */
int session_read_meaning(struct server *s, struct session *ss, struct hearth_err *e);

/* 0 if the stored session has not been changed since it was opened, else HEARTH_ECONFLICT. */
int session_check_unchanged(struct server *s, const struct session *ss, struct hearth_err *e);

/* The turn that a generation adds to its session; everything in it is borrowed. */
struct session_turn {
    const struct wire_generate *request; /* has the messages or the text, for people to read */
    struct wire_ids appended;            /* the request's input as ids, those of the template included */
    struct wire_ids completion;
    struct wire_bytes text;           /* text of the completion */
    struct wire_turn_generation info; /* generation metadata, and the reasoning */
    bool turn_open;                   /* the completion does not end the assistant's turn */
    int64_t stream;                   /* number of the stream, which is marked as committed in the same transaction */
};
/* The turn as rows of the store, which borrow from it and from `generation` (packed; NULL: none). */
struct session_rows {
    struct store_turn *v; /* [n], the last one is the completion's */
    size_t n;
    char **joined;
};
int session_rows_make(const struct session_turn *t, double now, const struct wire_buf *generation,
                      struct session_rows **out, struct hearth_err *e);
void session_rows_free(struct session_rows *r);

/* Writes the turn to the store atomically; this also creates a new session. */
int session_commit(struct server *s, struct session *ss, const struct session_turn *t, struct hearth_err *e);

/* Build the session of a journaled stream: session_of_head() from the head alone, for reading the stream's output;
 * session_reopen() also with the timeline, for continuing the stream or committing its turn. The timeline must be as
 * long as it was when the stream began, else HEARTH_ECONFLICT. */
int session_of_head(const struct wire_journal_head *head, struct session **out, struct hearth_err *e);
int session_reopen(struct server *s, const struct wire_journal_head *head, struct session **out, struct hearth_err *e);

#endif

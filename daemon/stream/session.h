/*
 * session.h - a token timeline while a generation runs on it; owned by the stream. Loop thread.
 *
 * A session in the store is read when a generation opens it and written when the generation ends. Between, it is busy:
 * nothing else may run in it. One that a generation creates is in the store only from that end on; until then its
 * name is reserved by the running stream.
 */
#ifndef DAEMON_SESSION_H
#define DAEMON_SESSION_H

#include "daemon/context.h"
#include "daemon/store/store.h"

struct session {
    struct store_session row; /* name NULL: unnamed, neither listed nor kept */
    bool is_new;              /* not in the store yet */
    int32_t *ids;             /* the timeline before this generation */
    size_t n_ids;
};

int session_new_id(char id[STORE_ID_LEN + 1], struct hearth_err *e);

/* What sessions.list and its like say of one; borrows the strings. */
void session_describe(const struct server *s, const struct store_session *from, struct wire_session *to);

/* What the request's `session` and `model` mean for that uid. */
int session_open(struct server *s, uid_t uid, const struct wire_generate *g, struct session **out,
                 struct hearth_err *e);
/* Removes it with all that there is of it on the disk; or that alone, its KV and its streams' journals. */
int session_remove(struct server *s, const struct store_session *row, struct hearth_err *e);
void session_forget(struct server *s, const char *id);

void session_free(struct session *ss);

/* Whether a generation runs in that stored session; whether one is creating a session of that name. */
bool session_is_busy(const struct server *s, const char *id);
bool session_is_reserved(const struct server *s, uid_t uid, const char *name);

/* A sound session in the store for the client's reference. */
int session_get(struct server *s, uid_t uid, const char *ref, struct store_session **out, struct hearth_err *e);

/* 0 where the string may name a session. */
int session_check_name(const char *name, struct hearth_err *e);

/* 0 where the stored session is as it was opened: nothing has been written to it since. */
int session_check_unchanged(struct server *s, const struct session *ss, struct hearth_err *e);

/* What a generation adds to its session; all of it borrowed. */
struct session_turn {
    const struct wire_generate *request; /* the messages or the text that people read */
    struct wire_ids appended;            /* the request's input as ids, the template's among them */
    struct wire_ids completion;
    struct wire_bytes text;           /* of the completion */
    struct wire_generation_info info; /* generation metadata */
    bool turn_open;                   /* the completion does not end the assistant's turn */
    int64_t stream;                   /* number of the stream, which counts as written in the same transaction */
};
int session_commit(struct server *s, struct session *ss, const struct session_turn *t, struct hearth_err *e);

/* The session of a stream from the journal: as the head says, for looking at; or for going on in it, with its timeline,
 * which must be as long as it was. */
int session_of_head(const struct wire_journal_head *head, struct session **out, struct hearth_err *e);
int session_reopen(struct server *s, const struct wire_journal_head *head, struct session **out, struct hearth_err *e);

#endif

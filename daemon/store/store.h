/*
 * store.h - sessions on disk: the one door to SQLite. Loop thread; every call blocks on the file, so none is made per
 * token: a turn is written once, when it has ended.
 *
 * The token timeline is the truth: the ids of a session's turns, one after the other, are what the engine computes
 * from. The texts beside them are for people. Rows are outside input (a damaged or foreign file): what does not hold
 * together is HEARTH_ESTORE, naming the session and what is wrong with it.
 */
#ifndef DAEMON_STORE_H
#define DAEMON_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "libclient/err.h"

enum { STORE_ID_LEN = 16, STORE_VERSION = 6 };

struct store;

struct store_session {
    char id[STORE_ID_LEN + 1]; /* lower-case hex digits */
    uid_t uid;
    char *name;  /* unique per uid */
    char *model; /* as the client named it */
    char *path;
    bool turn_open; /* the timeline ends inside an assistant turn */
    double created, used;
    int64_t n_tok, n_turns;
    int64_t bytes; /* of texts and ids */
    bool pinned;
    bool damaged; /* it can only be removed: nothing else here is to be relied on, and strings may be NULL */
};

struct store_turn {
    const char *role;
    const char *text; /* any bytes */
    size_t len;
    const int32_t *ids;
    size_t n_ids;
    double created;
    const void *generation; /* how it was generated: an event turn.generation (generation-info.h), or NULL */
    size_t generation_len;
    bool continues; /* in a page: the rest of the turn before */
};

/*
 * Opens DIR/sessions.db, creating both as needed, and brings it up to STORE_VERSION: all steps in one transaction,
 * after a copy of the old file was kept as sessions.db.v1 (or whatever its version was). A database of a newer version,
 * a damaged one or one that cannot be written is refused and left untouched.
 */
int store_open(struct store **out, const char *dir, struct hearth_err *e);
void store_close(struct store *st);

/* A session of that uid, by id where `ref` is 16 hex digits, else by name; HEARTH_ENOSESSION. */
int store_get(struct store *st, uid_t uid, const char *ref, struct store_session **out, struct hearth_err *e);
/* The same, and a damaged one too. */
int store_find(struct store *st, uid_t uid, const char *ref, struct store_session **out, struct hearth_err *e);
void store_session_free(struct store_session *s);

/* Where a listing goes on: after that session. An id "" is the beginning, and what there is after the last. */
struct store_cursor {
    double used;
    char id[STORE_ID_LEN + 1];
};

/* A uid's next sessions, damaged ones too, `most` at most, the last used first; the caller frees each and the array. */
int store_list(struct store *st, uid_t uid, struct store_cursor *at, size_t most, struct store_session ***out,
               size_t *n, struct hearth_err *e);
int store_count(struct store *st, uid_t uid, int64_t *n, struct hearth_err *e);

/* For limits: bytes of all of a uid's sessions; who has any. */
int store_bytes(struct store *st, uid_t uid, int64_t *n, struct hearth_err *e);
int store_uids(struct store *st, uid_t **uids, size_t *n, struct hearth_err *e);

/* The next that may be removed, the oldest first: not pinned, not damaged. All uids' that were not used since `before`;
 * and a uid's, all but the one that was used last. */
int store_list_old(struct store *st, double before, struct store_cursor *at, size_t most, struct store_session ***out,
                   size_t *n, struct hearth_err *e);
int store_list_unused(struct store *st, uid_t uid, struct store_cursor *at, size_t most, struct store_session ***out,
                      size_t *n, struct hearth_err *e);

/* What age.h wants to have kept: zeros where nothing is. */
int store_get_clock(struct store *st, double *wall, double *holdoff, struct hearth_err *e);
int store_set_clock(struct store *st, double wall, double holdoff, struct hearth_err *e);

/* The ids of all turns, in order; malloc'd, NULL for none. */
int store_timeline(struct store *st, const struct store_session *s, int32_t **ids, size_t *n, struct hearth_err *e);

/* The same from memory, where it was remembered and nothing has come between; false where it has to be read. */
bool timeline_cache_get(struct store *st, const struct store_session *s, int32_t **ids, size_t *n);
/* What the session's timeline is now, in parts; its turns are that many. */
struct store_ids {
    const int32_t *v;
    size_t n;
};
void timeline_cache_put(struct store *st, const char *id, int64_t n_turns, const struct store_ids *part, size_t n_part);

/* The turns in order, without ids but with their number. */
int store_turns(struct store *st, const struct store_session *s, struct store_turn **turns, size_t *n,
                struct hearth_err *e);
void store_turns_free(struct store_turn *turns, size_t n);

/*
 * A page of the turns, with all that they have: `*at` is 0 and then what the last call made of it, -1 at the end. A
 * page holds about `bytes` of texts and ids and at most `most` turns; the last turn may be cut, and goes on in the next
 * page.
 */
int store_page(struct store *st, const struct store_session *s, int64_t *at, size_t bytes, size_t most,
               struct store_turn **turns, size_t *n, struct hearth_err *e);

/* Appends turns and writes turn_open and used, all or nothing. `create`: the session's row as well, and
 * HEARTH_ESESSIONEXISTS where the name is taken. The same transaction remembers that `stream` has been folded in. */
int store_commit(struct store *st, const struct store_session *s, bool create, const struct store_turn *turns, size_t n,
                 int64_t stream, struct hearth_err *e);

/* A stream's number is never above this, unless somebody or a flipped bit has written it. */
static const int64_t STORE_STREAM_MAX = 1LL << 53;

/* Streams whose journal needs no folding any more. Remembering one that left nothing keeps its number from being given
 * again; forgetting is for those below `oldest`, which have no journal. */
int store_commit_nothing(struct store *st, int64_t stream, struct hearth_err *e);
int store_is_committed(struct store *st, int64_t stream, bool *committed, struct hearth_err *e);
int store_last_stream(struct store *st, int64_t *stream, struct hearth_err *e); /* 0: none */
void store_forget_streams(struct store *st, int64_t oldest);

/* Writes a whole session, or nothing. `replaced` (or NULL) is removed in the same transaction. */
int store_import(struct store *st, const struct store_session *s, const struct store_session *replaced,
                 const struct store_turn *turns, size_t n, struct hearth_err *e);

int store_pin(struct store *st, const struct store_session *s, bool pinned, struct hearth_err *e);
int store_rename(struct store *st, const struct store_session *s, const char *name, struct hearth_err *e);

/* The session is gone when this returns, and its name is free. A large one's turns are removed by and by: some of them,
 * true in *more where there are others; or all that are left, for who cannot wait. */
int store_remove(struct store *st, const struct store_session *s, struct hearth_err *e);
int store_purge_some(struct store *st, bool *more, struct hearth_err *e);
int store_purge_all(struct store *st, struct hearth_err *e);

/* What was removed is still in the database's log until this: some time after a removal. HEARTH_ESTORE where a copy is
 * being made; then later. */
int store_scrub(struct store *st, struct hearth_err *e);

/* Copies the database file at `from`, which may be in use, into the new file at `to`, mode 0600: whole, on the disk and
 * at once there, or not at all. An existing file is HEARTH_EIO, or replaced, but never the database itself. Any thread;
 * `*stop` ends it early. */
int store_copy(const char *from, const char *to, bool replace, const atomic_bool *stop, int64_t *bytes,
               struct hearth_err *e);
const char *store_path(const struct store *st);

/* True for what is an id and therefore never a name. */
bool store_is_id(const char *ref);

#endif

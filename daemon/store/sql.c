/* sql.c - every SQL text of the store, in two tables: the steps that create the schema, and the statements. */
#include "config.h"

#include "daemon/store/store-internal.h"

/* store_migrations[v] takes a database from version v to v + 1, inside one transaction. Never edit a step that has been
 * released. */
const char *const store_migrations[STORE_VERSION] = {
    "CREATE TABLE sessions("
    "  id TEXT PRIMARY KEY, uid INTEGER NOT NULL, name TEXT NOT NULL, model TEXT NOT NULL, path TEXT NOT NULL,"
    "  turn_open INTEGER NOT NULL, created REAL NOT NULL, used REAL NOT NULL, UNIQUE(uid, name)) WITHOUT ROWID;"
    /* tokens: int32, little endian, packed */
    "CREATE TABLE turns("
    "  session TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, seq INTEGER NOT NULL, role TEXT NOT NULL,"
    "  text BLOB NOT NULL, tokens BLOB NOT NULL, created REAL NOT NULL, UNIQUE(session, seq));",
    /* streams of the journal whose turns are committed */
    "CREATE TABLE folded(stream INTEGER PRIMARY KEY);",
    /* bytes: of all texts and tokens, maintained by store_commit(); made: the event turn.generation (formerly
     * turn.made) */
    "ALTER TABLE sessions ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;"
    "UPDATE sessions SET bytes ="
    "  (SELECT coalesce(sum(length(text) + length(tokens)), 0) FROM turns WHERE session = sessions.id);"
    "ALTER TABLE turns ADD COLUMN made BLOB;"
    "CREATE INDEX sessions_used ON sessions(used);"
    /* one row: the state of the clock guard (retention/clock-guard.h) */
    "CREATE TABLE clock(one INTEGER PRIMARY KEY CHECK (one = 1), wall REAL NOT NULL, doubt REAL NOT NULL);",
    /* the valid KV files, and the clock of `created` and `used` */
    "CREATE TABLE kv_file("
    "  name TEXT NOT NULL UNIQUE, fingerprint TEXT NOT NULL, session TEXT NOT NULL, uid INTEGER NOT NULL,"
    "  bytes INTEGER NOT NULL, tokens INTEGER NOT NULL, pos INTEGER NOT NULL, created REAL NOT NULL,"
    "  used REAL NOT NULL);"
    "CREATE TABLE kv_clock(id INTEGER PRIMARY KEY CHECK(id = 0), seen REAL NOT NULL, wall REAL NOT NULL);"
    "INSERT INTO kv_clock(id, seen, wall) VALUES(0, 0, 0);",
    /* checksums of the rows, see checksum.c */
    "ALTER TABLE sessions ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;"
    "UPDATE sessions SET sum = row_sum(id, uid, name, model, path, turn_open, bytes, created);"
    "ALTER TABLE turns ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;"
    "UPDATE turns SET sum = row_sum(session, seq, role, text, tokens, created, made);",
    /* The session's row holds everything that a listing shows: counting took 4 ms for 20,000 turns. A damaged row stays
     * damaged. */
    "ALTER TABLE sessions ADD COLUMN n_turns INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sessions ADD COLUMN n_tok INTEGER NOT NULL DEFAULT 0;"
    "UPDATE sessions SET n_turns = (SELECT count(*) FROM turns WHERE session = sessions.id),"
    "  n_tok = (SELECT coalesce(sum(length(tokens)), 0) / 4 FROM turns WHERE session = sessions.id);"
    "UPDATE sessions SET sum = row_sum(id, uid, name, model, path, turn_open, bytes, created, n_turns, n_tok)"
    "  WHERE sum = row_sum(id, uid, name, model, path, turn_open, bytes, created);"
    "CREATE INDEX sessions_recent ON sessions(uid, used);", /* the table has no rowids, so the index ends with the id */
    /* the original message in JSON, where it was more than a role and a text */
    "ALTER TABLE turns ADD COLUMN message BLOB;",
    /* Forks: the first `base` turns of a session, which have base_tok ids, are its parent's, by reference; its own
     * turns follow. The second index finds trunks: the remains of removed sessions that have forks. */
    "ALTER TABLE sessions ADD COLUMN parent TEXT;"
    "ALTER TABLE sessions ADD COLUMN base INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sessions ADD COLUMN base_tok INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sessions ADD COLUMN ephemeral INTEGER NOT NULL DEFAULT 0;"
    "CREATE INDEX sessions_parent ON sessions(parent) WHERE parent IS NOT NULL;"
    "CREATE INDEX sessions_trunk ON sessions(id) WHERE name = id;",
};

/* The sum of a turn without a message omits that column, as it did before the column existed, so that the migration did
 * not have to rewrite any row. */
#define TURN_SUM_OF(session, seq, role, text, tokens, created, made, message)                                        \
    "CASE WHEN " message " IS NULL THEN row_sum(" session ", " seq ", " role ", " text ", " tokens ", " created      \
    ", " made ") ELSE row_sum(" session ", " seq ", " role ", " text ", " tokens ", " created ", " made ", " message \
    ") END"
#define TURN_SUM    TURN_SUM_OF("session", "seq", "role", "text", "tokens", "created", "made", "message")
#define TURN_LENGTH "length(text) + length(tokens) + coalesce(length(message), 0)"

/* `used`, `pinned` and `ephemeral` are left out: they only decide when retention removes the session. The sum of a
 * session that is no fork omits the columns of forks, as it did before they existed. */
#define SUM_OF(name, turn_open, bytes, n_turns, n_tok)                                                      \
    "CASE WHEN parent IS NULL THEN row_sum(id, uid, " name ", model, path, " turn_open ", " bytes           \
    ", created, " n_turns ", " n_tok ") ELSE row_sum(id, uid, " name ", model, path, " turn_open ", " bytes \
    ", created, " n_turns ", " n_tok ", parent, base, base_tok) END"
#define SUM SUM_OF("name", "turn_open", "bytes", "n_turns", "n_tok")
#define SUM_WITH_PARENT(parent) \
    "row_sum(id, uid, name, model, path, turn_open, bytes, created, n_turns, n_tok, " parent ", base, base_tok)"

#define QUOTE(value)   #value
#define DECIMAL(macro) QUOTE(macro)

/* A trunk, the remains of a removed session that has forks, is visible to nobody but counts for its owner. */
#define VISIBLE " AND name <> id"

/* A listing's cursor can only hold a well-formed id. */
#define IS_ID "typeof(id) = 'text' AND length(CAST(id AS BLOB)) = 16 AND id NOT GLOB '*[^0-9a-f]*'"

#define SESSION                                                                                                      \
    "SELECT id, name, model, path, turn_open, created, used, n_turns, n_tok, uid, bytes, pinned, "                   \
    "sum = " SUM ", parent, base, base_tok, ephemeral,"                                                              \
    " EXISTS (SELECT 1 FROM sessions AS p WHERE p.id = sessions.parent AND p.uid = sessions.uid AND p.name <> p.id)" \
    " FROM sessions WHERE "

const char *const store_sql[N_SQL] = {
    [SQL_BEGIN] = "BEGIN IMMEDIATE",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
    [SQL_GET_ID] = SESSION "uid = ?1 AND id = ?2" VISIBLE,
    [SQL_GET_NAME] = SESSION "uid = ?1 AND name = ?2",
    [SQL_LIST] = SESSION "uid = ?1 AND (used, id) < (?2, ?3) AND (ephemeral = 0 OR ?5)" VISIBLE " AND " IS_ID
                         " ORDER BY used DESC, id DESC LIMIT ?4",
    [SQL_LIST_OLD] = SESSION "used < ?1 AND (used < ?5 OR ephemeral) AND (used, id) > (?2, ?3) AND pinned = 0" VISIBLE
                             " AND sum = " SUM " ORDER BY used, id LIMIT ?4",
    [SQL_LIST_UNUSED] = SESSION "uid = ?1 AND (used, id) > (?2, ?3) AND pinned = 0" VISIBLE " AND sum = " SUM
                                " AND id <> (SELECT id FROM sessions WHERE uid = ?1" VISIBLE " AND sum = " SUM
                                " ORDER BY used DESC, id DESC LIMIT 1) ORDER BY used, id LIMIT ?4",
    [SQL_COUNT] = "SELECT count(*) FROM sessions WHERE uid = ?1" VISIBLE,
    /* A damaged size could use up the quota of all the other sessions. */
    [SQL_BYTES] = "SELECT coalesce(sum(bytes), 0) FROM sessions WHERE uid = ?1"
                  " AND typeof(bytes) = 'integer' AND bytes BETWEEN 0 AND " DECIMAL(STORE_SIZE_MAX) " AND sum = " SUM,
    /* DISTINCT would read every session. */
    [SQL_UIDS] = "WITH RECURSIVE u(uid) AS (SELECT min(uid) FROM sessions WHERE uid >= 0 UNION ALL"
                 " SELECT (SELECT min(uid) FROM sessions WHERE uid > u.uid) FROM u WHERE u.uid IS NOT NULL)"
                 " SELECT uid FROM u WHERE uid IS NOT NULL",
    [SQL_LAST_USED] = "SELECT coalesce(max(used), 0) FROM sessions WHERE used < ?1 AND uid >= 0",
    [SQL_GET_CLOCK] = "SELECT wall, doubt FROM clock",
    [SQL_SET_CLOCK] = "INSERT INTO clock(one, wall, doubt) VALUES(1, ?1, ?2)"
                      " ON CONFLICT(one) DO UPDATE SET wall = ?1, doubt = ?2",
    [SQL_DATA_VERSION] = "PRAGMA data_version",
    [SQL_TOKENS] = "SELECT tokens, seq, " TURN_LENGTH ", sum = " TURN_SUM " FROM turns"
                   " WHERE session = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq",
    /* The lengths come before the values, so that nothing else is read of a turn that a page skips. */
    [SQL_TURNS] = "SELECT length(text), length(tokens), role, created, text, tokens, made, message FROM turns"
                  " WHERE session = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq",
    [SQL_LAST_GENERATION] = "SELECT made FROM turns WHERE session = ?1 AND seq >= ?2 AND seq < ?3"
                            " AND made IS NOT NULL ORDER BY seq DESC LIMIT 1",
    [SQL_LENGTHS] = "SELECT length(tokens), role, made IS NOT NULL FROM turns"
                    " WHERE session = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq",
    [SQL_LINK] = "SELECT parent, base FROM sessions WHERE id = ?1",
    [SQL_INSERT] = "INSERT INTO sessions(id, uid, name, model, path, turn_open, created, used, bytes, pinned,"
                   " n_turns, n_tok, parent, base, base_tok, ephemeral)"
                   " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
    [SQL_SUM] = "UPDATE sessions SET sum = " SUM " WHERE id = ?1",
    [SQL_UPDATE] =
        "UPDATE sessions SET turn_open = ?2, used = ?3, bytes = bytes + ?4, n_turns = n_turns + ?5,"
        " n_tok = n_tok + ?6, sum = " SUM_OF("name", "?2", "bytes + ?4", "n_turns + ?5", "n_tok + ?6") " WHERE id = ?1",
    [SQL_INSERT_TURN] = "INSERT INTO turns(session, seq, role, text, tokens, created, made, message, sum)"
                        " SELECT ?1, n, ?2, ?3, ?4, ?5, ?6, ?7, " TURN_SUM_OF(
                            "?1", "n", "?2", "?3", "?4", "?5", "?6",
                            "?7") " FROM (SELECT coalesce(max(seq) + 1, (SELECT base FROM sessions WHERE id = ?1)) AS n"
                                  " FROM turns WHERE session = ?1)",
    [SQL_PIN] = "UPDATE sessions SET pinned = ?2 WHERE id = ?1",
    [SQL_RENAME] =
        "UPDATE sessions SET name = ?2, sum = " SUM_OF("?2", "turn_open", "bytes", "n_turns", "n_tok") " WHERE id = ?1",
    /* Turns of sessions whose rows have lost their ids; not those that forks share. */
    [SQL_REMOVE_ORPHANS] = "DELETE FROM turns WHERE session NOT IN (SELECT id FROM sessions UNION ALL"
                           " SELECT parent FROM sessions WHERE parent IS NOT NULL AND uid >= 0)"
                           " AND NOT EXISTS (SELECT 1 FROM turns WHERE session = ?1)",
    /* The same of one session; not while they may still belong to a row, which then has no turns itself. */
    [SQL_REMOVE_ORPHANS_OF] = "DELETE FROM turns WHERE session = ?1 AND NOT EXISTS"
                              " (SELECT 1 FROM sessions WHERE id = ?1 OR (parent = ?1 AND uid >= 0))"
                              " AND NOT EXISTS (SELECT 1 FROM sessions WHERE uid >= 0 AND sum IS NOT " SUM
                              " AND NOT EXISTS (SELECT 1 FROM turns AS t WHERE t.session = sessions.id))",
    [SQL_REMOVE_NAME] = "DELETE FROM sessions WHERE uid = ?1 AND name = ?2",
    [SQL_REMOVE] = "DELETE FROM sessions WHERE id = ?1",
    /* The checksum covers the id, so the row stays damaged. */
    [SQL_ASSIGN_IDS] = "UPDATE sessions SET id = lower(hex(randomblob(8))) WHERE NOT (" IS_ID ")",
    /* uid -1 is nobody's, and no session can be named like an id. */
    [SQL_SOFT_DELETE] = "UPDATE sessions SET uid = -1, name = id WHERE id = ?1",
    /* A session that is being written in parts has uid -2. */
    [SQL_HIDE] = "UPDATE sessions SET uid = -2 WHERE id = ?1",
    [SQL_PUBLISH] = "UPDATE sessions SET uid = ?2, name = ?3, turn_open = ?4, created = ?5, used = ?6, bytes = ?7,"
                    " pinned = ?8, n_turns = ?9, n_tok = ?10 WHERE id = ?1 AND uid = -2",
    [SQL_DROP_PARTS] = "UPDATE sessions SET uid = -1 WHERE uid = -2 AND name = id",
    [SQL_DELETED] = "SELECT id FROM sessions WHERE uid = -1 AND name = id AND " IS_ID " LIMIT 1",
    /* The forks of a session, and the most that any one of them shares of it. */
    [SQL_SHARED] = "SELECT count(*), coalesce(max(base), 0), coalesce(max(base_tok), 0) FROM sessions"
                   " WHERE parent = ?1 AND uid >= 0 AND id <> ?2",
    [SQL_SHARES] = "SELECT 1 FROM sessions WHERE parent = ?1 AND uid >= 0 AND id <> ?2 AND base >= ?3 LIMIT 1",
    [SQL_MAKE_TRUNK] =
        "UPDATE sessions SET name = id, pinned = 0, ephemeral = 0, n_turns = ?2, n_tok = ?3, base = min(?2, base),"
        " base_tok = min(?3, base_tok),"
        " bytes = (SELECT coalesce(sum(" TURN_LENGTH "), 0) FROM turns WHERE session = ?1 AND seq < ?2) WHERE id = ?1",
    [SQL_GET_TRUNK] = SESSION "id = ?1 AND name = id AND uid >= 0",
    [SQL_TRUNK_WITH_TAIL] = "SELECT id, n_turns FROM sessions WHERE name = id AND uid >= 0 AND " IS_ID " AND EXISTS"
                            " (SELECT 1 FROM turns WHERE session = sessions.id AND seq >= sessions.n_turns) LIMIT 1",
    [SQL_OWN_BYTES] = "SELECT coalesce(sum(" TURN_LENGTH "), 0) FROM turns WHERE session = ?1",
    [SQL_MOVE_TURNS] = "UPDATE turns SET session = ?2, sum = " TURN_SUM_OF(
        "?2", "seq", "role", "text", "tokens", "created", "made", "message") " WHERE session = ?1",
    [SQL_MOVE_FORKS] =
        "UPDATE sessions SET parent = ?2, sum = " SUM_WITH_PARENT("?2") " WHERE parent = ?1 AND sum = " SUM,
    [SQL_ADOPT] = "UPDATE sessions SET base = ?2, base_tok = ?3, turn_open = ?4, used = ?5, bytes = ?6, n_turns = ?7,"
                  " n_tok = ?8 WHERE id = ?1",
    [SQL_COUNT_NAMES] =
        "WITH RECURSIVE used(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM used WHERE EXISTS"
        " (SELECT 1 FROM sessions WHERE uid = ?1 AND name = ?2 || '.' || (n + 1))) SELECT max(n) FROM used",
    [SQL_LAST_TURNS] = "SELECT seq, " TURN_LENGTH " FROM turns WHERE session = ?1"
                       " ORDER BY seq DESC LIMIT ?2",
    [SQL_REMOVE_TURNS] = "DELETE FROM turns WHERE session = ?1 AND seq >= ?2",
    [SQL_COMMIT_STREAM] = "INSERT INTO folded(stream) VALUES(?1)",
    [SQL_IS_COMMITTED] = "SELECT count(*) FROM folded WHERE stream = ?1",
    [SQL_LAST_STREAM] = "SELECT coalesce(max(stream), 0) FROM folded WHERE stream <= ?1",
    [SQL_KV_LOST] = "DELETE FROM kv_file WHERE session <> ''"
                    " AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = kv_file.session AND uid >= 0)",
    [SQL_KV_LIST] = "SELECT name, fingerprint, session, uid, bytes, tokens, pos, created, used, rowid FROM kv_file",
    [SQL_KV_SAVE] = "INSERT OR REPLACE INTO kv_file(name, fingerprint, session, uid, bytes, tokens, pos, created, used)"
                    " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    [SQL_KV_MOVE] = "UPDATE kv_file SET session = ?2 WHERE session = ?1",
    [SQL_KV_TOUCH] = "UPDATE kv_file SET used = ?2 WHERE name = ?1",
    [SQL_KV_REMOVE] = "DELETE FROM kv_file WHERE name = ?1",
    [SQL_KV_REMOVE_ROW] = "DELETE FROM kv_file WHERE rowid = ?1",
    [SQL_KV_CLOCK] = "SELECT seen, wall FROM kv_clock WHERE id = 0",
    [SQL_KV_SET_CLOCK] = "INSERT OR REPLACE INTO kv_clock(id, seen, wall) VALUES(0, ?1, ?2)",
    [SQL_FORGET_STREAMS] = "DELETE FROM folded WHERE stream < ?1 AND stream < (SELECT max(stream) FROM folded)",
};

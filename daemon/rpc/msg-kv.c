/* msg-kv.c - the engine's events about KV files: written, used, damaged. Loop thread. */
#include "config.h"

#include <stdio.h>

#include "daemon/rpc/dispatch.h"
#include "daemon/retention/kvdir.h"
#include "daemon/stream/stream.h"

/* The position that the KV files of the session may reach that are of that stream's turn. While they were being
 * written, the session may have been removed, or the turn dropped by sessions.adopt, and another turn may run by now.
 */
static int64_t limit_of(struct server *s, uid_t uid, const char *session, int64_t stream)
{
    struct store_session *row;
    struct store_shared shared = {0};
    int64_t tokens;
    if (stream_find(s, uid, stream))
        return INT64_MAX; /* a turn that runs is not in the store yet */
    if (!s->store || !store_is_id(session))
        return 0;
    if (store_get(s->store, uid, session, &row, NULL) == 0) {
        tokens = row->n_tok;
        store_session_free(row);
        return tokens;
    }
    store_shared(s->store, session, "", &shared, NULL);
    return shared.tokens; /* its forks share that many tokens of it */
}

void msg_on_kv_saved(struct server *s, const void *body)
{
    const struct wire_engine_kv_saved *k = body;
    struct kv_manifest_row f = {.uid = (uid_t)k->uid, .bytes = k->bytes, .tokens = k->tokens, .pos = k->pos};
    if (!s->kv)
        return;
    snprintf(f.name, sizeof f.name, "%s", k->file);
    snprintf(f.fingerprint, sizeof f.fingerprint, "%s", k->fingerprint);
    snprintf(f.session, sizeof f.session, "%s", k->label != NULL ? k->label : "");
    kvdir_saved(s->kv, &f, k->label ? limit_of(s, f.uid, f.session, k->stream) : INT64_MAX);
}

void msg_on_kv_used(struct server *s, const void *body)
{
    const struct wire_engine_kv_used *k = body;
    if (s->kv)
        kvdir_used(s->kv, k->file);
}

void msg_on_kv_bad(struct server *s, const void *body)
{
    const struct wire_engine_kv_bad *k = body;
    if (s->kv)
        kvdir_bad(s->kv, k->file, k->why);
}

/* msg-kv.c - the engine's events about KV files: written, used, damaged. Loop thread. */
#include "config.h"

#include <stdio.h>

#include "daemon/rpc/dispatch.h"
#include "daemon/retention/kvdir.h"
#include "daemon/stream/sessions.h"

/* Whether the session still exists: it may have been removed while the KV of its last turn was being written. */
static bool is_there(struct server *s, uid_t uid, const char *session)
{
    struct store_session *row;
    if (session_is_busy(s, session))
        return true;
    if (!store_is_id(session) || store_get(s->store, uid, session, &row, NULL) != 0)
        return false;
    store_session_free(row);
    return true;
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
    int64_t until = INT64_MAX;
    if (k->label && !is_there(s, f.uid, f.session)) {
        struct store_shared shared = {0};
        if (s->store && store_is_id(f.session))
            store_shared(s->store, f.session, "", &shared, NULL);
        until = shared.tokens; /* its forks share that many tokens of it */
    }
    kvdir_saved(s->kv, &f, until);
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

/* import.c - the method sessions.import: pages of turns become a session; see import.h. Loop thread. */
#include "config.h"

#include "daemon/rpc/import.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/loop.h"
#include "daemon/rpc/forward.h"
#include "daemon/supervisor/engines.h"
#include "daemon/store/generation-info.h"
#include "daemon/stream/journal.h"
#include "daemon/stream/sessions.h"
#include "daemon/retention/retention.h"

/* An imported session has a size limit, because its turns are held in memory until they are written; the longest
 * timeline is smaller than that. A turn is at most as large as a generate request. TURN_COST is counted for each turn
 * and exceeds the memory for its bookkeeping. Writing blocks the loop, so a session of more than SLICE bytes or
 * SLICE_TURNS turns is written in slices of about that size, one in each turn of the loop; nobody sees them before the
 * last one. */
enum { IMPORT_MAX = 16 << 20, TURN_MAX = WIRE_FRAME_MAX, TURN_COST = 512, SLICE = 1 << 20, SLICE_TURNS = 512 };

struct import {
    struct server *server;
    struct account *account; /* of the user, who may have one import at a time */
    struct store_session row;
    bool replace;
    int64_t vocab, pages, cost;
    struct store_turn *turns;
    size_t n, cap;
    size_t n_written;         /* turns that were written, whose memory is freed */
    int64_t pending;          /* bytes of text and ids in the turns not yet written */
    bool begun;               /* the store holds slices of it */
    struct timer *write;      /* set while there are turns to write */
    struct call *last;        /* the call of the last page, which waits for the writing; or NULL */
    struct conn *conn;        /* the connection that imports */
    struct hearth_err failed; /* why a slice could not be written; code 0: none has failed */
};

static void free_turn(struct store_turn *t)
{
    free((void *)t->role);
    free((void *)t->message);
    free((void *)t->text);
    free((void *)t->ids);
    free((void *)t->generation);
    *t = (struct store_turn){0};
}

void import_free(struct import *im)
{
    if (!im)
        return;
    struct call *last = im->last;
    struct hearth_err e;
    timer_free(im->write);
    if (im->begun) {
        store_import_drop(im->server->store, &im->row);
        retention_purge_later(im->server);
    }
    for (size_t i = 0; i < im->n; i++)
        free_turn(&im->turns[i]);
    free(im->turns);
    free(im->row.name);
    free(im->row.model);
    free(im->row.path);
    im->account->imports--;
    acl_put(im->account);
    free(im);
    if (last) {
        err_set(&e, HEARTH_ECANCELLED, "the connection has gone");
        call_fail(last, &e);
    }
}

/* --- one page ------------------------------------------------------------------------------------------- */

/* Appends `len` bytes to p, which is malloc'd or NULL and has `had` bytes. NULL when out of memory; p stays valid
 * then. */
static void *joined(const void *p, size_t had, const void *more, size_t len)
{
    char *grown = realloc((void *)p, had + len + 1);
    if (grown && len > 0)
        memcpy(grown + had, more, len);
    return grown;
}

static int check_turn(const struct import *im, const struct wire_turn *t, size_t at, struct hearth_err *e)
{
    if (t->continues && im->n == 0)
        return err_set(e, HEARTH_EPARAMS, "sessions.import.turns[%zu].continues: there is no turn before it", at);
    if (t->continues && strcmp(t->role, im->turns[im->n - 1].role) != 0)
        return err_set(e, HEARTH_EPARAMS, "sessions.import.turns[%zu].role: \"%.40s\" continues a turn of %s", at,
                       t->role, im->turns[im->n - 1].role);
    for (size_t i = 0; i < t->tokens.n; i++)
        if (t->tokens.v[i] >= im->vocab)
            return err_set(e, HEARTH_EPARAMS,
                           "sessions.import.turns[%zu].tokens[%zu]: %d is not in the vocabulary of %lld tokens", at, i,
                           (int)t->tokens.v[i], (long long)im->vocab);
    return 0;
}

/* A turn's message must be one that generate accepts; otherwise no template could be rendered in the session any
 * more. */
static int check_message(const char *json, size_t at, struct hearth_err *e)
{
    static const char field[] = "generate.messages[0]";
    const struct wire_method *generate = &wire_methods[WIRE_GENERATE];
    struct wire_message m = {.json = json};
    struct wire_generate g;
    struct wire_frame f = {0};
    struct wire_buf b = {0};
    struct hearth_err why;
    void *params = NULL;
    wire_defaults(generate->params, &g);
    g.model = "any";
    g.messages = &m;
    g.n_messages = 1;
    int rc = wire_pack_request(&b, 1, generate, &g, &why);
    if (!rc)
        rc = wire_frame_open(&f, b.data, b.len, &why);
    if (!rc)
        rc = wire_unpack_params(generate, f.body, f.body_len, &params, &why);
    wire_buf_fini(&b);
    if (!rc)
        wire_free(params);
    else if (strncmp(why.msg, field, sizeof field - 1) == 0)
        err_set(e, rc, "sessions.import.turns[%zu].message%.120s", at, why.msg + sizeof field - 1);
    else
        err_set(e, rc, "sessions.import.turns[%zu].message: %.120s", at, why.msg);
    return rc;
}

static int add_turn(struct import *im, const struct wire_turn *t, size_t at, struct hearth_err *e)
{
    int rc = check_turn(im, t, at, e);
    if (!rc && t->message && !t->continues)
        rc = check_message(t->message, at, e);
    if (rc)
        return rc;
    int64_t most = im->server->conf->session_bytes;
    if (most <= 0 || most > IMPORT_MAX)
        most = IMPORT_MAX;
    im->cost += TURN_COST;
    im->row.bytes += (int64_t)(t->text.len + t->tokens.n * sizeof(int32_t));
    im->pending += (int64_t)(t->text.len + t->tokens.n * sizeof(int32_t));
    if (im->row.bytes > most || im->cost > IMPORT_MAX)
        return err_set(e, HEARTH_ETOOBIG, "sessions.import: the session is larger than %lld bytes", (long long)most);
    if (im->row.n_tok + (int64_t)t->tokens.n > WIRE_TOKENS_MAX)
        return err_set(e, HEARTH_ETOOBIG, "sessions.import: the timeline is longer than %d tokens", WIRE_TOKENS_MAX);
    if (!t->continues) {
        if (im->n == im->cap) {
            size_t cap = im->cap > 0 ? 2 * im->cap : 64;
            struct store_turn *v = reallocarray(im->turns, cap, sizeof *v);
            if (!v)
                return err_set(e, HEARTH_ENOMEM, "out of memory");
            im->turns = v;
            im->cap = cap;
        }
        char *role = strdup(t->role);
        if (!role)
            return err_set(e, HEARTH_ENOMEM, "out of memory");
        im->turns[im->n++] = (struct store_turn){.role = role, .created = t->created};
    }
    struct store_turn *to = &im->turns[im->n - 1];
    if (to->len + t->text.len + t->reasoning.len + (to->n_ids + t->tokens.n) * sizeof *to->ids > TURN_MAX)
        return err_set(e, HEARTH_ETOOBIG, "sessions.import.turns[%zu]: the turn is larger than %d bytes", at, TURN_MAX);
    char *text = joined(to->text, to->len, t->text.data, t->text.len);
    if (!text)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    to->text = text;
    to->len += t->text.len;
    int32_t *ids = joined(to->ids, to->n_ids * sizeof *ids, t->tokens.v, t->tokens.n * sizeof *ids);
    if (!ids)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    to->ids = ids;
    to->n_ids += t->tokens.n;
    im->row.n_tok += (int64_t)t->tokens.n;
    if (t->message && !t->continues) {
        im->cost += (int64_t)strlen(t->message);
        im->row.bytes += (int64_t)strlen(t->message);
        if (!(to->message = strdup(t->message)))
            return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    if (t->reasoning.len && !t->has_generation)
        return err_set(e, HEARTH_EPARAMS, "sessions.import.turns[%zu].reasoning: goes with generation", at);
    if (!t->has_generation || t->continues)
        return 0;
    struct wire_turn_generation g = {.info = t->generation, .reasoning = t->reasoning};
    struct wire_buf b = {0};
    rc = generation_info_pack(&g, &b, e);
    to->generation = b.data; /* the turn owns the buffer now */
    to->generation_len = rc == 0 ? b.len : 0;
    im->cost += (int64_t)b.cap;
    return rc;
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* Checks that the session may be created under its name; *old is the session that it replaces, or NULL. */
static int check_name_free(struct import *im, struct store_session **old, struct hearth_err *e)
{
    struct server *s = im->server;
    uid_t uid = im->row.uid;
    *old = NULL;
    int rc = store_get(s->store, uid, im->row.name, old, e);
    if (rc == HEARTH_ENOSESSION)
        rc = 0;
    if (!rc && *old != NULL && !im->replace)
        rc = err_set(e, HEARTH_ESESSIONEXISTS, "there is a session \"%.80s\" already", im->row.name);
    /* Without `replace` it is no use to wait for the generation: the name will be taken then. */
    if (!rc && session_is_reserved(s, uid, im->row.name))
        rc = err_set(e, im->replace ? HEARTH_ESESSIONBUSY : HEARTH_ESESSIONEXISTS,
                     "a generation is creating session \"%.80s\"", im->row.name);
    if (!rc && *old != NULL && session_is_busy(s, (*old)->id))
        rc = err_set(e, HEARTH_ESESSIONBUSY, "a generation is running in session \"%.80s\"", im->row.name);
    if (!rc)
        rc = *old ? retention_check_quota(s, uid, NULL, (*old)->id, 0, e) : session_check_room(s, uid, 1, NULL, 0, e);
    return rc;
}

static int commit(struct import *im, struct hearth_err *e)
{
    struct store_session *old;
    int rc = session_check_name("sessions.import.name", im->row.name, e);
    if (!rc)
        rc = check_name_free(im, &old, e);
    else
        old = NULL;
    im->row.used = retention_used(im->server); /* otherwise retention would remove it at once because of its age */
    if (im->row.created <= 0)
        im->row.created = server_now();
    if (!rc && old)
        rc = session_forget_removed_kv(im->server, old, e);
    if (!rc && old)
        journal_begin_removal(im->server->journal, old->uid, old->id, NULL, 0);
    im->row.n_turns = (int64_t)im->n;
    if (!rc && im->begun)
        rc = store_import_end(im->server->store, &im->row, old, e);
    else if (!rc)
        rc = store_import(im->server->store, &im->row, old, im->turns, im->n, e);
    if (!rc)
        im->begun = false; /* the slices belong to a session now */
    if (!rc && old) {
        session_forget_streams(im->server, old->id, 0);
        retention_purge_later(im->server);
    }
    if (old)
        journal_end_removal(im->server->journal, old->uid, old->id);
    store_session_free(old);
    return rc;
}

/* Ends the import with the answer to its last page. */
static void finish(struct import *im, struct call *call, int rc, struct hearth_err *e)
{
    struct server *s = im->server;
    uid_t uid = im->row.uid;
    struct wire_imported r;
    im->last = NULL;
    im->conn->import = NULL;
    wire_defaults(call->method->result, &r);
    if (!rc)
        rc = commit(im, e);
    if (!rc) {
        r.has_session = true;
        session_describe(s, &im->row, &r.session);
        call_reply(call, &r);
    } else {
        call_fail(call, e);
    }
    import_free(im);
    if (!rc)
        retention_trim_uid(s, uid);
}

static bool has_slice(const struct import *im)
{
    size_t n = im->n - im->n_written;
    return n > SLICE_TURNS || (n > 1 && im->pending > SLICE);
}

/* Writes about one slice of the turns that no later page can extend. */
static int write_slice(struct import *im, struct hearth_err *e)
{
    struct store *st = im->server->store;
    size_t whole = im->last ? im->n : im->n - 1, n = 0;
    int64_t bytes = 0;
    int rc = im->begun ? 0 : store_import_begin(st, &im->row, e);
    im->begun = im->begun || rc == 0;
    for (const struct store_turn *t; im->n_written + n < whole && bytes < SLICE && n < SLICE_TURNS; n++) {
        t = &im->turns[im->n_written + n];
        bytes += (int64_t)(t->len + t->n_ids * sizeof *t->ids);
    }
    if (!rc && n > 0)
        rc = store_import_part(st, &im->row, &im->turns[im->n_written], n, e);
    for (size_t i = 0; !rc && i < n; i++)
        free_turn(&im->turns[im->n_written + i]);
    im->n_written += rc ? 0 : n;
    im->pending -= rc ? 0 : bytes;
    return rc;
}

static void on_write(void *arg)
{
    struct import *im = arg;
    int rc = im->failed.code ? im->failed.code : write_slice(im, &im->failed);
    struct hearth_err e = im->failed;
    if (im->last && (rc || im->n_written == im->n))
        finish(im, im->last, rc, &e);
    else if (!rc && (im->last || has_slice(im)))
        timer_set(im->write, 0); /* a failure is reported with the next page */
}

/* Adds a page to the connection's import and answers the call. An error in a page ends the import. */
static void add_page(struct call *call)
{
    const struct wire_session_import *p = call->params;
    struct import *im = call->conn->import;
    struct hearth_err e;
    struct wire_imported r;
    int rc = 0;
    wire_defaults(call->method->result, &r);
    for (size_t i = 0; !rc && i < p->n_turns; i++)
        rc = add_turn(im, &p->turns[i], i, &e);
    im->pages++;
    if (!rc && im->failed.code)
        rc = err_set(&e, im->failed.code, "%s", im->failed.msg);
    if (!rc && (has_slice(im) || (im->begun && !p->more)))
        timer_set(im->write, 0);
    if (!rc && p->more)
        call_reply(call, &r);
    else if (!rc && timer_is_set(im->write))
        im->last = call;
    else
        finish(im, call, rc, &e);
}

/* --- the beginning -------------------------------------------------------------------------------------- */

/* The engine's description of the model has arrived: checks that the session fits it and adds the first page. */
static void on_model(void *arg, const void *result, const struct hearth_err *err)
{
    struct call *call = arg;
    const struct wire_session_import *p = call->params;
    const struct wire_model *m = result;
    struct hearth_err e = {0};
    struct import *im = call->conn != NULL ? call->conn->import : NULL;
    if (err)
        e = *err;
    else if (!im)
        err_set(&e, HEARTH_ECANCELLED, "the connection has gone");
    else if (p->vocab > 0 && p->vocab != m->vocab)
        err_set(&e, HEARTH_EMODELMISMATCH, "the session is of a model with %lld tokens, \"%.60s\" has %lld",
                (long long)p->vocab, p->model, (long long)m->vocab);
    else if (p->tokenizer && (!m->tokenizer || strcmp(p->tokenizer, m->tokenizer) != 0))
        err_set(&e, HEARTH_EMODELMISMATCH, "the session is of a model with the tokenizer %.60s, \"%.60s\" has %.60s",
                p->tokenizer, p->model, m->tokenizer != NULL ? m->tokenizer : "none");
    else if (p->tokenizer_digest && (!m->tokenizer_digest || strcmp(p->tokenizer_digest, m->tokenizer_digest) != 0))
        err_set(&e, HEARTH_EMODELMISMATCH, "the session is of a model with another tokenizer than \"%.60s\"", p->model);
    if (e.code != 0) {
        if (im) {
            call->conn->import = NULL;
            import_free(im);
        }
        call_fail(call, &e);
        return;
    }
    im->vocab = m->vocab;
    add_page(call);
}

static int begin(struct call *call, struct hearth_err *e)
{
    const struct wire_session_import *p = call->params;
    struct server *s = call->server;
    struct account *account = call->account;
    if (account->imports > 0)
        return err_set(e, HEARTH_ELIMIT, "user %u is importing a session already", (unsigned)account->uid);
    int rc = session_check_name("sessions.import.name", p->name, e);
    if (rc)
        return rc;
    struct import *im = calloc(1, sizeof *im);
    if (!im || (im->account = acl_get(&s->acl, account->uid)) == NULL) {
        free(im);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    im->server = s;
    im->conn = call->conn;
    im->account->imports++;
    im->replace = p->replace;
    im->row = (struct store_session){
        .uid = account->uid, .turn_open = p->turn_open, .pinned = p->pinned, .created = p->created};
    im->row.name = strdup(p->name);
    im->row.model = strdup(p->model);
    im->write = timer_new(s->base, on_write, im);
    rc = im->row.name && im->row.model && im->write ? 0 : err_set(e, HEARTH_ENOMEM, "out of memory");
    if (!rc)
        rc = session_new_id(im->row.id, e);
    struct store_session *old = NULL;
    if (!rc)
        rc = check_name_free(im, &old, e); /* checked here, before all pages are sent, and again at the commit */
    store_session_free(old);
    if (!rc)
        rc = forward_resolve(call, p->model, &im->row.path, e);
    struct wire_engine_model ask = {.path = im->row.path, .client = call_client(call)};
    call->conn->import = im;
    if (!rc)
        rc = engine_call(engines_near(s->engines, im->row.path), &wire_methods[WIRE_ENGINE_MODEL], &ask, on_model, call,
                         e);
    if (rc) {
        call->conn->import = NULL;
        import_free(im);
    }
    return rc;
}

void msg_sessions_import(struct call *call)
{
    const struct wire_session_import *p = call->params;
    struct conn *c = call->conn;
    struct hearth_err e;
    int rc = server_check_open(call->server, &e);
    if (!rc && !call->server->store)
        rc = err_set(&e, HEARTH_ESTORE, "%s", call->server->store_err.msg);
    if (!rc && p->page == 0 && !c->import) {
        rc = begin(call, &e);
        if (!rc)
            return; /* on_model() answers */
    } else if (!rc && c->import && c->import->last) {
        rc = err_set(&e, HEARTH_ECONFLICT, "sessions.import: the session is being written");
    } else if (!rc && (!c->import || p->page != c->import->pages || p->page == 0)) {
        /* The first page may still wait for the engine's answer; until then a second page is out of order. */
        rc = c->import ? err_set(&e, HEARTH_ECONFLICT,
                                 "sessions.import.page: %lld is not the next one of session \"%.60s\", which is %lld",
                                 (long long)p->page, c->import->row.name, (long long)c->import->pages)
                       : err_set(&e, HEARTH_ECONFLICT, "sessions.import.page: %lld is not the first one, which is 0",
                                 (long long)p->page);
    } else if (!rc) {
        add_page(call);
        return;
    }
    call_fail(call, &e);
}

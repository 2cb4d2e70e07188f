/* fork.c - see fork.h. Loop thread. */
#include "config.h"

#include "daemon/stream/fork.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/retention/kvdir.h"
#include "daemon/retention/retention.h"
#include "daemon/store/generation-info.h"
#include "daemon/stream/journal.h"
#include "daemon/stream/sessions.h"
#include "daemon/stream/stream-internal.h"
#include "libclient/utf8.h"

void fork_plan_free(struct fork_plan *p)
{
    if (!p)
        return;
    store_session_free(p->parent);
    session_rows_free(p->rows);
    store_turns_free(p->cut, p->cut != NULL);
    free(p->timeline);
    free(p->text);
    wire_free(p->info);
    wire_buf_fini(&p->generation);
    free(p);
}

/* --- planning ----------------------------------------------------------------------------------------------------- */

/* The generation that runs in that session, or creates it; NULL. */
static const struct stream *running(const struct server *s, uid_t uid, const char *ref)
{
    const struct stream *st;
    STREAMS_FOREACH (st, s->streams, STREAMS_LIVE) {
        const struct store_session *row = &st->session->row;
        if (row->uid == uid && row->name && strcmp(store_is_id(ref) ? row->id : row->name, ref) == 0)
            return st;
    }
    return NULL;
}

/* Packs the generation metadata of the last own turn, of which `n` tokens are kept, as if max_tokens had ended it
 * there. */
static int pack_generation(struct fork_plan *p, struct wire_turn_generation g, size_t n, struct hearth_err *e)
{
    struct store_turn *t = &p->own[p->n_own - 1];
    g.info.finish_reason = "length";
    g.info.usage.completion_tokens = (int64_t)n;
    if (g.info.usage.reasoning_tokens > (int64_t)n)
        g.info.usage.reasoning_tokens = (int64_t)n;
    struct wire_buf packed = {0}, old = p->generation; /* g.reasoning may point into it */
    int rc = generation_info_pack(&g, &packed, e);
    p->generation = packed;
    t->generation = packed.data;
    t->generation_len = packed.len;
    wire_buf_fini(&old);
    return rc;
}

/* Plans a cut inside the stored session. If it is not within generated ids, markup of the template is among the ids,
 * and the turn becomes raw text. */
static int cut_stored(struct server *s, struct fork_plan *p, int64_t at, struct hearth_err *e)
{
    struct store_cut cut;
    int rc = store_cut(s->store, p->parent, at, &cut, e);
    if (rc)
        return rc;
    p->row.base = cut.turns;
    p->row.base_tok = cut.tokens;
    p->row.turn_open = cut.open;
    p->cut = cut.turn;
    if (!cut.inside)
        return 0;
    p->own[0] = *cut.turn;
    p->own[0].n_ids = (size_t)(at - cut.tokens);
    p->own[0].generation = NULL; /* fork_plan_told() makes it for the part */
    p->own[0].generation_len = 0;
    p->own[0].message = NULL;
    if (cut.generated)
        p->info = generation_info_of(cut.turn);
    else
        p->own[0].role = "text";
    p->n_own = 1;
    p->untold = (struct wire_ids){p->own[0].ids, p->own[0].n_ids};
    p->answer = (struct wire_ids){cut.turn->ids, cut.turn->n_ids};
    return 0;
}

static struct wire_bytes join(char **at, const char *s, size_t n, const struct wire_bytes more)
{
    struct wire_bytes joined = {.data = *at, .len = n + more.len};
    if (n)
        memcpy(*at, s, n);
    if (more.len)
        memcpy(*at + n, more.data, more.len);
    *at += joined.len;
    return joined;
}

/* The stream's text and reasoning, including what is held back. */
static int join_output(struct fork_plan *p, const struct output *o, struct wire_bytes *text,
                       struct wire_bytes *reasoning, struct hearth_err *e)
{
    char *at = p->text = malloc(o->n_text + o->n_held + o->n_reasoning + o->n_held_reasoning + 1);
    if (!at)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    *text = join(&at, o->text, o->n_text, output_held(o));
    *reasoning = join(&at, o->reasoning, o->n_reasoning, output_held_reasoning(o));
    return 0;
}

/* Plans a fork with everything stored and the first n ids that the stream has appended and generated. If not all
 * generated ids are included, the text is determined as for a stored turn, by the engine: it may have been held back
 * when its tokens came, so no event says where the text of the n ids ends. */
static int cut_running(struct fork_plan *p, const struct stream *st, size_t n, struct hearth_err *e)
{
    size_t made = n > st->n_appended ? n - st->n_appended : 0;
    double now = server_now();
    if (n < st->n_appended) {
        p->own[p->n_own++] =
            (struct store_turn){.role = "text", .text = "", .ids = st->appended, .n_ids = n, .created = now};
        p->untold = (struct wire_ids){st->appended, n};
        return 0;
    }
    struct session_turn t = {.request = st->request,
                             .appended = {.v = st->appended, .n = st->n_appended},
                             .completion = {.v = st->output.ids, .n = made}};
    struct wire_bytes reasoning;
    int rc = join_output(p, &st->output, &t.text, &reasoning, e);
    if (!rc)
        rc = session_rows_make(&t, now, NULL, &p->rows, e);
    if (rc)
        return rc;
    p->n_own = p->rows->n - (made == 0);
    memcpy(p->own, p->rows->v, p->n_own * sizeof *p->own);
    p->row.turn_open = p->row.turn_open || st->request->n_messages > 0;
    if (made == 0)
        return 0;
    struct wire_turn_generation g;
    wire_defaults(wire_methods[WIRE_TURN_GENERATION].params, &g);
    g.info.sampling = st->request->sampling;
    g.info.usage.reasoning_tokens = st->output.reasoning_tokens;
    g.hash = st->means.hash[0] ? st->means.hash : NULL;
    g.hashed = st->means.n;
    if (reasoning.len)
        g.reasoning = reasoning;
    rc = pack_generation(p, g, made, e);
    if (rc || made == st->output.n_ids)
        return rc;
    p->info = generation_info_of(&p->own[p->n_own - 1]);
    if (p->info) /* of the whole output */
        p->info->info.usage.reasoning_tokens = st->output.reasoning_tokens;
    p->untold = t.completion;
    p->answer = (struct wire_ids){st->output.ids, st->output.n_ids};
    return 0;
}

static int plan(struct server *s, uid_t uid, const char *ref, int64_t at, struct fork_plan *p, struct hearth_err *e)
{
    const struct stream *st = running(s, uid, ref);
    const struct store_session *from;
    int rc = 0;
    if (!s->store)
        return err_set(e, HEARTH_ESTORE, "%s", s->store_err.msg);
    if (!st || !st->session->is_new)
        rc = session_get(s, uid, ref, &p->parent, e);
    if (rc)
        return rc;
    from = p->parent ? p->parent : &st->session->row;
    p->name = from->name;
    int64_t stored = p->parent ? from->n_tok : 0, more = 0;
    if (st && stream_has_begun(st))
        more = (int64_t)(st->n_appended + st->output.n_ids);
    if (at > stored + more)
        return err_set(e, HEARTH_EPARAMS, "sessions.fork.at: session \"%.80s\" has %lld tokens", from->name,
                       (long long)(stored + more));
    at = at < 0 ? stored + more : at;
    p->row = (struct store_session){.uid = uid, .model = from->model, .path = from->path};
    memcpy(p->row.parent, from->id, sizeof p->row.parent);
    if (at < stored)
        return cut_stored(s, p, at, e);
    p->row.base = p->parent ? from->n_turns : 0;
    p->row.base_tok = stored;
    p->row.turn_open = from->turn_open;
    return at > stored ? cut_running(p, st, (size_t)(at - stored), e) : 0;
}

/* Reads what tells the engine whether the model is still the one that made the ids. What cannot be read of a damaged
 * session keeps nobody from forking the rest. */
static void read_meaning(struct server *s, struct fork_plan *p)
{
    struct session ss = {.row = *p->parent};
    struct hearth_err e;
    if (session_read_meaning(s, &ss, &e) != 0 || !ss.means.hash[0])
        return;
    if (!p->timeline && store_timeline(s->store, p->parent, &p->timeline, &p->n_timeline, &e) != 0)
        p->timeline = NULL;
    if (p->timeline && ss.means.n >= 0 && (size_t)ss.means.n <= p->n_timeline)
        p->means = ss.means;
}

int fork_plan(struct server *s, uid_t uid, const char *ref, int64_t at, struct fork_plan **out, struct hearth_err *e)
{
    struct fork_plan *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    int rc = plan(s, uid, ref, at, p, e);
    if (rc) {
        fork_plan_free(p);
        return rc;
    }
    /* If the timeline is cached, it need not be read for the forks. */
    if (p->parent && !timeline_cache_get(s->store, p->parent, &p->timeline, &p->n_timeline))
        p->timeline = NULL;
    if (p->parent && p->untold.n)
        read_meaning(s, p);
    *out = p;
    return 0;
}

void fork_plan_ask(const struct fork_plan *p, struct wire_detokenize *ask)
{
    *ask = (struct wire_detokenize){.model = p->row.path, .tokens = p->untold};
    if (p->info) {
        const struct store_turn *t = &p->own[p->n_own - 1];
        ask->generated = true;
        ask->tokens = p->answer;
        ask->first = (int64_t)p->untold.n;
        ask->text = (struct wire_bytes){.data = t->text, .len = t->len};
        ask->reasoning = p->info->reasoning;
        ask->reasoning_tokens = p->info->info.usage.reasoning_tokens;
    }
    if (p->means.hash[0]) {
        ask->hash = p->means.hash;
        ask->history = (struct wire_ids){p->timeline, (size_t)p->means.n};
    }
}

/* The length of the prefix of `text` that equals the turn's text from byte `at` on. */
static size_t in_common(const struct store_turn *t, size_t at, const struct wire_bytes *text)
{
    size_t n = 0;
    while (n < text->len && at + n < t->len && t->text[at + n] == text->data[n])
        n++;
    return n;
}

/* Takes the beginning of an answer, its text and its reasoning, from the engine. */
static int answer_told(struct fork_plan *p, const struct wire_engine_detokenize_result *told, struct hearth_err *e)
{
    struct store_turn *t = &p->own[p->n_own - 1];
    struct wire_turn_generation *g = p->info;
    g->reasoning = told->reasoning;
    g->info.usage.reasoning_tokens = told->reasoning_tokens;
    int rc = pack_generation(p, *g, t->n_ids, e);
    g->reasoning = (struct wire_bytes){0}; /* it is the engine's */
    if (rc)
        return rc;
    char *text = malloc(told->told.text.len + 1), *at = text;
    if (!text)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    t->len = join(&at, told->told.text.data, told->told.text.len, (struct wire_bytes){0}).len;
    t->text = text;
    free(p->text); /* the whole thought may be in it, but is packed by now */
    p->text = text;
    return 0;
}

/* The text of generated ids is valid UTF-8, as in events and results, with U+FFFD in place of invalid bytes; raw text
 * has the bytes themselves. */
int fork_plan_told(struct fork_plan *p, const struct wire_engine_detokenize_result *told, struct hearth_err *e)
{
    struct store_turn *t = &p->own[p->n_own - 1];
    bool is_raw = !strcmp(t->role, "text");
    const struct wire_bytes *text = is_raw ? &told->told.bytes : &told->told.text;
    p->untold = (struct wire_ids){0};
    if (p->info)
        return answer_told(p, told, e);
    /* Decoded by themselves, ids lack a leading space that they have inside a text. */
    size_t at = !is_raw && in_common(t, 1, text) > in_common(t, 0, text) ? 1 : 0;
    char *joined = malloc(at + text->len + 1);
    if (!joined)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    memcpy(joined, at ? t->text : "", at);
    if (text->len)
        memcpy(joined + at, text->data, text->len);
    free(p->text);
    t->text = p->text = joined;
    t->len = at + text->len;
    return 0;
}

/* --- creating forks ----------------------------------------------------------------------------------------------- */

/* Draws the first free name "NAME.N" with N above *next. */
static int draw_name(struct server *s, uid_t uid, const char *parent, int64_t *next, char **out, struct hearth_err *e)
{
    enum { DIGITS = 24 };
    size_t len = utf8_prefix(parent, strlen(parent) < WIRE_NAME_MAX - DIGITS ? strlen(parent) : WIRE_NAME_MAX - DIGITS);
    for (;;) {
        struct store_session *taken;
        if (asprintf(out, "%.*s.%lld", (int)len, parent, (long long)++*next) < 0)
            return err_set(e, HEARTH_ENOMEM, "out of memory");
        int rc = store_find(s->store, uid, *out, &taken, e);
        if (rc == HEARTH_ENOSESSION && !session_is_reserved(s, uid, *out))
            return 0;
        free(*out);
        *out = NULL;
        if (rc && rc != HEARTH_ENOSESSION)
            return rc;
        if (!rc)
            store_session_free(taken);
    }
}

static int given_name(struct server *s, uid_t uid, const struct wire_strs *names, size_t i, char **out,
                      struct hearth_err *e)
{
    const char *name = names->v[i];
    char field[48];
    snprintf(field, sizeof field, "sessions.fork.names[%zu]", i);
    int rc = session_check_name(field, name, e);
    if (!rc && session_is_reserved(s, uid, name))
        rc = err_set(e, HEARTH_ESESSIONEXISTS, "a generation is creating session \"%.80s\"", name);
    if (!rc && !(*out = strdup(name)))
        rc = err_set(e, HEARTH_ENOMEM, "out of memory");
    return rc;
}

/* Limit in bytes on what the forks of one request have of their own: all is written at once, and other clients wait for
 * it. */
enum { FORK_BYTES_MAX = 32 << 20 };

/* The bytes that each fork has of its own: the part of the turn that was cut, and turns that are not shared. */
static int64_t own_bytes(const struct fork_plan *p)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < p->n_own; i++)
        bytes += (int64_t)(p->own[i].len + p->own[i].n_ids * sizeof(int32_t)) +
                 (p->own[i].message ? (int64_t)strlen(p->own[i].message) : 0);
    return bytes;
}

static int make_row(struct server *s, const struct fork_plan *p, const struct wire_strs *names, size_t i, int64_t *next,
                    struct store_session *to, struct hearth_err *e)
{
    int64_t tokens = 0;
    *to = p->row;
    to->created = server_now();
    to->used = retention_used(s);
    to->has_parent = true;
    to->model = strdup(p->row.model);
    to->path = strdup(p->row.path);
    to->name = NULL;
    for (size_t k = 0; k < p->n_own; k++)
        tokens += (int64_t)p->own[k].n_ids;
    to->n_turns = p->row.base + (int64_t)p->n_own;
    to->n_tok = p->row.base_tok + tokens;
    to->bytes = own_bytes(p);
    if (!to->model || !to->path)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    int rc = session_new_id(to->id, e);
    if (rc)
        return rc;
    return names->n ? given_name(s, to->uid, names, i, &to->name, e)
                    : draw_name(s, to->uid, p->name, next, &to->name, e);
}

static void remember_timelines(struct server *s, const struct fork_plan *p, struct store_session *const *rows, size_t n)
{
    struct store_ids part[WIRE_MESSAGES_MAX + 2];
    if (!p->timeline || p->n_timeline < (size_t)p->row.base_tok)
        return;
    part[0] = (struct store_ids){p->timeline, (size_t)p->row.base_tok};
    for (size_t i = 0; i < p->n_own; i++)
        part[i + 1] = (struct store_ids){p->own[i].ids, p->own[i].n_ids};
    for (size_t i = 0; i < n; i++)
        timeline_cache_put(s->store, rows[i]->id, rows[i]->n_turns, part, p->n_own + 1);
}

int fork_make(struct server *s, const struct fork_plan *p, const struct wire_session_fork *f,
              struct store_session ***out, struct hearth_err *e)
{
    size_t n = (size_t)f->count;
    int64_t next = 0;
    int64_t each = own_bytes(p), all = each * f->count;
    int rc = 0;
    if (f->count > 1 && all > FORK_BYTES_MAX)
        rc = err_set(
            e, HEARTH_ELIMIT,
            "sessions.fork.count: each would have %lld bytes of its own, of the turn that is cut, and %d is the "
            "limit for all; cut between two turns, or fork fewer at a time",
            (long long)each, FORK_BYTES_MAX);
    if (!rc)
        rc = session_check_room(s, p->row.uid, f->count, p->parent ? p->parent->id : p->row.parent, all, e);
    if (!rc && !f->names.n)
        rc = store_count_names(s->store, p->row.uid, p->name, &next, e);
    if (rc)
        return rc;
    struct store_session **rows = calloc(n, sizeof *rows);
    if (!rows)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    for (size_t i = 0; i < n && !rc; i++) {
        if (!(rows[i] = calloc(1, sizeof **rows)))
            rc = err_set(e, HEARTH_ENOMEM, "out of memory");
        else if (!(rc = make_row(s, p, &f->names, i, &next, rows[i], e)))
            rows[i]->ephemeral = f->ephemeral;
    }
    if (!rc)
        rc = store_fork(s->store, (const struct store_session *const *)rows, n, p->own, p->n_own, e);
    if (!rc) {
        remember_timelines(s, p, rows, n);
        *out = rows;
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        store_session_free(rows[i]);
    free(rows);
    return rc;
}

/* --- adopting ----------------------------------------------------------------------------------------------------- */

static int check_adopt(struct server *s, const struct store_session *fork, const struct store_session *parent,
                       bool replace, struct hearth_err *e)
{
    struct store_shared others;
    if (session_is_busy(s, fork->id) || session_is_busy(s, parent->id))
        return err_set(e, HEARTH_ESESSIONBUSY, "a generation is running in session \"%.80s\"",
                       session_is_busy(s, fork->id) ? fork->name : parent->name);
    if (parent->n_turns > fork->base && !replace)
        return err_set(e, HEARTH_ECONFLICT,
                       "session \"%.60s\" has %lld turns after those that \"%.60s\" has of it: with replace (--force) "
                       "they are lost",
                       parent->name, (long long)(parent->n_turns - fork->base), fork->name);
    int rc = store_shared(s->store, parent->id, fork->id, &others, e);
    if (!rc && others.turns > fork->base)
        rc = err_set(e, HEARTH_ECONFLICT, "another fork of session \"%.80s\" has turns of it that would be lost",
                     parent->name);
    return rc;
}

int fork_adopt(struct server *s, uid_t uid, const char *ref, bool replace, struct store_session **out,
               struct hearth_err *e)
{
    struct store_session *fork, *parent = NULL;
    int rc = session_get(s, uid, ref, &fork, e);
    if (rc)
        return rc;
    if (!fork->has_parent && fork->parent[0] != '\0' && session_is_busy(s, fork->parent))
        rc = err_set(e, HEARTH_ESESSIONBUSY, "a generation is creating the session that \"%.80s\" is a fork of",
                     fork->name);
    else if (!fork->has_parent)
        rc = err_set(e, HEARTH_ENOSESSION,
                     fork->parent[0] != '\0' ? "what session \"%.80s\" is a fork of has been removed"
                                             : "session \"%.80s\" is no fork",
                     fork->name);
    if (!rc)
        rc = session_get(s, uid, fork->parent, &parent, e);
    if (!rc)
        rc = check_adopt(s, fork, parent, replace, e);
    bool drops = !rc && parent->n_turns > fork->base; /* the dropped turns must leave no KV or journals behind */
    const struct store_shared left = {.forks = 1, .turns = fork->base, .tokens = fork->base_tok};
    if (drops)
        rc = session_forget_kv(s, parent, &left, e);
    journal_begin_removal(s->journal, uid, fork->id, drops ? parent->id : NULL, fork->base_tok);
    if (!rc)
        rc = store_adopt(s->store, fork, parent, retention_used(s), e);
    if (!rc) {
        retention_purge_later(s);
        if (drops)
            session_forget_streams(s, parent->id, fork->base_tok);
        kvdir_move(s->kv, fork->id, parent->id);
        stream_move_parent(s, fork->id, parent->id);
        session_forget_streams(s, fork->id, 0);
        rc = store_get(s->store, uid, parent->id, out, e);
    }
    journal_end_removal(s->journal, uid, fork->id);
    store_session_free(fork);
    store_session_free(parent);
    return rc;
}

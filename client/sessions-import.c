/*
 * sessions-import.c - hearth sessions import: turns a document of `sessions export` into a session. See cmd.h.
 *
 * A document is untrusted. Its JSON is checked for types and ranges here, so that an error names its place in the file.
 * The daemon, which trusts no client, checks that the ids are the model's, that the sizes are within limits and that no
 * session of that name exists.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cmd.h"

enum { PAGE_BYTES = 1 << 20, PAGE_TURNS = 4096, ID_BYTES = 5 };

/* A page that is being assembled: turns are collected in `v`. Their pointers point into the document or into one of
 * `blocks`. */
struct import {
    struct hearth *h;
    struct hearth_session_import page;
    struct hearth_turn *v;
    size_t n, bytes;
    void **blocks;
    size_t n_blocks;
    struct hearth_imported *done;
    struct hearth_err err;
};

/* Registers a block to be freed at the end. */
static void *own(struct import *im, void *p)
{
    void **v = realloc(im->blocks, (im->n_blocks + 1) * sizeof *v);
    if (!v)
        abort();
    im->blocks = v;
    return v[im->n_blocks++] = p;
}

static void *block(struct import *im, size_t size)
{
    void *p = malloc(size ? size : 1);
    if (!p)
        abort();
    return own(im, p);
}

static int fail_turn(struct import *im, const char *what, size_t turn)
{
    im->err.code = HEARTH_EPARAMS;
    snprintf(im->err.msg, sizeof im->err.msg, "turns[%zu]: %s", turn, what);
    return im->err.code;
}

/* --- pages ------------------------------------------------------------------------------------------------------- */

static int send_page(struct import *im, bool more)
{
    im->page.turns = im->v;
    im->page.n_turns = im->n;
    im->page.more = more;
    hearth_free(im->done);
    im->done = NULL;
    int rc = hearth_sessions_import(im->h, &im->page, &im->done, NULL, &im->err);
    im->page.page++;
    im->n = im->bytes = 0;
    return rc;
}

/* Adds a turn to the page, and sends the page and splits the turn where the page is full. Its reasoning and its message
 * go with its first part, whole. */
static int add(struct import *im, struct hearth_turn t)
{
    size_t whole = t.reasoning.len + (t.message ? strlen(t.message) : 0);
    int rc = im->n && im->bytes + whole > PAGE_BYTES ? send_page(im, true) : 0;
    while (!rc) {
        im->bytes += whole;
        size_t room = im->bytes < PAGE_BYTES ? PAGE_BYTES - im->bytes : 0;
        size_t text = t.text.len < room ? t.text.len : room;
        size_t ids = (room - text) / ID_BYTES < t.tokens.n ? (room - text) / ID_BYTES : t.tokens.n;
        struct hearth_turn *part = &im->v[im->n++];
        *part = t;
        part->text.len = text;
        part->tokens.n = ids;
        im->bytes += text + ids * ID_BYTES;
        t.text.data += text;
        t.text.len -= text;
        if (ids)
            t.tokens.v += ids;
        t.tokens.n -= ids;
        t.continues = true;
        t.has_generation = false;
        t.reasoning = (struct hearth_bytes){0};
        t.message = NULL;
        whole = 0;
        bool done = !t.text.len && !t.tokens.n;
        if (done && im->n < PAGE_TURNS && im->bytes + ID_BYTES <= PAGE_BYTES)
            return 0;
        rc = send_page(im, true);
        if (done)
            break;
    }
    return rc;
}

/* --- the document --------------------------------------------------------------------------------------------------
 */

static bool hex_parse(const char *hex, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (; *hex; hex += 2, out++) {
        const char *hi = strchr(digits, hex[0]), *lo = hex[1] ? strchr(digits, hex[1]) : NULL;
        if (!hi || !lo)
            return false;
        *out = (char)((hi - digits) << 4 | (lo - digits));
    }
    return true;
}

/* Returns the text, or the bytes where the turn was not valid UTF-8. */
static bool text_parse(struct import *im, const json_t *o, struct hearth_bytes *out)
{
    const json_t *text = json_object_get(o, "text"), *hex = json_object_get(o, "text_hex");
    if (!hex) {
        *out = (struct hearth_bytes){json_string_value(text), json_string_length(text)};
        return json_is_string(text);
    }
    if (!json_is_string(hex) || json_string_length(hex) != strlen(json_string_value(hex)))
        return false;
    char *bytes = block(im, json_string_length(hex) / 2);
    *out = (struct hearth_bytes){bytes, json_string_length(hex) / 2};
    return hex_parse(json_string_value(hex), bytes);
}

static bool tokens_parse(struct import *im, const json_t *a, struct hearth_ids *out)
{
    size_t n = json_array_size(a);
    int32_t *v = block(im, n * sizeof *v);
    *out = (struct hearth_ids){v, n};
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(a, i);
        json_int_t x = json_integer_value(id);
        if (!json_is_integer(id) || x < 0 || x > INT32_MAX)
            return false;
        v[i] = (int32_t)x;
    }
    return json_is_array(a);
}

/* Returns the turn's generation metadata, or NULL. In documents of older versions the key is "made" instead of
 * "generation". */
static const json_t *generation_of(const json_t *o)
{
    const json_t *v = json_object_get(o, "generation");
    return v ? v : json_object_get(o, "made");
}

static int add_turn(struct import *im, const json_t *o, size_t i)
{
    const json_t *generation = generation_of(o), *created = json_object_get(o, "created");
    struct hearth_turn t = {.role = json_string_value(json_object_get(o, "role")),
                            .created = json_number_value(created)};
    if (!t.role || strlen(t.role) != json_string_length(json_object_get(o, "role")))
        return fail_turn(im, "\"role\" is missing or no string, or holds a NUL", i);
    if (created && !json_is_number(created))
        return fail_turn(im, "\"created\" is no number", i);
    if (!text_parse(im, o, &t.text))
        return fail_turn(im, "\"text\" is missing or no string, or \"text_hex\" no hex digits", i);
    if (!tokens_parse(im, json_object_get(o, "tokens"), &t.tokens))
        return fail_turn(im, "\"tokens\" is missing, or has what is no id from 0 to 2147483647", i);
    const json_t *message = json_object_get(o, "message"), *reasoning = json_object_get(o, "reasoning");
    if (reasoning && !json_is_string(reasoning))
        return fail_turn(im, "\"reasoning\" is no string", i);
    if (reasoning)
        t.reasoning = (struct hearth_bytes){json_string_value(reasoning), json_string_length(reasoning)};
    if (message && !json_is_object(message))
        return fail_turn(im, "\"message\" is no object", i);
    if (message)
        t.message = own(im, json_dumps(message, JSON_COMPACT | JSON_REAL_PRECISION(17)));
    if (generation) {
        t.has_generation = generation_info_parse(generation, &t.generation);
        own(im, t.generation.sampling.logit_bias); /* the only member that is allocated separately */
        if (!t.has_generation)
            return fail_turn(im, "\"generation\" (\"made\" in older documents) has a member of another type", i);
    }
    return add(im, t);
}

static bool has_type(const json_t *doc, const char *key, json_type type)
{
    const json_t *v = json_object_get(doc, key);
    return !v || json_typeof(v) == type;
}

static bool is_number(const json_t *doc, const char *key)
{
    const json_t *v = json_object_get(doc, key);
    return !v || json_is_number(v);
}

static bool is_flag(const json_t *doc, const char *key)
{
    const json_t *v = json_object_get(doc, key);
    return !v || json_is_boolean(v);
}

/* Returns whether the turns have n tokens in all. Turns whose "tokens" are not an array are not counted: add_turn()
 * refuses them with their place, which is more informative. */
static bool has_tokens(const json_t *turns, const json_t *n)
{
    size_t i, sum = 0;
    const json_t *turn;
    json_array_foreach(turns, i, turn)
    {
        const json_t *tokens = json_object_get(turn, "tokens");
        if (!json_is_array(tokens))
            return true;
        sum += json_array_size(tokens);
    }
    return json_is_integer(n) && (json_int_t)sum == json_integer_value(n);
}

/* Checks the document's consistency before anything is sent. */
static int check(struct import *im, const json_t *doc)
{
    const json_t *version = json_object_get(doc, "hearth_session"), *turns = json_object_get(doc, "turns");
    const json_t *n = json_object_get(doc, "n_turns"), *n_tokens = json_object_get(doc, "n_tokens");
    const char *why = NULL;
    if (!json_is_integer(version))
        why = "this is no document of `hearth sessions export`: \"hearth_session\" is missing";
    else if (json_integer_value(version) == HEARTH_EXPORT_VERSION && !json_is_array(turns))
        why = "\"turns\" is missing or no array";
    else if (!has_type(doc, "name", JSON_STRING) || !has_type(doc, "model", JSON_OBJECT))
        why = "\"name\" is no string or \"model\" no object";
    else if (!is_number(doc, "created"))
        why = "\"created\" is no number";
    else if (!is_flag(doc, "turn_open") || !is_flag(doc, "pinned"))
        why = "\"turn_open\" or \"pinned\" is neither true nor false";
    else if (n && (!json_is_integer(n) || (json_int_t)json_array_size(turns) != json_integer_value(n)))
        why = "\"turns\" has not as many as \"n_turns\" says";
    else if (n_tokens && !has_tokens(turns, n_tokens))
        why = "\"turns\" has not as many tokens as \"n_tokens\" says";
    if (!why)
        return 0;
    im->err.code = HEARTH_EPARAMS;
    snprintf(im->err.msg, sizeof im->err.msg, "%s", why);
    return im->err.code;
}

static int send_all(struct import *im, const json_t *doc)
{
    const json_t *turns = json_object_get(doc, "turns");
    im->page.page = 0;
    im->n = im->bytes = 0;
    int rc = 0;
    for (size_t i = 0; !rc && i < json_array_size(turns); i++)
        rc = add_turn(im, json_array_get(turns, i), i);
    return rc ? rc : send_page(im, false);
}

/* Imports with the document's model. It is looked up by the name under which the session was created; else by its
 * file's name, which finds it in another directory too; else by its path. */
static int send_to_some_model(struct import *im, const json_t *doc)
{
    static const char *const keys[] = {"named", "name", "path"};
    const json_t *model = json_object_get(doc, "model");
    int rc = HEARTH_ENOMODEL;
    im->err.code = rc;
    snprintf(im->err.msg, sizeof im->err.msg, "the document names no model: say --model");
    for (size_t i = 0; rc == HEARTH_ENOMODEL && i < sizeof keys / sizeof *keys; i++) {
        im->page.model = json_string_value(json_object_get(model, keys[i]));
        if (im->page.model)
            rc = send_all(im, doc);
    }
    return rc;
}

/* Refuses a name with a NUL, which would be truncated there. */
static int check_name(struct import *im, const json_t *name)
{
    if (!json_is_string(name) || strlen(json_string_value(name)) == json_string_length(name))
        return 0;
    im->err.code = HEARTH_EPARAMS;
    snprintf(im->err.msg, sizeof im->err.msg, "name: holds a NUL");
    return im->err.code;
}

static int import(struct import *im, const json_t *doc, const struct import_as *as)
{
    const json_t *model = json_object_get(doc, "model");
    int rc = check(im, doc);
    if (!rc && !as->name)
        rc = check_name(im, json_object_get(doc, "name"));
    if (rc)
        return rc;
    im->page = (struct hearth_session_import){
        .size = sizeof im->page,
        .version = json_integer_value(json_object_get(doc, "hearth_session")),
        .name = as->name ? as->name : json_string_value(json_object_get(doc, "name")),
        .tokenizer = json_string_value(json_object_get(model, "tokenizer")),
        .tokenizer_digest = json_string_value(json_object_get(model, "tokenizer_digest")),
        .vocab = json_integer_value(json_object_get(model, "vocab")),
        .created = json_number_value(json_object_get(doc, "created")),
        .turn_open = json_is_true(json_object_get(doc, "turn_open")),
        .pinned = json_is_true(json_object_get(doc, "pinned")),
        .replace = as->force,
    };
    if (!as->model)
        return send_to_some_model(im, doc);
    char *path = model_resolve(as->model);
    im->page.model = path;
    rc = send_all(im, doc);
    free(path);
    return rc;
}

/* The usual advice for a model mismatch is this very verb: the advice here is to choose another model. */
static int fail_import(const struct hearth_err *err)
{
    return err->code == HEARTH_EMODELMISMATCH
               ? fail_next(err, "-m MODEL takes one with the document's tokenizer; `hearth show MODEL` names a model's")
               : fail(err);
}

int sessions_import(struct hearth *h, const char *file, const struct import_as *as)
{
    json_error_t at;
    FILE *f = strcmp(file, "-") ? fopen(file, "re") : stdin;
    struct stat sb;
    if (f && !fstat(fileno(f), &sb) && S_ISDIR(sb.st_mode)) {
        fclose(f);
        f = NULL;
        errno = EISDIR;
    }
    struct hearth_err e = {.code = HEARTH_EIO};
    if (!f) {
        snprintf(e.msg, sizeof e.msg, "%s: %s", strcmp(file, "-") ? file : "stdin", strerror(errno));
        return fail(&e);
    }
    json_t *doc = json_loadf(f, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &at);
    if (f != stdin)
        fclose(f);
    if (!doc) {
        e.code = HEARTH_EPARAMS;
        snprintf(e.msg, sizeof e.msg, "%s, line %d: %s", strcmp(file, "-") ? file : "stdin", at.line, at.text);
        return fail(&e);
    }
    struct import im = {.h = h, .v = calloc(PAGE_TURNS, sizeof *im.v)};
    if (!im.v)
        abort();
    int rc = import(&im, doc, as), status = STATUS_OK;
    const struct hearth_session *s = rc == 0 ? &im.done->session : NULL;
    if (!s)
        status = fail_import(&im.err);
    else if (as->json)
        status = print_json(json_session(s));
    else
        printf("%s: %lld turns, %lld tokens, for %s\n", s->name, (long long)s->turns, (long long)s->tokens, s->model);
    hearth_free(im.done);
    for (size_t i = 0; i < im.n_blocks; i++)
        free(im.blocks[i]);
    free(im.blocks);
    free(im.v);
    json_decref(doc);
    return status;
}

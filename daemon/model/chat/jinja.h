/*
 * jinja.h - chat templates: Jinja as Hugging Face's transformers sets it up, compiled once and rendered often.
 *
 * The language is Jinja2's (3.1) with trim_blocks, lstrip_blocks, loop controls, the immutable sandbox, and what
 * transformers adds: raise_exception(), strftime_now(), tojson without HTML escapes and {% generation %}. Whatever a
 * template does, it prints what Python prints or ends in an error; it never prints something else.
 *
 * A template comes out of a file that a stranger wrote: it opens no files, changes no value that it is given, and is
 * bounded in everything that it can use up. An error tells the limit. What is not there, because no chat template needs
 * it: include, import, extends and block, autoescape, urlize, pprint over several lines, integers beyond 128 bits.
 *
 * A compiled template is never changed: any number of threads may render it at a time.
 */
#ifndef MODEL_CHAT_JINJA_H
#define MODEL_CHAT_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define JINJA_SOURCE_MAX ((size_t)256 << 10) /* bytes of a template; the largest in use has 19 KB */
#define JINJA_INPUT_MAX  ((size_t)64 << 20)  /* bytes of a context in JSON */
#define JINJA_OUTPUT_MAX ((size_t)16 << 20)  /* bytes of a text, and of any string on the way there */
#define JINJA_MEMORY_MAX ((size_t)192 << 20) /* bytes of values that one rendering makes, the context's among them */
#define JINJA_STEPS_MAX  4000000             /* nodes evaluated; a long loop inside a filter counts as well */
#define JINJA_CALLS_MAX  200                 /* macros inside macros: Python ends at 190 to 200 of them, too */
#define JINJA_NEST_MAX   100                 /* brackets and statements inside each other, in the source */
#define JINJA_DEPTH_MAX  500                 /* lists inside lists, of a value that is read, compared or printed */

enum jinja_failure {
    JINJA_OK = 0,
    JINJA_SYNTAX,  /* the template is none */
    JINJA_INPUT,   /* the context is not JSON, or no object */
    JINJA_RUNTIME, /* the template did something that Python refuses too */
    JINJA_RAISED,  /* raise_exception(): message is the template's own, and for the user */
    JINJA_LIMIT,   /* more of something than the limits above */
    JINJA_NOMEM,
};

/* Why there is no template or no text. `message` is malloc'd and UTF-8, NULL only where there was no memory for it;
 * `line` counts from 1, 0 where the error has no place in the source. */
struct jinja_err {
    enum jinja_failure failure;
    int line;
    char *message;
};
void jinja_err_fini(struct jinja_err *e);

struct jinja;

/* Compiles n bytes of UTF-8. Returns JINJA_OK and *out for jinja_free(), or the failure with *e filled. */
enum jinja_failure jinja_compile(struct jinja **out, const char *source, size_t n, struct jinja_err *e);
void jinja_free(struct jinja *t);

/* A run of bytes of the text that came, as it is, out of the context's strings and not out of the template. */
struct jinja_span {
    uint32_t from, to; /* text[from..to) */
};
struct jinja_text {
    char *data; /* UTF-8, NUL-terminated behind its n bytes */
    size_t n;
    struct jinja_span *span; /* in order, not touching */
    size_t n_span;
};
void jinja_text_fini(struct jinja_text *text);

/* Renders with the variables of a JSON object (key order is kept; tokens such as bos_token among them). `own` names the
 * variables whose strings count as the template's own (the tokens), up to a NULL; may be NULL. `now` is the local time
 * of strftime_now(). Returns JINJA_OK and *out, or the failure with *e filled and *out untouched. */
enum jinja_failure jinja_render(const struct jinja *t, const char *context, size_t n, const char *const *own,
                                const struct tm *now, struct jinja_text *out, struct jinja_err *e);

/* The same with an object as `hearth render` reads it: `messages`, `tools` and `documents` (absent: none, and defined),
 * `add_generation_prompt` (absent: false), `bos_token` and `eos_token` (absent or null: not defined; the template's
 * own), and `kwargs`, an object whose members are variables too and count last. Another key is an error. */
enum jinja_failure jinja_render_chat(const struct jinja *t, const char *chat, size_t n, const struct tm *now,
                                     struct jinja_text *out, struct jinja_err *e);

/* Reads a local time, "2026-11-22T10:00" with seconds or without, whatever the zone says of it; false where it is none.
 * jinja_local_now() asks the clock. */
bool jinja_parse_now(const char *text, struct tm *out);
void jinja_local_now(struct tm *out);

#endif

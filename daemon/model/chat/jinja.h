/*
 * jinja.h - chat templates: Jinja as Hugging Face's transformers sets it up, compiled once and rendered often.
 *
 * The language is Jinja2's (3.1) with trim_blocks, lstrip_blocks, loop controls, the immutable sandbox, and what
 * transformers adds: raise_exception(), strftime_now(), tojson without HTML escapes and {% generation %}. Whatever a
 * template does, it prints what Python prints or ends in an error; it never prints something else.
 *
 * A template comes from an untrusted model file: it cannot open files or change the values that it is given, and every
 * resource that it uses has a limit, which the error message names. Features that no chat template needs are left out:
 * include, import, extends and block, autoescape, urlize, pprint over several lines, integers beyond 128 bits.
 *
 * A compiled template is immutable: any number of threads may render it at the same time.
 */
#ifndef MODEL_CHAT_JINJA_H
#define MODEL_CHAT_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define JINJA_SOURCE_MAX ((size_t)256 << 10) /* bytes of a template; the largest known one has 19 KB */
#define JINJA_INPUT_MAX  ((size_t)64 << 20)  /* bytes of a context in JSON */
#define JINJA_OUTPUT_MAX ((size_t)16 << 20)  /* bytes of the text, and of any intermediate string */
#define JINJA_MEMORY_MAX ((size_t)192 << 20) /* bytes of all values of one rendering, including the context */
#define JINJA_STEPS_MAX  4000000             /* nodes evaluated; long loops inside filters count as well */
#define JINJA_STEPS_BYTE 64                  /* more of them for each byte of the context: templates look back ... */
#define JINJA_STEPS_ALL  64000000            /* ... at earlier messages, for each message; in all */
#define JINJA_CALLS_MAX  200                 /* nested macro calls: Python also ends at 190 to 200 of them */
#define JINJA_NEST_MAX   100                 /* nested brackets and statements in the source */
#define JINJA_DEPTH_MAX  500                 /* nesting of a value that is read, compared or printed */

enum jinja_failure {
    JINJA_OK = 0,
    JINJA_SYNTAX,  /* the source is not a valid template */
    JINJA_INPUT,   /* the context is not JSON, or not an object */
    JINJA_RUNTIME, /* the template did something that Python refuses, too */
    JINJA_RAISED,  /* raise_exception(): the message is the template's own, meant for the user */
    JINJA_LIMIT,   /* one of the limits above was exceeded */
    JINJA_NOMEM,
};

/* Why compiling or rendering failed. `message` is malloc'd and UTF-8, NULL only where there was no memory for it;
 * `line` counts from 1 and is 0 where the error has no place in the source. */
struct jinja_err {
    enum jinja_failure failure;
    int line;
    char *message;
};
void jinja_err_fini(struct jinja_err *e);

struct jinja;

/* Compiles n bytes of UTF-8. Returns JINJA_OK and the template in *out, to be freed by jinja_free(), or the failure
 * with *e filled in. */
enum jinja_failure jinja_compile(struct jinja **out, const char *source, size_t n, struct jinja_err *e);
void jinja_free(struct jinja *t);

/* A range of the text that was copied unchanged from the context's strings, rather than from the template. */
struct jinja_span {
    uint32_t from, to; /* text[from..to) */
};
struct jinja_text {
    char *data; /* UTF-8, n bytes and a terminating NUL */
    size_t n;
    struct jinja_span *span; /* sorted, not touching each other */
    size_t n_span;
};
void jinja_text_fini(struct jinja_text *text);

/* Renders with the variables of a JSON object (key order is kept; tokens such as bos_token are among them). `own` lists
 * the variables whose strings count as the template's own (the tokens), terminated by NULL; it may be NULL. `now` is
 * the local time for strftime_now(). Returns JINJA_OK and *out, or the failure with *e filled in and *out unchanged. */
enum jinja_failure jinja_render(const struct jinja *t, const char *context, size_t n, const char *const *own,
                                const struct tm *now, struct jinja_text *out, struct jinja_err *e);

/* Like jinja_render(), with an object as `hearth render` reads it: `messages`, `tools` and `documents` (if absent:
 * defined, as none), `add_generation_prompt` (if absent: false), `bos_token` and `eos_token` (if absent or null:
 * undefined; their strings count as the template's own), and `kwargs`, an object whose members are variables too and
 * override the others. Any other key is an error. */
enum jinja_failure jinja_render_chat(const struct jinja *t, const char *chat, size_t n, const struct tm *now,
                                     struct jinja_text *out, struct jinja_err *e);

/* jinja_parse_now() reads a local time, "2026-11-22T10:00" with or without seconds, without regard to the time zone;
 * false where the text is none. jinja_local_now() reads the clock. */
bool jinja_parse_now(const char *text, struct tm *out);
void jinja_local_now(struct tm *out);

#endif

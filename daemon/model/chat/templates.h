/*
 * templates.h - the chat templates that a model file brings along: found by name, compiled once, at first use.
 *
 * `tokenizer.chat_template` is the default one; `tokenizer.chat_template.NAME` are others, which
 * `tokenizer.chat_templates` lists. Not thread-safe: a template is compiled when it is asked for first.
 */
#ifndef MODEL_CHAT_TEMPLATES_H
#define MODEL_CHAT_TEMPLATES_H

#include "daemon/model/chat/jinja.h"
#include "daemon/model/gguf.h"

struct templates;

/* Borrows g, which must outlive it. A file without templates has an empty set. HEARTH_ENOMEM; HEARTH_EBADMODEL where a
 * key has another type. */
int templates_load(struct templates **out, const struct gguf *g, struct hearth_err *e);
void templates_free(struct templates *t);

/* Their names, separated by blanks, "default" among them; NULL where there are none. Owned by the set. */
const char *templates_names(const struct templates *t);

/* The template of that name, or where it is NULL the one that transformers takes: "tool_use" where there are tools and
 * it exists, else "default". HEARTH_ENOTEMPLATE where there is none; HEARTH_ETEMPLATE where it is no Jinja. */
int templates_get(struct templates *t, const char *name, bool tools, const struct jinja **out, struct hearth_err *e);

/* Its source, borrowed from the file. */
int templates_source(struct templates *t, const char *name, bool tools, const char **source, size_t *n,
                     struct hearth_err *e);

/* What a failure of the template engine is to a client: the template's own words stand alone, for they are for the
 * user. Frees *why and returns the code. */
int template_failed(struct jinja_err *why, struct hearth_err *e);

#endif

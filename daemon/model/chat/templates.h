/*
 * templates.h - the chat templates in a model file: found by name, and compiled once, at first use.
 *
 * `tokenizer.chat_template` is the default one; `tokenizer.chat_template.NAME` are others, which
 * `tokenizer.chat_templates` lists. Not thread-safe: a template is compiled at the first call that needs it.
 */
#ifndef MODEL_CHAT_TEMPLATES_H
#define MODEL_CHAT_TEMPLATES_H

#include "daemon/model/chat/jinja.h"
#include "daemon/model/gguf.h"

struct templates;

/* Borrows g, which must outlive the set. A file without templates gives an empty set. HEARTH_ENOMEM; HEARTH_EBADMODEL
 * where a key has the wrong type. */
int templates_load(struct templates **out, const struct gguf *g, struct hearth_err *e);
void templates_free(struct templates *t);

/* The templates' names, separated by spaces, "default" among them; NULL where there are none. Owned by the set. */
const char *templates_names(const struct templates *t);

/* Returns the template of that name or, where the name is NULL, the one that transformers chooses: "tool_use" where
 * there are tools and it exists, else "default". HEARTH_ENOTEMPLATE where there is none; HEARTH_ETEMPLATE where it
 * cannot be compiled. */
int templates_get(struct templates *t, const char *name, bool tools, const struct jinja **out, struct hearth_err *e);

/* Returns its source, borrowed from the file. */
int templates_source(struct templates *t, const char *name, bool tools, const char **source, size_t *n,
                     struct hearth_err *e);

/* Converts a failure of the template engine to an error for the client. A message that the template raised itself is
 * passed on alone, since it is meant for the user. Frees *why and returns the code. */
int template_failed(struct jinja_err *why, struct hearth_err *e);

#endif

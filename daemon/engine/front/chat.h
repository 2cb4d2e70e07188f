/* chat.h - renders a conversation through a chat template to text and to ids. Any thread. */
#ifndef HEARTH_ENGINE_CHAT_H
#define HEARTH_ENGINE_CHAT_H

#include "daemon/engine/front/reasoning.h"
#include "daemon/engine/sched/models.h"
#include "daemon/model/chat/templates.h"
#include "libclient/wire.h"

#include <stdio.h>

/* The input of a rendering, as in PROTOCOL.md's `render`; NULL: absent. Members that may have any shape are JSON text.
 * All borrowed. */
struct chat {
    const char *messages, *tools, *documents, *kwargs;
    const char *bos_token, *eos_token;  /* absent: the model's own */
    const char *source, *template_name; /* another template; absent: the model's */
    const char *now;                    /* absent: the current time */
    const char *switches;               /* members of kwargs that ask the template to make the model think, or not to */
    bool open;                          /* the text ends with the header of the assistant's turn */
};

/* Renders; the model's vocabulary must have been read. HEARTH_ENOTEMPLATE, HEARTH_ETEMPLATE, HEARTH_EPARAMS,
 * HEARTH_ENOMEM. */
int chat_render(struct model_entry *m, const struct chat *chat, struct jinja_text *out, struct hearth_err *e);

/* The source of the template that chat_render() uses, borrowed from the model or from `chat`; the same errors. */
int chat_source(struct model_entry *m, const struct chat *chat, const char **source, size_t *n, struct hearth_err *e);

/* Appends the ids of text[from..]. Without TOK_GOES_ON in `flags` this is the beginning of a timeline: if the model
 * wants a BOS it begins with one, whether or not the template wrote it. */
int chat_encode(const struct vocab *v, const struct jinja_text *text, size_t from, int flags, struct ids *out,
                struct hearth_err *e);

/* What is reported of a prompt besides its ids. */
struct prompt_told {
    bool history_kept;                     /* the template would have changed the timeline */
    bool think_unknown;                    /* `think` makes no difference to the template's output */
    const struct reasoning_family *family; /* whose markers divide the answer; NULL: it is all text */
    bool open;                             /* the prompt has begun the reasoning */
};

/* Appends the ids that the request's messages add to its timeline. */
int chat_append(const struct wire_engine_generate *g, struct model_entry *m, struct ids *out, struct prompt_told *told,
                struct hearth_err *e);

/* The names of the model's templates; NULL if it has none, or if the default one cannot be rendered, for which *why
 * gives the reason. */
void chat_templates_of(struct model_entry *m, const char **names, struct hearth_err *why);

/* Print a JSON string, and only what stands between its quotes; invalid UTF-8 becomes U+FFFD. */
void chat_put_string(FILE *f, const char *s, size_t n);
void chat_put_escaped(FILE *f, const char *s, size_t n);

#endif

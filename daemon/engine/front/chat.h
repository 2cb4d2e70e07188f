/* chat.h - a conversation through a chat template, to text and to ids. Any thread. */
#ifndef HEARTH_ENGINE_CHAT_H
#define HEARTH_ENGINE_CHAT_H

#include "daemon/engine/front/reasoning.h"
#include "daemon/engine/sched/models.h"
#include "daemon/model/chat/templates.h"
#include "libclient/wire.h"

#include <stdio.h>

/* What is rendered, as PROTOCOL.md's `render` has it; NULL: absent. The members of any shape are JSON text. All
 * borrowed. */
struct chat {
    const char *messages, *tools, *documents, *kwargs;
    const char *bos_token, *eos_token;  /* absent: the model's own */
    const char *source, *template_name; /* another template; absent: the model's */
    const char *now;                    /* absent: the clock's */
    const char *switches;               /* members of kwargs by which it is asked to have the model think, or not */
    bool open;                          /* the text ends with the header of the assistant's turn */
};

/* Renders; the model's vocabulary is there. HEARTH_ENOTEMPLATE, HEARTH_ETEMPLATE, HEARTH_EPARAMS, HEARTH_ENOMEM. */
int chat_render(struct model_entry *m, const struct chat *chat, struct jinja_text *out, struct hearth_err *e);

/* The source of the template that chat_render() takes, borrowed of the model and of `chat`; the same errors. */
int chat_source(struct model_entry *m, const struct chat *chat, const char **source, size_t *n, struct hearth_err *e);

/* Appends the ids of text[from..]. Without TOK_GOES_ON in `flags` nothing comes before it, so where the model wants a
 * BOS there is one, whether the template wrote it or not. */
int chat_encode(const struct vocab *v, const struct jinja_text *text, size_t from, int flags, struct ids *out,
                struct hearth_err *e);

/* What is to be told of a prompt besides its ids. */
struct prompt_told {
    bool history_kept;                     /* the template would have changed the timeline */
    bool think_unknown;                    /* `think` makes no difference to the template */
    const struct reasoning_family *family; /* by whose markers the answer is divided; NULL: it is all text */
    bool open;                             /* the prompt has begun the reasoning */
};

/* Appends the ids that the request's messages add to its timeline. */
int chat_append(const struct wire_engine_generate *g, struct model_entry *m, struct ids *out, struct prompt_told *told,
                struct hearth_err *e);

/* The names of the model's templates, or NULL: it has none, or *why the default one cannot be rendered. */
void chat_templates_of(struct model_entry *m, const char **names, struct hearth_err *why);

/* A JSON string, and what stands between its quotes; U+FFFD for what is not UTF-8. */
void chat_put_string(FILE *f, const char *s, size_t n);
void chat_put_escaped(FILE *f, const char *s, size_t n);

#endif

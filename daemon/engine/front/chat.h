/* chat.h - a conversation through a chat template, to text and to ids. Any thread. */
#ifndef HEARTH_ENGINE_CHAT_H
#define HEARTH_ENGINE_CHAT_H

#include "daemon/engine/sched/models.h"
#include "daemon/model/chat/templates.h"

/* What is rendered, as PROTOCOL.md's `render` has it; NULL: absent. The members of any shape are JSON text. All
 * borrowed. */
struct chat {
    const char *messages, *tools, *documents, *kwargs;
    const char *bos_token, *eos_token;  /* absent: the model's own */
    const char *source, *template_name; /* another template; absent: the model's */
    const char *now;                    /* absent: the clock's */
    bool open;                          /* the text ends with the header of the assistant's turn */
};

/* Renders; the model's vocabulary is there. HEARTH_ENOTEMPLATE, HEARTH_ETEMPLATE, HEARTH_EPARAMS, HEARTH_ENOMEM. */
int chat_render(struct model_entry *m, const struct chat *chat, struct jinja_text *out, struct hearth_err *e);

/* Appends the ids of text[from..]. `first`: nothing comes before, so where the model wants a BOS there is one, whether
 * the template wrote it or not. */
int chat_encode(const struct vocab *v, const struct jinja_text *text, size_t from, bool first, struct ids *out,
                struct hearth_err *e);

#endif

/* traits.h - what a model was made for: its capabilities, tokens by their role, recommended sampling parameters. Any
 * thread. */
#ifndef HEARTH_ENGINE_TRAITS_H
#define HEARTH_ENGINE_TRAITS_H

#include "daemon/engine/sched/models.h"
#include "libclient/wire.h"

enum { TRAITS_CAPABILITIES = 4, TRAITS_SAMPLING = 6, TRAITS_TEXT = 64 };

/* Storage for what traits_fill() points to. */
struct traits {
    const char *capability[TRAITS_CAPABILITIES];
    struct wire_special_token special[VOCAB_ROLES];
    char text[VOCAB_ROLES][TRAITS_TEXT];
    struct wire_default sampling[TRAITS_SAMPLING];
};

/* Sets kind, refusal, capabilities, special and sampling of *out, whose member `chat` must be set; these borrow from
 * both *t and *m. */
void traits_fill(struct wire_model *out, struct traits *t, const struct model_entry *m);

#endif

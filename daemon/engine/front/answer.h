/*
 * answer.h - the text and the reasoning of the first tokens of an answer, as if max_tokens had ended it there.
 *
 * How an answer was divided depends on the template of its request, which nobody keeps. But the ways to divide it are
 * few: the families of markers, with reasoning that the template had begun or not. The way that makes the answer's text
 * and reasoning of all its tokens is the one, and it is then applied to the first of them.
 *
 * Thread: any; a struct answer belongs to one at a time.
 */
#ifndef HEARTH_ENGINE_ANSWER_H
#define HEARTH_ENGINE_ANSWER_H

#include "daemon/model/tok/tok.h"

struct answer {
    char *text, *thought; /* valid UTF-8 */
    size_t n_text, n_thought, cap_text, cap_thought;
    int64_t n_reasoning; /* tokens of reasoning and its markers */
};

/* A whole answer. */
struct answered {
    const int32_t *ids;
    size_t n;
    const char *text, *thought;
    size_t n_text, n_thought;
    int64_t n_reasoning;
};

/* Makes in *out the answer's first n tokens. If no way makes its text (an import may have any), they are text without
 * reasoning. HEARTH_ENOMEM. answer_fini() in any case. */
int answer_begin(const struct vocab *v, const struct answered *whole, size_t n, struct answer *out,
                 struct hearth_err *e);
void answer_fini(struct answer *a);

#endif

/* answer.c - see answer.h. Any thread. */
#include "config.h"

#include "daemon/engine/front/answer.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/engine/front/text.h"

void answer_fini(struct answer *a)
{
    free(a->text);
    free(a->thought);
    *a = (struct answer){0};
}

static int append(char **to, size_t *n, size_t *cap, const char *s, size_t len, struct hearth_err *e)
{
    if (*cap - *n < len) {
        size_t more = 2 * (*n + len);
        char *grown = realloc(*to, more);
        if (!grown)
            return err_set(e, HEARTH_ENOMEM, "no memory for %zu bytes of text", more);
        *to = grown;
        *cap = more;
    }
    if (len)
        memcpy(*to + *n, s, len);
    *n += len;
    return 0;
}

static int add(struct answer *a, const char *thought, size_t n_thought, const char *s, size_t n, struct hearth_err *e)
{
    int rc = append(&a->thought, &a->n_thought, &a->cap_thought, thought, n_thought, e);
    return rc ? rc : append(&a->text, &a->n_text, &a->cap_text, s, n, e);
}

/* Whether one of the two is how the other begins, as far as is new since `from`. */
static bool agree(const char *a, size_t n_a, const char *b, size_t n_b, size_t from)
{
    size_t n = n_a < n_b ? n_a : n_b;
    return n <= from || !memcmp(a + from, b + from, n - from);
}

/* Divides the first n tokens in one way; ends early where they differ from the whole answer, if `compare`. */
static int divide(const struct vocab *v, const struct reasoning_family *f, bool open, const struct answered *whole,
                  size_t n, bool compare, struct answer *out, struct hearth_err *e)
{
    struct text t;
    int rc = text_init(&t, v, NULL, 0, e);
    text_divide(&t, f, open);
    out->n_text = out->n_thought = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        size_t text = out->n_text, thought = out->n_thought, len;
        const char *s;
        if (!(rc = text_push(&t, whole->ids[i], &s, &len, e)))
            rc = add(out, t.thought, t.n_thought, s, len, e);
        if (!rc && compare &&
            (!agree(out->text, out->n_text, whole->text, whole->n_text, text) ||
             !agree(out->thought, out->n_thought, whole->thought, whole->n_thought, thought)))
            break;
    }
    if (!rc && !(rc = text_held(&t, e)))
        rc = add(out, t.held_thought, t.n_held_thought, t.held, t.n_held, e);
    out->n_reasoning = t.reasoning.n_tokens;
    text_fini(&t);
    return rc;
}

/* Whether a way has made the whole answer; `more`: text may follow it, as a stop string's does. */
static bool is_same(const struct answer *a, const struct answered *whole, bool more)
{
    return a->n_reasoning == whole->n_reasoning && a->n_thought == whole->n_thought &&
           (more ? a->n_text >= whole->n_text : a->n_text == whole->n_text) &&
           agree(a->text, a->n_text, whole->text, whole->n_text, 0) &&
           agree(a->thought, a->n_thought, whole->thought, whole->n_thought, 0);
}

int answer_begin(const struct vocab *v, const struct answered *whole, size_t n, struct answer *out,
                 struct hearth_err *e)
{
    *out = (struct answer){0};
    for (int more = 0; more < 2; more++)
        for (size_t i = 0;; i++) {
            const struct reasoning_family *f = reasoning_family_at(i);
            for (int open = 0; open < (f ? 2 : 1); open++) {
                int rc = divide(v, f, open, whole, whole->n, true, out, e);
                if (rc)
                    return rc;
                if (is_same(out, whole, more))
                    return divide(v, f, open, whole, n, false, out, e);
            }
            if (!f)
                break;
        }
    return divide(v, NULL, false, whole, n, false, out, e);
}

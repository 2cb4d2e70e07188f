/* seq.c - making and freeing sequences; see seq.h. */
#include "daemon/engine/sched/seq.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct seq *seq_new(const int32_t *token, uint32_t n, uint32_t n_token)
{
    struct seq *q = calloc(1, sizeof *q);
    if (!q)
        return NULL;
    q->cap_token = n_token > n ? n_token : n;
    q->token = malloc((q->cap_token + 1) * sizeof *q->token); /* one more, so that the size is never 0 */
    if (!q->token) {
        free(q);
        return NULL;
    }
    if (n)
        memcpy(q->token, token, n * sizeof *token);
    q->n_tokens = n;
    return q;
}

void seq_free(struct seq *q)
{
    if (!q)
        return;
    assert(q->state == SEQ_NEW && q->kv.n == 0);
    free(q->token);
    free(q->bias);
    eval_free(q->eval);
    free(q);
}

void seq_push_token(struct seq *q, int32_t token)
{
    assert(q->n_tokens < q->cap_token);
    q->token[q->n_tokens++] = token;
}

uint32_t seq_n_restored(const struct seq *q)
{
    uint32_t to = q->restored_to < q->n_reused ? q->restored_to : q->n_reused;
    return to > q->restored_from ? to - q->restored_from : 0;
}

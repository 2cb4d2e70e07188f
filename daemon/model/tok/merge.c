/* merge.c - the merging of pairs that BPE and SentencePiece share; see tok-internal.h. */
#include "daemon/model/tok/tok-internal.h"

#include <stdlib.h>

void merger_fini(struct merger *m)
{
    free(m->sym);
    free(m->heap);
}

int tok_failed(int ret, size_t n, struct hearth_err *e)
{
    return ret == HEARTH_ECANCELLED ? err_set(e, ret, "cancelled while %zu bytes were tokenized", n)
           : ret                    ? err_set(e, ret, "no memory to tokenize %zu bytes", n)
                                    : 0;
}

int merger_push(struct merger *m, uint32_t start, uint32_t len, int32_t id)
{
    if (m->n_sym == m->cap_sym) {
        size_t cap = m->cap_sym ? m->cap_sym * 2 : 64;
        struct sym *sym = realloc(m->sym, cap * sizeof *sym);
        if (!sym)
            return HEARTH_ENOMEM;
        m->sym = sym;
        m->cap_sym = cap;
    }
    int32_t i = (int32_t)m->n_sym++;
    m->sym[i] = (struct sym){.start = start, .len = len, .prev = i - 1, .next = -1, .id = id};
    if (i)
        m->sym[i - 1].next = i;
    return 0;
}

static int heap_push(struct merger *m, struct merge_item item)
{
    if (m->n_heap == m->cap_heap) {
        size_t cap = m->cap_heap ? m->cap_heap * 2 : 64;
        struct merge_item *heap = realloc(m->heap, cap * sizeof *heap);
        if (!heap)
            return HEARTH_ENOMEM;
        m->heap = heap;
        m->cap_heap = cap;
    }
    size_t i = m->n_heap++;
    for (; i && m->heap[(i - 1) / 2].key > item.key; i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = item;
    return 0;
}

static struct merge_item heap_pop(struct merger *m)
{
    struct merge_item top = m->heap[0], last = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->n_heap; i = child) {
        if (child + 1 < m->n_heap && m->heap[child + 1].key < m->heap[child].key)
            child++;
        if (m->heap[child].key >= last.key)
            break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = last;
    return top;
}

static int consider(struct merger *m, const struct vocab *v, const char *text, merge_pair *pair, int32_t left,
                    int32_t right)
{
    uint32_t priority;
    int32_t id;
    if (left < 0 || right < 0 || !pair(v, text, &m->sym[left], &m->sym[right], &priority, &id))
        return 0;
    struct merge_item item = {
        .key = (uint64_t)priority << 32 | (uint32_t)left,
        .right = (uint32_t)right,
        .len = m->sym[left].len + m->sym[right].len,
    };
    return heap_push(m, item);
}

int merger_run(struct merger *m, const struct vocab *v, const char *text, merge_pair *pair)
{
    int ret = 0;
    m->n_heap = 0;
    for (size_t i = 1; i < m->n_sym && !ret; i++)
        ret = consider(m, v, text, pair, (int32_t)i - 1, (int32_t)i);
    while (m->n_heap && !ret) {
        if ((ret = pace(1, NULL)))
            break;
        struct merge_item item = heap_pop(m);
        int32_t l = (int32_t)(uint32_t)item.key;
        struct sym *left = &m->sym[l], *right = &m->sym[item.right];
        uint32_t priority;
        /* A candidate is stale if one side was merged meanwhile. A symbol only grows, so comparing lengths detects
         * that. */
        if (!left->len || !right->len || left->len + right->len != item.len)
            continue;
        if (!pair(v, text, left, right, &priority, &left->id))
            continue;
        left->len = item.len;
        right->len = 0;
        left->next = right->next;
        if (left->next >= 0)
            m->sym[left->next].prev = l;
        ret = consider(m, v, text, pair, left->prev, l);
        if (!ret)
            ret = consider(m, v, text, pair, l, left->next);
    }
    return ret;
}

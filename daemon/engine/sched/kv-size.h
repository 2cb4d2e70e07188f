/*
 * kv-size.h - how large the pools of a model's layer groups are. Pure.
 */
#ifndef HEARTH_ENGINE_KV_SIZE_H
#define HEARTH_ENGINE_KV_SIZE_H

#include "daemon/engine/sched/kv.h"

enum { KV_PAGES_MAX = 1 << 22 /* pages of a pool */ };

/*
 * Sets every pool's number of pages, desc[].n_page, for one timeline of n_page pages or several that add up to that.
 * `lookahead` is kv_grow's `ahead`.
 *   - A group that sees everything has n_page pages.
 *   - A group with a window has, for every full context (n_ctx tokens), the windows that stay cached; at least enough
 *     for sixteen sequences, at most n_page.
 *   - A group of states has, for every full context, the states kept sparsely and those of one sequence. The minimum
 *     depends on a state's size. Where 1 GiB holds more than sixteen states, it is as many as fit in 1 GiB, but no more
 *     than a step's sequences need, nor than one sequence's plus as many bytes as the pages of KV have. Where 1 GiB
 *     holds sixteen or fewer, it is four for each 4,096 tokens begun, up to sixteen.
 */
void kv_size_pools(struct kv_desc *desc, uint32_t n_group, uint32_t n_page, uint32_t n_ctx, uint32_t lookahead);
/* Returns the longest timeline in pages for which the pools take at most `bytes`; KV_PAGES_MAX at most. */
uint32_t kv_size_for(const struct kv_desc *desc, uint32_t n_group, uint64_t bytes, uint32_t n_ctx, uint32_t lookahead);
/* How many pages of a pool are mapped together (kv_desc.extent): whole granules of the device, large enough to be worth
 * a call, but no large part of the pool (n_page). */
uint32_t kv_size_extent(const struct kv_desc *desc, uint64_t granule);
/* The bytes of all pools for a timeline of n_page pages. */
uint64_t kv_size_bytes(const struct kv_desc *desc, uint32_t n_group, uint32_t n_page, uint32_t n_ctx,
                       uint32_t lookahead);
/* The longest timeline that the pools hold, in tokens. */
uint64_t kv_size_room(const struct kv_desc *desc, uint32_t n_group, uint32_t lookahead);

#endif

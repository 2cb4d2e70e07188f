/*
 * kv-size.h - how large the pools of a model's layer groups are. Pure.
 */
#ifndef HEARTH_ENGINE_KV_SIZE_H
#define HEARTH_ENGINE_KV_SIZE_H

#include "daemon/engine/sched/kv.h"

enum { KV_PAGES_MAX = 1 << 22 /* of a pool */ };

/*
 * Gives every pool its number of pages, desc[].n_page, for a timeline of n_page pages or several that come to that:
 * those of groups that see everything have that many. Those of groups with a window have their share: of every full
 * context (n_ctx tokens) the windows that stay cached, and room for sixteen sequences at least, but no more than the
 * others. Those of states have as many pages as sequences of full contexts keep sparsely, or as many as a step's
 * sequences need where 1 GiB suffices, and a sequence's beside as many bytes as the pages have; where it holds sixteen
 * or fewer, four for each 4,096 tokens that have begun, up to sixteen. `lookahead` is kv_grow's.
 */
void kv_size_pools(struct kv_desc *desc, uint32_t n_group, uint32_t n_page, uint32_t n_ctx, uint32_t lookahead);
/* Returns the most pages of a timeline for which the pools come to `bytes`, KV_PAGES_MAX at most. */
uint32_t kv_size_for(const struct kv_desc *desc, uint32_t n_group, uint64_t bytes, uint32_t n_ctx, uint32_t lookahead);
/* How many pages of a pool have memory together (kv_desc.extent): whole granules of the device, and about as much as
 * is worth a call, but no large part of the pool (n_page). */
uint32_t kv_size_extent(const struct kv_desc *desc, uint64_t granule);
/* Bytes of all pools, for a timeline of n_page pages. */
uint64_t kv_size_bytes(const struct kv_desc *desc, uint32_t n_group, uint32_t n_page, uint32_t n_ctx,
                       uint32_t lookahead);
/* The longest timeline that the pools hold, in tokens. */
uint64_t kv_size_room(const struct kv_desc *desc, uint32_t n_group, uint32_t lookahead);

#endif

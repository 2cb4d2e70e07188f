/*
 * fingerprint.h - the fingerprint of a model's KV: fills kvfile.h's struct kv_fingerprint from a model.
 *
 * It is cheap, so that it can be taken at every load: metadata and tensor records are hashed completely, but of every
 * tensor only the first, middle and last 4 KiB, so that a fine-tune with the same metadata differs.
 */
#ifndef HEARTH_ENGINE_FINGERPRINT_H
#define HEARTH_ENGINE_FINGERPRINT_H

#include "daemon/engine/kvtier/kvfile.h"
#include "daemon/model/model.h"

/*
 * The version of the numerics of KV. Raise it with every change to the bits of a token's K and V, on any backend, or to
 * a page's layout: older files then have another fingerprint, and their KV is computed again.
 */
enum { KV_NUMERICS = 13 };

/* Makes the fingerprints of a loaded model's layer groups, whose KV is in pools of `desc` (n_page does not matter).
 * HEARTH_EBADMODEL where the model file has changed since it was opened. Thread: any; reads the mapped file. */
int kv_fingerprint_make(struct kv_fingerprint out[KV_GROUPS_MAX], const struct model *m, const struct kv_desc *desc,
                        struct hearth_err *e);

/* Computes the same digests of a file's weights and of its tokenizer, in hex, for people and for documents that name a
 * model. HEARTH_EBADMODEL as above. */
enum { KV_DIGEST = 2 * sizeof(struct kv_hash) + 1 };
int kv_fingerprint_digests(const struct gguf *g, char weights[static KV_DIGEST], char tokenizer[static KV_DIGEST],
                           struct hearth_err *e);

#endif

/* kvfile-internal.h - the on-disk layout of a KV file, for its reader (kvfile.c) and writer (kvfile-write.c) only. The
 * format is described in kv-format.md. Numbers are little-endian, as on every machine hearth runs on. */
#ifndef HEARTH_ENGINE_KVFILE_INTERNAL_H
#define HEARTH_ENGINE_KVFILE_INTERNAL_H

#include <assert.h>

#include "daemon/engine/kvtier/kvfile.h"

enum { KVDISK_VERSION = 1, KVDISK_BLOCK = 4096 /* the head's length is a multiple, which aligns the first page */ };
#define KVDISK_MAGIC "HEARTHKV"

/* The kind of an entry. A reader refuses a file with an unknown kind. */
enum { KVDISK_PAGE = 1 /* a page of the layer group's pool: KV, or recurrent states */ };

struct kvdisk_head {
    char magic[8];
    uint32_t version;
    uint32_t head_bytes;     /* this struct, the entries, zeros up to a multiple of KVDISK_BLOCK */
    struct kv_hash head_sum; /* over head_bytes, with this field as zero; at the same offset in every version */
    uint64_t file_bytes;
    int64_t uid;
    struct kv_hash parent;
    uint32_t pos, n_entry;
    struct kv_fingerprint fingerprint;
    uint8_t zero[80];
};
struct kvdisk_entry {
    uint32_t kind, pos;
    int32_t id[KV_PAGE];
    struct kv_hash hash;
    uint64_t offset, bytes;
    struct kv_hash sum; /* over the page's data */
    uint64_t zero;
};
static_assert(sizeof(struct kv_fingerprint) == 104, "part of the file");
static_assert(sizeof(struct kvdisk_head) == 256, "part of the file");
static_assert(sizeof(struct kvdisk_entry) == 128, "part of the file");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they are");

static inline uint32_t kvdisk_head_bytes(uint32_t n_entry)
{
    uint32_t n = (uint32_t)sizeof(struct kvdisk_head) + n_entry * (uint32_t)sizeof(struct kvdisk_entry);
    return (n + KVDISK_BLOCK - 1) / KVDISK_BLOCK * KVDISK_BLOCK;
}

static inline struct kvdisk_entry *kvdisk_entries(struct kvdisk_head *h)
{
    return (struct kvdisk_entry *)(h + 1);
}

/* Returns the checksum of a head in memory; its own field head_sum is taken as zero, whatever it holds. */
struct kv_hash kvdisk_head_sum(struct kvdisk_head *h, uint32_t head_bytes);
struct kv_hash kvdisk_sum(const void *p, size_t n);

/* Writes the file name of an extent with this fingerprint whose last page has this hash. */
void kvdisk_name(char out[KVFILE_NAME], const struct kv_fingerprint *fingerprint, const struct kv_hash *last);

#endif

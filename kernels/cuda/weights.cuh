/* weights.cuh - a matrix on the device: its parts, its tiles, and the functions that pack them. */
#ifndef HEARTH_CUDA_WEIGHTS_CUH
#define HEARTH_CUDA_WEIGHTS_CUH

#include "kernels/cuda/elem.cuh"

/* A matrix is stored as tiles of 16 rows x 256 k, called T16 records (gemm/tile16.cuh has their form by type); a part's
 * records are contiguous, [n_tile][n_kblk], unless pack_plan() interleaves gate and up. */
struct wpart {
    enum dtype type;
    uint32_t n_out, row0;   /* rows of the part, and its first row in the merged output */
    uint32_t tile0, n_tile; /* filled by pack_plan() */
    uint64_t off;           /* bytes from `packed` to its first record; filled by pack_plan() */
    uint8_t *raw;           /* plain rows: as in the file (variant reference), or of F32 or fp16 (upload.cu) */
    uint64_t raw_row_bytes;
};
struct wdev {
    enum weight_role role;
    uint32_t n_in, n_out, n_kblk, n_part, n_tile;
    struct wpart part[3];
    uint8_t *packed; /* the tiles: in device memory, or at `host`, or, during an op, in a copy of that (spill.cu) */
    uint8_t *host;   /* the tiles in pinned host memory, where the matrix is kept there; else NULL */
    uint64_t packed_bytes; /* filled by pack_plan() */
    uint32_t *row_scale;  /* [n_expert][n_tile][16] and ROW_SCALES_PAD more tiles, or NULL; after the tiles at `host` */
    uint32_t interleaved; /* gate and up share tiles: 8 rows each; filled by pack_plan() */
    uint32_t n_expert;    /* 0, or the number of matrices of these parts, concatenated */
    uint64_t expert_bytes; /* bytes from one expert's matrices to the next's, all parts; filled by pack_plan() */
    bool plain;        /* F32 rows of all parts at part[0].raw, multiplied by experts/route.cu or states/project.cu */
    __half *cached;    /* all rows expanded, [n_out][wcache_ld()], or NULL: wcache.cu */
    struct wdev *next; /* list of the device's weights */
    const void *model; /* see weight */
};
/* Whether it is a matrix of the dense products: some paths are only taken if they support all such of a model. */
static inline bool wdev_dense(const wdev *w)
{
    return w->role == WEIGHT_QKV || w->role == WEIGHT_PROJ || w->role == WEIGHT_GATE_UP ||
           (w->role == WEIGHT_MIXER && !w->plain);
}
static inline const wdev *wdev_of(const struct weight *w)
{
    return (const wdev *)w->dev;
}
/* Columns of ACT_FF that the op writes. */
static inline uint32_t d_ff_of(const struct op_ffn_up *op)
{
    return wdev_of(op->w)->n_out / (has_gate(op->glu) ? 2 : 1);
}

/* quant/pack.cu: T16 records from file blocks. pack_plan fills in the fields marked so above; HEARTH_EUNSUPPORTED names
 * the type. pack_rows packs rows [row0, row0 + n) of a part, n and row0 multiples of 16 except at the part's end, from
 * a copy of the file's bytes in device memory, on stream s. unpack_f16 writes rows [row0, row0 + n) of the merged
 * output, in logical order, as fp16 [n, ld] row-major, on d->stream. row_scales_bytes: the size of row_scale, 0 where
 * neither the device nor a type needs it; pack_row_scales computes it from the packed records, on stream s. */
enum { ROW_SCALES_PAD = 16 }; /* tiles past the last one whose scales a kernel reads and does not use */
int pack_plan(struct wdev *w, struct hearth_err *e);
void pack_rows(struct device *d, struct wdev *w, uint32_t part, uint32_t row0, uint32_t n, const uint8_t *raw,
               cudaStream_t s);
uint64_t row_scales_bytes(const struct device *d, const struct wdev *w);
void pack_row_scales(struct device *d, struct wdev *w, cudaStream_t s);
void unpack_f16(struct device *d, const struct wdev *w, uint32_t row0, uint32_t n, __half *dst, uint32_t ld);

#endif

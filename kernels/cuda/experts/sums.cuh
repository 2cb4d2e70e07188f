/*
 * sums.cuh - the products of a step's experts that are not yet added to the residual stream: experts_down leaves them,
 * in steps of few rows, for the norm that follows, as wgmma's products leave the partial sums of split_k.cuh.
 */
#ifndef HEARTH_CUDA_EXPERTS_SUMS_CUH
#define HEARTH_CUDA_EXPERTS_SUMS_CUH

#include "kernels/cuda/cuda.cuh"

/* The expert's id in a route. A value that is no id, which only a test can write, becomes 0, so that it cannot lead
 * outside the weights. */
__device__ static inline uint32_t expert_of(float id, uint32_t n)
{
    return id >= 0 && id < (float)n ? (uint32_t)id : 0;
}

/* x += by * sum over a row's experts, in their order, of weight (product + bias). */
struct expert_sums {
    const float *y;     /* [rows * n_slot][ld], rows aligned to 16 bytes and padded to fours; NULL: nothing is left */
    uint32_t ld, n;     /* n: columns */
    const float *route; /* [rows][2 n_used]: ids, then weights */
    uint32_t n_used, n_expert;
    const float *bias; /* [n_expert][n], or NULL */
    float by;
    uint32_t n_slot;        /* n_used, or one more for the shared expert, which is the last */
    const float *shared_by; /* [rows]: the weight of its result; NULL: 1 */
    const step_dev *step;

    /* Columns k .. k + 3 of a row's sum; zeros where `real` is false or the step has no such row. Five loads are in
     * flight together. */
    __device__ float4 four(uint32_t row, uint32_t k, bool real = true) const
    {
        enum { AT_ONCE = 5 }; /* so eight and nine slots take two rounds */
        const float *ids = route + (uint64_t)row * 2 * n_used, *at = y + (uint64_t)row * n_slot * ld + k;
        uint32_t slots = real && row < step->n_row ? n_slot : 0;
        float s[4] = {0, 0, 0, 0};
#pragma unroll 1
        for (uint32_t first = 0; first == 0 || first < slots; first += AT_ONCE) {
            float4 v[AT_ONCE];
            float weight[AT_ONCE];
#pragma unroll
            for (uint32_t j = 0; j < AT_ONCE; j++) {
                uint32_t i = first + j;
                v[j] = load_if(i < slots, at + (uint64_t)i * ld);
                weight[j] = i >= slots   ? 0.f
                            : i < n_used ? __ldcg(ids + n_used + i)
                            : shared_by  ? __ldcg(shared_by + row)
                                         : 1.f;
            }
#pragma unroll
            for (uint32_t j = 0; j < AT_ONCE; j++) {
                uint32_t i = first + j;
                if (i >= slots)
                    break;
                const float f[4] = {v[j].x, v[j].y, v[j].z, v[j].w};
                const float *b = bias && i < n_used ? bias + (uint64_t)expert_of(__ldcg(ids + i), n_expert) * n : NULL;
#pragma unroll
                for (uint32_t e = 0; e < 4; e++)
                    s[e] = fmaf(weight[j], f[e] + (b && k + e < n ? b[k + e] : 0.f), s[e]);
            }
        }
        return make_float4(s[0], s[1], s[2], s[3]);
    }
};

/* pairs.cu: adds them to ws.x. */
void expert_sums_run(struct device *d, const struct expert_sums *s);

#endif

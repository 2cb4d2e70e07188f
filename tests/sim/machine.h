/*
 * machine.h - shared by the simulator's files: a decoded function, and the warps, blocks and clusters that execute it.
 * A warp executes an instruction for its 32 threads at once: a register is an array of 32 values, so that the compiler
 * vectorises the loops over them.
 */
#ifndef HEARTH_SIM_MACHINE_H
#define HEARTH_SIM_MACHINE_H

#include "tests/sim/sim.h"

#include <setjmp.h>

enum { LANES = 32, ALL = -1 };

struct warp;
struct ins;
typedef void op_fn(struct warp *, const struct ins *);

/*
 * An operand: the offset of a register in the warp's register file or, with bit 0 set, of a constant in the function's.
 * Registers of up to 32 bits take a uint32_t per lane, of 64 bits a uint64_t, of 128 bits two arrays of uint64_t;
 * predicates are one uint32_t with a bit per lane.
 */
typedef int32_t operand;
enum { NONE = -2 /* of a predicate: all lanes; of a result: it is not used */ };

/* How an instruction changes the order of execution. */
enum flow {
    FLOW_NEXT,
    FLOW_BRANCH,
    FLOW_EXIT,
    FLOW_CONVERGE, /* executed once the lanes that it names (e), or all of them, are there */
    FLOW_BARRIER,  /* bar.sync, bar.arrive: barrier a, and b threads; kind 1: only arrives */
    FLOW_CLUSTER_ARRIVE,
    FLOW_CLUSTER_WAIT,
    FLOW_POLL, /* polls for something that others may have to do */
};

enum space { SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_CLUSTER, SPACE_LOCAL, SPACE_PARAM };

struct ins {
    op_fn *fn;
    operand d, a, b, c, e; /* results first, as in PTX */
    operand pred;          /* the predicate of the lanes that execute it, or NONE */
    bool pred_not;
    uint8_t flow;
    uint8_t space, size; /* of memory operands: size is bytes per element */
    bool is_signed, is_wide,
        wide_value;   /* is_wide, wide_value: the address, or the value, is in registers of 64 bits */
    uint16_t n;       /* of v: the elements of a vector, or as defined by the instruction */
    const operand *v; /* the operands in braces, in order */
    int64_t imm;      /* the offset of an address */
    uint32_t target;  /* the target of a branch */
    uint32_t kind;    /* the opcode's modifiers, as its function defines them */
    uint32_t line;    /* the line of the PTX */
};

struct sim_fn {
    char *name;
    struct sim_module *module;
    const char *params, *body; /* the text within their brackets */
    size_t params_n, body_n;
    struct sim_fn_info info;
    uint32_t dynamic_align;

    /* decoded at its first launch */
    bool decoded;
    struct ins *code;
    uint32_t n_code, regs_bytes, consts_bytes;
    uint8_t *consts;
};

/* Lanes that proceed together. */
struct group {
    uint32_t pc, mask;
    bool waits; /* they wait for others, at an instruction that needs those */
};

struct warp {
    uint8_t *base[2];         /* registers and constants */
    uint32_t exec;            /* the lanes that execute the current instruction */
    uint32_t pc, mask, alive; /* pc: of the lanes in `mask`; alive: the lanes that have not ended */
    uint32_t next_pc;         /* the smallest pc of other lanes that do not wait */
    uint32_t n_others;
    struct group others[LANES];
    struct block *block;
    uint32_t id;
    uint8_t *local;
    bool done, spins;         /* spins: it polls for something that others have to do */
    uint32_t copy_group;      /* of cp.async: the group that is not committed yet */
    struct product *products; /* of wgmma, those that have not been waited for */
    uint32_t n_products, product_group;
    bool at_bar, at_cluster; /* blocked */
    uint32_t bar;            /* the barrier at which it is blocked */
    uint32_t cluster_phase,
        cluster_mask; /* cluster_mask: the lanes that have arrived at the cluster's barrier in that phase */
};

struct barrier {
    uint32_t arrived, expected; /* threads; expected 0: all that have not ended */
};

struct block {
    struct cluster *cluster;
    struct sim_dims id;
    uint32_t rank, live; /* live: warps that have not ended */
    uint8_t *shared, *regs, *local;
    struct warp *warps;
    struct barrier bars[16];
};

/* The sizes for which a cluster's memory was allocated; without padding, since they are compared as bytes. */
struct cluster_sizes {
    uint32_t blocks, warps, regs, local, shared, unused;
    size_t bytes;
};
struct cluster {
    struct grid *grid;
    struct cluster_sizes sizes;
    uint32_t n_blocks, live; /* live: blocks that have not ended */
    struct late *late;       /* copies in flight, in the order in which they were issued */
    uint32_t n_late, late_room;
    uint32_t phase, arrived, gone; /* of its barrier, in threads; gone: those that have ended */
    struct block *blocks;
    struct cluster *next;
};

struct grid {
    struct sim_fn *fn;
    const struct sim_launch *launch;
    uint8_t *params;
    uint32_t shared_bytes, n_warps, n_threads; /* of a block */
    uint64_t turns;                            /* turns that warps have had */
    jmp_buf fault;
};

/* Registers that are set when a warp begins, each of 128 bytes, at the start of its register file. */
enum special {
    SPECIAL_TID_X,
    SPECIAL_TID_Y,
    SPECIAL_TID_Z,
    SPECIAL_LANEID,
    SPECIAL_WARPID,
    SPECIAL_CTAID_X,
    SPECIAL_CTAID_Y,
    SPECIAL_CTAID_Z,
    SPECIAL_NTID_X,
    SPECIAL_NTID_Y,
    SPECIAL_NTID_Z,
    SPECIAL_NCTAID_X,
    SPECIAL_NCTAID_Y,
    SPECIAL_NCTAID_Z,
    SPECIAL_CLUSTER_CTARANK,
    SPECIAL_CLUSTER_NCTARANK,
    SPECIALS
};

/* The values of an operand. */
static inline void *at(const struct warp *w, operand o)
{
    return w->base[o & 1] + (o & ~1);
}
static inline uint32_t pred_of(const struct warp *w, operand o)
{
    return *(const uint32_t *)at(w, o);
}

/* Stores results in the lanes that execute. */
static inline void put32(struct warp *w, operand o, const uint32_t *v)
{
    uint32_t *d = (uint32_t *)at(w, o), m = w->exec;
    if (m == (uint32_t)ALL)
        for (int l = 0; l < LANES; l++)
            d[l] = v[l];
    else
        for (int l = 0; l < LANES; l++)
            d[l] = m >> l & 1 ? v[l] : d[l];
}
static inline void put64(struct warp *w, operand o, const uint64_t *v)
{
    uint64_t *d = (uint64_t *)at(w, o);
    uint32_t m = w->exec;
    if (m == (uint32_t)ALL)
        for (int l = 0; l < LANES; l++)
            d[l] = v[l];
    else
        for (int l = 0; l < LANES; l++)
            d[l] = m >> l & 1 ? v[l] : d[l];
}
static inline void put_pred(struct warp *w, operand o, uint32_t v)
{
    uint32_t *d = (uint32_t *)at(w, o);
    *d = (*d & ~w->exec) | (v & w->exec);
}

/* Iterates over the lanes that execute, in order. */
#define EACH_LANE(L) \
    for (uint32_t left_ = w->exec, L; left_ && ((L = (uint32_t)__builtin_ctz(left_)), 1); left_ &= left_ - 1)
static inline uint32_t value32(const struct warp *w, operand o, uint32_t lane)
{
    return ((const uint32_t *)at(w, o))[lane];
}
static inline uint64_t value64(const struct warp *w, operand o, uint32_t lane)
{
    return ((const uint64_t *)at(w, o))[lane];
}

/* The lowest lane that executes. */
static inline int leader(const struct warp *w)
{
    return __builtin_ctz(w->exec);
}

/* Ends the launch because the kernel did something illegal. `lane` -1 stands for the whole warp. */
_Noreturn void sim_fault(struct warp *w, const struct ins *i, int lane, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The place of an instruction: the source's file and line, or the PTX's line. */
void sim_source(const struct sim_fn *, const struct ins *, char *text, size_t n);

/* memory.c: the n bytes at a lane's address; sim_place(): the address must be a multiple of n. */
void *sim_bytes(struct warp *w, const struct ins *i, int lane, enum space space, uint64_t address, uint32_t n);
void *sim_place(struct warp *w, const struct ins *i, int lane, enum space space, uint64_t address, uint32_t n);
uint64_t sim_address(const struct warp *w, const struct ins *i, int lane);

/* async.c: whether copies are as late as possible (HEARTH_SIM_LATE); and the end of a cluster, when none may be
 * left. */
bool sim_late(void);
void sim_late_begin(void);
void sim_late_end(struct cluster *c);

/* decode.c: decodes a kernel's body. False, after a line on stderr: it has something that this machine does not
 * support. */
bool sim_decode(struct sim_fn *);
/* An arithmetic opcode; alu.c has the list. NULL if there is none of that name. */
struct alu_row {
    const char *name;
    op_fn *fn;
    const char *widths; /* of the result, then of the sources: p a predicate, 3 up to 32 bits per lane, 6 64 bits */
};
const struct alu_row *sim_alu(const char *opcode);

/* The functions of all other opcodes. opcodes.c defines which instruction has which, and the meaning of `kind`. */
op_fn sim_load_op, sim_store_op, sim_atom_op, sim_cp_async_op, sim_bulk_op, sim_st_async_op, sim_mapa_op, sim_touch_op;
op_fn sim_mbar_init_op, sim_mbar_arrive_op, sim_mbar_test_op, sim_mbar_noinc_op;
op_fn sim_copy_commit_op, sim_copy_wait_op, sim_wgmma_commit_op, sim_wgmma_wait_op;
op_fn sim_mma_op, sim_wgmma_op, sim_ldmatrix_op, sim_movmatrix_op;
op_fn sim_shfl_op, sim_vote_op, sim_redux_op, sim_activemask_op, sim_nothing_op, sim_pack_op, sim_unpack_op,
    sim_trap_op;

enum atom { ATOM_ADD, ATOM_MIN, ATOM_MAX, ATOM_AND, ATOM_OR, ATOM_XOR, ATOM_EXCH, ATOM_CAS };
enum vote { VOTE_ALL, VOTE_ANY, VOTE_BALLOT };
enum shfl { SHFL_IDX, SHFL_UP, SHFL_DOWN, SHFL_BFLY };

/* Types and shapes of a kernel's matrices, from the instruction's name. */
enum mma { MMA_F16_K16, MMA_F16_K8, MMA_TF32_K8, MMA_S8_K32, MMA_U8_K32, MMA_U8_K16, MMA_S8_K16 };

/* Generic addresses of memory other than global have a window's number in their highest byte; addresses of a cluster's
 * shared memory have the block's rank plus 1 above bit 24. */
enum { GENERIC_SHARED = 1, GENERIC_LOCAL = 2, GENERIC_PARAM = 3, GENERIC_SHIFT = 56, CLUSTER_SHIFT = 24 };

#endif

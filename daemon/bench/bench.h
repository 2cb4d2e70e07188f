/*
 * bench.h - hearth-bench: how fast a model runs on this machine, without daemon, link or scheduler.
 *
 * It checks before it measures (check.c). Batch invariance: a prompt that is prefilled in other chunks, batched with
 * another sequence, or decoded row by row must give bit-identical logits. A GPU must also pass the self-check, and its
 * logits must be near the CPU's; where two experts of a mixture are nearly equal, the CPU follows the GPU's choice. The
 * reason is that an engine that is fast but wrong must not report anything.
 *
 * The tests are named as in tests/bench/results, and each measures a time:
 *
 *   ppN                            prefill of N tokens, to the logits of the last one
 *   tg@D                           decoding one token after D others
 *   batchN@D                       a step that decodes N sequences of D tokens each
 *   resume@D                       prefill of 8 tokens after D in the KV cache, to the first token
 *   kv_pin@D                       allocation of pinned host memory for the pages of D tokens
 *   kv_save@D, kv_restore@D        transfer of those pages to host memory, and back
 *   tg@0_still                     decoding one token while no KV is transferred
 *   tg@0_saving, tg@0_restoring    the same while transfers are always in flight
 *   kv_save@D_busy, kv_restore@D_busy  the transfers of D tokens' pages during that decoding
 *   kv_disk_save@D, kv_disk_restore@D  transfer of those pages to a file, and back from the disk
 *   kv_disk_restore@D_cached       the same from the page cache
 *   disk_read@D                    plain reading of that file from the disk
 *   load_cached                    from the request to the first token of a prompt of one token, the device being open
 *   load_cold_process              the same from the start of this program
 */
#ifndef HEARTH_BENCH_BENCH_H
#define HEARTH_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/engine/engine.h"

enum bench_format { BENCH_TABLE, BENCH_JSON, BENCH_CSV };

struct bench_params {
    const char *model;  /* path of the model's file */
    const char *prompt; /* "128,512": run pp128 and pp512 */
    const char *depth;  /* "0,4096": run tg@0 and tg@4096 */
    const char *batch;  /* "2,4": run batch2@512 and batch4@512 */
    const char *resume; /* "4096": run resume@4096 */
    const char *kv;     /* "4096": run kv_save@4096, kv_restore@4096, and decoding during such transfers */
    bool load;          /* run load_cached and load_cold_process */
    bool force;         /* measure a model whose check failed; the report says so, and the exit status is a failure */
    const char *name;   /* the model's name in the report; NULL = the file's name */
    const char *commit; /* the build's name in the report */
    enum bench_format format;
    const char *backend;   /* "auto" (the best one that opens), or a name */
    const char *variant;   /* of the backend, or "auto" */
    uint32_t threads;      /* of the CPU; 0 = as many as the machine has */
    const char *invariant; /* "nothing", "prompts", "all": measure with that setting of the daemon's configuration */
    const char *kv_type;   /* "auto", "f16", "q8_0": the type of the KV cache */
    uint32_t gpu_weights;  /* MiB of a GPU's memory for weights, the rest stays in host memory; 0: no limit */
    uint32_t rows;         /* rows of a prompt in a step; 0: the scheduler's maximum */
    const char *kv_dir;    /* a private directory in which the tests of `kv` also measure the disk; NULL = they do
                              not */
};

enum { BENCH_USAGE = 2 }; /* exit status for a wrong command line */

/* Prints the results (medians of 5) to stdout; with JSON also an error. Returns the exit status. */
int bench_main(const struct bench_params *p);

/* --- within the bench ------------------------------------------------------------------------------------ */

enum {
    BENCH_RUNS = 5,
    BENCH_TG_TOKENS = 32,      /* tokens that a tg or batch test decodes per sequence */
    BENCH_BATCH_DEPTH = 512,   /* tokens before them in batchN */
    BENCH_RESUME_TOKENS = 8,   /* tokens of the prefill in resume@D */
    BENCH_KV_ROWS = 12,        /* maximum of test results of one depth of --kv */
    BENCH_KV_MIN = 128,        /* minimum of such a depth: enough pages for eight transfers in flight */
    BENCH_CHECK_TOKENS = 37,   /* a prompt of more than two pages that is no multiple of any tile */
    BENCH_COMPARE_TOKENS = 192 /* a prompt for the comparison with the CPU, long enough for a GPU's fast prefill
                                  kernels */
};

/* A model on a device, with KV for some sequences. */
struct bench {
    const struct backend *be;
    struct device *dev;
    struct device_info info;
    struct gguf *gguf;
    struct hparams hp;
    struct model *model;
    struct kv_pool *pool[KV_GROUPS_MAX]; /* [n_group] */
    struct kv_desc kv[KV_GROUPS_MAX];
    uint32_t n_group;
    uint32_t n_seqs;
    uint32_t *pages[BATCH_SEQS_MAX]; /* block tables of the sequences, the same for every KV pool */
    /* For recurrent states: the number of tokens in the sequence's saved state (`kept`) and in the state that steps
     * continue from (`now`); which of the two working pages that is (`turn`); and the page numbers that a step's
     * batch_seq points to. */
    struct {
        uint32_t kept, now, turn, pages[2];
    } state[BATCH_SEQS_MAX];
    uint32_t chunk;       /* maximum of prompt rows in a step, as in the scheduler */
    uint32_t prompt_rows; /* workspace_dims.n_prompt */
    uint32_t max_in_flight;
    enum invariance prompts, decodes; /* invariance of its steps: prompts, and steps with one row per sequence */
    uint32_t n_deep;                  /* sequences that hold BENCH_BATCH_DEPTH tokens */
    uint64_t last, done;              /* tickets of the last submitted step, and of the last one that was waited for */
    int32_t *token;                   /* ids spread over the vocabulary, from which prompts of any length are taken */
    float *logits;                    /* room for one row */
    double ceiling;                   /* bytes per second at which the device reads its memory at most */
    uint64_t gpu_weights;             /* bytes of its memory for weights; 0: no limit */
    struct hearth_err err;
};

struct bench_result {
    char test[32];
    double ms;      /* the time of a prompt, a step or a transfer */
    double n_token; /* tokens in that time; 0: the test has no rate */
    double bytes;   /* bytes that had to be read in that time; 0: unknown */
    bool hashed;
    uint64_t hash; /* hash of the last logits, where `hashed` */
};

struct bench_check {
    char failed[256];       /* why the check failed; "" if it passed */
    bool compared;          /* the logits were compared with the CPU's */
    uint32_t n_token;       /* tokens of the prompt that was compared */
    double decode, prefill; /* largest difference of a logit, with the decode kernels and with the prefill kernels */
    size_t differ;          /* choices of experts that differ from the CPU's, in both comparisons */
    double margin;          /* the largest margin by which the CPU chose otherwise, in router logits */
    const char *why_not;
};

/* The KV cache that the tests need: tokens of the first sequence, number of sequences, tokens of each other one. The
 * checks may need more, which is then reserved. */
struct bench_room {
    uint32_t n_first, n_seqs, n_other;
};

/* run.c. Functions that return int return 0 or an error in b->err. */
/* Opens the device by p's backend, variant, threads, KV type, gpu_weights and rows. HEARTH_EPARAMS: no device has that
 * variant. */
int bench_open_device(struct bench *b, const struct bench_params *p);
int bench_open_model(struct bench *b, const char *path, const struct bench_room *room);
void bench_close_model(struct bench *b);
void bench_close(struct bench *b);
/* Submits one step over parts of sequences; the results arrive with bench_wait(). The last row of each of the first
 * n_out parts has logits; with `sample` slot i samples the next token of part i, with random index `index`. */
struct bench_part {
    uint32_t seq, pos0, n_row;
};
void bench_step(struct bench *b, const struct bench_part *part, uint32_t n_part, uint32_t n_out, const int32_t *token,
                bool sample, uint32_t index);
/* Waits until at most `left` steps are in flight; each of them sampled n_sample tokens. */
int bench_wait(struct bench *b, uint32_t left, uint32_t n_sample);
/* Prefills a prompt of n tokens in chunks, up to the logits of its last token, with as many steps in flight as the
 * device allows. */
int bench_prefill(struct bench *b, uint32_t seq, uint32_t n, uint32_t chunk);
/* Saves the sequence's recurrent states, where the model has some, as its last step left them: any number of steps may
 * then start from there. Otherwise a sequence can only continue where it is, or restart at position 0. */
void bench_state_save(struct bench *b, uint32_t seq);
/* Describes the rows of sequence `seq` in the next step. */
struct batch_seq bench_seq(struct bench *b, uint32_t seq, uint32_t row0, uint32_t n_row, uint32_t pos0);
int bench_read_logits(struct bench *b, uint32_t out, float *to);

/* time.c: one function per test. */
int bench_time_prompt(struct bench *b, uint32_t n, struct bench_result *out);
int bench_time_decode(struct bench *b, uint32_t n_seq, uint32_t depth, struct bench_result *out);
int bench_time_resume(struct bench *b, uint32_t depth, struct bench_result *out);
double bench_median(double ms[BENCH_RUNS]);
/* Makes slots 0..n-1 sample greedily; each slot's history is its sequence's own prompt, as the engine sets it. */
int bench_set_slots(struct bench *b, uint32_t n, uint32_t n_history);
/* Loads the model and computes the first token of a prompt of one token; also reads the vocabulary, as a request needs
 * it. */
int bench_load(struct bench *b, const char *path, const struct bench_room *room);
int bench_time_load(struct bench *b, const char *path, const struct bench_room *room, struct bench_result *out);

/* The full pages of the first sequence's first `depth` tokens, and host memory for them. They are those of the first
 * layer group, which sees the whole context if any group does. */
struct bench_saved {
    struct bench *b;
    uint32_t n;
    size_t page; /* size of a page in bytes */
    uint8_t *slab;
    void **host; /* [n], into the slab */
};
enum bench_move { BENCH_SAVE, BENCH_LOAD, BENCH_STILL, BENCH_MOVES };

/* kv.c */
int bench_saved_init(struct bench_saved *k, struct bench *b, uint32_t depth);
void bench_saved_free(struct bench_saved *k); /* k may be zeroed, or bench_saved_init() may have failed on it */
/* Submits a transfer of pages [first, first + n). */
int bench_move(struct bench_saved *k, enum bench_move dir, uint32_t first, uint32_t n, uint64_t *ticket);
/* Computes the logits of the token after `depth` others. */
int bench_next_logits(struct bench *b, uint32_t depth, float *to);
/* bench_time_kv() and bench_time_disk() append their results to out[*n], BENCH_KV_ROWS together at most. */
int bench_time_kv(struct bench *b, uint32_t depth, struct bench_result *out, size_t *n);
/* disk.c: called after bench_time_kv() with the same depth, whose pages it saves; its file is in `dir`, a private
 * directory. */
int bench_time_disk(struct bench *b, const char *dir, uint32_t depth, struct bench_result *out, size_t *n);

/* routes.c */
/* The experts to which a device routes the rows of a prompt that is computed in one step from position 0; the program's
 * routers are numbered from 0. */
enum { BENCH_ROUTE = 2 * EXPERTS_USED_MAX };
struct bench_routes {
    uint32_t n_router, n_row, width; /* n_router 0: the model is not a mixture of experts */
    float *chosen;                   /* [n_router][n_row][BENCH_ROUTE], ACT_ROUTE */
    float *x;                        /* [n_router][n_row][width], ACT_X, the routers' input */
    size_t differ;                   /* choices that differ from the CPU's */
    double margin;                   /* the largest margin of such a choice on the CPU, in router logits */
    struct hearth_err wrong;         /* a choice whose margin exceeds the error of its router's logits, so that it is
                                        wrong; code 0: none */
};
/* Computes a prompt of n tokens in one step and reads the logits of its last n_out rows into out[n_out * n_vocab]. */
int bench_last_rows(struct bench *b, uint32_t n, uint32_t n_out, float *out);
/* Reads the routing of such a prompt's rows. Call bench_routes_free() in any case. */
int bench_routes_read(struct bench_routes *t, struct bench *b, uint32_t n);
void bench_routes_free(struct bench_routes *t);
/* As bench_last_rows() for the same prompt on a CPU, with the device's choices of experts; also judges those that
 * differ from the CPU's own. */
int bench_follow(struct bench_routes *t, struct bench *cpu, uint32_t n_out, float *out);

/* check.c */
int bench_check(struct bench *b, const char *path, struct bench_check *out);
/* The part of bench_check() that compares logits with the CPU's. Returns 0 also where they are too far apart:
 * out->failed then says so. */
int bench_compare(struct bench *b, const char *path, struct bench_check *out);

#endif

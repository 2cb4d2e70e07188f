/*
 * bench.h - hearth-bench: how fast a model runs here, without daemon, link or scheduler around it.
 *
 * It checks before it measures (check.c): the same prompt cut into other chunks, with another sequence in the batch,
 * and decoded row by row must give the same logits, to the bit; a GPU must pass the self-check, and its logits must be
 * near the CPU's, which goes to the same experts where it is close which. A fast wrong engine must report nothing.
 *
 * The tests are named as in tests/bench/results, and each is a time:
 *
 *   ppN                            prefill of N tokens, to the logits of the last
 *   tg@D                           decoding of a token after D others
 *   batchN@D                       a step that decodes N sequences of D tokens each
 *   resume@D                       prefill of 8 tokens after D in the KV cache, to the first token
 *   kv_pin@D                       allocation of pinned host memory for the pages of D tokens
 *   kv_save@D, kv_restore@D        transfer of those pages to host memory, and back
 *   tg@0_still                     decoding of a token while no KV is transferred
 *   tg@0_saving, tg@0_restoring    the same while transfers are always in flight
 *   kv_save@D_busy, kv_restore@D_busy  the transfers of D tokens' pages beside that decoding
 *   load_cached                    from the request to the first token of a prompt of one, in a process with a device
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
    const char *model;  /* the path of its file */
    const char *prompt; /* "128,512": run pp128 and pp512 */
    const char *depth;  /* "0,4096": run tg@0 and tg@4096 */
    const char *batch;  /* "2,4": run batch2@512 and batch4@512 */
    const char *resume; /* "4096": run resume@4096 */
    const char *kv;     /* "4096": run kv_save@4096, kv_restore@4096, and decoding beside them */
    bool load;          /* run load_cached and load_cold_process */
    bool force;         /* measure a model whose check failed, say so in the report, and fail in the end */
    const char *name;   /* what the report calls the model; NULL = the file's name */
    const char *commit; /* what the report calls the build */
    enum bench_format format;
    const char *backend;   /* "auto": the best one that opens, or a name */
    const char *variant;   /* of the backend; "auto" */
    uint32_t threads;      /* of the CPU; 0 = the machine's */
    const char *invariant; /* "nothing", "prompts", "all": what is measured as with that configuration */
    const char *kv_type;   /* "auto", "f16", "q8_0": what KV is kept in */
    uint32_t gpu_weights;  /* MiB that weights may have of a GPU's memory, the rest stays in the host's; 0: any */
    uint32_t rows;         /* of a prompt in a step; 0: as many as the scheduler gives it at most */
    const char *kv_dir;    /* a folder of our own, in which `kv` is measured on a disk as well; NULL = it is not */
};

enum { BENCH_USAGE = 2 }; /* the exit status where the command line is wrong */

/* Prints the results (medians of 5) to stdout, as JSON an error as well; returns an exit status. */
int bench_main(const struct bench_params *p);

/* --- within the bench ------------------------------------------------------------------------------------ */

enum {
    BENCH_RUNS = 5,
    BENCH_TG_TOKENS = 32,      /* tokens that a tg or batch test decodes */
    BENCH_BATCH_DEPTH = 512,   /* tokens before them in batchN */
    BENCH_RESUME_TOKENS = 8,   /* tokens of the prefill in resume@D */
    BENCH_KV_ROWS = 12,        /* the most tests that one depth of --kv makes */
    BENCH_KV_MIN = 128,        /* the least such depth: enough pages for eight pieces */
    BENCH_CHECK_TOKENS = 37,   /* a prompt of more than two pages, and no multiple of any tile */
    BENCH_COMPARE_TOKENS = 192 /* a prompt for the comparison with the CPU: enough for a GPU's fast prefill */
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
    uint32_t *pages[BATCH_SEQS_MAX]; /* the sequences' block tables, the same in every pool of KV */
    /* Of the sequences' recurrent states: the tokens that one has seen that is kept, and that which steps go on in; and
     * what a step's batch_seq points to. */
    struct {
        uint32_t kept, now, turn, pages[2];
    } state[BATCH_SEQS_MAX];
    uint32_t chunk;       /* the most prompt rows in a step, as in the scheduler */
    uint32_t prompt_rows; /* workspace_dims.n_prompt */
    uint32_t max_in_flight;
    enum invariance prompts, decodes; /* of its steps, and of those of a row a sequence */
    uint32_t n_deep;                  /* sequences that hold BENCH_BATCH_DEPTH tokens */
    uint64_t last, done;              /* tickets of the last step, and of the last one that was waited for */
    int32_t *token;                   /* a prompt of any length: ids spread over the vocabulary */
    float *logits;                    /* room for one row */
    double ceiling;                   /* bytes per second that the device reads at most */
    uint64_t gpu_weights;             /* bytes that weights may have of its memory; 0: any */
    struct hearth_err err;
};

struct bench_result {
    char test[32];
    double ms;      /* the time of a prompt, a step or a transfer */
    double n_token; /* tokens in that time; 0: the test has no rate */
    double bytes;   /* bytes that it had to read; 0: not known */
    bool hashed;
    uint64_t hash; /* of the last logits, where `hashed` */
};

struct bench_check {
    char failed[256];       /* why the check failed; "" where it passed */
    bool compared;          /* the logits were compared with the CPU's */
    uint32_t n_token;       /* tokens of the prompt that was compared */
    double decode, prefill; /* greatest difference of a logit, by the kernels of decoding and of prefill */
    size_t differ;          /* choices of experts that were followed, of both */
    double margin;          /* what decided on the CPU, at most, in logits of a router */
    const char *why_not;
};

/* Room in the KV cache that the tests need: tokens of the first sequence, number of sequences, tokens of each other
 * one. More is taken where the checks need it. */
struct bench_room {
    uint32_t n_first, n_seqs, n_other;
};

/* run.c. All return 0 or an error in b->err. */
/* Takes backend, variant and threads from p. HEARTH_EPARAMS: no device has that variant. */
int bench_open_device(struct bench *b, const struct bench_params *p);
int bench_open_model(struct bench *b, const char *path, const struct bench_room *room);
void bench_close_model(struct bench *b);
void bench_close(struct bench *b);
/* Submits one step over parts of sequences. The last row of each of the first n_out parts has logits; with `sample`
 * slot i samples the next token of part i. */
struct bench_part {
    uint32_t seq, pos0, n_row;
};
void bench_step(struct bench *b, const struct bench_part *part, uint32_t n_part, uint32_t n_out, const int32_t *token,
                bool sample, uint32_t index);
/* Waits until at most `left` steps are in flight; each sampled n_sample tokens. */
int bench_wait(struct bench *b, uint32_t left, uint32_t n_sample);
/* Computes a prompt in chunks, up to the logits of its last token, with as many steps in flight as the device allows.
 */
int bench_prefill(struct bench *b, uint32_t seq, uint32_t n, uint32_t chunk);
/* Keeps the sequence's recurrent states, where the model has some, as its last step left them: a step may begin there
 * any number of times. Otherwise a sequence goes on where it is, or begins anew. */
void bench_state_save(struct bench *b, uint32_t seq);
/* Rows of sequence `seq` in the next step. */
struct batch_seq bench_seq(struct bench *b, uint32_t seq, uint32_t row0, uint32_t n_row, uint32_t pos0);
int bench_read_logits(struct bench *b, uint32_t out, float *to);

/* time.c: a function a test. */
int bench_time_prompt(struct bench *b, uint32_t n, struct bench_result *out);
int bench_time_decode(struct bench *b, uint32_t n_seq, uint32_t depth, struct bench_result *out);
int bench_time_resume(struct bench *b, uint32_t depth, struct bench_result *out);
double bench_median(double ms[BENCH_RUNS]);
/* Slots 0..n-1 pick the best token; their history is the sequence's own, as the engine gives it. */
int bench_set_slots(struct bench *b, uint32_t n, uint32_t n_history);
/* Loads the model and computes the first token of a prompt of one; reads the vocabulary, too, as a request must. */
int bench_load(struct bench *b, const char *path, const struct bench_room *room);
int bench_time_load(struct bench *b, const char *path, const struct bench_room *room, struct bench_result *out);

/* The full pages of the first sequence's first `depth` tokens, and host memory for them: those of the first layer
 * group, which sees the whole context where any does. */
struct bench_saved {
    struct bench *b;
    uint32_t n;
    size_t page; /* bytes of a page */
    uint8_t *slab;
    void **host; /* [n], into the slab */
};
enum bench_move { BENCH_SAVE, BENCH_LOAD, BENCH_STILL, BENCH_MOVES };

/* kv.c */
int bench_saved_init(struct bench_saved *k, struct bench *b, uint32_t depth);
void bench_saved_free(struct bench_saved *k); /* k may be zeroed, or its bench_saved_init() have failed */
/* Submits a transfer of pages [first, first + n). */
int bench_move(struct bench_saved *k, enum bench_move dir, uint32_t first, uint32_t n, uint64_t *ticket);
/* Computes the logits of the token after `depth` others. */
int bench_next_logits(struct bench *b, uint32_t depth, float *to);
/* Both append their tests to out[*n], BENCH_KV_ROWS together at most. */
int bench_time_kv(struct bench *b, uint32_t depth, struct bench_result *out, size_t *n);
/* disk.c: called after bench_time_kv() of the same depth, whose pages it saves; its file is in `dir`, a private folder.
 */
int bench_time_disk(struct bench *b, const char *dir, uint32_t depth, struct bench_result *out, size_t *n);

/* routes.c */
/* Which experts a device's rows go to, a prompt in one step from position 0 on; routers of the program counted from 0.
 */
enum { BENCH_ROUTE = 2 * EXPERTS_USED_MAX };
struct bench_routes {
    uint32_t n_router, n_row, width; /* n_router 0: it is no mixture */
    float *chosen;                   /* [n_router][n_row][BENCH_ROUTE], ACT_ROUTE */
    float *x;                        /* [n_router][n_row][width], ACT_X, which they are chosen by */
    size_t differ;                   /* choices that are others than the CPU's */
    double margin;                   /* the most that decided one of these on the CPU, in logits of the router */
    struct hearth_err wrong;         /* one that differs by more than its router's logits are off; code 0: none */
};
/* Computes a prompt of n tokens in one step and reads the logits of its last n_out rows. */
int bench_last_rows(struct bench *b, uint32_t n, uint32_t n_out, float *out);
/* Reads the ways of such a prompt's rows. bench_routes_free() in any case. */
int bench_routes_read(struct bench_routes *t, struct bench *b, uint32_t n);
void bench_routes_free(struct bench_routes *t);
/* bench_last_rows() of the same prompt on a CPU, whose rows go the same ways; judges those that are not its own. */
int bench_follow(struct bench_routes *t, struct bench *cpu, uint32_t n_out, float *out);

/* check.c */
int bench_check(struct bench *b, const char *path, struct bench_check *out);
/* Of that, the comparison with the CPU's logits. 0 also where they are too far apart: out->failed says so. */
int bench_compare(struct bench *b, const char *path, struct bench_check *out);

#endif

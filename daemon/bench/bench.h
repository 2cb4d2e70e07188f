/*
 * bench.h - hearth-bench: how fast a model runs here, without daemon, link or scheduler around it.
 *
 * It checks before it times (check.c): the same prompt cut into other chunks, with a stranger in the batch, and
 * decoded row by row must give the same logits, to the bit; a GPU must pass the self-check, and its logits must be near
 * the CPU's. A fast wrong engine reports nothing.
 *
 * Tests are named as everywhere in tests/bench/results: ppN a prompt of N tokens to its last logits; tg@D a token after
 * D; batchN@D a step of N sequences after D each; resume@D a follow-up of 8 tokens with D resident, to its first token;
 * kv_save@D, kv_restore@D the pages of D tokens to host memory and back (kv_pin@D: the taking of that memory);
 * tg@0_still, tg@0_saving, tg@0_restoring a token while nothing is moved and while moves are always under way, and
 * kv_save@D_busy, kv_restore@D_busy what D tokens' pages then take; load_cached from the request to the first token of
 * a prompt of one, in a process that has the device; load_cold_process the same from this program's first line.
 */
#ifndef HEARTH_BENCH_BENCH_H
#define HEARTH_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/engine/engine.h"

enum bench_format { BENCH_TABLE, BENCH_JSON, BENCH_CSV };

struct bench_params {
    const char *model;  /* path */
    const char *prompt; /* "128,512": pp128, pp512 */
    const char *depth;  /* "0,4096": tg@0, tg@4096 */
    const char *batch;  /* "2,4": batch2@512, batch4@512 */
    const char *resume; /* "4096": resume@4096 */
    const char *kv;     /* "4096": kv_save@4096, kv_restore@4096, and decode beside them */
    bool load;          /* load_cached, load_cold_process */
    bool force;         /* times a model whose check failed, says so in the report, and fails in the end */
    const char *name;   /* of the model in the report; NULL = the file's */
    const char *commit; /* for the report */
    enum bench_format format;
    const char *backend; /* "auto": the best one that opens, or a name */
    const char *variant; /* of the backend; "auto" */
    uint32_t threads;    /* of the CPU; 0 = the machine's */
    const char *kv_dir;  /* a folder of our own, in which `kv` is measured on a disk as well; NULL = it is not */
};

/* Prints the results (medians of 5) to stdout; returns an exit status. */
int bench_main(const struct bench_params *p);

/* --- within the bench ------------------------------------------------------------------------------------ */

enum {
    BENCH_RUNS = 5,
    BENCH_TG_TOKENS = 32,      /* that a tg or batch test decodes */
    BENCH_BATCH_DEPTH = 512,   /* of batchN */
    BENCH_RESUME_TOKENS = 8,   /* of resume@D's follow-up */
    BENCH_KV_ROWS = 12,        /* tests of one depth of --kv */
    BENCH_KV_MIN = 128,        /* the least such depth: pages to move in eight pieces */
    BENCH_CHECK_TOKENS = 37,   /* over two pages, and no multiple of anything */
    BENCH_COMPARE_TOKENS = 192 /* compared with the CPU: enough for a GPU's fast prefill */
};

/* A model on a device, with KV for some sequences. */
struct bench {
    const struct backend *be;
    struct device *dev;
    struct device_info info;
    struct gguf *gguf;
    struct hparams hp;
    struct model *model;
    struct kv_pool *pool;
    struct kv_desc kv;
    uint32_t n_seqs;                 /* sequences */
    uint32_t *pages[BATCH_SEQS_MAX]; /* their block tables */
    uint32_t chunk;                  /* prompt rows in a step, as the scheduler cuts them */
    uint32_t max_in_flight;
    bool invariant;      /* the same arithmetic for any batch: to check; not to time */
    uint32_t n_deep;     /* sequences that hold BENCH_BATCH_DEPTH tokens */
    uint64_t last, done; /* tickets: of the last step; of the last that was waited for */
    int32_t *token;      /* a prompt of any length: ids spread over the vocabulary */
    float *logits;       /* one row */
    double ceiling;      /* bytes per second */
    struct hearth_err err;
};

struct bench_result {
    char test[32];
    double ms;      /* of a prompt, or of a step */
    double n_token; /* in it; 0: no rate */
    double bytes;   /* that it had to read; 0: not said */
    bool hashed;
    uint64_t hash; /* of the last logits */
};

struct bench_check {
    char failed[256];       /* why the check failed; "" = it did not */
    bool compared;          /* with the CPU */
    uint32_t n_token;       /* of the prompt compared */
    double decode, prefill; /* greatest difference of a logit: in decode's arithmetic, as prompts are computed */
    const char *why_not;
};

/* Room that the tests want: tokens of the first sequence, number of sequences, tokens of each other one. The checks'
 * comes on top where they need more. */
struct bench_room {
    uint32_t n_first, n_seqs, n_other;
};

/* run.c. All return 0 or an error in b->err. */
/* Of p: backend, variant and threads. */
int bench_open_device(struct bench *b, const struct bench_params *p);
int bench_open_model(struct bench *b, const char *path, const struct bench_room *room);
void bench_close_model(struct bench *b);
void bench_close(struct bench *b);
/* One step over parts of sequences, submitted; with logits of the last row of each of the first n_out parts, and where
 * `sample` is set their tokens, part i's of slot i. */
struct bench_part {
    uint32_t seq, pos0, n_row;
};
void bench_step(struct bench *b, const struct bench_part *part, uint32_t n_part, uint32_t n_out, const int32_t *token,
                bool sample, uint32_t index);
/* Waits until no more than `left` steps are under way; each sampled n_sample tokens. */
int bench_wait(struct bench *b, uint32_t left, uint32_t n_sample);
/* A prompt in chunks, up to the last token's logits. Steps go ahead as far as the device lets them. */
int bench_prefill(struct bench *b, uint32_t seq, uint32_t n, uint32_t chunk);
int bench_read_logits(struct bench *b, uint32_t out, float *to);

/* time.c: one test each. */
int bench_time_prompt(struct bench *b, uint32_t n, struct bench_result *out);
int bench_time_decode(struct bench *b, uint32_t n_seq, uint32_t depth, struct bench_result *out);
int bench_time_resume(struct bench *b, uint32_t depth, struct bench_result *out);
double bench_median(double ms[BENCH_RUNS]);
/* Slots 0..n-1 pick the best token; their history is the sequence's own, as the engine gives it. */
int bench_set_slots(struct bench *b, uint32_t n, uint32_t n_history);
/* From the file to the first token of a prompt of one; the vocabulary is read too, a request needs it before that. */
int bench_load(struct bench *b, const char *path, const struct bench_room *room);
int bench_time_load(struct bench *b, const char *path, const struct bench_room *room, struct bench_result *out);

/* The full pages of the first sequence's first `depth` tokens, and their place on the host. */
struct bench_saved {
    struct bench *b;
    uint32_t n;
    size_t page; /* bytes */
    uint8_t *slab;
    void **host; /* [n] */
};
enum bench_move { BENCH_SAVE, BENCH_LOAD, BENCH_STILL, BENCH_MOVES };

/* kv.c */
int bench_saved_init(struct bench_saved *k, struct bench *b, uint32_t depth);
void bench_saved_free(struct bench_saved *k); /* after a bench_saved_init that failed or was never called, too */
/* Submits a move of pages [first, first + n). */
int bench_move(struct bench_saved *k, enum bench_move dir, uint32_t first, uint32_t n, uint64_t *ticket);
/* Logits of the token after `depth` others. */
int bench_next_logits(struct bench *b, uint32_t depth, float *to);
/* BENCH_KV_ROWS tests at most of both, appended to out[*n]. */
int bench_time_kv(struct bench *b, uint32_t depth, struct bench_result *out, size_t *n);
/* disk.c: after bench_time_kv of that depth, whose pages it takes; its file is in `dir`, a folder of our own. */
int bench_time_disk(struct bench *b, const char *dir, uint32_t depth, struct bench_result *out, size_t *n);

/* check.c */
int bench_check(struct bench *b, const char *path, struct bench_check *out);

#endif

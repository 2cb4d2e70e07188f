/*
 * drive.h - drives a hearth-engine of its own over a socket pair, in place of hearthd.
 *
 * Every call checks that the codec accepts what the engine sends. Answers wait until a test takes them, so several
 * requests may be in flight. Single-threaded.
 */
#ifndef TESTS_DRIVE_H
#define TESTS_DRIVE_H

#include <sys/types.h>

#include "libclient/wire.h"

enum { DRIVE_STREAMS = 512, DRIVE_TOKENS = 2048 };

/* What was received of a stream. */
struct heard {
    int64_t stream;
    int32_t appended[DRIVE_TOKENS];
    int32_t token[DRIVE_TOKENS];
    size_t n_appended, n_token, n_frame;
    bool begun, ended;
    size_t n_prompt_events;
    int64_t prompt_done, prompt_total; /* of the last progress event */
    char *text;                        /* the text of all frames, with what was held back to the end */
    size_t n_text;
    char *held; /* the text of the last frame */
    double logprob[DRIVE_TOKENS];
    size_t n_top[DRIVE_TOKENS];
    struct wire_engine_result result; /* finish_reason points into `block` */
    void *block;
    struct hearth_err err; /* code 0, or the error with which the stream was answered */
};

struct drive {
    int fd;
    pid_t pid;
    uint32_t last_id;
    int64_t last_stream;
    struct wire_buf in, out;
    struct heard *heard[DRIVE_STREAMS];
    uint32_t rpc[DRIVE_STREAMS]; /* the request id of each stream */
    size_t n_heard;
    size_t n_progress, n_kv_saved; /* events */
};

/* Starts $top_builddir/hearth-engine with these additional arguments (NULL-terminated). */
void drive_open(struct drive *d, char *const *args);
/* Closes the link and returns the exit status, as waitpid() returns it. */
int drive_close(struct drive *d);

/* Sends a request and waits for its answer: *out is the unpacked result (wire_free), or NULL with the reason in *e. */
int drive_call(struct drive *d, int method, const void *params, void **out, struct hearth_err *e);

/* The same in two parts: the first returns the request's id, the second takes answers in the order in which they
 * arrive. *code is the error's, or 0. */
uint32_t drive_send(struct drive *d, int method, const void *params);
uint32_t drive_answer(struct drive *d, int *code);

/* The path of the embedded model. */
const char *drive_tale(void);

/* A generation with it: fill in *g (with drive_defaults(), or with drive_prompt(), which also sets the text), begin it,
 * and wait for it. */
void drive_defaults(struct wire_engine_generate *g);
void drive_prompt(struct wire_engine_generate *g, const char *text, int64_t max_tokens);
struct heard *drive_begin(struct drive *d, struct wire_engine_generate *g);
void drive_wait(struct drive *d, const struct heard *h);
/* Waits until the stream has this many tokens, or has ended. */
void drive_wait_tokens(struct drive *d, const struct heard *h, size_t n);
struct heard *drive_generate(struct drive *d, struct wire_engine_generate *g);
void drive_same_tokens(const struct heard *a, const struct heard *b);

struct wire_engine_status *drive_status(struct drive *d); /* free it with wire_free() */

#endif

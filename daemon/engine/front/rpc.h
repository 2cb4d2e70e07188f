/*
 * rpc.h - what the files of the loop thread share: rpc.c (methods and events), generate.c (streams and eval), prompt.c.
 * Thread: the loop's.
 */
#ifndef HEARTH_ENGINE_RPC_H
#define HEARTH_ENGINE_RPC_H

#include "daemon/engine/engine.h"
#include "daemon/engine/front/link.h"
#include "daemon/engine/front/text.h"

/* A request that is not answered yet, because the device thread works on it. */
struct request {
    TAILQ_ENTRY(request) link;
    uint32_t rpc_id;
    const struct wire_method *method;
    struct model_entry *model; /* a reference, which request_free() puts */
    uint64_t seq_id;           /* of generate and eval */

    /* The rest is of generate alone. */
    struct wire_engine_generate *msg; /* owned; the stop strings are in it */
    struct ids appended;
    struct text text;
    uint32_t n_completion; /* tokens of the stream so far */
    uint64_t seed;
    bool stopped;          /* a stop string is complete: tokens that are sampled after it do not count */
    struct hearth_err err; /* code 0, or why the stream cannot go on */
};

struct rpc_server {
    struct engine *engine;
    struct frame_conn *conn;
    struct models models;
    TAILQ_HEAD(, request) requests;
    uint64_t last_seq;
    int stuck;     /* consecutive ticks of the watchdog that found the device stuck */
    bool stopping; /* engine.shutdown was called, with the RPC id stop_id */
    uint32_t stop_id;
    struct hearth_err fatal; /* code 0, or the device error that ends the process */
};

int rpc_server_init(struct rpc_server *s, struct engine *engine, int link_fd, struct hearth_err *e);
void rpc_server_fini(struct rpc_server *s); /* after engine_close */
/* Serves until the link closes or shutdown is called, or until the device fails: then it returns the error. */
int rpc_server_run(struct rpc_server *s, struct hearth_err *e);

/* Stands in for all of that where the engine could not be made: answers the first request with the reason. */
void rpc_server_refuse(int link_fd, const struct hearth_err *why);

/* Answer a request; a result that cannot be packed becomes an error. serve_event() sends an event. */
void serve_result(struct rpc_server *s, uint32_t rpc_id, const struct wire_method *m, const void *result);
void serve_error(struct rpc_server *s, uint32_t rpc_id, const struct hearth_err *err);
void serve_event(struct rpc_server *s, const struct wire_method *m, const void *body);

/* Adds a request to the list and takes over the reference to the model; NULL: no memory, and nothing is taken. */
struct request *request_new(struct rpc_server *s, uint32_t rpc_id, const struct wire_method *m,
                            struct model_entry *model);
void request_free(struct rpc_server *s, struct request *r);

/* generate.c. generate_begin() owns `msg` from where it sets *taken. */
int generate_begin(struct rpc_server *s, uint32_t rpc_id, struct wire_engine_generate *msg, bool *taken,
                   struct hearth_err *e);
int eval_begin(struct rpc_server *s, uint32_t rpc_id, const struct wire_eval *msg, struct hearth_err *e);
void generate_cancel(struct rpc_server *s, int64_t stream);
void generate_admitted(struct rpc_server *s, struct request *r);
void generate_progress(struct rpc_server *s, const struct event_prompt *ev);
void generate_token(struct rpc_server *s, struct request *r, const struct step_token *t);
void generate_end(struct rpc_server *s, struct request *r, const struct event_end *ev);

/* prompt.c. Whether the input is text, which takes a vocabulary. prompt_make() makes the ids that a request appends to
 * its history. */
bool prompt_needs_vocab(const struct wire_generate *req);
int prompt_make(const struct wire_engine_generate *g, const struct model_entry *m, struct ids *out,
                struct hearth_err *e);
/* Checks that every id is in the vocabulary; `what` is the field that an error names. */
int prompt_check_ids(const char *what, const int32_t *id, size_t n, uint32_t n_vocab, struct hearth_err *e);

#endif

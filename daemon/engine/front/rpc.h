/*
 * rpc.h - what the files of the loop thread share: rpc.c (methods), events.c (events of the device thread), request.c
 * (requests and what they wait for), generate.c (streams and eval), status.c, text-calls.c (engine.model, tokenize,
 * detokenize, render), prompt.c.
 *
 * A request goes through three states. It waits for its model (the file is opened, its vocabulary read) and then for
 * its own work (its text becomes ids); both are done by the threads of work.h if they take long. Then it begins: it is
 * answered, or given to the device thread, whose events answer it.
 *
 * Thread: the loop's unless stated otherwise.
 */
#ifndef HEARTH_ENGINE_RPC_H
#define HEARTH_ENGINE_RPC_H

#include "daemon/engine/engine.h"
#include "daemon/engine/front/chat.h"
#include "daemon/engine/front/heads.h"
#include "daemon/engine/front/link.h"
#include "daemon/engine/front/text.h"
#include "daemon/engine/front/work.h"

struct rpc_server;
struct request;

/* The steps of a kind of request. */
struct request_steps {
    bool weights, vocab; /* what it needs of its model, beside the open file */
    bool anyway;         /* even with a damaged model file */
    /* Called once the file is open and, if it needs them, the weights can be loaded; or NULL. */
    int (*opened)(struct rpc_server *s, struct request *r, struct hearth_err *e);
    /* The request's own work, and its approximate cost in bytes. The work may be stopped and run again from the start.
     * Any thread: it reads the request's parameters and the model's constant data, and writes only what the request
     * owns. NULL if there is none. */
    size_t (*cost)(const struct request *r);
    int (*work)(struct request *r, struct hearth_err *e);
    /* Answers and frees the request, or hands it on; after an error the caller still owns it. */
    int (*begin)(struct rpc_server *s, struct request *r, struct hearth_err *e);
};

enum request_state { REQUEST_MODEL, REQUEST_WORK, REQUEST_BEGUN };

/* A request that has not been answered yet. */
struct request {
    TAILQ_ENTRY(request) link;
    uint32_t rpc_id;
    const struct wire_method *method;
    const struct request_steps *steps;
    void *params;              /* owned; of the method's type */
    size_t held;               /* size of its frame in bytes */
    int64_t client;            /* the client that sent it */
    struct model_entry *model; /* a reference, released by request_free() */
    enum request_state state;
    bool opened, cancelled;
    struct job job;         /* for REQUEST_WORK */
    struct wire_buf answer; /* packed by its work, for methods that do so */
    double arrived;
    enum seq_class class;
    struct seq *seq;   /* for generate and eval, until the device thread has it */
    uint64_t seq_id;   /* set from then on */
    struct eval *eval; /* for eval, from its end on */

    /* The rest is only for generate. */
    const struct wire_engine_generate *msg; /* its params, which contain the stop strings */
    struct wire_sampling sampling;          /* with defaults for what the request leaves open */
    struct ids appended;
    struct prompt_told told;
    char hash[TOK_HASH]; /* of the texts of the first n_hashed ids, the prompt's; "": the model has no vocabulary */
    uint32_t n_hashed;
    struct text text;
    uint32_t n_completion; /* tokens of the stream so far */
    uint64_t seed;
    bool stopped;          /* a stop string is complete: tokens sampled after it are dropped */
    struct hearth_err err; /* code 0, or why the stream cannot continue */
};

struct rpc_server {
    struct engine *engine;
    struct frame_conn *conn;
    struct work *work;
    struct models models;
    struct heads *heads;
    TAILQ_HEAD(, request) requests;
    uint64_t last_seq;
    int stuck;     /* consecutive ticks of the watchdog that found the device stuck */
    bool stopping; /* engine.shutdown was called, with the RPC id stop_id */
    uint32_t stop_id;
    struct hearth_err fatal; /* code 0, or the device error that ends the process */
};

enum { WATCHDOG_SECONDS = 1 }; /* between two checks of the device, while requests wait for it */

int rpc_server_init(struct rpc_server *s, struct engine *engine, int link_fd, struct hearth_err *e);
/* To be called after engine_close(). False if long work has not stopped in time: the process should then simply
 * exit. */
bool rpc_server_fini(struct rpc_server *s);
/* Serves until the link closes or shutdown is called, or until the device fails: then it returns the error. */
int rpc_server_run(struct rpc_server *s, struct hearth_err *e);

/* Replaces all of the above if the engine could not be created: answers the first request with the reason. */
void rpc_server_refuse(int link_fd, const struct hearth_err *why);

/* Answer a request; a result that cannot be packed becomes an error. serve_event() sends an event. */
void serve_result(struct rpc_server *s, uint32_t rpc_id, const struct wire_method *m, const void *result);
void serve_error(struct rpc_server *s, uint32_t rpc_id, const struct hearth_err *err);
void serve_event(struct rpc_server *s, const struct wire_method *m, const void *body);

/* --- request.c -------------------------------------------------------------------------------------------- */

/* A request frame. */
struct asked {
    uint32_t rpc_id;
    const struct wire_method *method;
    void *params;
    size_t bytes;
};
/* Begins a request on the model at `path`. If *taken is set, the request owns the params and will be answered. */
int request_begin(struct rpc_server *s, const struct asked *a, const char *path, int64_t client,
                  const struct request_steps *steps, bool *taken, struct hearth_err *e);
/* Same for a model entry; if *taken is set, the request has taken over the caller's reference to it. */
int request_begin_on(struct rpc_server *s, const struct asked *a, struct model_entry *m, int64_t client,
                     const struct request_steps *steps, bool *taken, struct hearth_err *e);
void request_free(struct rpc_server *s, struct request *r);
/* Continues a request after it began: `steps` are the remaining ones, further work and what follows it. */
void request_go_on(struct rpc_server *s, struct request *r, const struct request_steps *steps);
/* To be called when nobody waits for the request's answer any more. It is answered all the same: with CANCELLED, or
 * with its result so far. */
void request_cancel(struct rpc_server *s, struct request *r);
/* Sends r->answer; usable as request_steps.begin. */
int request_answer(struct rpc_server *s, struct request *r, struct hearth_err *e);
/* Has the model's vocabulary read in advance for later requests. */
void request_want_vocab(struct rpc_server *s, struct model_entry *m);
/* Handles the jobs that the workers have finished. */
void request_on_work(void *rpc_server);

/* --- generate.c ------------------------------------------------------------------------------------------- */

extern const struct request_steps generate_steps, measure_steps, eval_steps;
int generate_check(const struct rpc_server *s, const struct wire_engine_generate *msg, struct hearth_err *e);
struct request *generate_find(const struct rpc_server *s, int64_t stream);
/* Answers a request that was cancelled before it had a sequence. */
void generate_cancelled(struct rpc_server *s, struct request *r);
/* Sets the request's class: "normal" (or NULL), "interactive", or "background" for anything else. */
void generate_set_class(struct rpc_server *s, struct request *r, const char *class);
void generate_admitted(struct rpc_server *s, struct request *r);
void generate_progress(struct rpc_server *s, const struct event_prompt *ev);
void generate_token(struct rpc_server *s, struct request *r, const struct step_token *t);
void generate_end(struct rpc_server *s, struct request *r, struct event_end *ev);

/* --- status.c, events.c ----------------------------------------------------------------------------------- */

/* Answers engine.status. A handler of rpc.c: returns 0, or ENOMEM in *e; the caller keeps the parameters. */
int status_answer(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e);
/* The device that runs a loaded model: "cuda:0", whichever GPU the engine has, or "cpu". */
const char *status_where(bool gpu);
/* The ops of a loaded model that are not on the fast path; borrowed. */
struct wire_strs status_slow_ops(const struct model_entry *m);
/* The bytes of its weights in all memories. */
int64_t status_weights_held(const struct model_entry *m);

/* Forwards an event of the device thread to its request or to hearthd; the caller keeps the event. */
void events_serve(struct rpc_server *s, struct engine_event *ev);

/* text-calls.c */
extern const struct request_steps model_steps, tokenize_steps, detokenize_steps, render_steps;

/* prompt.c. prompt_needs_vocab(): whether the input is text, which requires a vocabulary. prompt_make() makes the ids
 * that a request appends to its history. Any thread. */
bool prompt_needs_vocab(const struct wire_generate *req);
int prompt_make(const struct wire_engine_generate *g, struct model_entry *m, struct ids *out, struct prompt_told *told,
                struct hearth_err *e);
size_t prompt_bytes(const struct wire_generate *req); /* of text and messages */
/* Checks that every id is in the vocabulary; `what` is the field that an error names. */
int prompt_check_ids(const char *what, const int32_t *id, size_t n, uint32_t n_vocab, struct hearth_err *e);

#endif

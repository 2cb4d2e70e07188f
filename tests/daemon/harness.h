/*
 * harness.h - the harness of the black-box tests: a private hearthd in a fresh folder, with the fake engine, and peers
 * that talk to it. Nothing sleeps: the daemon reports when it listens, and a peer waits for frames (2 min at most, then
 * the test fails). Every call asserts, so a test reads as what should happen.
 */
#ifndef TESTS_DAEMON_HARNESS_H
#define TESTS_DAEMON_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

#include "libclient/wire.h"

struct box {
    char dir[64];    /* 0700 */
    char socket[96]; /* dir/run/hearth.sock */
    char state[80], conf[80], log[128], models[80];
    char db[96];        /* the sessions' database in state */
    const char *engine; /* hearth-engine's path; the fake one by default */
    pid_t pid;          /* 0: not running */
};

/* cmocka fixtures: a running daemon with two models, "fake" and "other". */
int box_setup(void **state);
int box_teardown(void **state);
/* The same without starting it. */
int box_setup_idle(void **state);

/* Lines for the configuration file, before box_start(). */
void box_configure(struct box *b, const char *lines);
void box_start(struct box *b);
/* Its command line, with `extra` (NULL-terminated) appended: the process, not waited for. Its end or its writing to
 * *ready tells more. */
pid_t box_spawn(struct box *b, const char *const extra[], int *ready);
/* Sends the signal (0: none) and waits for the end; its exit status. */
int box_stop(struct box *b, int signal);
/* A full disk, to this hearthd alone: no file may become larger than that; 0: as large as it likes. */
void box_limit_files(const struct box *b, unsigned long bytes);
/* Other users may connect. */
void box_open_to_all(const struct box *b);
int wait_exit(pid_t pid); /* exit status, or 128 + signal */
/* Whether a line of the log has `text`, and how many have. */
bool box_log_has(const struct box *b, const char *text);
int box_log_count(const struct box *b, const char *text);
char *box_model(const struct box *b, const char *name); /* path of models/NAME.gguf, which is made; malloc'd */

struct peer {
    int fd;
    uint32_t last_id;
    uint8_t *in;
    size_t len, cap;
    /* what events of the frames read so far have told */
    int n_begin, n_tokens_events, n_progress, n_prompt, n_notices, n_ends;
    char ended[64];   /* the request of the last stream.end or stream.error */
    char reason[280]; /* its finish_reason, or its error */
    char *end_text;   /* the text of the last stream.end */
    char notice[280]; /* the last notice: "NAME: message" */
    char queued[400]; /* "REQUEST:POSITION ..." of all stream.queued; its `seconds` is the last one's */
    double queue_seconds;
    int64_t stream;   /* of the last stream.begin */
    char session[20]; /* its session, "" where there is none */
    char request[64];
    char *text; /* of all stream.tokens, one after the other */
    size_t n_text;
    int64_t n_tok; /* index of the next one */
    int64_t first; /* index of the first one, for who attaches; 0 again once it has begun */
    bool closed;
};

struct peer *peer_open(const struct box *b);
struct peer *peer_try(const struct box *b); /* NULL: nobody answers */
void peer_close(struct peer *p);

void peer_send(struct peer *p, const void *data, size_t len);
uint32_t peer_ask(struct peer *p, int method, const void *params);

/* The same as a notification, which has no answer; reads until at least n have ended. */
void peer_notify(struct peer *p, int method, const void *params);
void peer_await_ends(struct peer *p, int n);

/* Reads until the answer to `id`: its result (wire_free), or NULL with *e filled. Events on the way are counted. */
void *peer_answer(struct peer *p, uint32_t id, int method, struct hearth_err *e);
/* Both at once; want 0 or an error code. */
void *peer_call(struct peer *p, int method, const void *params);
void peer_refused(struct peer *p, int method, const void *params, int code, const char *names);
/* Reads until at least so many tokens have come in events. */
void peer_await_tokens(struct peer *p, int64_t n);
void peer_await_begin(struct peer *p, int n);
/* Reads the error that answers raw bytes: the code; id is the error's. */
int peer_error(struct peer *p, uint32_t *id, struct hearth_err *e);
/* Lets the fake engine's gated streams make one token more. */
void peer_tick(struct peer *p);
struct wire_status_result *peer_status(struct peer *p);
/* Reads until the daemon closes. */
void peer_await_close(struct peer *p);

/* generate with the defaults, on the model "fake". */
struct wire_generate request(const char *text, const char *session);
/* A whole generation with a text: must work; returns its result. */
struct wire_generate_result *run(struct peer *p, const char *text, const char *session);
/* Sessions s0, s1, ... of one turn each. */
void run_many(struct peer *p, int n);

/* A session with its tokens; and how many there are that can be used. */
struct wire_session_show_result *peer_show(struct peer *p, const char *session);
size_t peer_sessions(struct peer *p);

/* That a normal request works, on a new connection. */
void box_works(const struct box *b);

#endif

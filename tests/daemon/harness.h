/*
 * harness.h - the harness of the black-box tests: a private hearthd in a fresh folder, with the fake engine, and peers
 * that talk to it. Nothing sleeps: the daemon reports when it listens, and a peer waits for frames (for 2 minutes at
 * most, then the test fails). Every call asserts, so that a test reads like a list of what should happen.
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
    char db[96];        /* the database of sessions, in state */
    const char *engine; /* hearth-engine's path; the fake one by default */
    pid_t pid;          /* 0: not running */
};

/* cmocka fixtures: a running daemon with two models, "fake" and "other". */
int box_setup(void **state);
int box_teardown(void **state);
/* The same without starting the daemon. */
int box_setup_idle(void **state);

/* Adds lines to the configuration file; call it before box_start(). */
void box_configure(struct box *b, const char *lines);
void box_start(struct box *b);
/* Starts the daemon's command line with `extra` (NULL-terminated) appended, and returns the process without waiting;
 * its exit, or what it writes to *ready, tells whether it started. */
pid_t box_spawn(struct box *b, const char *const extra[], int *ready);
/* Sends the signal (0: none), waits for the end, and returns the exit status. */
int box_stop(struct box *b, int signal);
/* Simulates a full disk for this hearthd: no file may grow beyond that size; 0: no limit. */
void box_limit_files(const struct box *b, unsigned long bytes);
/* Allows other users to connect. */
void box_open_to_all(const struct box *b);
int wait_exit(pid_t pid); /* exit status, or 128 + signal */
/* Whether a line of the log contains `text`, and how many lines do. */
bool box_log_has(const struct box *b, const char *text);
int box_log_count(const struct box *b, const char *text);
char *box_model(const struct box *b, const char *name); /* makes models/NAME.gguf and returns its path, malloc'd */

struct peer {
    int fd;
    uint32_t last_id;
    uint8_t *in;
    size_t len, cap;
    /* from the events of the frames read so far */
    int n_begin, n_tokens_events, n_progress, n_prompt, n_notices, n_ends;
    char ended[64];   /* the request id of the last stream.end or stream.error */
    char reason[280]; /* its finish_reason, or its error */
    char *end_text;   /* the text of the last stream.end */
    char notice[280]; /* the last notice: "NAME: message" */
    char queued[400]; /* "REQUEST:POSITION ..." of all stream.queued; queue_seconds is that of the last one */
    double queue_seconds;
    int64_t stream;   /* of the last stream.begin */
    char session[20]; /* the stream's session, "" if there is none */
    char request[64];
    char *text; /* the text of all stream.tokens */
    size_t n_text;
    int64_t n_tok; /* index of the next token */
    int64_t first; /* index of the first token, for a peer that attaches; 0 again once it has begun */
};

struct peer *peer_open(const struct box *b);
struct peer *peer_try(const struct box *b); /* NULL: nobody answers */
void peer_close(struct peer *p);

void peer_send(struct peer *p, const void *data, size_t len);
uint32_t peer_ask(struct peer *p, int method, const void *params);

/* Sends it as a notification, which has no answer; and reads until at least n generations have ended. */
void peer_notify(struct peer *p, int method, const void *params);
void peer_await_ends(struct peer *p, int n);

/* Reads until the answer to `id`. Returns its result (wire_free), or NULL with *e filled in. Events before it are
 * counted. */
void *peer_answer(struct peer *p, uint32_t id, int method, struct hearth_err *e);
/* Expects the answer to a `generate`, with that text. */
void peer_expect_text(struct peer *p, uint32_t id, const char *text);
/* peer_call sends a request and returns its result; peer_refused expects a refusal with that code, whose message
 * contains `names`. */
void *peer_call(struct peer *p, int method, const void *params);
void peer_refused(struct peer *p, int method, const void *params, int code, const char *names);
/* Reads until events have brought at least so many tokens. */
void peer_await_tokens(struct peer *p, int64_t n);
void peer_await_begin(struct peer *p, int n);
/* Reads the error that answers raw bytes and returns its code; *id is the id that it answers. */
int peer_error(struct peer *p, uint32_t *id, struct hearth_err *e);
/* Lets each gated stream of the fake engine make one more token. */
void peer_tick(struct peer *p);
struct wire_status_result *peer_status(struct peer *p);
/* Reads until the daemon closes the connection. */
void peer_await_close(struct peer *p);

/* A generate request with the defaults, for the model "fake". */
struct wire_generate request(const char *text, const char *session);
/* Runs a whole generation, which must succeed, and returns its result. */
struct wire_generate_result *run(struct peer *p, const char *text, const char *session);
/* Makes the sessions s0, s1, ... with one turn each. */
void run_many(struct peer *p, int n);

/* Returns a session with its tokens; and the number of sessions that can be used. */
struct wire_session_show_result *peer_show(struct peer *p, const char *session);
size_t peer_sessions(struct peer *p);

/* Checks that a normal request works on a new connection. */
void box_works(const struct box *b);

#endif

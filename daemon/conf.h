/*
 * conf.h - the configuration: one table of keys (conf_keys), read from a file of `key = value` lines and from the
 * command line. A key is one row in conf.c and one entry in hearth.conf.5 (tests/check-docs compares them).
 */
#ifndef DAEMON_CONF_H
#define DAEMON_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/log.h"
#include "libclient/err.h"

struct conf {
    char *file;   /* the file that was read; NULL = none */
    char *socket; /* never NULL after conf_finish, like state_dir */
    char *state_dir;
    char *engine;      /* path of hearth-engine; NULL = searched for */
    char *log_file;    /* NULL = stderr, or state_dir/hearthd.log when detached */
    char **model_dirs; /* searched in this order */
    size_t n_model_dirs;
    char *built_in_models; /* the model_dirs entry with the models shipped with hearth, resolved; or NULL */
    char *model;           /* the model used where a client names none; NULL = tale */
    int64_t log_level;     /* enum log_level */
    int64_t log_bytes;     /* size of the log file at which it is rotated */
    int64_t connections, connections_per_uid;
    int64_t streams, streams_per_uid;
    int64_t queue, queue_per_uid; /* generations that wait because of the stream limits */
    int64_t sessions_per_uid;
    int64_t session_age;                          /* days without use before a session is removed; 0 = never */
    int64_t session_bytes, session_bytes_per_uid; /* of texts and tokens; 0 = no limit */
    int64_t requests_per_connection;              /* unanswered at the same time */
    int64_t unsent_bytes;                         /* per connection, before a peer that does not read is disconnected */
    int64_t memory_per_uid;                       /* bytes of a user's incomplete frames and unread answers */
    int64_t unread_timeout;                       /* seconds within which a peer must read some of an answer */
    int64_t frame_timeout;                        /* seconds within which a frame that has begun must be complete */
    int64_t shutdown_grace;                       /* seconds that running streams have to end by themselves */
    int64_t engine_timeout;                       /* seconds of silence after which the engine is replaced */
    int64_t stream_retries;                       /* engine crashes that a stream survives */
    int64_t attach_grace;                         /* seconds that a stream continues without a subscriber */
    int64_t journal_bytes;                        /* of journals of finished streams, kept for clients that attach */
    int64_t threads;                              /* of the engine; 0 = one per core */
    int64_t idle_unload;                          /* minutes after which an unused model is unloaded; 0 = never */
    int64_t engine_idle;                          /* seconds after which an engine without a model exits; 0 = never */
    int64_t kv_bytes;                             /* of each model's KV pool; 0 = the engine's choice */
    int64_t gpu_headroom;                         /* bytes of a GPU left free when other programs take more; 0 = none */
    int64_t gpu_memory;   /* bytes of a GPU that the engine may use; 0 = no limit; < 0: minus a percentage */
    int64_t host_weights; /* bytes of host memory for weights that do not fit on the GPU; CONF_IS_AUTO = what is free */
    int64_t kv_ram;       /* bytes of KV that the engine keeps in host memory; CONF_IS_AUTO = the engine's choice */
    int64_t kv_disk;      /* bytes of KV files; 0 = none; CONF_IS_AUTO = a share of the filesystem */
    int64_t kv_disk_per_uid; /* the same for each user; CONF_IS_AUTO = as kv_disk */
    int64_t kv_age;          /* days after which an unused KV file is removed; 0 = never */
    char *gamemode;          /* on, off; NULL = on */
    char *gpus;              /* all, or comma-separated numbers; NULL = all */
    char *kv_pool;           /* auto, whole, growing; NULL = auto */
    char *kv_type;           /* auto, f16, q8_0; NULL = auto */
    char *invariant;         /* auto, nothing, prompts, all; NULL = auto */
    char *backend;           /* auto, cpu, cuda; NULL = auto */
    char *class;             /* the highest class that a request gets; NULL = interactive */
};

/* CONF_AUTO is a CONF_SIZE that may also be the word auto. CONF_SHARE is a CONF_SIZE that may also be a share from 1%
 * to 100%, which is stored negated. CONF_GPUS is "all" or a list of numbers. */
enum conf_type {
    CONF_NAME,
    CONF_WORD,
    CONF_GPUS,
    CONF_PATH,
    CONF_PATHS,
    CONF_INT,
    CONF_SIZE,
    CONF_AUTO,
    CONF_SHARE,
    CONF_LEVEL
};

enum { CONF_IS_AUTO = -1 };

struct conf_key {
    const char *key;
    enum conf_type type;
    size_t offset; /* in struct conf */
    int64_t min, max, dflt;
    const char *words; /* CONF_WORD: the accepted words, each followed by a blank */
    bool fixed;        /* read at start only; a reload does not change it */
};
extern const struct conf_key conf_keys[]; /* ends with key NULL */

void conf_init(struct conf *c); /* sets the defaults */
void conf_fini(struct conf *c);

/* Sets one key. The message of HEARTH_EPARAMS names the key, what is wrong and what would be right. */
int conf_set(struct conf *c, const char *key, const char *value, struct hearth_err *e);

/* Reads a regular file or /dev/null. Anything else, which could block the reader, and a missing file are HEARTH_EIO.
 * Errors in a line begin with "FILE:LINE: ". */
int conf_load(struct conf *c, const char *file, struct hearth_err *e);

/* Finds the default file, malloc'd: $XDG_CONFIG_HOME/hearth/hearth.conf, or /etc/hearth/hearth.conf for root. */
int conf_default_file(char **file, struct hearth_err *e);

/* Takes over the values of `fresh` that differ and are not fixed, and lists the changed keys and the fixed keys that
 * differ. The replaced values end up in *fresh, which must be kept as long as anybody may hold one of its strings. */
struct conf_change {
    char keys[1024], fixed[1024]; /* as "a, b"; "" for none */
};
void conf_reload(struct conf *c, struct conf *fresh, struct conf_change *change);

/* Fills in what depends on the environment and was not set: the socket, the state directory, the model folders.
 * `built_in_models`, where it is not NULL, becomes the first of the default model folders. */
int conf_finish(struct conf *c, const char *built_in_models, struct hearth_err *e);

#endif

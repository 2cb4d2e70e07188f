/*
 * cmd.h - the hearth command: one file per verb (cmd-*.c), one row per verb in main.c, and what verbs share.
 *
 * The command is libhearth's first user and includes nothing of ours but hearth.h (and cmd-render.c the chat templates'
 * jinja.h). It is one thread that does one
 * thing and ends, so a verb returns its exit status and the process's end is the cleanup of what it read from argv.
 */
#ifndef CLIENT_CMD_H
#define CLIENT_CMD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "libclient/hearth.h"

/* Exit statuses; hearth.1 documents them. */
enum {
    STATUS_OK = 0,
    STATUS_ERROR = 1,         /* the daemon refused or failed; stderr says why */
    STATUS_USAGE = 2,         /* the command line is wrong */
    STATUS_NO_DAEMON = 3,     /* none answers, and none could or should be started */
    STATUS_INTERRUPTED = 130, /* Ctrl+C: what was generated so far has been printed */
};

struct cmd {
    const char *name;
    const char *args;                                         /* of the usage line */
    const char *summary;                                      /* one line of `hearth --help` */
    int (*run)(const struct cmd *cmd, int argc, char **argv); /* argv[0] is the verb */
};

extern const struct cmd cmd_serve, cmd_run, cmd_chat, cmd_list, cmd_ps, cmd_show, cmd_load, cmd_stop, cmd_sessions,
    cmd_resume, cmd_attach, cmd_rm, cmd_tokenize, cmd_eval, cmd_bench, cmd_status, cmd_streams, cmd_trace, cmd_backup,
    cmd_pin, cmd_yield, cmd_render, cmd_fork, cmd_purge, cmd_top, cmd_metrics, cmd_doctor;

/* --- opts.c: the command line --------------------------------------------------------------------------- */

enum opt_type {
    OPT_FLAG,  /* bool */
    OPT_TEXT,  /* const char * */
    OPT_TEXTS, /* struct hearth_strs; may be given again and again, none empty */
    OPT_CLASS, /* const char *: the name of a service class */
    OPT_INT,   /* int64_t, min..max */
    OPT_REAL,  /* double, min..max */
    OPT_SEED,  /* struct hearth_sampling: its seed */
};
struct opt {
    const char *name;
    int letter; /* 0: none */
    enum opt_type type;
    void *to;
    double min, max;
    const char *arg; /* what the usage calls the value */
    const char *doc;
};
#define OPT_END      \
    {                \
        .name = NULL \
    }

/* Reads the options of two tables (`more` may be NULL) wherever they stand; "--" ends them. *argc and *argv become the
 * operands; returns how many of them stand before a "--". A wrong command line ends the program with STATUS_USAGE,
 * --help with STATUS_OK: nothing is open yet. */
int opts_parse(const struct cmd *cmd, int *argc, char ***argv, const struct opt *opts, const struct opt *more);

/* Sets *o->to from the text after it; false where the text is not of its type or range, which opt_explain() says on
 * stderr, as in "--temp wants ...". */
bool opt_set(const struct opt *o, const char *text);
void opt_explain(const struct opt *o, const char *prefix, const char *text);
/* The same from a command line: what is wrong ends the program with STATUS_USAGE. */
void opt_check(const struct cmd *cmd, const struct opt *o, const char *text);

/* Says what is wrong with the command line, and how it should be, with --json as an object as well; returns
 * STATUS_USAGE. */
int usage(const struct cmd *cmd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A list of token ids, "1 2 3", separated by spaces or commas; malloc'd. False where it is not one. */
bool ids_parse(const char *text, struct hearth_ids *out);

/* --- daemon.c: finding and starting it ------------------------------------------------------------------ */

extern bool no_start; /* --no-start or $HEARTH_NO_START: never start a daemon */

/* Connects, and starts a daemon where none answers. Returns STATUS_OK, or says why not and returns the status. */
int daemon_open(struct hearth **out);

/* The same, but never starts one. */
int daemon_open_running(struct hearth **out);
/* Asks the daemon to end and waits until its process has. */
int daemon_stop(struct hearth *h, bool now);

/* Where our program `name` lies: beside this one in a build folder, or as installed. False: nowhere. */
bool program_find(const char *name, char *path, size_t size);

/* What the daemon should be asked for where a person says MODEL: an absolute path where that names a file, else the
 * name as it is; malloc'd. */
char *model_resolve(const char *model);

/* The same where `model` may be NULL: then the default model, $HEARTH_MODEL or else what the daemon's configuration
 * says. */
char *model_or_default(struct hearth *h, const char *model);

/* Whether a word is the path of a model: a file that ends in .gguf, or begins as such a file does, or a folder of
 * safetensors. */
bool model_is_file(const char *word);

/* --- models.c -------------------------------------------------------------------------------------------- */

/* Whether a word is exactly the name, the file's name or the path of a model that the daemon has, or of a model file
 * that lies here. */
bool model_is_present(struct hearth *h, const char *word);

/* What there is, with what the headers of the files say; those that are not read by then say so. 0, or a code. */
int models_read(struct hearth *h, struct hearth_models_list_result **out, struct hearth_err *err);

/* --- verb.c: the frame that most verbs share ------------------------------------------------------------- */

/* Reads --json and the operands (one `operand`, or none where that is NULL) and connects. Anything but STATUS_OK is the
 * verb's exit status, and has been explained. */
int verb_begin(const struct cmd *cmd, int *argc, char ***argv, const char *operand, bool *json, struct hearth **out);
/* The same for a verb that has `more` options. */
int verb_begin_with(const struct cmd *cmd, int *argc, char ***argv, const struct opt *more, const char *operand,
                    bool *json, struct hearth **out);

/* Every session of the caller, ephemeral ones where that is said, as the pages come. Returns STATUS_OK, or has said why
 * not. */
int sessions_each(struct hearth *h, bool ephemeral, void (*on_session)(void *arg, const struct hearth_session *s),
                  void *arg);

/* One's own streams, the newest first; with `ended` also those that can still be attached to. STATUS_OK, or has said
 * why not. The last: the one that `attach` goes on with where none is named, see cmd-streams.c; NULL: there is none. */
int streams_get(struct hearth *h, bool ended, struct hearth_streams_list_result **out);
const struct hearth_stream_info *streams_last(const struct hearth_streams_list_result *r);

/* Frees the answer (or NULL) and the connection; returns the status. */
int verb_end(struct hearth *h, void *result, int status);

/* --- generate.c: one generation, as `run`, `chat` and `resume` make it -------------------------------------- */

struct gen {
    const char *model, *session, *system; /* as given; NULL: not */
    bool json, stats, chat;
    bool interrupted;       /* by Ctrl+C, this generation */
    bool several;           /* texts of choices come at the end, one after the other */
    const char *template;   /* --template: a file or a name */
    struct hearth_strs set; /* --set: KEY=JSON */
    bool told;              /* the model that answers has been named on this terminal */
    bool kept_told;         /* ... and that the template would change what was said */
    bool unknown_told;      /* ... and that it does not know how to have the model think, or not */
    const char *think;      /* --think: on, off, hide; NULL: as the template has it */
    enum { SHOWN_NOTHING, SHOWN_REASONING, SHOWN_TEXT } shown; /* of an answer */
    struct hearth_generate g;
    struct opt opts[24]; /* the table that all three verbs share, pointing into this struct */
};
void gen_init(struct gen *gen);
void gen_fini(struct gen *gen);

/* template.c. Reads what --template and --set say into gen->g; anything but STATUS_OK has been explained. */
int gen_prepare(const struct cmd *cmd, struct gen *gen);

enum { TEMPLATE_MAX = 256 << 10 }; /* bytes of a chat template that the daemon takes */

/* A whole file, NUL-terminated and up to one byte more than that limit; malloc'd, NULL with errno. Then, whether it may
 * be the name of one of a model's templates instead. */
char *template_read(const char *path, size_t *n);
bool template_is_name(const char *file_or_name);

/* show-reasoning.c. What a model thinks, dim on a terminal or else between tags; nothing with --think hide, nor where
 * stdout is no terminal and --think was not given. reasoning_end(): what comes next is none. */
void reasoning_show(struct gen *gen, struct hearth_bytes thought);
void reasoning_end(struct gen *gen);

/* Submits gen->g and prints its text as it comes, unless gen->json. Ctrl+C cancels, a second one gives up waiting.
 * Where no model is given, an existing session's is taken, else the default one. Returns 0 or a HEARTH_E* code. */
int gen_run(struct hearth *h, struct gen *gen, struct hearth_generate_result **out, struct hearth_err *err);

/* The same for a generation that was begun before. */
int gen_attach(struct hearth *h, struct gen *gen, int64_t stream, const char *request, int64_t from,
               struct hearth_generate_result **out, struct hearth_err *err);

/* The choices of a result, under a line each that says which it is. */
void gen_print_choices(struct gen *gen, const struct hearth_generate_result *r);

/* Ends the line of a result's text where a terminal's prompt or gen_report() would follow it. */
void gen_end_line(const struct gen *gen, const struct hearth_generate_result *r);

/* What to tell of a result besides its text: --stats, a full context, an engine's error, that somebody else cancelled
 * it. Returns the exit status. */
int gen_report(const struct gen *gen, const struct hearth_generate_result *r);

/* A conversation in gen->session, or in a new session, which is told at the end: messages from stdin, answers to
 * stdout, until the end of stdin. */
int chat_begin(struct hearth *h, struct gen *gen);

/* For load and generate: the bar on stderr (a terminal only), and clearing it. */
void progress_show(const struct hearth_model_progress *p);
void progress_clear(void);
/* For calls whose only events are these. */
int progress_event(void *arg, const struct hearth_event *ev);

/* --- sessions-export.c, sessions-import.c, markdown.c: sessions as documents ------------------------------ */

int sessions_export(struct hearth *h, const char *session, bool markdown);

struct import_as { /* NULL: as in the document */
    const char *name, *model;
    bool force, json;
};
int sessions_import(struct hearth *h, const char *file, const struct import_as *as);

void markdown_head(const struct hearth_session *s);
void markdown_turn(const struct hearth_turn *t);

/* --- memory.c: who has the device's memory ------------------------------------------------------------------ */

json_t *json_memory(const struct hearth_memory *m);
/* What hearth has, and what other programs have; each one line of text without a newline. */
void memory_own_line(const struct hearth_memory *m, char *line, size_t size);
void memory_others_line(const struct hearth_memory *m, char *line, size_t size);
/* "cuda:0 71 %, host 29 %" where some of its weights are in the host's memory; its own string, or in `out`. */
const char *memory_where(const struct hearth_loaded_model *m, char *out, size_t size);

/* --- utf8.c ------------------------------------------------------------------------------------------------ */

bool utf8_is(const char *s, size_t n);
char *utf8_mend(const char *s, size_t n, size_t *out_n); /* what is not UTF-8 as U+FFFD; malloc'd, NUL-terminated */

/* --- output.c --------------------------------------------------------------------------------------------- */

/* Writes to stderr; texts of others in it are shown as print_text() does on a terminal. */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void vsay(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0)));

/* "hearth: NAME: message" on stderr and what may be done about it; with --json an object on stdout as well. Returns the
 * exit status of such an error. */
int fail(const struct hearth_err *err);
/* The same with that advice; NULL: none. */
int fail_next(const struct hearth_err *err, const char *next);
extern bool json_errors;          /* --json was given */
extern json_t *errors_of_several; /* not NULL: an array that gets them, for the one object that a verb prints */
extern bool in_session;           /* what is generated is of a session, which counts for advice */
extern const char context_step[]; /* what may be done where a session's context is full */

/* The exit status of a program that ends: `status`, but for output that could not be written. */
int finish(int status);

/* What goes to stderr follows the text of stdout: on a terminal, or in one file or pipe. */
bool stdout_is_stderr(void);

/* stdin to its end; malloc'd, false with *err set where it cannot be read or is larger than a request may be. */
bool read_stdin(struct hearth_bytes *out, struct hearth_err *err);

/* Writes text that somebody else made to stdout: on a terminal its control characters are shown as '?'. */
void print_text(const char *data, size_t len);

/* What is printed between stands out where `to` is a terminal; NO_COLOR and TERM=dumb turn that off. */
enum style { STYLE_HEAD, STYLE_ASIDE, STYLE_ERROR };
void style_begin(FILE *to, enum style style);
void style_end(FILE *to);
bool style_is_on(FILE *to); /* a terminal that shows styles, and nobody has asked for none */
bool style_is_on(FILE *to); /* a terminal that shows styles, and nobody asked for none */

/* A line on stderr that is not the answer: who answers, what was reused, what may be done next. */
void say_aside(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Rows of columns, printed with aligned left edges. Cells are copied. */
struct table {
    char **cell;
    size_t n_col, n_cell;
    bool has_head; /* the first row names the columns */
};
void table_add(struct table *t, size_t n_col, ...); /* n_col strings */
void table_print(struct table *t);                  /* and frees it */

/* "4.6 MB" and "3 min ago", for people; into one of eight static buffers. */
const char *human_bytes(int64_t bytes);
const char *human_ago(double when);
const char *human_in(double when); /* "3 days" from now */
const char *human_since(double when);

/* --- json.c: results as jansson values, and one way to print them ---------------------------------------------- */

/* A decimal of 15 digits comes back as it was; times since the epoch have 10 us in them. All printers have the same:
 * rounded to 15 and then to fewer, what was exported and imported could end in another digit. */
#define JSON_DIGITS JSON_REAL_PRECISION(15)
json_t *json_text(const char *data, size_t len); /* bad UTF-8 (a file's name) as U+FFFD */
json_t *json_str(const char *s);                 /* NULL: null */
json_t *json_ids(struct hearth_ids ids);
json_t *json_strs(struct hearth_strs s);
json_t *json_usage(const struct hearth_usage *u);
json_t *json_timings(const struct hearth_timings *t);
json_t *json_seed(uint64_t seed); /* a string where it is over 63 bits */
json_t *json_result(const struct hearth_generate_result *r);
json_t *json_session(const struct hearth_session *s);
json_t *json_model(const struct hearth_model *m, bool details);
json_t *json_loaded_models(const struct hearth_engine_status *e);
json_t *json_generation_info(const struct hearth_generation_info *info);
/* False: a member has another type. What is parsed borrows o's strings, and owns its logit_bias. */
bool generation_info_parse(const json_t *o, struct hearth_generation_info *out);
int print_json(json_t *value); /* one line to stdout, and frees it; the exit status */

/* cmd-status.c */
/* KV in all: bytes used of the device's pages, their total, and bytes in files. */
struct kv_bytes {
    int64_t used, total, files;
};
struct kv_bytes kv_bytes_of(const struct hearth_status_result *r);

#endif

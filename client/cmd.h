/*
 * cmd.h - the hearth command: one file per verb (cmd-*.c), one row per verb in main.c, and what the verbs share.
 *
 * The command is libhearth's first user: it talks to the daemon through hearth.h alone. Besides that it includes only
 * two small helpers of libclient/ and, in cmd-render.c, the chat templates' jinja.h. It is a single thread that does
 * one thing and exits, so a verb returns its exit status, and what was read from argv is freed by the end of the
 * process.
 */
#ifndef CLIENT_CMD_H
#define CLIENT_CMD_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "libclient/hearth.h"

/* Exit statuses; hearth.1 documents them. */
enum {
    STATUS_OK = 0,
    STATUS_ERROR = 1,         /* the daemon refused or failed; stderr has the reason */
    STATUS_USAGE = 2,         /* the command line is wrong */
    STATUS_NO_DAEMON = 3,     /* no daemon answers, and none could or should be started */
    STATUS_INTERRUPTED = 130, /* Ctrl+C: what was generated so far has been printed */
};

struct cmd {
    const char *name;
    const char *args;                                         /* arguments on the usage line */
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
    OPT_TEXTS, /* struct hearth_strs; may be repeated, none may be empty */
    OPT_CLASS, /* const char *: the name of a service class */
    OPT_INT,   /* int64_t, min..max */
    OPT_REAL,  /* double, min..max */
    OPT_SEED,  /* struct hearth_sampling, whose seed is set */
};
struct opt {
    const char *name;
    int letter; /* 0: none */
    enum opt_type type;
    void *to;
    double min, max;
    const char *arg; /* the value's name in the usage text */
    const char *doc;
};
#define OPT_END      \
    {                \
        .name = NULL \
    }

/* Parses the options of two tables (`more` may be NULL) at any position; "--" ends them. *argc and *argv become the
 * operands; returns how many of them precede a "--". A wrong command line exits with STATUS_USAGE, --help with
 * STATUS_OK: nothing is open yet. */
int opts_parse(const struct cmd *cmd, int *argc, char ***argv, const struct opt *opts, const struct opt *more);

/* Sets *o->to from the option's value; returns false where the text does not have its type or range. opt_explain() then
 * prints the reason on stderr, as in "--temp wants ...". */
bool opt_set(const struct opt *o, const char *text);
void opt_explain(const struct opt *o, const char *prefix, const char *text);
/* The same for a value from the command line: a wrong one exits with STATUS_USAGE. */
void opt_check(const struct cmd *cmd, const struct opt *o, const char *text);

/* Prints what is wrong with the command line and the correct usage, with --json also as an object; returns
 * STATUS_USAGE. */
int usage(const struct cmd *cmd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same where there is no verb whose usage could be shown; `who` begins the message. */
int refuse(const char *who, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Sets json_errors if the command line seems to have --json, for the errors that precede its parsing, and for verbs
 * that have no such option. */
void errors_as_asked(int argc, char *const *argv);

/* Parses a list of token ids, "1 2 3", separated by blanks or commas; out->v is malloc'd. Returns false where it is not
 * such a list. */
bool ids_parse(const char *text, size_t len, struct hearth_ids *out);

/* --- daemon.c: finding and starting it ------------------------------------------------------------------ */

extern bool no_start; /* --no-start or $HEARTH_NO_START: never start a daemon */

/* Connects, starting a daemon where none answers. Returns STATUS_OK, or prints the reason and returns the exit status.
 */
int daemon_open(struct hearth **out);

/* The same, but never starts a daemon. */
int daemon_open_running(struct hearth **out);
/* cmd-stop.c: shuts the daemon down and waits until its process has exited. */
int daemon_stop(struct hearth *h, bool now);

/* Finds hearth's program `name`: in the directory of this one (a build directory), or where it is installed. Returns
 * false where it is in neither. */
bool program_find(const char *name, char *path, size_t size);

/* --- models.c -------------------------------------------------------------------------------------------- */

/* Returns the model to request where the user names `model`: an absolute path where that names a file, else the name as
 * it is; malloc'd. */
char *model_resolve(const char *model);

/* The same where `model` may be NULL, which means the default model: $HEARTH_MODEL, else the default of the daemon's
 * configuration. */
char *model_or_default(struct hearth *h, const char *model);

/* Returns whether a word is the path of a model: a file that ends in .gguf or starts with the GGUF magic, or a
 * directory with a config.json. */
bool model_is_file(const char *word);

/* Returns whether a word is exactly the name, the file name or the path of a model that the daemon lists, or the path
 * of a model file. */
bool model_is_present(struct hearth *h, const char *word);

/* Returns the models with what the headers of their files say, waiting a little for headers that have not been read;
 * those still unread have `read` false. Returns 0, or a code. */
int models_read(struct hearth *h, struct hearth_models_list_result **out, struct hearth_err *err);
bool models_all_read(const struct hearth_models_list_result *r);

/* --- verb.c: the frame that most verbs share ------------------------------------------------------------- */

/* Parses --json and the operands (one, which messages call `operand`, or none where that is NULL) and connects. A
 * result other than STATUS_OK is the verb's exit status, and the reason has been printed. */
int verb_begin(const struct cmd *cmd, int *argc, char ***argv, const char *operand, bool *json, struct hearth **out);
/* The same for a verb with further options, `more`. */
int verb_begin_with(const struct cmd *cmd, int *argc, char ***argv, const struct opt *more, const char *operand,
                    bool *json, struct hearth **out);

/* Calls on_session for every session of the caller, with `ephemeral` also for ephemeral ones, page by page. Returns
 * STATUS_OK, or the exit status after printing the reason. */
int sessions_each(struct hearth *h, bool ephemeral, void (*on_session)(void *arg, const struct hearth_session *s),
                  void *arg);

/* cmd-streams.c. streams_get() returns the caller's own streams, newest first; with `ended` also those that have ended
 * and can still be attached to. Returns STATUS_OK, or the exit status after printing the reason. streams_last() returns
 * the stream that `attach` continues where none is named; NULL: there is none. */
int streams_get(struct hearth *h, bool ended, struct hearth_streams_list_result **out);
const struct hearth_stream_info *streams_last(const struct hearth_streams_list_result *r);

/* Frees the result (or NULL) and the connection; returns the status. */
int verb_end(struct hearth *h, void *result, int status);

/* --- generate.c: one generation, as `run`, `chat` and `resume` make it -------------------------------------- */

struct gen {
    const char *model, *session, *system; /* as given on the command line; NULL: not given */
    bool json, stats, chat;
    bool interrupted;       /* this generation was interrupted by Ctrl+C */
    bool several;           /* several choices: their texts are printed at the end, one after the other */
    const char *template;   /* --template: a file or a name */
    struct hearth_strs set; /* --set: KEY=JSON */
    bool told;              /* the name of the answering model has been printed */
    bool kept_told;         /* the HISTORY_KEPT notice has been printed */
    bool unknown_told;      /* the THINK_UNKNOWN notice has been printed */
    const char *think;      /* --think: on, off, hide; NULL: the template's default */
    enum { SHOWN_NOTHING, SHOWN_REASONING, SHOWN_TEXT } shown; /* what was printed last of an answer */
    struct hearth_generate g;
    struct opt opts[24]; /* the option table that run, chat and resume share; it points into this struct */
};
void gen_init(struct gen *gen);
void gen_fini(struct gen *gen);

/* template.c. Applies --template, --set and --think to gen->g. Where the result is not STATUS_OK, the reason has been
 * printed. */
int gen_prepare(const struct cmd *cmd, struct gen *gen);

enum { TEMPLATE_MAX = 256 << 10 }; /* bytes of a chat template that the daemon accepts */

/* template_read() returns a file's content, NUL-terminated and truncated to one byte more than that limit; malloc'd,
 * NULL with errno. template_is_name() then returns, by that errno, whether the argument may be the name of one of a
 * model's templates instead. */
char *template_read(const char *path, size_t *n);
bool template_is_name(const char *file_or_name);

/* show-reasoning.c. Prints a model's reasoning, dimmed on a terminal with styles, else between tags; prints nothing
 * with --think hide, or where stdout is not a terminal and --think was not given. reasoning_end(): the text that
 * follows is not reasoning. */
void reasoning_show(struct gen *gen, struct hearth_bytes thought);
void reasoning_end(struct gen *gen);

/* Submits gen->g and prints its text as it arrives, unless gen->json. Ctrl+C cancels; a second one exits without
 * waiting for the end. Where no model is given, an existing session's model is used, else the default one. Returns 0 or
 * a HEARTH_E* code. */
int gen_run(struct hearth *h, struct gen *gen, struct hearth_generate_result **out, struct hearth_err *err);

/* The same for a generation that was started earlier. */
int gen_attach(struct hearth *h, struct gen *gen, int64_t stream, const char *request, int64_t from,
               struct hearth_generate_result **out, struct hearth_err *err);

/* Reports the error of one of these two calls and returns the exit status: STATUS_INTERRUPTED, quietly, where Ctrl+C
 * cancelled a request that was still waiting. */
int gen_fail(const struct gen *gen, const struct hearth_err *err);

/* Installs a handler as sigaction() does, unless the signal is ignored: whoever started the command so, such as sh a
 * background job, does not want it to be interrupted. */
void signal_catch(int sig, const struct sigaction *with, struct sigaction *before);

/* Prints the choices of a result, each below a line that identifies it. */
void gen_print_choices(struct gen *gen, const struct hearth_generate_result *r);

/* Ends the last line of a result's text where a terminal's prompt or the output of gen_report() would follow it. */
void gen_end_line(const struct gen *gen, const struct hearth_generate_result *r);

/* Prints what is to be reported besides a result's text: --stats, a full context, an engine's error, a cancellation
 * from elsewhere. Returns the exit status. */
int gen_report(const struct gen *gen, const struct hearth_generate_result *r);

/* Runs a conversation in gen->session, or in a new session whose name is printed at the end: messages from stdin,
 * answers to stdout, until the end of stdin. */
int chat_begin(struct hearth *h, struct gen *gen);

/* Clears the progress bar of a load or a prompt, if one is on the terminal. */
void progress_clear(void);
/* For calls whose only events are load progress. */
int progress_event(void *arg, const struct hearth_event *ev);

/* --- sessions-export.c, sessions-import.c, markdown.c: sessions as documents ------------------------------ */

int sessions_export(struct hearth *h, const char *session, bool markdown);

struct import_as { /* NULL members: as in the document */
    const char *name, *model;
    bool force, json;
};
int sessions_import(struct hearth *h, const char *file, const struct import_as *as);

void markdown_head(const struct hearth_session *s);
void markdown_turn(const struct hearth_turn *t);

/* --- memory.c: who has the device's memory ------------------------------------------------------------------ */

json_t *json_memory(const struct hearth_memory *m);
/* Write what hearth holds and what other programs hold, each as one line of text without a newline. */
void memory_own_line(const struct hearth_memory *m, char *line, size_t size);
void memory_others_line(const struct hearth_memory *m, char *line, size_t size);
/* Returns "cuda:0 71 %, host 29 %" where some of the model's weights are in host memory, else where it runs: a string
 * of the model's or a constant, or one that was written to `out`. */
const char *memory_where(const struct hearth_loaded_model *m, char *out, size_t size);

/* --- utf8.c ------------------------------------------------------------------------------------------------ */

bool utf8_is(const char *s, size_t n);
char *utf8_mend(const char *s, size_t n, size_t *out_n); /* invalid bytes become U+FFFD; malloc'd, NUL-terminated */

/* Text as a terminal shows it: a wide character takes two columns, a combining one none. text_fitting() returns how
 * many bytes of s fit into `columns`. */
size_t text_columns(const char *s, size_t n);
size_t text_fitting(const char *s, size_t columns);
/* Replaces newlines and tabs, which a file's name may have, and which would break a row of columns. */
void text_straighten(char *s);

/* --- output.c --------------------------------------------------------------------------------------------- */

/* Write to stderr; on a terminal, control characters are replaced as in print_text(). */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Prints "hearth: NAME: message" on stderr and what the user can do about it; with --json also an object on stdout.
 * Returns the exit status for the error. */
int fail(const struct hearth_err *err);
/* The same with the given advice; NULL: none. */
int fail_next(const struct hearth_err *err, const char *next);
extern bool json_errors;          /* --json was given, so errors are also printed as objects */
extern json_t *errors_of_several; /* not NULL: an array that collects errors instead, for the one object that a verb
                                     prints */
extern bool in_session;           /* the generation is in a session, which decides what advice is given */
extern const char context_step[]; /* advice for a session whose context is full */

/* Flushes stdout and returns the exit status of the program: `status`, or STATUS_ERROR where output could not be
 * written. */
int finish(int status);

/* Returns whether stderr's output follows stdout's text: both are the same terminal, file or pipe. */
bool stdout_is_stderr(void);

/* Reads stdin to its end; malloc'd. Returns false with *err set where it cannot be read or is larger than any request.
 */
bool read_stdin(struct hearth_bytes *out, struct hearth_err *err);

/* Writes untrusted text to stdout; on a terminal, its control characters are shown as '?'. */
void print_text(const char *data, size_t len);
/* printf() of strings that others wrote, such as files' names, roles and messages: shown as by print_text(). */
void printf_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Text that is printed between style_begin() and style_end() is highlighted where `to` is a terminal, unless NO_COLOR
 * is set or TERM is dumb. */
enum style { STYLE_HEAD, STYLE_ASIDE, STYLE_ERROR };
void style_begin(FILE *to, enum style style);
void style_end(FILE *to);
bool style_is_on(FILE *to);    /* a terminal that shows styles, which were not turned off */
bool term_has_sequences(void); /* by TERM: Emacs's shell, for instance, shows them as text */

/* Prints a dimmed line on stderr that is not part of the answer: which model answers, what was reused, what can be done
 * next. */
void say_aside(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Returns text as one operand of a command that a shell reads: quoted if need be, and after "--" if it begins with a
 * dash; malloc'd. */
char *shell_operand(const char *text);

/* A table, printed with left-aligned columns. Cells are copied. */
struct table {
    char **cell;
    size_t n_col, n_cell;
    bool has_head; /* the first row names the columns */
};
void table_add(struct table *t, size_t n_col, ...); /* n_col strings */
void table_print(struct table *t);                  /* and frees it */

/* Format a size or a time for people ("4.6 MB", "3 min ago") in one of eight static buffers, used in turn. */
const char *human_bytes(int64_t bytes);
const char *human_ago(double when);
const char *human_in(double when); /* "3 days" from now */
const char *human_since(double when);

/* --- json.c, json-generation.c: results as jansson values, and one way to print them ---------------------------- */

/* 15 digits: a decimal of 15 digits survives the conversion to a double and back, and times since the epoch keep 10 us.
 * All printers of JSON use the same precision: if a value were rounded to 15 digits and later to fewer, an exported and
 * imported number could end in another digit. */
#define JSON_DIGITS JSON_REAL_PRECISION(15)
json_t *json_text(const char *data, size_t len); /* invalid UTF-8 (in a file's name) becomes U+FFFD */
json_t *json_str(const char *s);                 /* NULL: null */
json_t *json_ids(struct hearth_ids ids);
json_t *json_strs(struct hearth_strs s);
json_t *json_usage(const struct hearth_usage *u);
json_t *json_timings(const struct hearth_timings *t);
json_t *json_seed(uint64_t seed); /* a string where it exceeds 63 bits */
json_t *json_result(const struct hearth_generate_result *r);
json_t *json_session(const struct hearth_session *s);
json_t *json_model(const struct hearth_model *m, bool details);
json_t *json_loaded_models(const struct hearth_engine_status *e);
json_t *json_generation_info(const struct hearth_generation_info *info);
/* Returns false where a member has the wrong type. The result borrows o's strings, and owns its logit_bias. */
bool generation_info_parse(const json_t *o, struct hearth_generation_info *out);
int print_json(json_t *value); /* prints one line to stdout and frees the value; returns the exit status */

/* cmd-status.c */
/* KV totals in bytes: used and total in the device's pages, and in files. */
struct kv_bytes {
    int64_t used, total, files;
};
struct kv_bytes kv_bytes_of(const struct hearth_status_result *r);

#endif

/* conf.c - the configuration: a table of keys, a line parser, defaults from the environment. Runs before the loop and
 * when the configuration is reloaded. */
#include "config.h"

#include "daemon/conf.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "libclient/distance.h"
#include "libclient/utf8.h"

#define FIELD(name) offsetof(struct conf, name)

const struct conf_key conf_keys[] = {
    /* key, type, field, min, max, default, words; fixed: read at start only */
    {"socket", CONF_PATH, FIELD(socket), .fixed = true},
    {"state_dir", CONF_PATH, FIELD(state_dir), .fixed = true},
    {"model_dir", CONF_PATHS, FIELD(model_dirs), 0, 0, 0},
    {"model", CONF_NAME, FIELD(model), 0, 0, 0},
    {"engine", CONF_PATH, FIELD(engine), .fixed = true},
    {"backend", CONF_WORD, FIELD(backend), 0, 0, 0, "auto cpu cuda ", .fixed = true},
    {"gamemode", CONF_WORD, FIELD(gamemode), 0, 0, 0, "on off ", .fixed = true},
    {"gpu_headroom", CONF_SIZE, FIELD(gpu_headroom), 0, INT64_MAX, 1 << 30, .fixed = true},
    {"gpu_memory", CONF_SHARE, FIELD(gpu_memory), 0, INT64_MAX, 0, .fixed = true},
    {"gpus", CONF_GPUS, FIELD(gpus), .fixed = true},
    {"host_weights", CONF_AUTO, FIELD(host_weights), 0, INT64_MAX, CONF_IS_AUTO, .fixed = true},
    {"kv_bytes", CONF_SIZE, FIELD(kv_bytes), 0, INT64_MAX, 0, .fixed = true},
    {"kv_ram", CONF_AUTO, FIELD(kv_ram), 0, INT64_MAX, CONF_IS_AUTO, .fixed = true},
    {"kv_pool", CONF_WORD, FIELD(kv_pool), 0, 0, 0, "auto whole growing ", .fixed = true},
    {"kv_type", CONF_WORD, FIELD(kv_type), 0, 0, 0, "auto f16 q8_0 ", .fixed = true},
    {"invariant", CONF_WORD, FIELD(invariant), 0, 0, 0, "auto nothing prompts all ", .fixed = true},
    {"kv_disk", CONF_AUTO, FIELD(kv_disk), 0, INT64_MAX, CONF_IS_AUTO, .fixed = true},
    {"kv_disk_per_uid", CONF_AUTO, FIELD(kv_disk_per_uid), 0, INT64_MAX, CONF_IS_AUTO},
    {"kv_age", CONF_INT, FIELD(kv_age), 0, 36500, 30},
    {"idle_unload", CONF_INT, FIELD(idle_unload), 0, 525600, 30, .fixed = true},
    {"engine_idle", CONF_INT, FIELD(engine_idle), 0, 31536000, 300, .fixed = true},
    {"class", CONF_WORD, FIELD(class), 0, 0, 0, "interactive normal background "},
    {"threads", CONF_INT, FIELD(threads), 0, 256, 0, .fixed = true},
    {"log_bytes", CONF_SIZE, FIELD(log_bytes), 64 << 10, INT64_MAX, 16 << 20, .fixed = true},
    {"log_level", CONF_LEVEL, FIELD(log_level), 0, 0, LOG_LEVEL_INFO},
    {"log_file", CONF_PATH, FIELD(log_file), .fixed = true},
    {"connections", CONF_INT, FIELD(connections), 1, 65536, 256},
    {"connections_per_uid", CONF_INT, FIELD(connections_per_uid), 1, 65536, 64},
    {"streams", CONF_INT, FIELD(streams), 1, 4096, 256},
    {"streams_per_uid", CONF_INT, FIELD(streams_per_uid), 1, 4096, 64},
    {"sessions_per_uid", CONF_INT, FIELD(sessions_per_uid), 1, 1000000, 10000},
    {"session_age", CONF_INT, FIELD(session_age), 0, 36500, 0},
    {"session_bytes", CONF_SIZE, FIELD(session_bytes), 0, INT64_MAX, 0},
    {"session_bytes_per_uid", CONF_SIZE, FIELD(session_bytes_per_uid), 0, INT64_MAX, 0},
    {"queue", CONF_INT, FIELD(queue), 0, 4096, 256},
    {"queue_per_uid", CONF_INT, FIELD(queue_per_uid), 0, 4096, 128},
    {"requests_per_connection", CONF_INT, FIELD(requests_per_connection), 1, 65536, 128},
    {"unsent_bytes", CONF_SIZE, FIELD(unsent_bytes), 2 << 20, 1 << 30, 8 << 20},
    {"memory_per_uid", CONF_SIZE, FIELD(memory_per_uid), 16 << 20, INT64_MAX, 128 << 20},
    {"unread_timeout", CONF_INT, FIELD(unread_timeout), 1, 86400, 600},
    {"frame_timeout", CONF_INT, FIELD(frame_timeout), 1, 3600, 30},
    {"shutdown_grace", CONF_INT, FIELD(shutdown_grace), 0, 3600, 5},
    {"attach_grace", CONF_INT, FIELD(attach_grace), 0, 86400, 30},
    {"journal_bytes", CONF_SIZE, FIELD(journal_bytes), 1 << 20, 1 << 30, 256 << 20},
    {"engine_timeout", CONF_INT, FIELD(engine_timeout), 1, 3600, 30, .fixed = true},
    {"stream_retries", CONF_INT, FIELD(stream_retries), 0, 16, 2},
    {0},
};

static void *field(struct conf *c, const struct conf_key *k)
{
    return (char *)c + k->offset;
}

static bool is_text(const struct conf_key *k)
{
    return k->type == CONF_NAME || k->type == CONF_WORD || k->type == CONF_GPUS || k->type == CONF_PATH;
}

void conf_init(struct conf *c)
{
    memset(c, 0, sizeof *c);
    for (const struct conf_key *k = conf_keys; k->key != NULL; k++)
        if (k->type == CONF_INT || k->type == CONF_SIZE || k->type == CONF_AUTO || k->type == CONF_SHARE ||
            k->type == CONF_LEVEL)
            *(int64_t *)field(c, k) = k->dflt;
}

void conf_fini(struct conf *c)
{
    for (const struct conf_key *k = conf_keys; k->key != NULL; k++)
        if (is_text(k))
            free(*(char **)field(c, k));
    free(c->built_in_models);
    free(c->file);
    for (size_t i = 0; i < c->n_model_dirs; i++)
        free(c->model_dirs[i]);
    free(c->model_dirs);
    memset(c, 0, sizeof *c);
}

static int join(char **out, struct hearth_err *e, const char *a, const char *b)
{
    if (asprintf(out, "%s%s", a, b) < 0)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    return 0;
}

/* Parses an absolute path; "~/" is the home directory. */
static int parse_path(const char *key, const char *value, char **out, struct hearth_err *e)
{
    if (value[0] == '~' && value[1] == '/') {
        const char *home = getenv("HOME");
        if (!home || home[0] != '/')
            return err_set(e, HEARTH_EPARAMS, "%s: \"%.100s\" needs HOME, which is not set", key, value);
        return join(out, e, home, value + 1);
    }
    if (value[0] != '/')
        return err_set(e, HEARTH_EPARAMS, "%s: \"%.100s\" is not an absolute path", key, value);
    return join(out, e, value, "");
}

/* Parses "80%" to -80; false where the value is not a share. */
static bool parse_share(const char *value, int64_t *out)
{
    char *end;
    long v = strtol(value, &end, 10);
    if (end == value || strcmp(end, "%") != 0 || v < 1 || v > 100)
        return false;
    *out = -v;
    return true;
}

/* Parses a unit, K, M, G or T, optionally followed by B or iB, and advances *end past it. Returns its bytes; 1 for
 * none. */
static int64_t parse_unit(char **end)
{
    int64_t unit = 1;
    for (const char *u = "KMGT"; *u != '\0'; u++) {
        unit <<= 10;
        if (toupper((unsigned char)**end) == *u) {
            *end += strcasecmp(*end + 1, "iB") == 0 ? 3 : strcasecmp(*end + 1, "B") == 0 ? 2 : 1;
            return unit;
        }
    }
    return 1;
}

static int parse_number(const struct conf_key *k, const char *value, int64_t *out, struct hearth_err *e)
{
    char *end;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    int64_t unit = k->type != CONF_INT && end != value ? parse_unit(&end) : 1;
    if (end == value || *end != '\0')
        return err_set(e, HEARTH_EPARAMS, "%s: \"%.100s\" is not a %s%s", k->key, value,
                       k->type == CONF_INT ? "whole number" : "size (a number of bytes, or with K, M, G or T)",
                       k->type == CONF_AUTO    ? ", or auto"
                       : k->type == CONF_SHARE ? ", or a share from 1% to 100%"
                                               : "");
    if (errno != 0 || v > INT64_MAX / unit || v < 0 || v * unit < k->min || v * unit > k->max)
        return err_set(e, HEARTH_EPARAMS, "%s: %.40s is not between %lld and %lld", k->key, value, (long long)k->min,
                       (long long)k->max);
    *out = v * unit;
    return 0;
}

static int parse_word(const struct conf_key *k, const char *value, char **out, struct hearth_err *e)
{
    size_t n = strcspn(value, " ");
    for (const char *w = k->words; value[n] == '\0' && *w != '\0'; w += strcspn(w, " ") + 1)
        if (strcspn(w, " ") == n && strncmp(w, value, n) == 0)
            return join(out, e, value, "");
    return err_set(e, HEARTH_EPARAMS, "%s: \"%.40s\" is none of %.*s", k->key, value, (int)strlen(k->words) - 1,
                   k->words); /* without the trailing blank */
}

/* Parses "all", or a list of device numbers without repetition. */
static int parse_gpus(const char *key, const char *value, char **out, struct hearth_err *e)
{
    enum { GPUS = 16 };
    unsigned seen = 0;
    bool fine = strcmp(value, "all") != 0;
    for (const char *s = value; fine && *s; s += *s == ',') {
        char *end;
        unsigned long n = strtoul(s, &end, 10);
        fine = isdigit((unsigned char)*s) && n < GPUS && !(seen & 1u << n) && (!*end || (*end == ',' && end[1]));
        seen |= fine ? 1u << n : 0;
        s = end;
    }
    if (!fine && strcmp(value, "all") != 0)
        return err_set(e, HEARTH_EPARAMS, "%s: \"%.40s\" is neither all nor numbers from 0 to %d, each once, as 0,1",
                       key, value, GPUS - 1);
    return join(out, e, value, "");
}

/* Parses a model's name or absolute path. Clients see it, so it must be valid UTF-8. */
static int parse_name(const char *key, const char *value, char **out, struct hearth_err *e)
{
    if (utf8_prefix(value, strlen(value)) != strlen(value) || strlen(value) >= PATH_MAX)
        return err_set(e, HEARTH_EPARAMS, "%s: a name is UTF-8 of less than %d bytes", key, PATH_MAX);
    return join(out, e, value, "");
}

/* Takes ownership of `dir`. A default folder whose path is not UTF-8 is skipped: no client could name what is in it. */
static int add_model_dir(struct conf *c, char *dir, struct hearth_err *e)
{
    if (utf8_prefix(dir, strlen(dir)) != strlen(dir)) {
        free(dir);
        return 0;
    }
    char **v = reallocarray(c->model_dirs, c->n_model_dirs + 1, sizeof *v);
    if (!v) {
        free(dir);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    c->model_dirs = v;
    v[c->n_model_dirs++] = dir;
    return 0;
}

/* The key closest to the word by edit distance; NULL where none is similar. */
static const char *nearest_key(const char *word)
{
    const char *near = NULL;
    size_t best = strlen(word) / 3 + 2;
    for (const struct conf_key *k = conf_keys; k->key != NULL; k++) {
        size_t d = text_distance(word, strlen(word), k->key, strlen(k->key));
        if (d < best) {
            best = d;
            near = k->key;
        }
    }
    return near;
}

int conf_set(struct conf *c, const char *key, const char *value, struct hearth_err *e)
{
    const struct conf_key *k = conf_keys;
    while (k->key && strcmp(k->key, key) != 0)
        k++;
    if (!k->key) {
        const char *near = nearest_key(key);
        return err_set(e, HEARTH_EPARAMS, "\"%.60s\" is not a configuration key%s%s%s", key, near ? "; is " : "",
                       near ? near : "", near ? " meant?" : "");
    }
    if (*value == '\0')
        return err_set(e, HEARTH_EPARAMS, "%s: a value is missing", key);

    char *s = NULL;
    int rc;
    switch (k->type) {
    case CONF_NAME:
    case CONF_WORD:
    case CONF_GPUS:
    case CONF_PATH:
        rc = k->type == CONF_PATH   ? parse_path(key, value, &s, e)
             : k->type == CONF_WORD ? parse_word(k, value, &s, e)
             : k->type == CONF_GPUS ? parse_gpus(key, value, &s, e)
                                    : parse_name(key, value, &s, e);
        if (rc)
            return rc;
        free(*(char **)field(c, k));
        *(char **)field(c, k) = s;
        return 0;
    case CONF_PATHS:
        rc = parse_path(key, value, &s, e);
        if (!rc && utf8_prefix(s, strlen(s)) != strlen(s)) { /* `models.list` could not report it */
            free(s);
            return err_set(e, HEARTH_EPARAMS, "%s: the path is not valid UTF-8", key);
        }
        return rc != 0 ? rc : add_model_dir(c, s, e);
    case CONF_LEVEL:
        rc = log_level_find(value);
        if (rc < 0)
            return err_set(e, HEARTH_EPARAMS, "%s: \"%.40s\" is none of error, warn, info, debug", key, value);
        *(int64_t *)field(c, k) = rc;
        return 0;
    case CONF_AUTO:
        if (strcmp(value, "auto") == 0) {
            *(int64_t *)field(c, k) = CONF_IS_AUTO;
            return 0;
        }
        return parse_number(k, value, field(c, k), e);
    case CONF_SHARE:
        return parse_share(value, field(c, k)) ? 0 : parse_number(k, value, field(c, k), e);
    case CONF_INT:
    case CONF_SIZE:
        return parse_number(k, value, field(c, k), e);
    }
    return 0;
}

/* Trims white space at both ends, in place. */
static char *trim(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    char *end = s + strlen(s);
    while (end > s && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    return s;
}

static int load_line(struct conf *c, char *line, size_t len, struct hearth_err *e)
{
    if (strlen(line) != len)
        return err_set(e, HEARTH_EPARAMS, "a NUL byte");
    char *s = trim(line);
    for (char *hash = s; (hash = strchr(hash, '#')) != NULL; hash++)
        if (hash == s || isspace((unsigned char)hash[-1])) {
            *hash = '\0';
            break;
        }
    if (*s == '\0')
        return 0;
    char *eq = strchr(s, '=');
    if (!eq)
        return err_set(e, HEARTH_EPARAMS, "want \"key = value\", got \"%.60s\"", s);
    *eq = '\0';
    return conf_set(c, trim(s), trim(eq + 1), e);
}

/* Opens a regular file, or /dev/null, which counts as empty; NULL on error. O_NONBLOCK: opening a FIFO would otherwise
 * block the daemon until a writer comes, on SIGHUP with all its clients. */
static FILE *open_regular(const char *file, struct hearth_err *e)
{
    struct stat sb, null;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    bool odd = fd >= 0 && fstat(fd, &sb) == 0 && !S_ISREG(sb.st_mode);
    if (odd && S_ISCHR(sb.st_mode) && stat("/dev/null", &null) == 0 && sb.st_rdev == null.st_rdev)
        odd = false;
    FILE *f = fd >= 0 && !odd ? fdopen(fd, "r") : NULL;
    if (odd)
        err_set(e, HEARTH_EIO, "%s is not a regular file", file);
    else if (!f)
        err_set(e, HEARTH_EIO, "%s: %s", file, strerror(errno));
    if (!f && fd >= 0)
        close(fd);
    return f;
}

int conf_load(struct conf *c, const char *file, struct hearth_err *e)
{
    FILE *f = open_regular(file, e);
    if (!f)
        return HEARTH_EIO;
    char *line = NULL;
    size_t cap = 0;
    int rc = 0;
    ssize_t len;
    for (int n = 1; !rc && (len = getline(&line, &cap, f)) >= 0; n++) {
        struct hearth_err why;
        /* Some editors begin a file with U+FEFF, which nobody would see in the error message. */
        size_t mark = n == 1 && strncmp(line, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
        rc = load_line(c, line + mark, (size_t)len - mark, &why);
        if (rc)
            err_set(e, rc, "%s:%d: %s", file, n, why.msg);
    }
    if (!rc && ferror(f))
        rc = err_set(e, HEARTH_EIO, "%s: %s", file, strerror(errno));
    free(line);
    fclose(f);
    free(c->file);
    c->file = NULL;
    return rc ? rc : join(&c->file, e, file, "");
}

static bool same_strings(char *const *a, char *const *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(a[i], b[i]) != 0)
            return false;
    return true;
}

static bool is_same(const struct conf *a, const struct conf *b, const struct conf_key *k)
{
    const void *x = (const char *)a + k->offset, *y = (const char *)b + k->offset;
    if (k->type == CONF_PATHS)
        return a->n_model_dirs == b->n_model_dirs && same_strings(a->model_dirs, b->model_dirs, a->n_model_dirs);
    if (!is_text(k))
        return *(const int64_t *)x == *(const int64_t *)y;
    const char *s = *(char *const *)x, *t = *(char *const *)y;
    return s == t || (s && t && strcmp(s, t) == 0);
}

#define SWAP(T, a, b)     \
    do {                  \
        T swapped_ = (a); \
        (a) = (b);        \
        (b) = swapped_;   \
    } while (0)

void conf_reload(struct conf *c, struct conf *fresh, struct conf_change *change)
{
    *change = (struct conf_change){0};
    SWAP(char *, c->file, fresh->file);
    for (const struct conf_key *k = conf_keys; k->key != NULL; k++) {
        if (is_same(c, fresh, k))
            continue;
        char *list = k->fixed ? change->fixed : change->keys;
        size_t n = strlen(list);
        snprintf(list + n, sizeof change->keys - n, "%s%s", n ? ", " : "", k->key);
        if (k->fixed)
            continue;
        if (k->type == CONF_PATHS) {
            SWAP(char **, c->model_dirs, fresh->model_dirs);
            SWAP(size_t, c->n_model_dirs, fresh->n_model_dirs);
        } else if (is_text(k)) {
            SWAP(char *, *(char **)field(c, k), *(char **)field(fresh, k));
        } else {
            SWAP(int64_t, *(int64_t *)field(c, k), *(int64_t *)field(fresh, k));
        }
    }
}

/* Makes a path in an XDG directory: the variable's value if that is an absolute path, else HOME and `in_home`. */
static int xdg(const char *variable, const char *in_home, const char *tail, char **out, struct hearth_err *e)
{
    const char *v = getenv(variable);
    if (v && v[0] == '/')
        return join(out, e, v, tail);
    const char *home = getenv("HOME");
    if (!home && geteuid() != 0) { /* root without HOME is the system daemon, which uses the system's directories */
        const struct passwd *user = getpwuid(geteuid());
        home = user != NULL ? user->pw_dir : NULL;
    }
    if (!home || home[0] != '/')
        return err_set(e, HEARTH_EPARAMS, "neither %s nor HOME is set to an absolute path", variable);
    char *base;
    int rc = join(&base, e, home, in_home);
    if (rc)
        return rc;
    rc = join(out, e, base, tail);
    free(base);
    return rc;
}

int conf_default_file(char **file, struct hearth_err *e)
{
    if (geteuid() == 0 && !getenv("XDG_CONFIG_HOME"))
        return join(file, e, "/etc/hearth/hearth.conf", "");
    return xdg("XDG_CONFIG_HOME", "/.config", "/hearth/hearth.conf", file, e);
}

static int default_socket(char **out, struct hearth_err *e)
{
    const char *dir = getenv("XDG_RUNTIME_DIR");
    if (dir && dir[0] == '/')
        return join(out, e, dir, "/hearth/hearth.sock");
    if (geteuid() == 0)
        return join(out, e, "/run/hearth/hearth.sock", "");
    if (asprintf(out, "/tmp/hearth-%u/hearth.sock", (unsigned)geteuid()) < 0)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    return 0;
}

/* The folders in which other programs keep models. A missing folder is no error: model-names.c skips it. */
static int default_model_dirs(struct conf *c, const char *built_in, struct hearth_err *e)
{
    const char *hf = getenv("HF_HOME"); /* by default $XDG_CACHE_HOME/huggingface */
    bool hf_set = hf && hf[0] == '/';
    const struct {
        const char *variable, *in_home, *tail;
    } dirs[] = {
        {"XDG_DATA_HOME", "/.local/share", "/hearth/models"},
        {hf_set ? "HF_HOME" : "XDG_CACHE_HOME", "/.cache", hf_set ? "/hub" : "/huggingface/hub"},
        {"LMSTUDIO_HOME", "/.lmstudio", "/models"},
        {"XDG_CACHE_HOME", "/.cache", "/lm-studio/models"},
    };
    char *dir;
    int rc = 0;
    if (built_in) {
        c->built_in_models = realpath(built_in, NULL); /* NULL: it does not exist */
        rc = join(&dir, e, built_in, "");
        rc = rc != 0 ? rc : add_model_dir(c, dir, e);
    }
    const char *hub = getenv("HF_HUB_CACHE");
    if (!rc && hub && hub[0] == '/') {
        rc = join(&dir, e, hub, "");
        rc = rc != 0 ? rc : add_model_dir(c, dir, e);
    }
    for (size_t i = 0; !rc && i < sizeof dirs / sizeof dirs[0]; i++)
        if (xdg(dirs[i].variable, dirs[i].in_home, dirs[i].tail, &dir, NULL) == 0)
            rc = add_model_dir(c, dir, e);
    return rc;
}

int conf_finish(struct conf *c, const char *built_in_models, struct hearth_err *e)
{
    int rc = 0;
    if (!c->socket)
        rc = default_socket(&c->socket, e);
    if (!rc && strlen(c->socket) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        rc = err_set(e, HEARTH_EPARAMS, "socket: a path of %zu bytes, the system's limit is %zu: %.80s...",
                     strlen(c->socket), sizeof(((struct sockaddr_un *)0)->sun_path) - 1, c->socket);
    if (!rc && utf8_prefix(c->socket, strlen(c->socket)) != strlen(c->socket))
        rc = err_set(e, HEARTH_EPARAMS, "socket: the path is not valid UTF-8"); /* `status` could not report it */
    if (!rc && !c->state_dir) {
        rc = xdg("XDG_STATE_HOME", "/.local/state", "/hearth", &c->state_dir, e);
        if (rc && geteuid() == 0)
            rc = join(&c->state_dir, e, "/var/lib/hearth", "");
    }
    if (!rc)
        rc = default_model_dirs(c, built_in_models, e);
    return rc;
}

/*
 * fake-engine.c - an engine without a model, for testing hearthd: it speaks the engine link and obeys the prompt.
 *
 * A prompt's bytes are its tokens (ids below 256); completions are ids from 1000 up, token I reading "tI ". So the
 * script of a stream that is submitted again, after a crash, is found in its history. Words of a script:
 *
 *     n=K        make K tokens, then stop (3)       gate       one token per tokenize request of "tick"
 *     size=B     B bytes of text per token          hang       no token at all, until it is cancelled
 *     deaf       cancelling takes a "tick"
 *     die=K      die at token K, the first time     die!=K     die at token K, every time
 *     fault=K    a dead device at token K, once
 *     fail=K     an error at token K                garbage=K  bytes that are no frame at token K
 *     tail       one "!" held back to the end       skip=K     leave out token K
 *     think=K    the first K tokens are reasoning
 *     idle       the engine says, as if that crossed the request, that it holds nothing
 *     relieved   ... or that other programs have given memory back
 *     deadline   the text of a token is its deadline_ms
 *     prompt=K   its prompt of K tokens is being read: told K times, and of streams that are not there
 *     save=N     N files of KV when it has ended    kvsize=B   of B bytes each (100)
 *     kvlie      and announces one byte too many    kvused=S   the first file of stream S is of use
 *     kvorphan   with the label of no session       kvbad=S    it is set aside
 *     kvstay     and not: it is only said to be bad kvlate     announced when the next stream begins
 *
 * $FAKE_ENGINE: "exit" before hello, "exit1" the same of device 1, "version" (another one). $FAKE_DEVICES: how many
 * there are, each of 1,000,000 bytes, less what $FAKE_OTHERS says of it ("0,500000"): of that, the files of the models
 * that were asked to generate or loaded take their sizes. A model is not pinned while there is a file PATH.full.
 */
#include <ctype.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/wire.h"

enum { LINK = 3, MAX_STREAMS = 512 };

static struct stream {
    uint32_t rpc;
    int64_t number, n, made, think, size, die, fault, fail, garbage, skip, ticks;
    int64_t save, kvsize, kvused, kvbad, uid, deadline;
    bool live, gate, hang, deaf, tail, cancelled, die_again, open, kvlie, kvstay, kvlate;
    char label[20];
    struct wire_usage usage;
    uint64_t seed;
} streams[MAX_STREAMS];

static struct wire_buf out;
static const char *kv_dir; /* --kv-dir, or of engine.kv_dir */
static int64_t steps, rows;
static int64_t yield_most = -2,
               worked; /* worked: of the last engine.yield; and loads and generations before it; -2: none came */
static double yield_seconds;

/* The device and the models on it. */
enum { DEVICE_BYTES = 1000000, MODELS = 8 };
static int device;                             /* --device */
static int sharers;                            /* --sharers */
static char *models[MODELS], *refused[MODELS]; /* refused: for lack of room; their vocabularies stay */
static size_t n_models, n_refused;

static void hold(const char *path)
{
    for (size_t i = 0; i < n_models; i++)
        if (strcmp(models[i], path) == 0)
            return;
    if (n_models == MODELS)
        exit(6);
    models[n_models++] = strdup(path);
}

static void drop(const char *path)
{
    for (size_t i = 0; i < n_models; i++)
        if (strcmp(models[i], path) == 0) {
            free(models[i]);
            models[i] = models[--n_models];
            return;
        }
}

static int64_t others_have(void)
{
    const char *others = getenv("FAKE_OTHERS");
    for (int i = 0; others && i < device; i++)
        others = (others = strchr(others, ',')) ? others + 1 : NULL;
    return others ? atoll(others) : 0;
}

/* Whether other programs leave no room for the model, and the engine was not told to keep it all the same. */
static bool is_elsewhere(uint32_t id, const char *path)
{
    struct stat sb;
    const char *devices = getenv("FAKE_DEVICES");
    if (!devices || atoi(devices) < 2 || stat(path, &sb) != 0 || sb.st_size <= DEVICE_BYTES - others_have())
        return false;
    for (size_t i = 0; i < n_models; i++)
        if (strcmp(models[i], path) == 0)
            return false;
    bool known = n_refused == MODELS;
    for (size_t i = 0; i < n_refused && !known; i++)
        known = strcmp(refused[i], path) == 0;
    if (!known)
        refused[n_refused++] = strdup(path);
    wire_pack_error(&out, id, HEARTH_EELSEWHERE, "others have the memory", NULL);
    return true;
}

static void status(uint32_t id, const struct wire_method *m)
{
    struct wire_loaded_model loaded[2 * MODELS] = {0};
    struct wire_engine_status r = {.pid = getpid(), .backend = "fake", .steps = steps, .rows = rows};
    r.models = loaded;
    r.n_models = n_models;
    r.mem_total = DEVICE_BYTES;
    r.kv.host_limit = sharers;
    r.kv.host_pages = yield_most + 2;
    r.kv.host_bytes = worked;
    r.kv.disk_pages = 1 + device;
    r.kv.disk_bytes = 100 + device;
    r.kv.write_rate = yield_seconds;
    r.memory.others = others_have();
    r.mem_free = r.mem_total - r.memory.others;
    for (size_t i = 0; i < n_models; i++) {
        struct stat sb;
        loaded[i].path = models[i];
        loaded[i].where = "cuda:0"; /* the only device that it sees */
        loaded[i].bytes = stat(models[i], &sb) == 0 ? sb.st_size : 0;
        r.mem_free -= loaded[i].bytes < r.mem_free ? loaded[i].bytes : r.mem_free;
    }
    for (size_t i = 0; i < n_refused; i++) {
        bool held = false;
        for (size_t k = 0; k < n_models && !held; k++)
            held = strcmp(models[k], refused[i]) == 0;
        if (!held)
            loaded[r.n_models++] = (struct wire_loaded_model){.path = refused[i], .vocab_only = true};
    }
    wire_pack_result(&out, id, m, &r, NULL);
}

static void flush(void)
{
    for (size_t at = 0; at < out.len;) {
        ssize_t n = write(LINK, out.data + at, out.len - at);
        if (n < 0) {
            struct pollfd p = {LINK, POLLOUT, 0};
            if (poll(&p, 1, -1) < 0)
                exit(0);
            continue;
        }
        at += (size_t)n;
    }
    out.len = 0;
}

/* The number after a key that is not the end of another key: `kvsize=` contains `size=`. */
static int64_t word(const char *script, const char *key, int64_t dflt)
{
    const char *p = strstr(script, key);
    while (p && p > script && isalpha((unsigned char)p[-1]))
        p = strstr(p + 1, key);
    return !p ? dflt : strtoll(p + strlen(key), NULL, 10);
}

static void trace(int64_t stream, const char *stage, const char *word, int64_t n1)
{
    struct wire_engine_trace t = {
        .stream = stream, .seq = 1, .pid = getpid(), .at = 1, .stage = stage, .word = word, .n1 = n1};
    wire_pack_event(&out, &wire_methods[WIRE_ENGINE_TRACE], &t, NULL, NULL, NULL);
}

/* Sends trace events that a sound engine would not send, many times. */
static void trace_nonsense(int64_t stream, int64_t times)
{
    trace(stream, "nonsense", NULL, 0);
    trace(stream, "created", NULL, 0); /* a stage of hearthd */
    trace(stream + 1000, "received", NULL, 0);
    trace(stream, "finished", "x\x1b[31m", 0);
    while (times-- > 0)
        trace(stream, "preempted", NULL, times);
}

static void tell_prompt(int64_t stream, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        struct wire_stream_progress p = {.stream = stream, .done = i, .total = n};
        wire_pack_event(&out, &wire_methods[WIRE_ENGINE_PROGRESS], &p, NULL, NULL, NULL);
        p.stream += 1000;
        wire_pack_event(&out, &wire_methods[WIRE_ENGINE_PROGRESS], &p, NULL, NULL, NULL);
    }
}

static void save_kv(const struct stream *st);

static void generate(uint32_t rpc, const struct wire_engine_generate *g)
{
    if (is_elsewhere(rpc, g->path))
        return;
    hold(g->path);
    struct stream *st = streams;
    while (st->live)
        st++;
    if (st->kvlate)
        save_kv(st);
    *st = (struct stream){.rpc = rpc, .number = g->stream, .live = true, .made = g->resumed};
    st->seed = g->req.sampling.seed;

    /* What is appended: the bytes of the input; a message as "<role:content>". */
    int32_t ids[65536];
    size_t n = 0;
    char text[65536] = "";
    if (g->req.n_messages > 0) {
        for (size_t i = 0; i < g->req.n_messages; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s<%s:%s", g->turn_open && i == 0 ? ">" : "",
                     g->req.messages[i].role, g->req.messages[i].content.data);
    } else if (g->req.prefix.data) {
        snprintf(text, sizeof text, "%s", g->req.prefix.data);
    } else if (g->req.text.data) {
        snprintf(text, sizeof text, "%s", g->req.text.data);
    }
    for (; text[n] != '\0'; n++)
        ids[n] = (unsigned char)text[n];
    for (size_t i = 0; i < g->req.tokens.n && i < 1000; i++)
        ids[n++] = g->req.tokens.v[i];
    if (g->req.service_class && strcmp(g->req.service_class, "normal") != 0)
        trace(g->stream, "class", g->req.service_class, 0);
    struct wire_engine_begin b = {.stream = g->stream, .appended = {.v = ids, .n = n}};

    /* The script of a resumed stream: the last run of bytes before its own completion. */
    if (n == 0) {
        size_t end = g->history.n - (size_t)g->resumed, at = end;
        while (at > 0 && g->history.v[at - 1] < 256)
            at--;
        for (size_t i = at; i < end; i++)
            text[i - at] = (char)g->history.v[i];
        text[end - at] = '\0';
    }
    st->n = word(text, "n=", 3);
    st->think = word(text, "think=", 0);
    st->size = word(text, "size=", 0);
    st->die = word(text, "die=", -1);
    st->die_again = strstr(text, "die!=") != NULL;
    if (st->die_again)
        st->die = word(text, "die!=", -1);
    else if (g->resumed > 0)
        st->die = -1;
    st->fault = g->resumed > 0 ? -1 : word(text, "fault=", -1);
    st->fail = word(text, "fail=", -1);
    st->garbage = word(text, "garbage=", -1);
    st->skip = word(text, "skip=", -1);
    st->gate = strstr(text, "gate") != NULL;
    st->hang = strstr(text, "hang") != NULL;
    st->deaf = strstr(text, "deaf") != NULL;
    st->tail = strstr(text, "tail") != NULL;
    st->save = word(text, "save=", 0);
    st->kvsize = word(text, "kvsize=", 100);
    st->kvused = word(text, "kvused=", -1);
    st->kvbad = word(text, "kvbad=", -1);
    st->kvstay = strstr(text, "kvstay") != NULL;
    st->kvlie = strstr(text, "kvlie") != NULL;
    st->kvlate = strstr(text, "kvlate") != NULL;
    if (strstr(text, "idle"))
        wire_pack_event(&out, &wire_methods[WIRE_ENGINE_IDLE], &(struct wire_empty){0}, NULL, NULL, NULL);
    if (strstr(text, "relieved"))
        wire_pack_event(&out, &wire_methods[WIRE_ENGINE_RELIEVED], &(struct wire_empty){0}, NULL, NULL, NULL);
    st->deadline = strstr(text, "deadline") != NULL ? g->req.deadline_ms : -1;
    trace(g->stream, "received", NULL, (int64_t)(g->history.n + n));
    if (strstr(text, "traces="))
        trace_nonsense(g->stream, word(text, "traces=", 0));
    st->uid = g->uid;
    snprintf(st->label, sizeof st->label, "%s", g->label != NULL ? g->label : "");
    if (strstr(text, "kvorphan"))
        strcpy(st->label, "0123456789abcdef");
    st->open = g->req.n_messages > 0 || g->turn_open;
    st->usage.prompt_tokens = (int64_t)(g->history.n + n);
    st->usage.reused_tokens = g->history.n > 0 ? (int64_t)g->history.n - 1 : 0;
    st->usage.restored_tokens = g->resumed > 0 ? st->usage.reused_tokens : 0; /* a new engine has no other source */
    st->usage.computed_tokens = st->usage.prompt_tokens - st->usage.reused_tokens;
    wire_pack_event(&out, &wire_methods[WIRE_ENGINE_BEGIN], &b, NULL, NULL, NULL);
    tell_prompt(g->stream, word(text, "prompt=", 0));
}

/* Returns the path of a stream's Ith file, and its name in `name`. */
static const char *kv_path(int64_t stream, int64_t i, char name[static 64])
{
    static char path[4096];
    snprintf(name, 64, "000000000000fa4e-%024llx%08llx.kv", (long long)stream, (long long)i);
    snprintf(path, sizeof path, "%s/%s", kv_dir, name);
    return path;
}

static void save_kv(const struct stream *st)
{
    char name[64], bad[4100];
    for (int64_t i = 0; kv_dir != NULL && i < st->save; i++) {
        int fd = open(kv_path(st->number, i, name), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
        if (fd < 0 || ftruncate(fd, st->kvsize) != 0)
            exit(4);
        close(fd);
        struct wire_engine_kv_saved k = {.file = name, .fingerprint = "000000000000fa4e", .uid = st->uid};
        k.bytes = st->kvsize + st->kvlie;
        k.tokens = 1; /* so that they are within the turn */
        k.pos = i;
        k.label = st->label[0] != '\0' ? st->label : NULL;
        k.stream = st->number;
        wire_pack_event(&out, &wire_methods[WIRE_ENGINE_KV_SAVED], &k, NULL, NULL, NULL);
    }
    if (kv_dir && st->kvused >= 0) {
        struct wire_engine_kv_used k = {.file = name};
        kv_path(st->kvused, 0, name);
        wire_pack_event(&out, &wire_methods[WIRE_ENGINE_KV_USED], &k, NULL, NULL, NULL);
    }
    if (kv_dir && st->kvbad >= 0) {
        struct wire_engine_kv_bad k = {.file = name, .why = "as the prompt said"};
        const char *path = kv_path(st->kvbad, 0, name);
        snprintf(bad, sizeof bad, "%s.bad", path);
        if (!st->kvstay && rename(path, bad) != 0)
            exit(5);
        wire_pack_event(&out, &wire_methods[WIRE_ENGINE_KV_BAD], &k, NULL, NULL, NULL);
    }
}

static void finish(struct stream *st, const char *why)
{
    struct wire_engine_result r = {.finish_reason = why, .usage = st->usage, .seed = st->seed, .turn_open = st->open};
    r.usage.completion_tokens = st->made;
    st->live = false;
    wire_pack_result(&out, st->rpc, &wire_methods[WIRE_ENGINE_GENERATE], &r, NULL);
    if (!st->kvlate)
        save_kv(st);
}

static void step(struct stream *st)
{
    if (st->cancelled && st->deaf && st->ticks <= 0)
        return;
    if (st->cancelled) {
        finish(st, "cancelled");
        return;
    }
    if (st->hang || (st->gate && st->ticks == 0))
        return;
    st->ticks--;
    if (st->made == st->die) {
        flush();
        kill(getpid(), SIGKILL);
    }
    if (st->made == st->fault) { /* every stream loses its device, and then the engine exits */
        for (int i = 0; i < MAX_STREAMS; i++)
            if (streams[i].live)
                wire_pack_error(&out, streams[i].rpc, HEARTH_EDEVICE, "the device is lost", NULL);
        flush();
        exit(1);
    }
    if (st->made == st->fail) {
        st->live = false;
        wire_pack_error(&out, st->rpc, HEARTH_EBADMODEL, "as the prompt said", NULL);
        return;
    }
    if (st->made == st->garbage) {
        flush();
        (void)!write(LINK, "\xc1\xc1\xc1\xc1", 4);
    }
    if (st->made == st->n) {
        finish(st, "stop");
        return;
    }
    int32_t id = (int32_t)(1000 + st->made);
    static char text[1 << 16];
    int len = snprintf(text, sizeof text, "t%lld ", (long long)st->made);
    if (st->deadline >= 0)
        len = snprintf(text, sizeof text, "%lld ", (long long)st->deadline);
    if (st->size > len && st->size <= (int64_t)sizeof text) {
        memset(text + len, '.', (size_t)(st->size - len));
        len = (int)st->size;
    }
    struct wire_engine_tokens t = {.stream = st->number, .index = st->made, .tokens = {&id, 1}};
    t.text = (struct wire_bytes){text, (size_t)len};
    if (st->made < st->think) {
        t.reasoning = t.text;
        t.text.len = 0;
    }
    if (st->tail)
        t.held = (struct wire_bytes){"!", 1};
    t.reasoning_tokens = st->made < st->think ? st->made + 1 : st->think;
    if (st->made++ != st->skip)
        wire_pack_event(&out, &wire_methods[WIRE_ENGINE_TOKENS], &t, NULL, NULL, NULL);
    rows++;
}

static void load(uint32_t id, const struct wire_engine_path *p)
{
    if (!p->here && is_elsewhere(id, p->path))
        return;
    hold(p->path);
    for (int64_t i = 1; i <= 2; i++) {
        struct wire_model_progress m = {.model = p->path, .done = i * 50, .total = 100};
        wire_pack_event(&out, &wire_methods[WIRE_MODEL_PROGRESS], &m, NULL, NULL, NULL);
    }
    struct wire_model_load_result r = {.load_ms = 1, .where = device ? "cuda:0" : "cpu", .no_gpu = "no room"};
    wire_pack_result(&out, id, &wire_methods[WIRE_ENGINE_LOAD], &r, NULL);
}

static bool is_refused(const char *path)
{
    char full[4096];
    snprintf(full, sizeof full, "%s.full", path);
    return access(full, F_OK) == 0;
}

/* Requests to tokenize "hold" wait until one of them is forgotten, which is answered as such; the others get a result
 * then. */
static uint32_t held[16];
static size_t n_held;

static void forget(uint32_t id)
{
    for (size_t i = 0; i < n_held; i++)
        if (held[i] == id)
            wire_pack_error(&out, id, HEARTH_ECANCELLED, "forgotten", NULL);
        else
            wire_pack_result(&out, held[i], &wire_methods[WIRE_ENGINE_TOKENIZE], &(struct wire_tokenize_result){0},
                             NULL);
    n_held = 0;
}

static void tokenize(uint32_t id, const struct wire_tokenize *t)
{
    int32_t ids[256];
    struct wire_tokenize_result r = {.ids = {ids, 0}};
    while (r.ids.n < t->text.len && r.ids.n < 256) {
        ids[r.ids.n] = (unsigned char)t->text.data[r.ids.n];
        r.ids.n++;
    }
    if (strcmp(t->text.data, "hold") == 0 && n_held < sizeof held / sizeof *held) {
        held[n_held++] = id;
        return;
    }
    if (strcmp(t->text.data, "tick") == 0)
        for (int i = 0; i < MAX_STREAMS; i++)
            streams[i].ticks++;
    wire_pack_result(&out, id, &wire_methods[WIRE_ENGINE_TOKENIZE], &r, NULL);
}

static void request(const struct wire_frame *f)
{
    const struct wire_method *m = wire_method_find(f->method, f->method_len);
    void *p = NULL;
    struct hearth_err e;
    if (!m || wire_unpack(m->params, f->body, f->body_len, &p, &e) != 0) {
        fprintf(stderr, "fake-engine: %s\n", !m ? "unknown method" : e.msg);
        exit(2);
    }
    const char *how = getenv("FAKE_ENGINE");
    if (m == &wire_methods[WIRE_ENGINE_HELLO]) {
        const char *devices = getenv("FAKE_DEVICES");
        struct wire_engine_hello_result r = {WIRE_VERSION, getpid(), "fake", "none", devices ? atoi(devices) : 0};
        if (how && strcmp(how, "version") == 0)
            r.version = 99;
        wire_pack_result(&out, f->id, m, &r, NULL);
    } else if (m == &wire_methods[WIRE_ENGINE_GENERATE]) {
        generate(f->id, p);
    } else if (m == &wire_methods[WIRE_ENGINE_CANCEL]) {
        struct wire_cancel_result r = {false};
        for (int i = 0; i < MAX_STREAMS; i++)
            if (streams[i].live && streams[i].number == ((struct wire_engine_cancel *)p)->stream)
                r.cancelled = streams[i].cancelled = true;
        wire_pack_result(&out, f->id, m, &r, NULL);
    } else if (m == &wire_methods[WIRE_ENGINE_CLASS]) {
        const struct wire_engine_class *c = p;
        trace(c->stream, "class", c->class, 0);
        wire_pack_result(&out, f->id, m, &(struct wire_empty){0}, NULL);
    } else if (m == &wire_methods[WIRE_ENGINE_STATUS]) {
        status(f->id, m);
    } else if (m == &wire_methods[WIRE_ENGINE_LOAD]) {
        load(f->id, p);
    } else if (m == &wire_methods[WIRE_ENGINE_PIN]) {
        const struct wire_engine_pin *pin = p;
        if (is_refused(pin->path))
            wire_pack_error(&out, f->id, HEARTH_ENOMEM, "others have the memory for now", NULL);
        else
            load(f->id, &(struct wire_engine_path){.path = pin->path});
    } else if (m == &wire_methods[WIRE_ENGINE_UNLOAD]) {
        drop(((struct wire_engine_path *)p)->path);
        wire_pack_result(&out, f->id, m, &(struct wire_empty){0}, NULL);
    } else if (m == &wire_methods[WIRE_ENGINE_YIELD]) {
        const struct wire_engine_yield *y = p;
        struct wire_engine_yield_result r = {.freed = 10 + device, .free = 1000 + device, .held = 100 + device};
        r.why = y->bytes == 7 ? "the fake has not 7" : NULL;
        yield_most = y->most;
        yield_seconds = y->seconds;
        worked = steps + (int64_t)n_models;
        wire_pack_result(&out, f->id, m, &r, NULL);
    } else if (m == &wire_methods[WIRE_ENGINE_TOKENIZE]) {
        tokenize(f->id, p);
    } else if (m == &wire_methods[WIRE_ENGINE_MODEL]) {
        struct wire_op op = {"embed", "embed (F32; 8 to 2000)"};
        struct wire_model r = {.name = "?", .path = "?", .arch = "fake", .tokenizer = "fake", .vocab = 2000};
        if (((struct wire_engine_model *)p)->ops)
            r.ops = &op, r.n_ops = 1;
        wire_pack_result(&out, f->id, m, &r, NULL);
    } else if (m == &wire_methods[WIRE_ENGINE_HEADS]) {
        const struct wire_engine_heads *ask = p;
        struct wire_model head[16] = {0};
        struct wire_engine_heads_result r = {.heads = head, .n_heads = ask->n_files < 16 ? ask->n_files : 16};
        for (size_t i = 0; i < r.n_heads; i++)
            head[i] = (struct wire_model){.name = "?", .path = ask->files[i].path, .read = true};
        wire_pack_result(&out, f->id, m, &r, NULL);
    } else if (m == &wire_methods[WIRE_ENGINE_FORGET]) {
        forget((uint32_t)((struct wire_engine_forget *)p)->id);
        wire_pack_result(&out, f->id, m, &(struct wire_empty){0}, NULL);
    } else if (m == &wire_methods[WIRE_ENGINE_KV_DIR]) {
        kv_dir = strdup(((struct wire_engine_kv_dir *)p)->path);
        wire_pack_result(&out, f->id, m, &(struct wire_empty){0}, NULL);
    } else if (m == &wire_methods[WIRE_ENGINE_KV_GONE]) {
        const struct wire_engine_kv_gone *gone = p;
        fprintf(stderr, "fake-engine: %s is gone%s\n", gone->file, gone->again ? "" : " for now");
        wire_pack_result(&out, f->id, m, &(struct wire_empty){0}, NULL);
    } else if (m == &wire_methods[WIRE_ENGINE_SHUTDOWN]) {
        exit(0);
    } else {
        wire_pack_error(&out, f->id, HEARTH_EUNSUPPORTED, "the fake engine cannot", NULL);
    }
    wire_free(p);
}

int main(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--kv-dir") == 0)
            kv_dir = argv[i + 1];
        else if (strcmp(argv[i], "--device") == 0)
            device = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--sharers") == 0)
            sharers = atoi(argv[i + 1]);
    static uint8_t in[WIRE_LINK_FRAME_MAX];
    size_t len = 0;
    struct wire_scan scan = {0};
    const char *how = getenv("FAKE_ENGINE");
    if (how && (strcmp(how, "exit") == 0 || (strcmp(how, "exit1") == 0 && device == 1)))
        return 7;
    for (;;) {
        bool busy = false;
        for (int i = 0; i < MAX_STREAMS; i++)
            busy |= streams[i].live && ((streams[i].cancelled && !streams[i].deaf) ||
                                        (!streams[i].hang && (!streams[i].gate || streams[i].ticks > 0)));
        struct pollfd p = {LINK, POLLIN, 0};
        poll(&p, 1, busy ? 0 : -1);
        ssize_t n = p.revents != 0 ? read(LINK, in + len, sizeof in - len) : -1;
        if (n == 0)
            return 0;
        len += n > 0 ? (size_t)n : 0;
        ptrdiff_t got;
        while ((got = wire_scan(&scan, in, len, WIRE_LINK_FRAME_MAX, NULL)) > 0) {
            struct wire_frame f;
            if (wire_frame_open(&f, in, (size_t)got, NULL) == 0 && f.kind == WIRE_FRAME_REQUEST)
                request(&f);
            memmove(in, in + got, len - (size_t)got);
            len -= (size_t)got;
            scan = (struct wire_scan){0};
        }
        if (got < 0)
            return 3;
        steps++;
        for (int i = 0; i < MAX_STREAMS; i++)
            if (streams[i].live)
                step(&streams[i]);
        flush();
    }
}

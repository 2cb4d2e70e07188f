/* hf.c - see hf.h: reads the folder's files in turn, each through its own module. */
#include "daemon/model/hf/hf-internal.h"

#include "daemon/model/hf/parse.h"
#include "daemon/model/pace.h"
#include "daemon/model/passed.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CONFIG_MAX = 4 << 20 };

static int read_all(int fd, char *p, size_t n)
{
    for (size_t got = 0; got < n;) {
        ssize_t k = pread(fd, p + got, n - got, (off_t)got);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return -1;
        got += (size_t)k;
    }
    return 0;
}

int hf_text(const struct hf *h, const char *name, size_t max, char **out, size_t *n)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", h->folder, name) >= (int)sizeof path)
        return err_set(h->e, HEARTH_EPARAMS, "the folder's path is too long");
    int fd = passed_open(path);
    if (fd < 0)
        return errno == ENOENT ? 1 : err_set(h->e, HEARTH_EIO, "%.60s: %s", name, strerror(errno));
    struct stat st;
    char *text = NULL;
    int ret = 0;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        ret = err_set(h->e, HEARTH_EBADMODEL, "%.60s is not a regular file", name);
    else if (st.st_size < 0 || (uint64_t)st.st_size > max)
        ret =
            err_set(h->e, HEARTH_EBADMODEL, "%.60s has %lld bytes; the limit is %zu", name, (long long)st.st_size, max);
    else if (!(text = malloc((size_t)st.st_size + 1)))
        ret = err_set(h->e, HEARTH_ENOMEM, "no memory for %.60s", name);
    else if (read_all(fd, text, (size_t)st.st_size))
        ret = err_set(h->e, HEARTH_EIO, "%.60s cannot be read", name);
    close(fd);
    if (ret) {
        free(text);
        return ret;
    }
    text[st.st_size] = 0;
    *out = text;
    *n = (size_t)st.st_size;
    return 0;
}

/* Python reads and writes Infinity, which JSON does not have: it becomes a string, so that it is neither read as a
 * number nor treated as absent. Returns the number of bytes replaced, from text[i] on. */
static size_t take_out_infinity(char *text, size_t i, size_t n)
{
    static const char word[] = "Infinity", string[] = "\"inf\"   ", minus[] = "\"-inf\"   ";
    if (n - i < strlen(word) || memcmp(text + i, word, strlen(word)) != 0)
        return 0;
    if (i && text[i - 1] == '-')
        memcpy(text + i - 1, minus, strlen(minus));
    else
        memcpy(text + i, string, strlen(string));
    return strlen(word);
}

/* And integers of any size, such as the 10^30 by which many a tokenizer_config.json says that a length has no limit:
 * one that 64 bits may not hold becomes a real, 1234e2 for 123456. Returns the length of the number at text[i]. */
static size_t shorten_integer(char *text, size_t i, bool *any)
{
    enum { DIGITS = 18 }; /* that any 64-bit integer may have */
    size_t digits = strspn(text + i, "0123456789"), all = strspn(text + i, "0123456789.eE+-");
    if (digits > DIGITS && digits == all) {
        memcpy(text + i + digits - 2, "e2", 2);
        *any = true;
    }
    return all;
}

/* Rewrites in place what Python writes although JSON, or its parser here, does not have it. Returns whether there was
 * any. The text is followed by a NUL. */
static bool make_json(char *text, size_t n)
{
    bool quoted = false, any = false;
    for (size_t i = 0; i < n; i++) {
        size_t done = 0;
        if (text[i] == '"')
            quoted = !quoted;
        else if (quoted && text[i] == '\\')
            i++;
        else if (!quoted && text[i] >= '0' && text[i] <= '9')
            done = shorten_integer(text, i, &any);
        else if (!quoted && (done = take_out_infinity(text, i, n)))
            any = true;
        i += done ? done - 1 : 0;
    }
    return any;
}

int hf_json(const struct hf *h, const char *name, size_t max, json_t **out)
{
    char *text;
    size_t n;
    json_error_t why;
    int ret = hf_text(h, name, max, &text, &n);
    if (ret)
        return ret;
    /* A duplicate id, name or merge would be ambiguous, so duplicates are refused. U+0000 is a character that a
     * vocabulary may have.
     */
    if ((ret = pace(n, h->e))) { /* the JSON parser cannot call pace() itself */
        free(text);
        return ret;
    }
    enum { FLAGS = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL };
    bool no_memory;
    json_t *root = hf_parse(text, n, FLAGS, &why, &no_memory);
    if (!root && !no_memory && make_json(text, n))
        root = hf_parse(text, n, FLAGS, &why, &no_memory);
    free(text);
    if (json_is_object(root)) {
        *out = root;
        return 0;
    }
    if (no_memory)
        ret = err_set(h->e, HEARTH_ENOMEM, "no memory for %.60s", name);
    else if (root)
        ret = err_set(h->e, HEARTH_EBADMODEL, "%.60s holds no JSON object", name);
    else
        ret = err_set(h->e, HEARTH_EBADMODEL, "%.60s, line %d: %s", name, why.line,
                      gguf_label((struct gguf_str){why.text, strlen(why.text)}).s); /* the message quotes the file */
    json_decref(root);
    return ret;
}

/* Whether config.json says that the output has a matrix of its own. For a vision-language model, transformers 4 reads
 * the key of the text model and transformers 5 that of the whole model, and LFM 2 has a key of its own: if one of them
 * says tied, the matrix may be missing. */
static bool says_untied(const json_t *whole, const json_t *text)
{
    static const char key[] = "tie_word_embeddings";
    const json_t *own = json_object_get(text, key), *all = json_object_get(whole, key);
    bool tied = json_is_true(own) || json_is_true(all) || json_is_true(json_object_get(text, "tie_embedding"));
    return !tied && (json_is_false(own) || json_is_false(all));
}

/* Of a vision-language model, the text model's config is under text_config; the ids that end a generation may be
 * beside it, as those of Gemma 3 are, and so may what is said of quantised weights. */
static int read_config(struct hf *h)
{
    static const char *const beside[] = {"eos_token_id", "quantization_config"};
    json_t *whole, *text;
    int ret = hf_json(h, "config.json", CONFIG_MAX, &whole);
    if (ret > 0)
        return err_set(h->e, HEARTH_ENOMODEL,
                       "a folder without config.json: neither a GGUF file nor a Hugging Face model");
    if (ret)
        return ret;
    text = json_object_get(whole, "text_config");
    if (text && !json_is_object(text) && !json_is_null(text)) {
        json_decref(whole);
        return hf_wrong(h, "text_config", "an object");
    }
    h->config = json_incref(json_is_object(text) ? text : whole);
    h->untied = says_untied(whole, h->config);
    for (size_t i = 0; i < sizeof beside / sizeof *beside && !ret; i++)
        if (!hf_get(h, beside[i]) && json_object_get(whole, beside[i]))
            ret = json_object_set(h->config, beside[i], json_object_get(whole, beside[i]));
    json_decref(whole);
    return ret ? err_set(h->e, HEARTH_ENOMEM, "no memory for config.json") : 0;
}

static void name_of(const char *folder, const char **name, size_t *n)
{
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/')
        end--;
    size_t start = end;
    while (start && folder[start - 1] != '/')
        start--;
    *name = folder + start;
    *n = end - start;
}

int hf_open(struct gguf **out, const char *folder, struct hearth_err *e)
{
    struct hearth_err why = {0};
    struct hf h = {.m = gguf_make_new(), .folder = folder, .e = &why};
    const char *name;
    size_t n;
    if (!h.m)
        return err_set(e, HEARTH_ENOMEM, "no memory to open %s", folder);
    name_of(folder, &name, &n);
    int ret = read_config(&h);
    if (!ret)
        ret = hf_config(&h);
    if (!ret)
        gguf_make_str(h.m, "general.name", name, n);
    if (!ret)
        ret = hf_tokenizer(&h);
    if (!ret)
        ret = hf_tensors(&h);
    if (!ret)
        ret = gguf_make_done(h.m, out, &why);
    json_decref(h.config);
    gguf_make_free(h.m);
    return ret ? err_set(e, ret, "%s: %s", gguf_label((struct gguf_str){name, n}).s, why.msg) : 0;
}

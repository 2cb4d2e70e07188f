/*
 * templates.c - a folder's chat templates: chat_template.jinja and additional_chat_templates/NAME.jinja, as current
 * versions of transformers write them, otherwise chat_template of tokenizer_config.json, a string or a list of named
 * ones, or of chat_template.json, which earlier versions wrote for models of images and text.
 */
#include "config.h"

#include "daemon/model/hf/hf-internal.h"

#include "daemon/model/passed.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCE_MAX = 1 << 20, NAMES_MAX = 16, NAME_BYTES = 64, ENTRIES_MAX = 1024 };
#define KEY "tokenizer.chat_template"

struct names {
    char v[NAMES_MAX][NAME_BYTES];
    size_t n;
};

static void put(struct hf *h, struct names *names, const char *name, size_t n_name, const char *source, size_t n)
{
    char key[sizeof KEY + NAME_BYTES];
    if (n_name == 7 && !memcmp(name, "default", 7)) {
        gguf_make_str(h->m, KEY, source, n);
        return;
    }
    if (!n_name || n_name >= NAME_BYTES || names->n == NAMES_MAX)
        return;
    memcpy(names->v[names->n], name, n_name);
    names->v[names->n][n_name] = 0;
    snprintf(key, sizeof key, KEY ".%s", names->v[names->n++]);
    gguf_make_str(h->m, key, source, n);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void add_found(struct names *found, const char *name)
{
    size_t n = strlen(name);
    if (n > 6 && n - 6 < NAME_BYTES && !strcmp(name + n - 6, ".jinja"))
        snprintf(found->v[found->n++], NAME_BYTES, "%.*s", (int)(n - 6), name);
}

static void list_templates(const char *path, struct names *found)
{
    char name[NAME_BYTES + 6];
    for (size_t i = 0; passed_is(path) && found->n < NAMES_MAX && passed_name(path, i, name, sizeof name); i++)
        add_found(found, name);
    DIR *d = passed_is(path) ? NULL : opendir(path);
    struct dirent *de;
    for (int i = 0; d && i < ENTRIES_MAX && found->n < NAMES_MAX && (de = readdir(d)); i++)
        add_found(found, de->d_name);
    if (d)
        closedir(d);
}

/* Adds the templates in additional_chat_templates/, sorted by name so that the result does not depend on the
 * directory's order. */
static int put_additional(struct hf *h, struct names *names)
{
    static const char folder[] = "additional_chat_templates";
    struct names found = {0};
    char path[4096];
    int ret = 0;
    if (snprintf(path, sizeof path, "%s/%s", h->folder, folder) >= (int)sizeof path)
        return 0;
    list_templates(path, &found);
    qsort(found.v, found.n, NAME_BYTES, by_name);
    for (size_t i = 0; i < found.n && !ret; i++) {
        char *text;
        size_t n;
        snprintf(path, sizeof path, "%s/%s.jinja", folder, found.v[i]);
        ret = hf_text(h, path, SOURCE_MAX, &text, &n);
        if (ret)
            continue;
        put(h, names, found.v[i], strlen(found.v[i]), text, n);
        free(text);
    }
    return ret < 0 ? ret : 0;
}

static void put_config(struct hf *h, const json_t *cfg, struct names *names)
{
    const json_t *t = json_object_get(cfg, "chat_template"), *v;
    size_t i;
    if (json_is_string(t))
        put(h, names, "default", 7, json_string_value(t), json_string_length(t));
    json_array_foreach(t, i, v)
    {
        const json_t *name = json_object_get(v, "name"), *s = json_object_get(v, "template");
        if (json_is_string(s) && json_is_string(name))
            put(h, names, json_string_value(name), json_string_length(name), json_string_value(s),
                json_string_length(s));
    }
}

/* Adds the templates in the older forms. */
static int put_older(struct hf *h, const json_t *cfg, struct names *names)
{
    const json_t *t = json_object_get(cfg, "chat_template");
    json_t *own = NULL;
    int ret = t && !json_is_null(t) ? 1 : hf_json(h, "chat_template.json", SOURCE_MAX, &own);
    put_config(h, own ? own : cfg, names);
    json_decref(own);
    return ret < 0 ? ret : 0;
}

int hf_templates(struct hf *h, const json_t *cfg)
{
    struct names names = {0};
    struct gguf_str list[NAMES_MAX];
    char *text;
    size_t n;
    int ret = hf_text(h, "chat_template.jinja", SOURCE_MAX, &text, &n);
    if (!ret) {
        put(h, &names, "default", 7, text, n);
        free(text);
        ret = put_additional(h, &names);
    } else if (ret > 0) {
        ret = put_older(h, cfg, &names);
    }
    for (size_t i = 0; i < names.n; i++)
        list[i] = (struct gguf_str){names.v[i], strlen(names.v[i])};
    if (!ret && names.n)
        gguf_make_strs(h->m, KEY "s", list, names.n);
    return ret;
}

/* template.c - the inputs that run, chat and resume give to the chat template: --template, --set and --think. See
 * cmd.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/cmd.h"

char *template_read(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *data = f ? malloc(TEMPLATE_MAX + 2) : NULL;
    if (data) {
        *n = fread(data, 1, TEMPLATE_MAX + 1, f);
        if (ferror(f)) {
            free(data);
            data = NULL;
        } else {
            data[*n] = 0;
        }
    }
    int why = errno;
    if (f)
        fclose(f);
    errno = why;
    return data;
}

bool template_is_name(const char *file_or_name)
{
    return errno == ENOENT && !strchr(file_or_name, '/');
}

/* Parses KEY=JSON into a member of `to`; returns false where it is not that. */
static bool set_member(json_t *to, const char *text)
{
    const char *equals = strchr(text, '=');
    json_t *v = equals && equals > text ? json_loads(equals + 1, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    char *key = v ? strndup(text, (size_t)(equals - text)) : NULL;
    bool ok = key && !json_object_set_new(to, key, v);
    free(key);
    return ok;
}

int gen_prepare(const struct cmd *cmd, struct gen *gen)
{
    size_t n;
    if (gen->think && strcmp(gen->think, "on") != 0 && strcmp(gen->think, "off") != 0 &&
        strcmp(gen->think, "hide") != 0)
        return usage(cmd, "--think wants on, off or hide, not '%s'", gen->think);
    if (gen->think)
        gen->g.think = !strcmp(gen->think, "off") ? "off" : "on";
    json_t *kwargs = json_object();
    for (size_t i = 0; i < gen->set.n; i++)
        if (!set_member(kwargs, gen->set.v[i])) {
            json_decref(kwargs);
            return usage(cmd, "--set wants KEY=JSON, as in enable_thinking=false or style='\"brief\"', not '%s'",
                         gen->set.v[i]);
        }
    if (gen->set.n)
        gen->g.kwargs = json_dumps(kwargs, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(kwargs);
    if (!gen->template)
        return STATUS_OK;
    if ((gen->g.chat_template = template_read(gen->template, &n)))
        return strlen(gen->g.chat_template) == n ? STATUS_OK : usage(cmd, "--template: %s is no text", gen->template);
    if (!template_is_name(gen->template))
        return usage(cmd, "--template: %s: %s", gen->template, strerror(errno));
    gen->g.template_name = gen->template;
    return STATUS_OK;
}

void gen_fini(struct gen *gen)
{
    free(gen->g.stop.v);
    free(gen->set.v);
    free((char *)gen->g.kwargs);
    free((char *)gen->g.chat_template);
}

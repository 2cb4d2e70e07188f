/*
 * fuzz-jinja.c - any bytes as a chat template, with a conversation, or with what follows the first NUL as its context:
 * it ends soon, in a text that is valid UTF-8 or in an error with a message.
 */
#include "daemon/model/chat/jinja.h"
#include "libclient/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char chat[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":[{\"type\":"
    "\"text\",\"text\":\"h\\u00e9\"}]},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":"
    "\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1.5,\"y\":[true]}}}]}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"add_generation_prompt\":true,"
    "\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"x\":5,\"s\":\"\\u65e5\\u672c \\ud83d\\ude00\",\"l\":[3,1,2],"
    "\"d\":{\"b\":1,\"A\":{\"c\":[]}}}";

static void check_text(const struct jinja_text *t)
{
    uint32_t last = 0;
    if (utf8_prefix(t->data, t->n) != t->n || t->n > JINJA_OUTPUT_MAX)
        abort();
    for (size_t i = 0; i < t->n_span; i++) {
        if (t->span[i].from >= t->span[i].to || t->span[i].to > t->n || (i && t->span[i].from <= last))
            abort();
        last = t->span[i].to;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 22, .tm_hour = 10};
    const char *source = (const char *)data, *nul = size ? memchr(source, 0, size) : NULL;
    size_t n = nul ? (size_t)(nul - source) : size;
    struct jinja *t;
    struct jinja_err e;
    struct jinja_text text;
    if (jinja_compile(&t, source, n, &e)) {
        if (!e.message || !e.failure)
            abort();
        jinja_err_fini(&e);
        return 0;
    }
    const char *context = nul ? nul + 1 : chat;
    if (jinja_render(t, context, nul ? size - n - 1 : sizeof chat - 1, NULL, &now, &text, &e)) {
        if (!e.message || !e.failure)
            abort();
        jinja_err_fini(&e);
    } else {
        check_text(&text);
        jinja_text_fini(&text);
    }
    jinja_free(t);
    return 0;
}

/*
 * bench-jinja.c - how long a chat template takes: a conversation of ten turns with five tools, compiled once and
 * rendered 1,000 times. `tests/bench/bench-jinja TEMPLATE...` prints a line for each file.
 */
#include "config.h"

#include "daemon/model/chat/jinja.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 10, TOOLS = 5, TIMES = 1000 };

static char context[1 << 20];
static size_t n_context;

static void add(const char *text)
{
    size_t n = strlen(text);
    if (n_context + n >= sizeof context)
        abort();
    memcpy(context + n_context, text, n);
    n_context += n;
}

static void make_context(void)
{
    add("{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"documents\":null,\"add_generation_prompt\":true,\"tools\":[");
    for (int i = 0; i < TOOLS; i++) {
        char tool[600];
        snprintf(
            tool, sizeof tool,
            "%s{\"type\":\"function\",\"function\":{\"name\":\"tool_%d\",\"description\":\"Looks something up and says "
            "what it has found, in a "
            "sentence.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"query\":{\"type\":"
            "\"string\",\"description\":\"What to look "
            "for\"},\"limit\":{\"type\":\"integer\",\"default\":10},\"kind\":{"
            "\"type\":\"string\",\"enum\":[\"one\",\"two\"]}},\"required\":[\"query\"]}}}",
            i ? "," : "", i);
        add(tool);
    }
    add("],\"messages\":[{\"role\":\"system\",\"content\":\"You are a careful assistant.\"}");
    for (int i = 0; i < TURNS; i++) {
        char turn[900];
        snprintf(turn, sizeof turn,
                 ",{\"role\":\"user\",\"content\":\"Question %d: a person writes a sentence or two of about this "
                 "length, and "
                 "then another one, caf\\u00e9 included.\"},{\"role\":\"assistant\",\"content\":\"An answer of some "
                 "length, with "
                 "a list:\\n- one\\n- two\\n- three\\n\\nAnd an end.\"}",
                 i);
        add(turn);
    }
    add(",{\"role\":\"user\",\"content\":\"And now?\"}]}");
}

static char *read_file(const char *path, size_t *n)
{
    static char data[JINJA_SOURCE_MAX + 1];
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    *n = fread(data, 1, sizeof data, f);
    fclose(f);
    return data;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int bench(const char *path)
{
    static const struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 22, .tm_hour = 10};
    struct jinja *t;
    struct jinja_err e;
    struct jinja_text text;
    size_t n, bytes = 0;
    char *source = read_file(path, &n);
    double begin = seconds();
    if (!source || jinja_compile(&t, source, n, &e)) {
        fprintf(stderr, "%s: %s\n", path, source ? e.message : "cannot be read");
        return 1;
    }
    double compiled = seconds();
    for (int i = 0; i < TIMES; i++) {
        if (jinja_render(t, context, n_context, NULL, &now, &text, &e)) {
            printf("%-56s %s\n", path, e.message);
            jinja_err_fini(&e);
            jinja_free(t);
            return 1;
        }
        bytes = text.n;
        jinja_text_fini(&text);
    }
    double end = seconds();
    printf("%-56s compile %.3f ms, render %.3f ms, %zu bytes\n", path, (compiled - begin) * 1e3,
           (end - compiled) / TIMES * 1e3, bytes);
    jinja_free(t);
    return 0;
}

int main(int argc, char **argv)
{
    int rc = argc < 2;
    make_context();
    for (int i = 1; i < argc; i++)
        rc |= bench(argv[i]);
    return rc;
}

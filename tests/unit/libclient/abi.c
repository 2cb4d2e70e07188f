/*
 * abi.c - results keep their size and the offsets of their members, so that a program built against an older hearth.h
 * can read them.
 *
 *     tests/unit/libclient/abi print      the present table, for tests/unit/data/abi.txt
 *
 * The file has one line for each struct that a client receives, named after its method or event: its size, and its
 * members with their offsets. Once 0.1.0 is released, a change may only add lines, and members in the room that
 * HEARTH_ROOM reserves. Until then the file is written anew when a struct has grown.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/wire-table.h"

enum { LINE = 2048, LINES = 256 };

static char today[LINES][LINE];
static size_t n_today;

static void add(const char *path, const struct wire_type *t)
{
    assert_true(n_today < LINES);
    char *line = today[n_today++];
    size_t n = (size_t)snprintf(line, LINE, "%s %zu", path, t->size);
    for (const struct wire_field *f = t->fields; f->name; f++) {
        n += (size_t)snprintf(line + n, LINE - n, " %s=%u", f->name, (unsigned)f->offset);
        if (f->beside)
            n += (size_t)snprintf(line + n, LINE - n, "+%u", (unsigned)f->beside);
        assert_true(n < LINE);
    }
    for (const struct wire_field *f = t->fields; f->name; f++)
        if (f->sub) {
            char inner[256];
            snprintf(inner, sizeof inner, "%s.%s", path, f->name);
            add(inner, f->sub);
        }
}

static void make_table(void)
{
    for (const struct wire_method *m = wire_methods; m->name; m++) {
        if (!m->link)
            add(m->name, m->kind == WIRE_EVENT ? m->params : m->result);
    }
}

static const char *find(const char *path, size_t len)
{
    for (size_t i = 0; i < n_today; i++)
        if (!strncmp(today[i], path, len) && today[i][len] == ' ')
            return today[i];
    return NULL;
}

/* Checks that each word of the old line is in the new one: the size and the members at their offsets. */
static void check_line(char *old)
{
    size_t len = strcspn(old, " ");
    const char *line = find(old, len);
    if (!line)
        fail_msg("%.*s is gone", (int)len, old);
    char words[LINE + 2];
    snprintf(words, sizeof words, "%s ", line + len);
    for (char *word = strtok(old + len, " \n"); word; word = strtok(NULL, " \n")) {
        char want[256];
        snprintf(want, sizeof want, " %s ", word);
        if (!strstr(words, want))
            fail_msg("%.*s: %s is not where it was: %s", (int)len, line, word, line);
    }
}

static void results_keep_their_places(void **state)
{
    (void)state;
    char path[4096], line[LINE];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/tests/unit/data/abi.txt", getenv("top_srcdir"));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (; fgets(line, sizeof line, f); n++)
        check_line(line);
    fclose(f);
    assert_true(n > 40 && n <= n_today);
}

int main(int argc, char **argv)
{
    make_table();
    for (size_t i = 0; argc > 1 && !strcmp(argv[1], "print") && i < n_today; i++)
        puts(today[i]);
    if (argc > 1)
        return 0;
    if (sizeof(void *) != 8 || sizeof(long) != 8) {
        puts("1..0 # SKIP the places are those of 64 bits");
        return 0;
    }
    static const struct CMUnitTest tests[] = {cmocka_unit_test(results_keep_their_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

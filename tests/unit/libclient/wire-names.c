/* wire-names.c - the names of the wire protocol: the table of errors, and that the documents mention every method,
 * field and error. */
#include "libclient/wire-table.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void error_table_is_sound(void **state)
{
    (void)state;
#define X(name, number, symbol, request)                  \
    assert_string_equal(err_name(HEARTH_##name), symbol); \
    assert_int_equal(err_code(symbol), HEARTH_##name);    \
    assert_int_equal(err_is_request(HEARTH_##name), request != 0);
    HEARTH_ERRORS(X)
#undef X
    assert_string_equal(err_name(-12345), "INTERNAL");
    assert_int_equal(err_code("NO_SUCH"), HEARTH_EINTERNAL);
}

/* --- the documents -------------------------------------------------------------------------------------- */

static char *text_of(const char *path)
{
    char full[4096];
    const char *top = getenv("top_srcdir");
    snprintf(full, sizeof full, "%s/%s", top ? top : ".", path);
    FILE *f = fopen(full, "r");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 1000);
    fclose(f);
    return text;
}

/* Whether the text has `word` as a whole word. */
static bool mentions(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p++)
        if ((p == text || (!isalnum(p[-1]) && p[-1] != '_')) && !isalnum(p[n]) && p[n] != '_')
            return true;
    return false;
}

/* PROTOCOL.md describes what clients use; what they never see is described beside the code that uses it. A document
 * need not repeat the types that it shares with an earlier one in this list. */
enum { PROTOCOL, LINK, JOURNAL, N_DOCUMENTS };
static const char *const documents[N_DOCUMENTS] = {"libclient/PROTOCOL.md", "daemon/engine/front/protocol.md",
                                                   "daemon/stream/journal.md"};

static int document_of(const struct wire_method *m)
{
    if (!strncmp(m->name, "engine.", 7))
        return LINK;
    return !strncmp(m->name, "journal.", 8) || m == &wire_methods[WIRE_TURN_GENERATION] ? JOURNAL : PROTOCOL;
}

static bool described(char *const *texts, int document, const char *word)
{
    for (; document >= 0; document--)
        if (mentions(texts[document], word))
            return true;
    return false;
}

static void assert_fields_documented(char *const *texts, int document, const struct wire_type *t)
{
    for (const struct wire_field *f = t->fields; f->name; f++) {
        if (!described(texts, document, f->name))
            fail_msg("%s does not mention %s of %s", documents[document], f->name, t->name);
        if (f->sub)
            assert_fields_documented(texts, document, f->sub);
    }
    for (const char *const *r = t->reserved; r && *r; r++)
        assert_true(mentions(texts[PROTOCOL], *r));
}

static void the_specification_has_every_name(void **state)
{
    (void)state;
    char *texts[N_DOCUMENTS];
    for (int i = 0; i < N_DOCUMENTS; i++)
        texts[i] = text_of(documents[i]);
    for (const struct wire_method *m = wire_methods; m->name; m++) {
        int document = document_of(m);
        if (!mentions(texts[document], m->name))
            fail_msg("%s does not mention the method %s", documents[document], m->name);
        assert_fields_documented(texts, document, m->params);
        if (m->result)
            assert_fields_documented(texts, document, m->result);
    }
#define X(name, number, symbol, request) assert_non_null(strstr(texts[PROTOCOL], "| `" symbol "` | " #request " |"));
    HEARTH_ERRORS(X)
#undef X
    for (int i = 0; i < N_DOCUMENTS; i++)
        free(texts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_table_is_sound),
        cmocka_unit_test(the_specification_has_every_name),
    };
    return cmocka_run_group_tests_name("wire-names", tests, NULL, NULL);
}

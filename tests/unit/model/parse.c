/*
 * parse.c - JSON is parsed with any allocation failing, alone or with all that follow: the result is the lack of
 * memory, never a fault of the text, a wrong value or the end of the process. The linker replaces malloc() by the one
 * below.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/model/hf/parse.h"

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);

static size_t calls, fail_at, fail_most; /* the calls fail_at, fail_at + 1, ..., fail_most of them, fail; 0: none */

void *__wrap_malloc(size_t n)
{
    calls++;
    return fail_at && calls >= fail_at && calls - fail_at < fail_most ? NULL : __real_malloc(n);
}

static json_t *parse(const char *s, size_t at, size_t most, bool *no_memory)
{
    json_error_t why;
    calls = 0;
    fail_at = at;
    fail_most = most;
    json_t *root = hf_parse(s, strlen(s), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why, no_memory);
    fail_at = 0;
    return root;
}

static void fails(const char *s, size_t most)
{
    bool no_memory;
    json_t *want = parse(s, 0, 0, &no_memory);
    assert_false(no_memory);
    size_t n = calls;
    assert_true(n > 2);
    for (size_t at = 1; at <= n; at++) {
        assert_null(parse(s, at, most, &no_memory));
        assert_true(no_memory);
    }
    json_t *root = parse(s, n + 1, most, &no_memory);
    assert_false(no_memory);
    assert_true(root ? json_equal(root, want) : !want);
    json_decref(root);
    json_decref(want);
}

static void any_allocation_may_fail(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "{\"a\": [true, false, null, 1, -0.5e3], \"b\": {\"c\": \"d\"}, \"a long key, longer than others\": {}}",
        "[123456789012345]", /* what fails is the room for the character after a number */
        "[123456789012345678]",
        "[-9.4234567890123456, 0.12345678901234567890123456789012345e-10]",
        "[\"fourteen bytes\"]", /* ... for the quote after a string */
        "[\"fifteen bytes !\", \"a string of more than thirty-one bytes\", \"one of more than sixty-three bytes, and "
        "some"
        " more, so that the buffer grows a third time\"]",
        "[\"fourteen byte\\\"\", \"\\u00e4\\u00f6\\u00fc\\ud83d\\ude00\\n\", "
        "\"\xc3\xa4\xc3\xb6\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80\xf0\x9f\x98\x80\"]",
        "[\"fourteen bytes\n\"]", /* faults of the text, which no lack of memory may hide */
        "[nulltruefalsenulltrue]",
        "[12345678901234567890]",
        "[\"fourteen bytes\", 1",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fails(texts[i], 1);
        fails(texts[i], SIZE_MAX);
    }
}

/* Only a parse is affected by a failure in it. */
static void others_go_on(void **state)
{
    (void)state;
    bool no_memory;
    assert_null(parse("[1]", 2, SIZE_MAX, &no_memory));
    json_t *v = json_string("x");
    assert_non_null(v);
    json_decref(v);
    v = parse("[1]", 0, 0, &no_memory);
    assert_int_equal(json_array_size(v), 1);
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(others_go_on),
    };
    return cmocka_run_group_tests_name("parse", tests, NULL, NULL);
}

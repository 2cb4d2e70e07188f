/*
 * jinja.c - chat templates: cases from the documentation of Jinja and Python, which output came from the context, and
 * that hostile templates end soon. Jinja2's own results are in jinja-vectors.c.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/model/jinja-run.h"

static void gives(const char *source, const char *context, const char *want)
{
    struct jinja_text text;
    struct jinja_err e;
    if (render(source, strlen(source), context, NULL, &text, &e))
        fail_msg("%s\nline %d: %s", source, e.line, e.message);
    if (strcmp(text.data, want) != 0)
        fail_msg("%s\ngives %s\n not %s", source, text.data, want);
    jinja_text_fini(&text);
}

static void fails(const char *source, const char *context, enum jinja_failure failure, int line)
{
    struct jinja_text text;
    struct jinja_err e;
    enum jinja_failure got = render(source, strlen(source), context, NULL, &text, &e);
    if (got == JINJA_OK)
        fail_msg("%s\ngives %s", source, text.data);
    if (got != failure || !e.message || !e.message[0] || (line && e.line != line))
        fail_msg("%s\nfails with %d at line %d: %s", source, (int)got, e.line, e.message);
    jinja_err_fini(&e);
}

static const char world[] =
    "{\"x\": 5, \"s\": \"h\\u00e9llo\", \"l\": [3, 1, 2], \"d\": {\"b\": 1, \"A\": 2, \"items\": 7},"
    " \"m\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\"}], \"n\": null}";

static void test_language(void **state)
{
    static const char *const rows[][2] = {
        /* whitespace: trim_blocks removes the newline after a block, lstrip_blocks the indentation before it */
        {"a\n  {% if 1 %}\nb\n  {% endif %}\nc\n", "a\nb\nc"},
        {"a\n  {%+ if 1 %}b{% endif +%}\nc", "a\n  b\nc"},
        {"a  {{- x -}}  b", "a5b"},
        {"a\n  {{ x }}\nb", "a\n  5\nb"},
        {"{# one #}\n{#- two -#}\n x", "x"},
        {"{% raw %}{{ x }}{% endraw %}", "{{ x }}"},
        {"a\r\nb\rc", "a\nb\nc"},
        {"a \n{#-", "a"}, /* what opens at the end and holds nothing needs no end */
        {"a{% raw %}", "a"},
        /* literals and their escapes; adjacent strings are one */
        {"{{ 'a\\tb\\x41\\u00e9\\101\\q' }}", "a\tbA\xc3\xa9"
                                              "A\\q"},
        {"{{ 'a' \"b\" }}{{ 0x1F }}{{ 1_000 }}{{ 1e3 }}{{ 2.50 }}", "ab3110001000.02.5"},
        {"{{ [1, 'a', none, true, 2.0] }}{{ (1,) }}{{ {'k': \"it's\"} }}",
         "[1, 'a', None, True, 2.0](1,){'k': \"it's\"}"},
        {"{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ -0.0 }} {{ 1/3 }}",
         "1e+16 1000000000000000.0 0.0001 1e-05 -0.0 0.3333333333333333"},
        {"{{ 2**63 }} {{ -(2**63) }} {{ 2**100 // 7 % 1000 }}", "9223372036854775808 -9223372036854775808 482"},
        /* operators */
        {"{{ 12345678901234567890 / 255 }} {{ -(10 ** 25) / 3 }} {{ 9007199254740993 / 1 }} {{ 0 / -3 }} {{ -1 / 3 }}",
         "4.841442706366498e+16 -3.3333333333333333e+24 9007199254740992.0 -0.0 -0.3333333333333333"},
        {"{{ 7 // 2 }}{{ -7 // 2 }}{{ -7 % 3 }}{{ 7 / 2 }}{{ 2 ** 3 ** 2 }}{{ -2 ** 2 }}", "3-423.5644"},
        {"{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'a' in 'cat' }}{{ 3 not in l }}{{ 'b' in d }}", "TrueFalseTrueFalseTrue"},
        {"{{ 9007199254740993 == 9007199254740992.0 }}{{ 9007199254740993 > 9007199254740992.0 }}{{ 2.5 > 2 }}{{ -3 < "
         "-2.5 }}"
         "{{ 10 ** 30 < 1e300 }}{{ 1 == 1.0 }}{{ 2 <= 'nan' | float }}",
         "FalseTrueTrueTrueTrueTrueFalse"},
        {"{{ 1 ~ 'a' ~ none ~ 1.0 }}{{ 'a' * 3 }}{{ [0] * 2 }}", "1aNone1.0aaa[0, 0]"},
        {"{{ 0 or 'y' }}{{ 1 and 'z' }}{{ not 0 }}{{ 'a' if 0 }}{{ 'a' if 0 else 'b' }}", "yzTrueb"},
        {"{{ x is number and x is not string }}{{ 4 is divisibleby 2 }}{{ u is undefined }}", "TrueTrueTrue"},
        /* access: a dot prefers attributes to items, brackets prefer items; slices */
        {"{{ d.b }}{{ d['items'] }}{{ d.items() | list | length }}{{ d.nope }}{{ n.nope }}", "173"},
        {"{{ s[1] }}{{ s[::-1] }}{{ s[-3:] }}{{ l[::2] }}{{ l[5:] }}{{ s | length }}",
         "\xc3\xa9oll\xc3\xa9hllo[3, 2][]5"},
        {"{{ ''.__class__ }}{{ d.update }}|", "|"},
        /* scopes: variables of a loop do not leak, those of a namespace do */
        {"{% set q = 0 %}{% for i in l %}{% set q = q + i %}{% endfor %}{{ q }}", "0"},
        {"{% set ns = namespace(q=0) %}{% for i in l %}{% set ns.q = ns.q + i %}{% endfor %}{{ ns.q }}", "6"},
        {"{% set a, (b, c) = 1, 'xy' %}{{ a }}{{ b }}{{ c }}", "1xy"},
        {"{% set t | upper | replace('A', 'b') %}ab{% endset %}{{ t }}", "bB"},
        {"{% with a = 1, b = x %}{{ a }}{{ b }}{% endwith %}{{ a }}", "15"},
        {"{% filter upper %}a{{ s }}{% endfilter %}", "AH\xc3\x89LLO"},
        {"{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}", "15"},
        /* loops */
        {"{% for i in l %}{{ loop.index }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }} {% endfor %}",
         "12TrueFalse 21FalseFalse 30FalseTrue "},
        {"{% for i in l %}{{ loop.previtem }}<{{ loop.nextitem }} {% endfor %}", "<1 3<2 1< "},
        {"{% for i in l if i > 1 %}{{ i }}{{ loop.length }}{% else %}e{% endfor %}", "3222"},
        {"{% for i in [] %}{% else %}e{% endfor %}{% for k, v in d | dictsort %}{{ k }}{{ v }}{% endfor %}",
         "eA2b1items7"},
        {"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}{{ i }}{% endfor "
         "%}",
         "02"},
        {"{% for i in [1, [2, [3]]] recursive %}{{ loop(i) if i is sequence else i }}{{ loop.depth }}{% endfor %}",
         "11223321"},
        {"{% for i in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }}{% endfor %}", "aTruebTrueaTrue"},
        /* macros */
        {"{% macro f(a, b='B', c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f() }}",
         "1B11B3B"},
        {"{% macro f(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, k=3) }}{{ f(*l, **{'z': 0}) }}",
         "(2,){'k': 3}(1, 2){'z': 0}"},
        {"{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}{{ f.name }}", "3210f"},
        {"{% macro f() %}<{{ caller('q') }}>{% endmacro %}{% call(a) f() %}{{ a }}{{ x }}{% endcall %}", "<q5>"},
        {"{% macro f() %}{{ q }}{% endmacro %}{% set q = 1 %}{{ f() }}", "1"},
        {"{% macro f() %}{% endmacro %}{{ f }}{% for i in l %}{{ loop }}{% endfor %}",
         "<Macro 'f'><LoopContext 1/3><LoopContext 2/3><LoopContext 3/3>"},
        /* a name that a scope sets without having read it is local to the scope from its start; a name set in an `if`
         * is not */
        {"{% set x %}<{{ x }}>{% endset %}{{ x }}", "<>"},
        {"{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% set x = 1 %}{{ f() }}", "1"},
        {"{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% if 1 %}{% set x = 1 %}{% endif %}{{ f() }}", "51"},
        {"{{ x }}{% for i in [1, 2] %}{% for j in [1] %}{{ x }}{{ q }}{% endfor %}{% set x = 7 %}{% set q = 8 %}{% "
         "endfor %}",
         "555"},
        {"{% for i in [1, 2] %}{% for j in [1] %}{{ x }}{% endfor %}{% set x = 7 %}{{ x }}{% endfor %}{{ x }}",
         "57575"},
        /* undefined */
        {"{{ u }}{{ u | default('d') }}{{ u is defined }}{{ u == v }}{% for i in u %}{% endfor %}", "dFalseTrue"},
        /* an unknown filter is an error only if it is reached, within an `if` */
        {"{% if false %}{{ x | nope }}{% endif %}{{ x | nope if false else 'ok' }}", "ok"},
        {"{{ strftime_now('%d %b %Y %H:%M %A') }}", "22 Nov 2026 10:00 Sunday"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        gives(rows[i][0], world, rows[i][1]);
}

static void test_filters_and_methods(void **state)
{
    static const char *const rows[][2] = {
        {"{{ ' a ' | trim }}{{ 'xax' | trim('x') }}{{ 'a b' | title }}{{ 'aB' | capitalize }}", "aaA BAb"},
        {"{{ l | join('-') }}{{ m | map(attribute='role') | join(',') }}{{ l | sort | first }}{{ l | max }}",
         "3-1-2user,assistant13"},
        {"{{ m | selectattr('content') | list | length }}{{ m | rejectattr('role', 'equalto', 'user') | "
         "map(attribute='role') "
         "| list }}",
         "1['assistant']"},
        {"{{ ['b', 'A', 'c'] | sort }}{{ ['b', 'A'] | sort(case_sensitive=true) }}{{ l | sort(reverse=true) }}",
         "['A', 'b', 'c']['A', 'b'][3, 2, 1]"},
        {"{{ ['a', 'A', 'b'] | unique | list }}{{ l | batch(2, 'x') | list }}{{ l | sum(start=1) }}",
         "['a', 'b'][[3, 1], [2, 'x']]7"},
        {"{{ l | batch(2, nothing) | list }}{{ l | slice(2, nothing) | list }}{{ l | slice(2, none) | list }}",
         "[[3, 1], [2, Undefined]][[3, 1], [2, Undefined]][[3, 1], [2]]"},
        {"{{ '12' | int + 1 }}{{ 'z' | int(7) }}{{ 'ff' | int(base=16) }}{{ '1.9' | int }}{{ '1e3' | float }}",
         "13725511000.0"},
        {"{{ '{:c}{:c}|{:3c}|{:<3c}|'.format(65, 8364, 66, 67) }}", "A\xe2\x82\xac|  B|C  |"},
        {"{{ '{:.2} {:.2} {:.3} {:.1} {:.3} {:.2}'.format(48.0, 10.0, 12.25, 5.0, 100.5, 5.0) }}",
         "4.8e+01 1e+01 12.2 5e+00 1e+02 5.0"},
        {"{{ '{:#.3} {:#1.1} {:#.1} {:.1} {:#.4} {:#_.6} {:.3} {:#.2}'.format(100.0, 2.5, 0.0, 0.5, 100.0, 123456.789, "
         "0.001, 0.25) }}",
         "1.00e+02 2.e+00 0.e+00 0.5 100.0 1.23457e+05 0.001 0.25"},
        {"{{ '%.0c|%3.0c|' % ('x', 'y') }}{{ '{:_x}'.format(500000) }}", "x|  y|7_a120"},
        {"{{ 4.663157617893791e19 | round(-1) }} {{ 15.0 | round(-1) }} {{ 5.0 | round(-1) }} {{ 51.0 | round(-2) }} "
         "{{ -4.0 | round(-2) }}",
         "4.663157617893791e+19 20.0 0.0 100.0 -0.0"},
        {"{{ 2.5 | round }}{{ 3.5 | round }}{{ 2.675 | round(2) }}{{ 2.1 | round(method='ceil') }}{{ 1250 | round(-2) "
         "}}",
         "2.04.02.673.01200"},
        {"{{ 'a\nb\n\nc' | indent(2) }}|{{ 'a\nb' | indent('> ', true) }}", "a\n  b\n\n  c|> a\n> b"},
        {"{{ d | tojson }}{{ {'a': [1, {}]} | tojson(indent=1) }}{{ {'b': 1, 'a': '\xc3\xa9</'} | "
         "tojson(sort_keys=true) }}",
         "{\"b\": 1, \"A\": 2, \"items\": 7}{\n \"a\": [\n  1,\n  {}\n ]\n}{\"a\": \"\xc3\xa9</\", \"b\": 1}"},
        {"{{ '\xc3\xa9' | tojson(ensure_ascii=true) }}{{ 'a\"\\\\\n\x7f' | tojson }}{{ [1] | tojson(separators=(',', "
         "':')) }}",
         "\"\\u00e9\"\"a\\\"\\\\\\n\x7f\"[1]"},
        {"{{ 'a,b,c'.split(',', 1) }}{{ ' a  b '.split() }}{{ 'a.b.c'.rsplit('.', 1)[0] }}{{ 'a\nb'.splitlines() }}",
         "['a', 'b,c']['a', 'b']a.b['a', 'b']"},
        {"{{ 'stra\xc3\x9f"
         "e'.upper() }}{{ \"it's\".title() }}{{ 'ab'.startswith(('x', 'a')) }}{{ 'aXa'.lstrip('a') }}",
         "STRASSEIt'STrueXa"},
        {"{{ 'a-b'.partition('-') }}{{ 'abc'.find('c') }}{{ 'aa'.replace('a', 'b', 1) }}{{ '-'.join(['x', 'y']) }}",
         "('a', '-', 'b')2bax-y"},
        {"{{ ['\xc7\x85\xc3\x89\xce\x91\xce\xa3'.swapcase(), '\xe4\xb8\x89'.isnumeric(), '\xf0\x90\x9e\x87'.islower()] "
         "}}",
         "['\xc7\x85\xc3\xa9\xce\xb1\xcf\x82', True, True]"},
        {"{{ '\xd9\xa1\xd9\xa2' | int }}{{ '\xef\xbc\x91.5' | float }}{{ '12' | int(7, none) }}{{ 2.5 | round(none) }}",
         "121.5122"},
        {"{{ '\x7f\xc3\xa9' | tojson(ensure_ascii=true) }}{{ '%a %%' % '\xc3\xa9\xf0\x9f\x98\x80' }}{{ "
         "'{!a}'.format('\xe2\x82\xac') }}",
         "\"\\u007f\\u00e9\"'\\xe9\\U0001f600' %'\\u20ac'"},
        {"{{ u is sameas u }}{{ none is sameas none }}{{ l is sameas l }}{{ ('<' | e).join([1, '>']) }}",
         "FalseTrueTrue1&lt;&gt;"},
        {"{{ s | truncate(99999999999999999999) }}{{ -0.0 | filesizeformat }}", "h\xc3\xa9llo0 Bytes"},
        {"{{ 'Look, goof-ball --  use the -b option!\nand supercalifragilistic' | wordwrap(11) }}",
         "Look, goof-\nball --\nuse the -b\noption!\nand superca\nlifragilist\nic"},
        {"{{ 'a well-known-fact\u2003 x' | wordwrap(8, false, '|') }}{{ 'ab-cd' | wordwrap(3, break_on_hyphens=false) "
         "}}{{ '' | wordwrap(0) }}",
         "a well-|known-|fact\xe2\x80\x83 xab-\ncd"},
        {"{{ '<p>a <!-- <b> --> <i\n>b</i>&amp;  c < d' | striptags }}", "a b& c < d"},
        {"{{ {'a': 1, 'b': none, 'c': '<\\x22', 'd': u} | xmlattr }}{{ {} | xmlattr }}{{ {'k': 0} | xmlattr(false) }}",
         " a=\"1\" c=\"&lt;&#34;\"k=\"0\""},
        {"{{ {'b': [{'z': 1, 'a': (2,)}], 'a': 'x'} | pprint }}", "{'a': 'x', 'b': [{'a': (2,), 'z': 1}]}"},
        {"{{ 'abcd\xc3\xa9'.translate({97: 'xx', 98: none, 233: 101}) }}{{ 'abc'.translate(''.maketrans('ab', 'ba', "
         "'c')) }}",
         "xxcdeba"},
        {"{{ [] | map() | list }}{{ (x | items) is defined }}{{ d.values() == d.values() }}{{ d.keys() == d.keys() }}",
         "[]TrueFalseTrue"},
        {"{{ '%s|%5.1f|%-4d|%(k)s' % {'k': 1} if false else '%s|%5.1f|%-4d|' % ('a', 2.25, 7) }}", "a|  2.2|7   |"},
        {"{{ '{} {1}'.format(1) if false else '{} {}'.format('a', 2) }}{{ '{:>4}|{:,}'.format('x', 1234567) }}",
         "a 2   x|1,234,567"},
        {"{{ '<i>' | safe ~ '<' }}{{ ('<i>' | safe) + '<' }}{{ '<' | e }}{{ ('<' | e) | e }}", "<i><<i>&lt;&lt;&lt;"},
        {"{{ d.get('zz', 4) }}{{ d.keys() | list }}{{ l.index(2) }}{{ 'abcabc'.count('bc') }}",
         "4['b', 'A', 'items']22"},
        {"{{ ['a', 'b'] | map('upper') | list }}{{ [[1, 2]] | map(attribute=0) | list }}{{ [1, 2, 3] | select('odd') | "
         "list }}",
         "['A', 'B'][1][1, 3]"},
        {"{% for g in [{'k': 'a', 'v': 1}, {'k': 'b', 'v': 2}, {'k': 'a', 'v': 3}] | groupby('k') %}{{ g.grouper }}"
         "{{ g.list | map(attribute='v') | join('+') }}{% endfor %}",
         "a1+3b2"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        gives(rows[i][0], world, rows[i][1]);
}

/* An integer is printed with as many digits as the precision requests. */
static void test_precision(void **state)
{
    char want[512];
    (void)state;
    gives("{{ '%.3d|%.0d|%5.3d|%-5.3d|%05.3d|%#.4x' % (7, 0, 7, 7, 7, 255) }}", "{}", "007|0|  007|007  |00007|0x00ff");
    snprintf(want, sizeof want, "%099d|%0100d|%0300d", 7, 7, 7);
    gives("{{ '%.99d|%.100d|%.*d' % (7, 7, 300, 7) }}", "{}", want);
    snprintf(want, sizeof want, "-%0120d|  +%0107d|0x%0120x", 7, 7, 255);
    gives("{{ '%.120d|%+110.107d|%#.120x' % (-7, 7, 255) }}", "{}", want);
    gives("{{ ('%.100000d' % 7) | length }}", "{}", "100000");
}

/* Arguments at the limits of 64 bits and beyond. */
static void test_extremes(void **state)
{
#define LEAST "(-(2 ** 63))"
#define MOST  "(2 ** 63 - 1)"
    static const char *const rows[][2] = {
        {"{{ 'x'.zfill(" LEAST ") }}{{ 'x'.zfill(-(2 ** 100)) }}{{ '-5'.zfill(4) }}{{ 'xy'.zfill(1) }}", "xx-005xy"},
        {"{{ 'x'.center(" LEAST ") }}{{ 'x'.ljust(" LEAST ") }}{{ 'x'.rjust(-(2 ** 100)) }}", "xxx"},
        {"{{ 'x'.center(4, '*') }}{{ 'xy'.center(5, '*') }}{{ '' | center(-1) }}", "*x****xy*"},
        {"{{ 'abc'.find('c', " LEAST ") }}{{ 'abc'.find('c', 0, " LEAST ") }}{{ 'abc'.count('c', " LEAST ", " MOST
         ") }}",
         "2-11"},
        {"{{ 'a b c'.split(none, " LEAST ") }}{{ 'aa'.replace('a', 'b', " LEAST ") }}", "['a', 'b', 'c']bb"},
        {"{{ 'abc'[" LEAST ":" MOST "] }}{{ 'abc'[" MOST ":" LEAST ":" LEAST "] }}{{ [1, 2][::" LEAST "] }}",
         "abcc[2]"},
        {"{{ [1, 2].index(2, " LEAST ") }}{{ 'ab' * " LEAST " }}{{ [1] * " LEAST " }}", "1[]"},
        {"{{ 'a\tb'.expandtabs(" LEAST ") }}{{ 1.5 | round(" LEAST ") }}{{ 15 | round(" LEAST ") }}", "ab0.00"},
        {"{{ 'ab' | indent(" LEAST ", true) }}{{ [1] | tojson(indent=" LEAST ") }}", "ab[\n1\n]"},
        {"{{ range(" LEAST ", " MOST ", 2 ** 62) | list }}",
         "[-9223372036854775808, -4611686018427387904, 0, 4611686018427387904]"},
        {"{{ range(" LEAST ", " MOST ", 2 ** 62)[3] }} {{ range(0, 2 ** 62, 2 ** 61)[::2] }}",
         "4611686018427387904 range(0, 4611686018427387904, 4611686018427387904)"},
        {"{{ (-(2 ** 126) - 2 ** 126) | round(-37) }}{{ (2 ** 126 - 1 + 2 ** 126) | round(-36) }}",
         "-170000000000000000000000000000000000000170000000000000000000000000000000000000"},
        {"{{ (6 * 10 ** 37) | round(-38) }} {{ (5 * 10 ** 37) | round(-38) }} {{ (-6 * 10 ** 37) | round(-38) }} "
         "{{ (16 * 10 ** 37) | round(-39) }}",
         "100000000000000000000000000000000000000 0 -100000000000000000000000000000000000000 0"},
        {"{{ 1.23456e-310 | round(312) }} {{ 1e-323 | round(323) }} {{ 1.4e308 | round(-308) }}",
         "1.23e-310 1e-323 1e+308"},
        {"{{ [15, 25, -15, -25, -14, -16, 0] | map('round', -1) | list }}", "[20, 20, -20, -20, -10, -20, 0]"},
        {"{{ range(5)[3:0:-2] }}{{ range(0, 10, 3)[1:3] | list }}", "range(3, 0, -2)[3, 6]"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        gives(rows[i][0], "{}", rows[i][1]);
    fails("{{ '%*d' % (" LEAST ", 1) }}", "{}", JINJA_LIMIT, 0);
    fails("{{ range(" LEAST ", " LEAST " + 1)[::-1] }}", "{}", JINJA_LIMIT, 0);
    fails("{{ range(" MOST " - 1, " MOST ", 2)[1:] }}", "{}", JINJA_LIMIT, 0);
    fails("{{ range(0, 2 ** 62, 2 ** 61)[::2 ** 31] }}", "{}", JINJA_LIMIT, 0);
    fails("{{ range(2 ** 64, 2 ** 64 + 2) | list }}", "{}", JINJA_LIMIT, 1);
    fails("{{ range(0, 2 ** 64, 2 ** 62) | list }}", "{}", JINJA_LIMIT, 1);
    fails("{{ range(" LEAST ", " MOST ", 2 ** 64) | list }}", "{}", JINJA_LIMIT, 1);
    fails("{{ (16 * 10 ** 37) | round(-38) }}", "{}", JINJA_LIMIT, 1);
    fails("{{ -1.5e308 | round(-308) }}", "{}", JINJA_RUNTIME, 1);
#undef LEAST
#undef MOST
}

/* Equal keys are the same key, even if they are different objects. */
static void test_keys(void **state)
{
    static const char *const rows[][2] = {
        {"{{ {1: 'a'}[true] }}{{ {1: 'a'}[1.0] }}{{ {0: 'a'}[-0.0] }}{{ {2.0 ** 70: 'a'}[2 ** 70] }}", "aaaa"},
        {"{{ {2 ** 53 + 1: 'a'}[2.0 ** 53] is defined }}{{ {2 ** 100 + 1: 'a'}[2 ** 100 + 1] }}", "Falsea"},
        {"{{ {range(3): 'a'}[range(3)] }}{{ {range(0, 3, 2): 'a'}[range(0, 4, 2)] }}", "aa"},
        {"{{ {range(0): 'a'}[range(5, 5)] }}{{ {range(0, 1, 2): 'a'}[range(0, 4, 5)] }}", "aa"},
        {"{{ {range(3): 'a'}[range(4)] is defined }}{{ {(1, range(2)): 'a'}[(true, range(2))] }}", "Falsea"},
        {"{{ {s.upper: 'a'}[s.upper] }}{{ {s.upper: 'a'}[s.lower] is defined }}{{ {l.index: 'a'}[l.index] }}",
         "aFalsea"},
        {"{{ {x.conjugate: 'a'}[x.conjugate] }}{{ {d.get: 'a'}[d.get] }}{{ {(1, 2).count: 'a'}[(1, 2).count] }}",
         "aaa"},
        {"{{ [range(3), range(0, 3), s.upper, s.upper] | unique | list | length }}{{ {none: 'a'}[none] }}", "2a"},
        {"{% set t %}{% for i in range(40000) %}{{ 2 ** 100 + i }} {% endfor %}{% endset %}"
         "{{ t.split() | map('int') | unique | list | length }}",
         "40000"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        gives(rows[i][0], world, rows[i][1]);
    fails("{{ {l: 1} }}", world, JINJA_RUNTIME, 1);
    fails("{{ {(1, l): 1} }}", world, JINJA_RUNTIME, 1);
}

static void test_errors(void **state)
{
    static const struct {
        const char *source;
        enum jinja_failure failure;
        int line;
    } rows[] = {
        {"a\n{% if %}", JINJA_SYNTAX, 2},
        {"{{ 1 +\n+ }}", JINJA_SYNTAX, 2},
        {"{% for i in l %}\n", JINJA_SYNTAX, 0},
        {"{{ (1 }}", JINJA_SYNTAX, 1},
        {"{{ 'a }}", JINJA_SYNTAX, 1},
        {"{# ", JINJA_SYNTAX, 1},
        {"{% break %}", JINJA_SYNTAX, 1},
        {"{% for i in l %}{% set loop = 1 %}{% endfor %}", JINJA_SYNTAX, 1},
        {"{% block a %}{% endblock %}", JINJA_SYNTAX, 1},
        {"\n{{ x | nope }}", JINJA_SYNTAX, 2},
        {"{% if x %}\n{{ x | nope }}{% endif %}", JINJA_RUNTIME, 2},
        {"\n\n{{ u.x }}", JINJA_RUNTIME, 3},
        {"{{ u() }}", JINJA_RUNTIME, 1},
        {"{{ 1 + 'a' }}", JINJA_RUNTIME, 1},
        {"{{ 1 // 0 }}", JINJA_RUNTIME, 1},
        {"{{ l.append(1) }}", JINJA_RUNTIME, 1},
        {"{{ d.pop('b') }}", JINJA_RUNTIME, 1},
        {"{{ [1, 'a'] | sort }}", JINJA_RUNTIME, 1},
        {"{{ l | map('upper') | length }}", JINJA_RUNTIME, 1},
        {"{% include 'x' %}", JINJA_RUNTIME, 1},
        {"{% for i, in [[1]] %}{% endfor %}", JINJA_SYNTAX, 1},
        {"{{ dict(u) }}", JINJA_RUNTIME, 1},
        {"{{ {d.keys(): 1} }}", JINJA_RUNTIME, 1},
        {"{{ d.items() in d }}", JINJA_RUNTIME, 1},
        {"{{ l | sort(reverse=none) }}", JINJA_RUNTIME, 1},
        {"{{ x | items | list }}", JINJA_RUNTIME, 1},
        {"{{ '%5%' % 1 }}", JINJA_RUNTIME, 1},
        {"{{ '{:-5s}'.format('a') }}", JINJA_RUNTIME, 1},
        {"{{ '{:-c}'.format(65) }}", JINJA_RUNTIME, 1},
        {"{{ '{:_n}'.format(5) }}", JINJA_RUNTIME, 1},
        {"{{ '{:,x}'.format(5) }}", JINJA_RUNTIME, 1},
        {"{{ '-inf' | filesizeformat }}", JINJA_RUNTIME, 1},
        {"{{ s | wordwrap(0) }}", JINJA_RUNTIME, 1},
        {"{{ '&eacute;' | striptags }}", JINJA_RUNTIME, 1},
        {"{{ {'a b': 1} | xmlattr }}", JINJA_RUNTIME, 1},
        {"{{ range(99) | list | pprint }}", JINJA_RUNTIME, 1},
        {"{{ ''.maketrans('a', '') }}", JINJA_RUNTIME, 1},
        {"{% filter length %}a{% endfilter %}", JINJA_RUNTIME, 1},
        {"{% call namespace() %}{% endcall %}", JINJA_RUNTIME, 1},
        {"{{ '\\ud800' }}", JINJA_RUNTIME, 0},
        {"{{ raise_exception('roles must\\nalternate') }}", JINJA_RAISED, 0},
    };
    struct jinja_text text;
    struct jinja_err e;
    const char *raised = "{{ raise_exception('\xc3\xa9 ' ~ x) }}";
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        fails(rows[i].source, world, rows[i].failure, rows[i].line);
    assert_int_equal(render(raised, strlen(raised), world, NULL, &text, &e), JINJA_RAISED);
    assert_string_equal(e.message, "\xc3\xa9 5");
    jinja_err_fini(&e);
    fails("{{ x }}", "[1]", JINJA_INPUT, 0);
    fails("{{ x }}", "{\"x\": 01}", JINJA_INPUT, 0);
    fails("{{ x }}", "{\"x\": \"a\nb\"}", JINJA_INPUT, 0);
    fails("{{ x }}", "{\"x\": 1} 2", JINJA_INPUT, 0);
    fails("{{ x }}", "{\"x\": \"\xff\"}", JINJA_INPUT, 0);
    fails("\xff", "{}", JINJA_SYNTAX, 0);
}

/* In Python each of these would take all memory, or hours. */
/* Two lists a and b of few parts that are found again along 2^60 paths. */
#define SHARED                                                                                          \
    "{% set ns = namespace(a=('x',), b=('x',)) %}{% for i in range(60) %}{% set ns.a = (ns.a, ns.a) %}" \
    "{% set ns.b = (ns.b, ns.b) %}{% endfor %}"

static void test_limits(void **state)
{
    static const char *const rows[] = {
        "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s "
        "}}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[]) %}{% for i in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
        "{{ [0] * 1000000000 }}",
        "{{ 'x' * 1000000000 }}",
        "{{ 10 ** 10 ** 10 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%.1000000000d' % 1 }}",
        "{{ '%.*d' % (10 ** 30, 1) }}",
        "{{ 'x'.ljust(2000000000) }}",
        "{{ '{:2000000000}'.format(1) }}",
        "{{ range(100001) }}",
        "{{ ('nan ' * 40000).split() | map('float') | unique | list | length }}",
        "{{ range(40000) | batch(1) | map(attribute='index') | unique | list | length }}",
        "{{ [1] | tojson(indent=2000000000) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% macro f() %}{{ caller is defined }}{% call f() %}{% endcall %}{% endmacro %}{{ f() }}",
        "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{{ ('<>' * 4000000) | striptags }}",
        "{{ ('-' * 16000000) | wordwrap }}",
        "{{ range(99999) | map('string') | join('x' * 1000000) | length }}",
        "{% set s = 'ab' * 4000000 %}{% for i in range(99999) %}{{ 'ba' * 3000000 in s }}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% set q = s.replace('a', 'bb') %}{% endfor %}",
        SHARED "{{ ns.a == ns.b }}",
        SHARED "{{ ns.a < ns.b }}",
        SHARED "{{ ns.a in [ns.b] }}",
        SHARED "{{ {ns.a: 1} }}",
    };
    char *deep = malloc(200001);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        fails(rows[i], "{}", JINJA_LIMIT, 0);
    assert_non_null(deep);
    static const char *const nest[] = {"{{ ((((", "{{ [[[[", "{{ -----", "{{ not not ", "{{ f(f(f(", "{% if 1 %}"};
    for (size_t i = 0; i < sizeof nest / sizeof *nest; i++) {
        size_t head = strncmp(nest[i], "{{ ", 3) ? 0 : 3, n = head, unit = strlen(nest[i]) - head;
        for (memcpy(deep, nest[i], head); n + unit < 200000; n += unit)
            memcpy(deep + n, nest[i] + head, unit);
        deep[n] = 0;
        fails(deep, "{}", JINJA_LIMIT, 0);
    }
    size_t n = (size_t)sprintf(deep, "{{ 1");
    for (; n + 10 < 200000; n += 2)
        memcpy(deep + n, "+1", 2);
    strcpy(deep + n, " }}"); /* a syntax tree as deep as the source is long */
    fails(deep, "{}", JINJA_LIMIT, 0);
    memset(deep, '[', 200000);
    memcpy(deep, "{\"x\":", 5);
    deep[200000] = 0;
    fails("{{ x }}", deep, JINJA_LIMIT, 0);
    free(deep);
    static char large[JINJA_SOURCE_MAX + 2];
    memset(large, 'a', sizeof large - 1);
    fails(large, "{}", JINJA_LIMIT, 0);
}

/* Checks which output came from the context's strings; that of the template itself and of tokens is not marked. */
static void marks(const char *source, const char *want)
{
    static const char *const own[] = {"bos_token", NULL};
    char got[512];
    size_t n = 0, s = 0;
    struct jinja_text text;
    struct jinja_err e;
    if (render(source, strlen(source), "{\"bos_token\": \"<s>\", \"c\": \" Hello you \", \"d\": {\"k\": [\"v\", 1]}}",
               own, &text, &e))
        fail_msg("%s: %s", source, e.message);
    for (size_t i = 0; i <= text.n; i++) {
        if (s < text.n_span && i == text.span[s].to) {
            got[n++] = ']';
            s++;
        }
        if (s < text.n_span && i == text.span[s].from)
            got[n++] = '[';
        if (i < text.n)
            got[n++] = text.data[i];
    }
    got[n] = 0;
    if (strcmp(got, want) != 0)
        fail_msg("%s\nmarks %s\n  not %s", source, got, want);
    jinja_text_fini(&text);
}

static void test_origin(void **state)
{
    (void)state;
    marks("{{ bos_token }}{{ c }}<end>", "<s>[ Hello you ]<end>");
    marks("{{ bos_token + c.strip() ~ '<end>' }}", "<s>[Hello you]<end>");
    marks("{{ ('a' ~ c ~ 'b')[2:7] }}", "[Hello]");
    marks("{{ ('<' ~ c.strip() ~ '>').split('o')[0] }}|{{ c[::-1].split()[0] }}", "<[Hell]|[uoy]");
    marks("{% macro f(x) %}({{ x }}){% endmacro %}{% set t %}{{ f(c | trim) }}{% endset %}{{ t }}", "([Hello you])");
    marks("{{ c | trim | upper }}|{{ c | trim | replace('you', '<s>') }}", "[HELLO YOU]|[Hello ]<s>");
    marks("{{ d | tojson }}{{ d }}", "{\"[k]\": [\"[v]\", 1]}{'[k]': ['[v]', 1]}");
    marks("{{ '%s!' % c.strip() }}{{ '{}'.format(c.strip()) }}{{ ['x', c.strip()] | join('-') }}",
          "[Hello you]![Hello you]x-[Hello you]");
    marks("{% for w in c.split() %}{{ w }}{{ w | length }}{% endfor %}", "[Hello]5[you]3");
}

/* Templates that build the whole text in a variable, such as Reka-Edge's, take linear memory. */
static void test_appending(void **state)
{
    (void)state;
    gives(
        "{% set ns = namespace(s='', old='') %}{% for i in range(4000) %}{% if i == 9 %}{% set ns.old = ns.s %}{% "
        "endif %}"
        "{% set t %}{{ c * 20 }}{% endset %}{% set ns.s = ns.s ~ '<u>' ~ t + '<e>' %}{% endfor %}"
        "{{ ns.s | length }} {{ ns.old | length }} {{ ns.s.startswith(ns.old ~ '<u>abc') }} {{ (ns.old ~ 'x')[-4:] }}",
        "{\"c\": \"abc\"}", "264000 594 True <e>x");
    marks(
        "{% set t = bos_token * 200 %}{% set u = t ~ c %}{% set v = t ~ '!' %}{{ (u ~ '>')[-12:] }}{{ (v ~ c)[-12:] }}",
        "[ Hello you ]>![ Hello you ]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_appending), cmocka_unit_test(test_language), cmocka_unit_test(test_filters_and_methods),
        cmocka_unit_test(test_precision), cmocka_unit_test(test_extremes), cmocka_unit_test(test_keys),
        cmocka_unit_test(test_errors),    cmocka_unit_test(test_limits),   cmocka_unit_test(test_origin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

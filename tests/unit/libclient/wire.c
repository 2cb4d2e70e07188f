/* wire.c - the codec: every row of the tables round-trips, known messages give known bytes, and hostile bytes are
 * refused with a name. */
#include "tests/unit/libclient/wire-random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct arena arena;
static struct hearth_err err;

/* --- round trip ----------------------------------------------------------------------------------------- */

/* Packs, scans, opens and unpacks one message and compares. what: 0 request or event, 1 result, 2 event as notify_as.
 */
static void round_trip(const struct wire_method *m, int what)
{
    const struct wire_type *t = what == 1 ? m->result : m->params;
    struct wire_buf b = {0};
    struct wire_scan scan = {0};
    struct wire_frame f;
    void *msg = give(&arena, t->size), *back = NULL;
    int rc;

    random_struct(&arena, t, msg);
    if (what == 1)
        rc = wire_pack_result(&b, 77, m, msg, &err);
    else if (m->kind == WIRE_REQUEST)
        rc = wire_pack_request(&b, 0xfffffffe, m, msg, &err);
    else
        rc = wire_pack_event(&b, m, msg, NULL, NULL, &err);
    if (rc)
        fail_msg("%s: pack: %s", m->name, err.msg);
    assert_int_equal(wire_scan(&scan, b.data, b.len, WIRE_LINK_FRAME_MAX, &err), b.len);
    assert_int_equal(wire_frame_open(&f, b.data, b.len, &err), 0);
    if (what == 1) {
        assert_int_equal(f.kind, WIRE_FRAME_RESPONSE);
        assert_int_equal(f.id, 77);
        assert_false(f.is_error);
    } else {
        assert_int_equal(f.kind, m->kind == WIRE_REQUEST ? WIRE_FRAME_REQUEST : WIRE_FRAME_EVENT);
        assert_int_equal(f.id, m->kind == WIRE_REQUEST ? 0xfffffffe : 0);
        assert_ptr_equal(wire_method_find(f.method, f.method_len), m);
    }
    if (wire_unpack(t, f.body, f.body_len, &back, &err))
        fail_msg("%s: unpack: %s", m->name, err.msg);
    const char *field = differs(t, msg, back);
    if (field)
        fail_msg("%s: %s came back different", m->name, field);
    wire_free(back);
    wire_buf_fini(&b);
    arena_fini(&arena);
}

static void every_method_round_trips(void **state)
{
    (void)state;
    for (int i = 0; i < WIRE_METHODS; i++) {
        const struct wire_method *m = &wire_methods[i];
        assert_non_null(m->name); /* the enum and the table agree */
        for (uint64_t round = 0; round < 100; round++) {
            arena.seed = round * 1000 + (uint64_t)i;
            round_trip(m, 0);
            if (m->result)
                round_trip(m, 1);
        }
    }
    assert_null(wire_methods[WIRE_METHODS].name);
}

/* --- known bytes ---------------------------------------------------------------------------------------- */

static size_t from_hex(const char *hex, uint8_t *out)
{
    size_t n = 0;
    for (; *hex; hex++) {
        unsigned v;
        if (*hex == ' ')
            continue;
        assert_int_equal(sscanf(hex, "%2x", &v), 1);
        out[n++] = (uint8_t)v;
        hex++;
    }
    return n;
}

static void assert_packed(struct wire_buf *b, const char *hex)
{
    uint8_t want[512];
    size_t n = from_hex(hex, want);
    assert_int_equal(b->len, n);
    assert_memory_equal(b->data, want, n);
    b->len = 0;
}

static void known_bytes_are_packed(void **state)
{
    (void)state;
    struct wire_buf b = {0};

    struct wire_empty none = {0};
    assert_int_equal(wire_pack_request(&b, 1, &wire_methods[WIRE_STATUS], &none, &err), 0);
    assert_packed(&b, "94 00 01 a6 737461747573 91 80");

    struct wire_cancel cancel = {.stream = 300};
    assert_int_equal(wire_pack_request(&b, 65536, &wire_methods[WIRE_CANCEL], &cancel, &err), 0);
    assert_packed(&b, "94 00 ce00010000 a6 63616e63656c 91 81 a6 73747265616d cd012c");

    struct wire_cancel_result cancelled = {.cancelled = true};
    assert_int_equal(wire_pack_result(&b, 7, &wire_methods[WIRE_CANCEL], &cancelled, &err), 0);
    assert_packed(&b, "94 01 07 c0 81 a9 63616e63656c6c6564 c3");

    assert_int_equal(wire_pack_error(&b, 7, HEARTH_ENOMODEL, "no model tale", &err), 0);
    assert_packed(&b, "94 01 07 92 01 be 4d4f44454c5f4e4f545f464f554e44 3a20 6e6f206d6f64656c2074616c65 c0");
    assert_int_equal(wire_pack_error(&b, 7, HEARTH_EIO, "x", &err), 0);
    assert_packed(&b, "94 01 07 92 00 a5 494f3a2078 c0");

    int32_t ids[] = {1, 128, 70000};
    struct wire_stream_tokens tokens = {
        .stream = 2, .index = 0, .count = 3, .text = {"h\xc3\xa9", 3}, .tokens = {ids, 3}, .choice = -1};
    assert_int_equal(wire_pack_event(&b, &wire_methods[WIRE_STREAM_TOKENS], &tokens, NULL, NULL, &err), 0);
    assert_packed(&b, "93 02 ad 73747265616d2e746f6b656e73 91 85 a6 73747265616d 02 a5 696e646578 00 a5 636f756e74 03"
                      "a4 74657874 a3 68c3a9 a6 746f6b656e73 93 01 cc80 ce00011170");

    struct wire_stream_begin begin = {.stream = 2, .choice = -1};
    assert_int_equal(wire_pack_event(&b, &wire_methods[WIRE_STREAM_BEGIN], &begin, "nvim_exec_lua", "f(...)", &err), 0);
    assert_packed(&b, "93 02 ad 6e76696d5f657865635f6c7561 92 a6 66282e2e2e29"
                      "92 ac 73747265616d2e626567696e 81 a6 73747265616d 02");

    /* bytes that are not UTF-8 become bin, and fields of type bin always are */
    struct wire_detokenize_result text = {.bytes = {"a", 1}, .text = {"\xff", 1}};
    assert_int_equal(wire_pack_result(&b, 1, &wire_methods[WIRE_DETOKENIZE], &text, &err), 0);
    assert_packed(&b, "94 01 01 c0 82 a5 6279746573 c4 01 61 a4 74657874 c4 01 ff");

    struct wire_logit logit[] = {{.id = 5, .logit = 1.5}};
    struct wire_top top[] = {{logit, 1}, {NULL, 0}};
    struct wire_eval_result eval = {.top = top, .n_top = 2};
    assert_int_equal(wire_pack_result(&b, 1, &wire_methods[WIRE_EVAL], &eval, &err), 0);
    assert_packed(&b, "94 01 01 c0 82 a3 746f70 92 91 92 05 cb3ff8000000000000 90 a6 677265656479 90");
    wire_buf_fini(&b);
}

/* Opens and unpacks the params of one request written in hex. */
static int request(const char *hex, void **out)
{
    static uint8_t bytes[4096];
    size_t n = from_hex(hex, bytes);
    struct wire_scan scan = {0};
    struct wire_frame f;

    ptrdiff_t whole = wire_scan(&scan, bytes, n, WIRE_FRAME_MAX, &err);
    if (whole < 0)
        return (int)whole;
    assert_int_equal(whole, n);
    int rc = wire_frame_open(&f, bytes, n, &err);
    if (rc)
        return rc;
    const struct wire_method *m = wire_method_get(f.method, f.method_len, &err);
    return m ? wire_unpack(m->params, f.body, f.body_len, out, &err) : err.code;
}

/* generate {model: "m", text: "t", and one more pair} with request id 9. */
#define GENERATE(more) "94 00 09 a8 67656e6572617465 91 83 a5 6d6f64656c a1 6d a4 74657874 a1 74" more
#define SAMPLING(more) GENERATE("a8 73616d706c696e67 81" more)
#define HISTORY(more)  "94 00 01 af 656e67696e652e67656e6572617465 91 81 a7 686973746f7279" more

/* Checks that the request is refused with exactly this message. */
static void assert_refused(const char *hex, const char *want)
{
    void *msg = NULL;
    assert_int_equal(request(hex, &msg), HEARTH_EPARAMS);
    assert_null(msg);
    assert_string_equal(err.msg, want);
}

/* An unknown key in a generate request is refused at any depth, and the most similar known key is suggested. */
static void unknown_keys_of_generate(void **state)
{
    (void)state;
    assert_refused(SAMPLING("aa 74656d7072617475 7265 00"),
                   "generate.sampling: \"temprature\" is not known; is temperature meant?");
    assert_refused(SAMPLING("a4 74656d70 00"), "generate.sampling: \"temp\" is not known; is temperature meant?");
    assert_refused(GENERATE("ab 74656d7065726174757265 00"),
                   "generate: \"temperature\" is not known; is sampling.temperature meant?");
    assert_refused(GENERATE("a3 666f6f 92 01 81 a1 61 c0"), "generate: \"foo\" is not known");
    assert_refused(GENERATE("a2 c328 01"), "generate: \"\" is not known"); /* not UTF-8: not shown */
    assert_refused("94 00 09 a8 67656e6572617465 91 82 a5 6d6f64656c a1 6d a8 6d65737361676573 91 "
                   "82 a4 726f6c65 a4 75736572 a7 636f6e74656e73 01",
                   "generate.messages[0].content: is missing");
    assert_refused("94 00 09 a8 67656e6572617465 91 82 a5 6d6f64656c a1 6d a8 6d65737361676573 91 "
                   "82 a4 726f6c65 a4 75736572 a7 636f6e74656e74 91 83 a4 74797065 a4 74657874 a4 74657874 a1 78 "
                   "a5 636f6c6f72 a1 79",
                   "generate.messages[0].content[0]: \"color\" is not known");
    char longest[2 * 300 + 32] = "", hex[1024];
    for (int i = 0; i < 300; i++)
        strcat(longest, "61");
    snprintf(hex, sizeof hex, GENERATE("da 012c %s 00"), longest);
    assert_refused(hex, "generate: \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\" is not known");

    /* elsewhere unknown keys are ignored: in other requests, in results, and in what hearthd stores or passes to its
     * engine */
    void *msg;
    assert_int_equal(request("94 00 09 a6 63616e63656c 91 82 a6 73747265616d 01 a3 666f6f 01", &msg), 0);
    wire_free(msg);
    static const uint8_t sampling[] = {0x81, 0xa3, 'f', 'o', 'o', 1};
    for (const struct wire_field *f = wire_methods[WIRE_GENERATE].params->fields; f->name; f++)
        if (!strcmp(f->name, "sampling")) {
            assert_int_equal(wire_unpack(f->sub, sampling, sizeof sampling, &msg, &err), 0);
            wire_free(msg);
        }
}

static void known_bytes_are_unpacked(void **state)
{
    (void)state;
    struct wire_generate *g;

    /* all defaults; an unknown key with the value nil counts as absent */
    assert_int_equal(request(GENERATE("a3 666f6f c0"), (void **)&g), 0);
    assert_string_equal(g->model, "m");
    assert_string_equal(g->text.data, "t");
    assert_null(g->session);
    assert_null(g->messages);
    assert_null(g->tokens.v);
    assert_int_equal(g->max_tokens, -1);
    assert_int_equal(g->logprobs, -1);
    assert_true(g->stream);
    assert_true(g->special);
    assert_true(g->sampling.temperature == HEARTH_UNSET);
    assert_int_equal(g->sampling.top_k, HEARTH_UNSET);
    assert_true(g->sampling.top_p == HEARTH_UNSET);
    assert_true(g->sampling.min_p == HEARTH_UNSET);
    assert_true(g->sampling.repetition_penalty == HEARTH_UNSET);
    assert_true(g->sampling.presence_penalty == 0);
    assert_int_equal(g->sampling.penalty_last, HEARTH_UNSET);
    assert_false(g->sampling.has_seed);
    wire_free(g);

    /* an integer for a float; a 32-bit float; the whole range of a seed; nil as absent */
    assert_int_equal(request(SAMPLING("ab 74656d7065726174757265 00"), (void **)&g), 0);
    assert_true(g->sampling.temperature == 0);
    wire_free(g);
    assert_int_equal(request(SAMPLING("a5 746f705f70 ca3f000000"), (void **)&g), 0);
    assert_true(g->sampling.top_p == 0.5);
    wire_free(g);
    assert_int_equal(request(SAMPLING("a4 73656564 cfffffffffffffffff"), (void **)&g), 0);
    assert_true(g->sampling.has_seed && g->sampling.seed == UINT64_MAX);
    wire_free(g);
    assert_int_equal(request(GENERATE("a7 73657373696f6e c0"), (void **)&g), 0);
    assert_null(g->session);
    wire_free(g);

    /* Lua's empty table is an empty array; absent params are an empty map */
    assert_int_equal(request(GENERATE("a8 73616d706c696e67 90"), (void **)&g), 0);
    wire_free(g);
    assert_int_equal(request("94 00 01 a6 737461747573 90", (void **)&g), 0);
    wire_free(g);
    assert_int_equal(request("94 00 01 a6 737461747573 91 90", (void **)&g), 0);
    wire_free(g);

    /* messages: content as bin, and as typed parts */
    assert_int_equal(request("94 00 01 a8 67656e6572617465 91 82 a5 6d6f64656c a1 6d a8 6d65737361676573 92"
                             "82 a4 726f6c65 a4 75736572 a7 636f6e74656e74 c4 02 ff00"
                             "82 a7 636f6e74656e74 91 82 a4 74797065 a4 74657874 a4 74657874 a1 78"
                             "a4 726f6c65 a9 617373697374616e74",
                             (void **)&g),
                     0);
    assert_int_equal(g->n_messages, 2);
    assert_int_equal(g->messages[0].content.len, 2);
    assert_memory_equal(g->messages[0].content.data, "\xff\0", 3);
    assert_null(g->messages[0].parts);
    assert_int_equal(g->messages[1].n_parts, 1);
    assert_string_equal(g->messages[1].parts[0].text.data, "x");
    wire_free(g);
}

/* --- refusals ------------------------------------------------------------------------------------------- */

static void refusals_name_the_field(void **state)
{
    (void)state;
    static const struct {
        int code;
        const char *hex, *msg;
    } rows[] = {
        {HEARTH_EPARAMS, SAMPLING("a5 746f705f6b ce004c4b40"), "generate.sampling.top_k: 5000000 is over 1000000"},
        {HEARTH_EPARAMS, SAMPLING("a5 746f705f6b ff"), "generate.sampling.top_k: -1 is under 0"},
        {HEARTH_EPARAMS, SAMPLING("a5 746f705f6b d38000000000000000"),
         "generate.sampling.top_k: -9223372036854775808 is under 0"},
        {HEARTH_EPARAMS, SAMPLING("a5 746f705f6b cfffffffffffffffff"),
         "generate.sampling.top_k: 18446744073709551615 is over 1000000"},
        {HEARTH_EPARAMS, SAMPLING("a5 746f705f6b cb4044000000000000"), "generate.sampling.top_k: must be an integer"},
        {HEARTH_EPARAMS, SAMPLING("a5 746f705f70 cb7ff8000000000000"),
         "generate.sampling.top_p: is not a finite number"},
        {HEARTH_EPARAMS, SAMPLING("a5 746f705f70 ca7f800000"), "generate.sampling.top_p: is not a finite number"},
        {HEARTH_EPARAMS, SAMPLING("a5 746f705f70 cb4000000000000000"), "generate.sampling.top_p: 2 is over 1"},
        {HEARTH_EPARAMS, SAMPLING("a5 746f705f70 a1 31"), "generate.sampling.top_p: must be a number"},
        {HEARTH_EPARAMS, SAMPLING("a4 73656564 ff"), "generate.sampling.seed: -1 is under 0"},
        {HEARTH_EPARAMS, SAMPLING("aa 6c6f6769745f62696173 92 92 01 02 91 01"),
         "generate.sampling.logit_bias[1]: must be [id, number]"},
        {HEARTH_EPARAMS, SAMPLING("aa 6c6f6769745f62696173 91 92 01 cd03e8"),
         "generate.sampling.logit_bias[0]: 1000 is over 100"},
        {HEARTH_EPARAMS, GENERATE("a8 73616d706c696e67 01"), "generate.sampling: must be a map"},
        {HEARTH_EPARAMS, GENERATE("a8 73616d706c696e67 91 01"), "generate.sampling: must be a map"},
        {HEARTH_EPARAMS, GENERATE("a6 73747265616d 01"), "generate.stream: must be true or false"},
        {HEARTH_EPARAMS, GENERATE("a7 73657373696f6e 01"), "generate.session: must be a string"},
        {HEARTH_EPARAMS, GENERATE("a7 73657373696f6e a0"), "generate.session: is empty"},
        {HEARTH_EPARAMS, GENERATE("a7 73657373696f6e a2 6100"), "generate.session: has a NUL in it"},
        {HEARTH_EPARAMS, GENERATE("a7 73657373696f6e a1 ff"), "generate.session: is not valid UTF-8"},
        {HEARTH_EPARAMS, GENERATE("a7 73657373696f6e a2 c080"), "generate.session: is not valid UTF-8"},
        {HEARTH_EPARAMS, GENERATE("a7 73657373696f6e a3 eda080"), "generate.session: is not valid UTF-8"},
        {HEARTH_EPARAMS, GENERATE("a7 73657373696f6e a4 f4908080"), "generate.session: is not valid UTF-8"},
        {HEARTH_EPARAMS, GENERATE("a7 73657373696f6e a2 e282"), "generate.session: is not valid UTF-8"},
        {HEARTH_EPARAMS, GENERATE("a5 6d6f64656c a1 6e"), "generate.model: is given twice"},
        {HEARTH_EPARAMS, GENERATE("a5 6d6f64656c c0"), "generate.model: is given twice"},
        {HEARTH_EPARAMS, GENERATE("a4 73746f70 92 a1 61 a0"), "generate.stop[1]: is empty"},
        {HEARTH_EPARAMS,
         GENERATE("a4 73746f70 dc0011 a161a161a161a161a161a161a161a161a161a161a161a161a161a161a161a161a161"),
         "generate.stop: has 17 elements, over 16"},
        {HEARTH_EPARAMS, GENERATE("a6 746f6b656e73 90"),
         "generate: only one of messages, text, tokens, prefix (with suffix) is needed"},
        {HEARTH_EPARAMS, GENERATE("01 02"), "generate: has a key that is not a string"},
        {HEARTH_EPARAMS, "94 00 01 a8 67656e6572617465 91 81 a5 6d6f64656c a1 6d",
         "generate: one of messages, text, tokens, prefix (with suffix) is needed"},
        {HEARTH_EPARAMS, "94 00 01 a8 67656e6572617465 91 81 a4 74657874 a1 78",
         "generate.model: is missing (and no session is named)"},
        {HEARTH_EPARAMS, "94 00 01 a8 67656e6572617465 91 82 a5 6d6f64656c a1 6d a6 746f6b656e73 92 01 ff",
         "generate.tokens[1]: -1 is under 0"},
        {HEARTH_EPARAMS,
         "94 00 01 a8 67656e6572617465 91 82 a5 6d6f64656c a1 6d a8 6d65737361676573 91 81 a4 726f6c65 a4 75736572",
         "generate.messages[0].content: is missing"},
        {HEARTH_EUNSUPPORTED,
         "94 00 01 a8 67656e6572617465 91 82 a5 6d6f64656c a1 6d a8 6d65737361676573 91 82 a4 726f6c65 a4 75736572 a7 "
         "636f6e74656e74 91 81 a4 74797065 a9 696d6167655f75726c",
         "generate.messages[0].content[0].type: \"image_url\" is not supported, only text"},
        {HEARTH_EPARAMS, GENERATE("a8 6d65737361676573 91 83 a4 726f6c65 a1 75 a7 636f6e74656e74 a0 a1 78 91 c4 01 00"),
         "generate.messages[0].x: has bytes in it, which JSON cannot hold"},
        {HEARTH_EUNSUPPORTED, GENERATE("a7 61646170746572 a1 78"),
         "generate: adapter is reserved and not supported by this version"},
        {HEARTH_EUNSUPPORTED, GENERATE("a7 6772616d6d6172 a0"),
         "generate: grammar is reserved and not supported by this version"},
        {HEARTH_EPARAMS, GENERATE("a1 6e 00"), "generate.n: 0 is under 1"},
        {HEARTH_EPARAMS, GENERATE("a1 6e 11"), "generate.n: 17 is over 16"},
        {HEARTH_EPARAMS, GENERATE("a5 746f6f6c73 90"),
         "generate: tools, documents, kwargs, think, chat_template and template_name go with messages"},
        {HEARTH_EUNSUPPORTED, "94 00 01 a5 656d626564 91 80",
         "method embed is reserved and not supported by this version"},
        {HEARTH_EPARAMS, "94 00 01 ad 73747265616d2e617474616368 91 80",
         "stream.attach: exactly one of stream, request is needed"},
        {HEARTH_EPARAMS, "94 00 01 ad 73657373696f6e732e666f726b 91 80", "sessions.fork.session: is missing"},
        {HEARTH_EMETHOD, "94 00 01 a3 666f6f 91 80", "method foo is not known"},
        {HEARTH_EMETHOD, "94 00 01 a7 73746174757300 91 80", "method status? is not known"},
        {HEARTH_EPARAMS, "94 00 01 a6 63616e63656c 91 80", "cancel: exactly one of stream, request is needed"},
        {HEARTH_EPARAMS, "94 00 01 a5 68656c6c6f 91 81 a9 6e6f746966795f6173 91 a1 61",
         "hello.notify_as: must be [METHOD, CODE]"},
        {HEARTH_EPARAMS, "94 00 01 a4 6576616c 91 82 a5 6d6f64656c a1 6d a6 746f6b656e73 90", "eval.tokens: is empty"},
        {HEARTH_EPARAMS, HISTORY("c4 05 0000000000"), "engine.generate.history: must be bytes, 4 for each id"},
        {HEARTH_EPARAMS, HISTORY("91 01"), "engine.generate.history: must be bytes, 4 for each id"},
        {HEARTH_EPARAMS, HISTORY("c4 08 ffffff7f ffffffff"), "engine.generate.history[1]: -1 is under 0"},
        {HEARTH_EPARAMS, "94 00 01 a6 737461747573 91 01", "params: must be a map"},
        {HEARTH_EINVALID, "01", "a message must be an array of 3 or 4 values"},
        {HEARTH_EINVALID, "94 00 ff a6 737461747573 90", "a message id must be an integer of 32 bits"},
        {HEARTH_EINVALID, "94 00 cf0000000100000000 a6 737461747573 90", "a message id must be an integer of 32 bits"},
        {HEARTH_EINVALID, "94 00 01 01 90", "a method must be a string of 1 to 256 bytes"},
        {HEARTH_EINVALID, "94 00 01 a6 737461747573 80", "params must be an array of one map"},
        {HEARTH_EINVALID, "94 00 01 a6 737461747573 92 80 80", "params must be an array of one map"},
        {HEARTH_EINVALID, "94 03 01 a6 737461747573 90",
         "a message must be [0, id, method, params], [1, id, error, result] or [2, method, params]"},
        {HEARTH_EINVALID, "93 00 01 90",
         "a message must be [0, id, method, params], [1, id, error, result] or [2, method, params]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *out = NULL;
        int code = request(rows[i].hex, &out);
        if (code != rows[i].code || strcmp(err.msg, rows[i].msg))
            fail_msg("row %zu: %d \"%s\", wanted %d \"%s\"", i, code, code ? err.msg : "", rows[i].code, rows[i].msg);
    }
}

/* Go's most used encoder, for one, writes an int64 in nine bytes, as a signed integer. */
static void an_integer_counts_by_its_value_in_every_encoding(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "94 d0 00 d0 2a a6 737461747573 90",
        "94 d1 0000 d1 002a a6 737461747573 90",
        "94 d2 00000000 d2 0000002a a6 737461747573 90",
        "94 d3 0000000000000000 d3 000000000000002a a6 737461747573 90",
        "94 cf 0000000000000000 cf 000000000000002a a6 737461747573 90",
    };
    uint8_t bytes[64];
    struct wire_frame f;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(wire_frame_open(&f, bytes, from_hex(rows[i], bytes), &err), 0);
        assert_int_equal(f.kind, WIRE_FRAME_REQUEST);
        assert_int_equal(f.id, 42);
    }
    assert_int_equal(wire_frame_open(&f, bytes, from_hex("94 00 d0 80 a6 737461747573 90", bytes), &err),
                     HEARTH_EINVALID);
    assert_int_equal(wire_frame_open(&f, bytes, from_hex("94 00 d3 ffffffffffffffd6 a6 737461747573 90", bytes), &err),
                     HEARTH_EINVALID);
}

static void a_bad_request_can_be_answered_where_its_id_was_read(void **state)
{
    (void)state;
    uint8_t bytes[] = {0x94, 0x00, 0x2a, 0x01, 0x90};
    struct wire_frame f;
    assert_int_equal(wire_frame_open(&f, bytes, sizeof bytes, &err), HEARTH_EINVALID);
    assert_int_equal(f.kind, WIRE_FRAME_REQUEST);
    assert_int_equal(f.id, 42);
    assert_int_equal(wire_frame_open(&f, (const uint8_t *)"\x01", 1, &err), HEARTH_EINVALID);
    assert_int_not_equal(f.kind, WIRE_FRAME_REQUEST);
}

static void errors_come_back(void **state)
{
    (void)state;
    struct wire_buf b = {0};
    struct wire_frame f;

    assert_int_equal(wire_pack_error(&b, 3, HEARTH_ESESSIONBUSY, "session a: is busy", &err), 0);
    assert_int_equal(wire_frame_open(&f, b.data, b.len, &err), 0);
    assert_true(f.is_error);
    assert_int_equal(f.err.code, HEARTH_ESESSIONBUSY);
    assert_string_equal(f.err.msg, "session a: is busy");

    /* a message that is cut inside a character is still valid UTF-8 on the wire */
    b.len = 0;
    assert_int_equal(wire_pack_error(&b, 3, HEARTH_EIO, "x\xe2\x82", &err), 0);
    assert_int_equal(wire_frame_open(&f, b.data, b.len, &err), 0);
    assert_string_equal(f.err.msg, "x??");

    /* the longest message comes back whole, however long its symbol is */
    char longest[HEARTH_ERR_MSG];
    memset(longest, 'm', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    b.len = 0;
    assert_int_equal(wire_pack_error(&b, 3, HEARTH_ENOMODEL, longest, &err), 0);
    assert_int_equal(wire_frame_open(&f, b.data, b.len, &err), 0);
    assert_int_equal(f.err.code, HEARTH_ENOMODEL);
    assert_string_equal(f.err.msg, longest);

    /* a symbol of a newer daemon remains readable; malformed errors are the peer's fault */
    uint8_t newer[64];
    assert_int_equal(wire_frame_open(&f, newer, from_hex("94 01 03 92 01 a6 4e45573a2078 c0", newer), &err), 0);
    assert_int_equal(f.err.code, HEARTH_EINTERNAL);
    assert_string_equal(f.err.msg, "NEW: x");
    assert_int_equal(wire_frame_open(&f, newer, from_hex("94 01 03 a1 78 c0", newer), &err), 0);
    assert_int_equal(f.err.code, HEARTH_EPROTOCOL);
    wire_buf_fini(&b);
}

static void what_cannot_be_sent_is_refused_and_leaves_the_buffer(void **state)
{
    (void)state;
    struct wire_buf b = {0};
    struct wire_generate g;
    wire_defaults(wire_methods[WIRE_GENERATE].params, &g);
    g.model = "m";
    g.text = hearth_text("t");
    assert_int_equal(wire_pack_request(&b, 1, &wire_methods[WIRE_GENERATE], &g, &err), 0);
    size_t len = b.len;
    g.sampling.top_p = 0.0 / 0.0;
    assert_int_equal(wire_pack_request(&b, 1, &wire_methods[WIRE_GENERATE], &g, &err), HEARTH_EPARAMS);
    assert_string_equal(err.msg, "sampling.top_p: is not a finite number");
    g.sampling.top_p = 1;
    g.model = "\xff";
    assert_int_equal(wire_pack_request(&b, 1, &wire_methods[WIRE_GENERATE], &g, &err), HEARTH_EPARAMS);
    assert_string_equal(err.msg, "generate.model: is not valid UTF-8");
    struct wire_session_ref ref = {.session = "\xff"};
    assert_int_equal(wire_pack_request(&b, 1, &wire_methods[WIRE_SESSIONS_REMOVE], &ref, &err), HEARTH_EPARAMS);
    assert_string_equal(err.msg, "sessions.remove.session: is not valid UTF-8");
    g.model = "m";
    g.text.len = WIRE_LINK_FRAME_MAX;
    g.text.data = give(&arena, g.text.len);
    assert_int_equal(wire_pack_request(&b, 1, &wire_methods[WIRE_GENERATE], &g, &err), HEARTH_ETOOBIG);
    assert_int_equal(b.len, len);
    wire_buf_fini(&b);
    arena_fini(&arena);
}

/* A model has at most 1,024 layers of a few ops each, and the description of an op is short. */
static void the_longest_program_fits_a_frame(void **state)
{
    (void)state;
    static struct wire_op op[WIRE_OPS_MAX + 1];
    char text[96];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    for (size_t i = 0; i < WIRE_OPS_MAX + 1; i++)
        op[i] = (struct wire_op){.op = "ffn_up", .text = text};
    struct wire_model model = {.name = "m", .path = "/m", .ops = op, .n_ops = WIRE_OPS_MAX};
    struct wire_buf b = {0};
    struct wire_scan scan = {0};
    const struct wire_method *m = &wire_methods[WIRE_MODELS_SHOW];
    assert_int_equal(wire_pack_result(&b, 1, m, &model, &err), 0);
    assert_int_equal(wire_scan(&scan, b.data, b.len, WIRE_FRAME_MAX, &err), b.len);
    b.len = 0;
    model.n_ops++; /* a longer one is refused by the reader */
    struct wire_frame f;
    void *back;
    assert_int_equal(wire_pack_result(&b, 1, m, &model, &err), 0);
    assert_int_equal(wire_frame_open(&f, b.data, b.len, &err), 0);
    assert_int_equal(wire_unpack(m->result, f.body, f.body_len, &back, &err), HEARTH_EPARAMS);
    assert_non_null(strstr(err.msg, "ops"));
    wire_buf_fini(&b);
}

/* Every proper prefix of a good body is refused, and none is read beyond its end (an exact copy lets the sanitizers see
 * that). */
static void truncated_bodies_are_refused(void **state)
{
    (void)state;
    struct wire_buf b = {0};
    struct wire_frame f;
    struct wire_generate *g = give(&arena, sizeof *g);
    const struct wire_method *m = &wire_methods[WIRE_GENERATE];

    arena.seed = 5;
    random_struct(&arena, m->params, g);
    assert_int_equal(wire_pack_request(&b, 1, m, g, &err), 0);
    assert_int_equal(wire_frame_open(&f, b.data, b.len, &err), 0);
    for (size_t n = 0; n < f.body_len; n += n < 1000 ? 1 : 997) {
        uint8_t *copy = malloc(n ? n : 1);
        void *out;
        memcpy(copy, f.body, n);
        assert_int_equal(wire_unpack(m->params, copy, n, &out, &err), HEARTH_EINVALID);
        free(copy);
    }
    wire_buf_fini(&b);
    arena_fini(&arena);
}

/* A program passes values of any shape as JSON text; invalid JSON is refused with the field's name before anything is
 * sent. */
static void json_is_checked_before_it_is_sent(void **state)
{
    static const struct {
        const char *text, *why; /* why is NULL: it is sent */
    } cases[] = {
        {"[]", NULL},
        {" [ 1 , -2.5e-3 , \"\\ud83d\\ude00\\u00e9\\/\" , { \"a\" : [ null , true , false ] , \"\" : { } } ]\n", NULL},
        {"[18446744073709551615, -9223372036854775808, -0]", NULL},
        {"{}", "must be a JSON array"},
        {"", "must be a JSON array"},
        {"[1] 2", "is not JSON"},
        {"[1 2]", "is not JSON"},
        {"[01]", "is not JSON"},
        {"[1.]", "is not JSON"},
        {"[NaN]", "is not JSON"},
        {"[{1:2}]", "a key that is not a string"},
        {"[18446744073709551616]", "an integer beyond 64 bits"},
        {"[-9223372036854775809]", "an integer beyond 64 bits"},
        {"[1e999]", "too large"},
        {"[\"\\ud83d\"]", "half a surrogate pair"},
        {"[\"\\x\"]", "an unknown escape"},
        {"[\"\\u00g0\"]", "an unknown escape"},
        {"[\"\n\"]", "a control character"},
        {"[\"\xff\"]", "not valid UTF-8"},
        {"[\"", "ends inside a string"},
        {"[", "is not JSON"},
        {"[1", "ends inside an array"},
        {"[{", "ends inside an object"},
        {"[{\"a\"", "ends inside an object"},
        {"[{\"a\":1", "ends inside an object"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = strdup(cases[i].text); /* behind which nothing may be read */
        struct wire_render r = {.model = "m", .tools = text};
        struct wire_buf b = {0};
        struct hearth_err e = {0};
        int rc = wire_pack_request(&b, 1, &wire_methods[WIRE_RENDER], &r, &e);
        if (!cases[i].why != !rc ||
            (rc && (rc != HEARTH_EPARAMS || !strstr(e.msg, cases[i].why) || strncmp(e.msg, "render.tools: ", 14))))
            fail_msg("%s: %s", cases[i].text, rc ? e.msg : "was sent");
        if (rc)
            assert_int_equal(b.len, 0);
        wire_buf_fini(&b);
        free(text);
    }
    /* Of several messages the error says which one. */
    struct wire_part part = {.type = "text", .text = hearth_text("b")};
    struct wire_message messages[] = {{.role = "user", .content = hearth_text("a")}, {.json = "{"}};
    struct wire_generate g;
    struct wire_buf none = {0};
    struct hearth_err e;
    wire_defaults(wire_methods[WIRE_GENERATE].params, &g);
    g.messages = messages;
    g.n_messages = 2;
    assert_int_equal(wire_pack_request(&none, 1, &wire_methods[WIRE_GENERATE], &g, &e), HEARTH_EPARAMS);
    assert_string_equal(e.msg, "message[1]: ends inside an object");
    messages[1] = (struct wire_message){.role = "user", .content = hearth_text("a"), .parts = &part, .n_parts = 1};
    assert_int_equal(wire_pack_request(&none, 1, &wire_methods[WIRE_GENERATE], &g, &e), HEARTH_EPARAMS);
    assert_string_equal(e.msg, "message[1].content: has both a text and parts");
    assert_int_equal(none.len, 0);
    wire_buf_fini(&none);
    char deep[2 * WIRE_JSON_DEPTH + 3] = "";
    struct wire_render r = {.model = "m", .tools = deep};
    struct wire_buf b = {0};
    memset(deep, '[', WIRE_JSON_DEPTH);
    memset(deep + WIRE_JSON_DEPTH, ']', WIRE_JSON_DEPTH);
    assert_int_equal(wire_pack_request(&b, 1, &wire_methods[WIRE_RENDER], &r, NULL), 0);
    memset(deep, '[', WIRE_JSON_DEPTH + 1);
    memset(deep + WIRE_JSON_DEPTH + 1, ']', WIRE_JSON_DEPTH + 1);
    assert_int_equal(wire_pack_request(&b, 1, &wire_methods[WIRE_RENDER], &r, NULL), HEARTH_EPARAMS);
    wire_buf_fini(&b);
}

/* Packs a request with these tools and variables, and unpacks it as the daemon does; the params are the caller's. */
static struct wire_render *pass(const char *tools, const char *kwargs, struct hearth_err *e)
{
    const struct wire_render r = {.model = "m", .tools = tools, .kwargs = kwargs};
    struct wire_buf b = {0};
    struct wire_frame f;
    void *out = NULL;
    assert_int_equal(wire_pack_request(&b, 1, &wire_methods[WIRE_RENDER], &r, e), 0);
    assert_int_equal(wire_frame_open(&f, b.data, b.len, e), 0);
    e->code = 0;
    wire_unpack_params(&wire_methods[WIRE_RENDER], f.body, f.body_len, &out, e);
    wire_buf_fini(&b);
    return out;
}

static void json_comes_back(void **state)
{
    static const char *const as_it_is[] = {
        "[]",
        "[0,9,10,18446744073709551615,-1,-9223372036854775808]",
        "[0.5,3.0,-0.0,1e+22,-2.2250738585072014e-308,0.10000000000000001]",
        "[\"\\u0001\\u001f \\\"\\\\/\\u000a\\u0000\",\"\",null,true,false,[{\"\\u0009\":{}}]]",
    };
    (void)state;
    for (size_t i = 0; i < sizeof as_it_is / sizeof *as_it_is; i++) {
        struct hearth_err e;
        struct wire_render *r = pass(as_it_is[i], "{}", &e);
        assert_non_null(r);
        assert_string_equal(r->tools, as_it_is[i]);
        wire_free(r);
    }
}

/* A list of n values; the caller's. */
static char *list_of(uint32_t n)
{
    char *s = malloc(2 * (size_t)n + 3), *at = s;
    assert_non_null(s);
    *at++ = '[';
    for (uint32_t i = 1; i < n; i++, at += 2)
        memcpy(at, i == 1 ? " 0" : ",0", 2);
    strcpy(at, "]");
    return s;
}

/* Of all lists and dicts of a request together, since each of their values takes time on the threads that serve all
 * clients. */
static void the_values_of_a_request_are_bounded(void **state)
{
    (void)state;
    for (uint32_t more = 0; more < 2; more++)
        for (int two = 0; two < 2; two++) {
            char *tools = list_of(WIRE_JSON_VALUES + more - (two ? 2 : 0));
            struct hearth_err e;
            struct wire_render *r = pass(tools, two ? "{\"a\": 1}" : NULL, &e);
            assert_int_equal(e.code, more ? HEARTH_EPARAMS : 0);
            if (more)
                assert_non_null(
                    strstr(e.msg, two ? "render.kwargs: has too many values" : "render.tools: has too many"));
            assert_int_equal(r == NULL, more);
            wire_free(r);
            free(tools);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_checked_before_it_is_sent),
        cmocka_unit_test(json_comes_back),
        cmocka_unit_test(the_values_of_a_request_are_bounded),
        cmocka_unit_test(every_method_round_trips),
        cmocka_unit_test(known_bytes_are_packed),
        cmocka_unit_test(unknown_keys_of_generate),
        cmocka_unit_test(known_bytes_are_unpacked),
        cmocka_unit_test(refusals_name_the_field),
        cmocka_unit_test(an_integer_counts_by_its_value_in_every_encoding),
        cmocka_unit_test(a_bad_request_can_be_answered_where_its_id_was_read),
        cmocka_unit_test(errors_come_back),
        cmocka_unit_test(what_cannot_be_sent_is_refused_and_leaves_the_buffer),
        cmocka_unit_test(the_longest_program_fits_a_frame),
        cmocka_unit_test(truncated_bodies_are_refused),
    };
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}

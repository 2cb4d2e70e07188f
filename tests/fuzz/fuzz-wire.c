/* fuzz-wire.c - any bytes as a frame from a socket: a message that unpacks must pack again, and unpack to the same
 * message. */
#include "tests/unit/libclient/wire-same.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void again(const struct wire_method *m, const struct wire_type *t, void *msg)
{
    struct wire_buf b = {0};
    struct wire_frame f;
    struct hearth_err err;
    void *back;
    int rc = t == m->result            ? wire_pack_result(&b, 1, m, msg, &err)
             : m->kind == WIRE_REQUEST ? wire_pack_request(&b, 1, m, msg, &err)
                                       : wire_pack_event(&b, m, msg, NULL, NULL, &err);
    struct wire_scan s = {0};
    if (rc || wire_scan(&s, b.data, b.len, WIRE_LINK_FRAME_MAX, &err) != (ptrdiff_t)b.len ||
        wire_frame_open(&f, b.data, b.len, &err) || wire_unpack(t, f.body, f.body_len, &back, &err) ||
        differs(t, msg, back))
        abort();
    wire_free(back);
    wire_buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hearth_err err;
    struct wire_scan s = {0};
    struct wire_frame f;
    void *msg;

    ptrdiff_t n = wire_scan(&s, data, size, WIRE_FRAME_MAX, &err);
    if (n <= 0 || wire_frame_open(&f, data, (size_t)n, &err))
        return 0;
    if (f.kind == WIRE_FRAME_RESPONSE) { /* only the requester knows the method of a response: try all */
        for (const struct wire_method *m = wire_methods; m->name && !f.is_error; m++)
            if (m->result && !wire_unpack(m->result, f.body, f.body_len, &msg, &err)) {
                again(m, m->result, msg);
                wire_free(msg);
            }
        return 0;
    }
    const struct wire_method *m = wire_method_get(f.method, f.method_len, &err);
    if (m && !wire_unpack(m->params, f.body, f.body_len, &msg, &err)) {
        again(m, m->params, msg);
        wire_free(msg);
    }
    return 0;
}

/*
 * wire-echo.c - the codec as a filter, for wire-msgpack.py: reads frames, unpacks each by its method's row and packs
 * the struct again. A refused frame is answered as the daemon would. Responses are taken as results of the method in
 * argv[1].
 */
#include "libclient/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    static uint8_t in[1 << 20];
    size_t len = fread(in, 1, sizeof in, stdin), pos = 0;
    struct wire_buf out = {0};
    struct hearth_err err;

    while (pos < len) {
        struct wire_scan s = {0};
        struct wire_frame f;
        const struct wire_method *m;
        void *msg = NULL;
        ptrdiff_t n = wire_scan(&s, in + pos, len - pos, WIRE_FRAME_MAX, &err);
        if (n <= 0)
            return 1;
        int rc = wire_frame_open(&f, in + pos, (size_t)n, &err);
        pos += (size_t)n;
        m = rc                              ? NULL
            : f.kind == WIRE_FRAME_RESPONSE ? wire_method_get(argv[argc - 1], strlen(argv[argc - 1]), &err)
                                            : wire_method_get(f.method, f.method_len, &err);
        if (!m || wire_unpack(f.kind == WIRE_FRAME_RESPONSE ? m->result : m->params, f.body, f.body_len, &msg, &err))
            rc = wire_pack_error(&out, f.id, err.code, err.msg, &err);
        else if (f.kind == WIRE_FRAME_RESPONSE)
            rc = wire_pack_result(&out, f.id, m, msg, &err);
        else if (f.kind == WIRE_FRAME_REQUEST)
            rc = wire_pack_request(&out, f.id, m, msg, &err);
        else
            rc = wire_pack_event(&out, m, msg, NULL, NULL, &err);
        wire_free(msg);
        if (rc)
            return 1;
    }
    fwrite(out.data, 1, out.len, stdout);
    wire_buf_fini(&out);
    return 0;
}

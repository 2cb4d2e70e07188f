/*
 * frame.c - parses the envelope of a message ([0, id, method, params], [1, id, error, result] or [2, method, params])
 * without unpacking its body.
 */
#include "config.h"

#include "libclient/scan.h"
#include "libclient/wire.h"

#include <string.h>

static const uint8_t empty_map[] = {0x80};

/* Skips one value of a scanned message: stores its head in *h and returns the position after it, or NULL where the
 * bytes end first. */
static const uint8_t *value(struct scan_head *h, const uint8_t *p, const uint8_t *end)
{
    uint64_t owed = 1;
    struct scan_head first = {0};
    for (bool is_first = true; owed; is_first = false) {
        struct scan_head next;
        if (scan_head(&next, p, (size_t)(end - p)) != 1)
            return NULL;
        if (is_first)
            first = next;
        owed += next.values - 1;
        p += next.head + next.payload;
    }
    *h = first;
    return p;
}

/* Decodes the error of a response, [0|1, "NAME: message"]. An error of any other shape becomes HEARTH_EPROTOCOL. */
static void open_error(struct hearth_err *e, const struct scan_head *h, const uint8_t *p, const uint8_t *end)
{
    struct scan_head kind, text;
    const uint8_t *s;

    if (h->kind == SCAN_ARRAY && h->values == 2 && (s = value(&kind, p + h->head, end)) && value(&text, s, end) &&
        text.kind == SCAN_STR) {
        const char *msg = (const char *)s + text.head;
        size_t n = text.payload;
        char name[32] = "";
        const char *colon = memmem(msg, n < sizeof name ? n : sizeof name, ": ", 2);
        int code = HEARTH_EINTERNAL;
        if (colon) {
            memcpy(name, msg, (size_t)(colon - msg));
            code = err_code(name);
            if (!strcmp(err_name(code), name)) {
                n -= (size_t)(colon + 2 - msg);
                msg = colon + 2;
            }
        }
        err_set(e, code, "%.*s", (int)(n < HEARTH_ERR_MSG ? n : HEARTH_ERR_MSG - 1), msg);
    } else {
        err_set(e, HEARTH_EPROTOCOL, "the peer sent an error that is not [kind, text]");
    }
}

/* Sets f->body to the single element of params, or to an empty map where params is empty: Neovim's rpcrequest(channel,
 * "status") sends []. */
static int open_params(struct wire_frame *f, const struct scan_head *h, const uint8_t *p, const uint8_t *end,
                       struct hearth_err *e)
{
    if (h->kind != SCAN_ARRAY || h->values > 1)
        return err_set(e, HEARTH_EINVALID, "params must be an array of one map");
    if (!h->values) {
        f->body = empty_map;
        f->body_len = sizeof empty_map;
        return 0;
    }
    f->body = p + h->head;
    f->body_len = (size_t)(end - f->body); /* params is the last value of a scanned frame */
    return 0;
}

int wire_frame_open(struct wire_frame *f, const uint8_t *data, size_t len, struct hearth_err *e)
{
    const uint8_t *end = data + len, *p, *at;
    struct scan_head h, kind;

    *f = (struct wire_frame){.kind = WIRE_FRAME_EVENT};
    if (scan_head(&h, data, len) != 1 || h.kind != SCAN_ARRAY || (h.values != 3 && h.values != 4))
        return err_set(e, HEARTH_EINVALID, "a message must be an array of 3 or 4 values");
    uint64_t n = h.values;
    if (!(p = value(&kind, data + h.head, end)) || kind.kind != SCAN_UINT || kind.number > WIRE_FRAME_EVENT ||
        n != (kind.number == WIRE_FRAME_EVENT ? 3 : 4))
        return err_set(e, HEARTH_EINVALID,
                       "a message must be [0, id, method, params], [1, id, error, result] or "
                       "[2, method, params]");
    if (kind.number != WIRE_FRAME_EVENT) {
        p = value(&h, p, end);
        if (h.kind != SCAN_UINT || h.number > UINT32_MAX)
            return err_set(e, HEARTH_EINVALID, "a message id must be an integer of 32 bits");
        f->kind = (enum wire_frame_kind)kind.number;
        f->id = (uint32_t)h.number;
    }

    at = p;
    p = value(&h, p, end);
    if (f->kind == WIRE_FRAME_RESPONSE) {
        if (h.kind != SCAN_NIL) {
            f->is_error = true;
            open_error(&f->err, &h, at, end);
        }
        f->body = p;
        f->body_len = (size_t)(end - p);
        return 0;
    }
    if (h.kind != SCAN_STR || !h.payload || h.payload > WIRE_NAME_MAX)
        return err_set(e, HEARTH_EINVALID, "a method must be a string of 1 to %d bytes", WIRE_NAME_MAX);
    f->method = (const char *)at + h.head;
    f->method_len = h.payload;

    if (scan_head(&h, p, (size_t)(end - p)) != 1)
        return err_set(e, HEARTH_EINVALID, "a message is cut off");
    return open_params(f, &h, p, end, e);
}

/*
 * checksum.c - row_sum(VALUE, ...) for SQL: XXH3-64 over the values with their types and lengths.
 *
 * Every session and every turn stores the checksum of its row. SQLite has no checksums of its own, and without them a
 * flipped bit would not be an error: in a timeline it would make a different conversation, and in a uid a different
 * owner. The statements themselves write and compare the sums (sql.c).
 */
#include "config.h"

#include <string.h>
#include <xxhash.h>

#include "daemon/store/store-internal.h"

static void row_checksum(sqlite3_context *context, int n, sqlite3_value **v)
{
    XXH64_hash_t sum = 0; /* of each value, seeded with the sum of the preceding values */
    for (int i = 0; i < n; i++) {
        uint8_t head[16] = {(uint8_t)sqlite3_value_type(v[i])}, *to = head + 8;
        int64_t number = 0;
        double real;
        const void *bytes = NULL;
        size_t len = 0;
        switch (head[0]) {
        case SQLITE_INTEGER:
            number = sqlite3_value_int64(v[i]);
            break;
        case SQLITE_FLOAT:
            real = sqlite3_value_double(v[i]);
            memcpy(&number, &real, sizeof number);
            break;
        case SQLITE_NULL:
            break;
        default: /* sqlite3_value_text() may convert the value, so it is called before the length is read */
            bytes = head[0] == SQLITE_TEXT ? (const void *)sqlite3_value_text(v[i]) : sqlite3_value_blob(v[i]);
            len = (size_t)sqlite3_value_bytes(v[i]);
            number = (int64_t)len;
        }
        for (int k = 0; k < 8; k++)
            to[k] = (uint8_t)((uint64_t)number >> (8 * k));
        if (len > 0 && !bytes) {
            sqlite3_result_error_nomem(context);
            return;
        }
        sum = XXH3_64bits_withSeed(head, sizeof head, sum);
        if (len > 0)
            sum = XXH3_64bits_withSeed(bytes, len, sum);
    }
    sqlite3_result_int64(context, (int64_t)sum);
}

int store_define_checksum(struct store *st, struct hearth_err *e)
{
    int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
    if (sqlite3_create_function_v2(st->db, "row_sum", -1, flags, NULL, row_checksum, NULL, NULL, NULL) != SQLITE_OK)
        return store_fail(st, "the session database", e);
    return 0;
}

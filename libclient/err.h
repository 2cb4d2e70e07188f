/*
 * err.h - how all of hearth's functions report errors.
 *
 * Fallible functions return 0 or a negative HEARTH_E* code and fill a caller-owned `struct hearth_err` (both from
 * hearth.h). The function that detects the error writes the message; callers propagate it unchanged. Outputs are
 * written on success only. `e` may be NULL where the caller wants only the code.
 */
#ifndef HEARTH_ERR_H
#define HEARTH_ERR_H

#include "libclient/hearth.h"

/* Writes code and message (printf-like, truncated to fit) into *e and returns the code, so that `return err_set(e,
 * HEARTH_EINVALID, "...")` is the whole error path. */
int err_set(struct hearth_err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* hearth.h exports these two to applications; internal code uses the module's prefix. */
#define err_name       hearth_error_name
#define err_is_request hearth_error_is_request

/* Returns the code of a symbol, or HEARTH_EINTERNAL for an unknown one (from a newer peer). */
int err_code(const char *name);
#endif

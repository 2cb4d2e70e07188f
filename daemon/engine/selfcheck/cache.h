/*
 * cache.h - decides whether a device may run a model: whether it passes its self-check, now or at an earlier start.
 *
 * A pass is remembered in one small file (--checked PATH, hearthd's $STATE/checked) by a key of 128 bits over
 * everything that a result could depend on: the model (every tensor's name, type, shape and some of its bytes), the
 * device (the strings that the backend reports: chip, serial number, driver; the type of its KV), what was checked, and
 * the build (the bytes of this program, so that an edited kernel is checked again without a version number to
 * maintain). Failures are not remembered: each load repeats the check and reports the result.
 *
 * The file is text, written completely under a temporary name and renamed: a line that names the format, up to
 * SELFCHECK_CACHE_MAX keys, the most recently added first, and a line with the checksum of all before it. A file that
 * cannot be read, is not our own, is not regular or does not match its checksum counts as absent: the check runs, and
 * the file is written anew. The worst effect of a wrong file is that a check is skipped which would have passed.
 *
 * Thread: the device's.
 */
#ifndef HEARTH_ENGINE_SELFCHECK_CACHE_H
#define HEARTH_ENGINE_SELFCHECK_CACHE_H

#include "daemon/model/model.h"

enum { SELFCHECK_CACHE_MAX = 64 };

struct selfcheck_key {
    uint64_t v[2];
};

struct selfcheck_verdict {
    bool ok;
    bool cached;              /* ok according to the cache: no check was run */
    char why[HEARTH_ERR_MSG]; /* not ok: the self-check's finding */
};

/* Decides about the loaded model on its device. record: NULL, passes are not cached. batches: steps of INVARIANT_BATCH
 * will be run, and are checked. Findings are logged. Returns HEARTH_ENOMEM or the device's errors where the check could
 * not be run. */
int selfcheck_verify(const struct model *m, const char *record, bool batches, struct selfcheck_verdict *out,
                     struct hearth_err *e);

/* The key of the cache, for selfcheck_verify and its test. */
int selfcheck_key_make(const struct model *m, const struct device_info *info, bool batches, struct selfcheck_key *out,
                       struct hearth_err *e);
bool selfcheck_cache_find(const char *record, struct selfcheck_key key);
int selfcheck_cache_add(const char *record, struct selfcheck_key key, struct hearth_err *e);

#endif

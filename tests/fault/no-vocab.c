/* no-vocab.c - see no-vocab.h. The linker redirects calls of vocab_load() to this file. */
#include "config.h"

#include "tests/fault/no-vocab.h"

#include <unistd.h>

#include "daemon/model/tok/tok.h"

const char *no_vocab_while;

int __real_vocab_load(struct vocab **out, const struct gguf *g, struct hearth_err *e);
int __wrap_vocab_load(struct vocab **out, const struct gguf *g, struct hearth_err *e);

int __wrap_vocab_load(struct vocab **out, const struct gguf *g, struct hearth_err *e)
{
    if (no_vocab_while && access(no_vocab_while, F_OK) == 0)
        return err_set(e, HEARTH_ENOMEM, "no memory for a vocabulary, as a test asked");
    return __real_vocab_load(out, g, e);
}

const struct backend *no_vocab_wrap(const struct backend *be, struct device *d, struct hearth_err *e)
{
    (void)d, (void)e;
    return be;
}

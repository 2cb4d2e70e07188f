/* generation-info.h - how a turn was generated, as the database keeps it: a turn.made event of the wire. Pure. */
#ifndef DAEMON_MADE_H
#define DAEMON_MADE_H

#include "daemon/store/store.h"
#include "libclient/wire.h"

/* Appends it to b. */
int generation_info_pack(const struct wire_made *made, struct wire_buf *b, struct hearth_err *e);

/* Turns of the store as they are sent, with (`whole`) or without their ids and what only pages have. What cannot be
 * read of how a turn was made is left out: it is for people, and no reason to withhold the rest. */
struct generation_turns {
    struct wire_turn *v;
    size_t n;
    void **blocks;
};
int generation_turns(const struct store_turn *turns, size_t n, bool whole, struct generation_turns *out,
                     struct hearth_err *e);
void generation_turns_fini(struct generation_turns *t);

#endif

/* generation-info.h - how a turn was generated, stored in the database as an event of the wire. Pure. */
#ifndef DAEMON_GENERATION_INFO_H
#define DAEMON_GENERATION_INFO_H

#include "daemon/store/store.h"
#include "libclient/wire.h"

/* Appends the metadata to b as the event turn.generation. */
int generation_info_pack(const struct wire_turn_generation *info, struct wire_buf *b, struct hearth_err *e);

/* The turn's metadata, unpacked (wire_free); NULL if it has none, or none that can be read. */
struct wire_turn_generation *generation_info_of(const struct store_turn *t);

/* Converts turns of the store to turns of the wire; `whole` adds the ids and the fields that only pages carry.
 * Generation metadata that cannot be read is left out: it is for people, and no reason to withhold the rest. */
struct generation_turns {
    struct wire_turn *v;
    size_t n;
    void **blocks;
};
int generation_turns(const struct store_turn *turns, size_t n, bool whole, struct generation_turns *out,
                     struct hearth_err *e);
void generation_turns_fini(struct generation_turns *t);

#endif

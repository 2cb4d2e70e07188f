/* subscription.h - a request that is answered by the end of a stream. Loop thread. */
#ifndef DAEMON_RPC_SUBSCRIPTION_H
#define DAEMON_RPC_SUBSCRIPTION_H

#include "daemon/rpc/call.h"

/* Makes the call a subscriber of a stream, with or without the stream's events, from token `from` on. From then on the
 * stream's end is the answer. */
struct subscriber *subscription(struct call *call, bool events, int64_t from);

/* For other subscribers whose peer is a connection: that connection, and the functions that their tables share. */
struct conn *subscription_conn(const struct subscriber *sub);
bool subscription_has_room(const struct subscriber *sub);
void subscription_event(const struct subscriber *sub, const struct wire_method *m, const void *body);

#endif

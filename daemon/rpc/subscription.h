/* subscription.h - a request whose answer is the end of a stream. Loop thread. */
#ifndef DAEMON_RPC_SUBSCRIPTION_H
#define DAEMON_RPC_SUBSCRIPTION_H

#include "daemon/rpc/call.h"

/* The call as a subscriber, for a stream: with or without its events, from token `from` on. From then on the stream's
 * end is the answer. */
struct subscriber *subscription(struct call *call, bool events, int64_t from);

/* The same for others whose peer is a connection: it, and what their tables of functions have in common. */
struct conn *subscription_conn(const struct subscriber *sub);
bool subscription_has_room(const struct subscriber *sub);
void subscription_event(const struct subscriber *sub, const struct wire_method *m, const void *body);

#endif

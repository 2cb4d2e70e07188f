/* dispatch.h - maps frames to handlers: the table of methods, and the engine's events. Loop thread. */
#ifndef DAEMON_DISPATCH_H
#define DAEMON_DISPATCH_H

#include "daemon/rpc/call.h"

/* The callbacks for conn_new(), which turn each frame into a call. */
extern const struct conn_ops dispatch_conn_ops;

/* Handles an event of the engine. */
void dispatch_engine_event(struct server *s, const struct wire_method *m, const void *body);

/* The handlers, one family per msg-*.c. */
void msg_hello(struct call *call);
void msg_generate(struct call *call);
void msg_cancel(struct call *call);
void msg_stream_attach(struct call *call);
void msg_streams_list(struct call *call);
void msg_streams_trace(struct call *call);
void msg_sessions_list(struct call *call);
void msg_sessions_show(struct call *call);
void msg_sessions_rename(struct call *call);
void msg_sessions_remove(struct call *call);
void msg_sessions_pin(struct call *call);
void msg_sessions_export(struct call *call);
void msg_sessions_fork(struct call *call);
void msg_sessions_adopt(struct call *call);
void msg_backup(struct call *call);
void msg_models_list(struct call *call);
void msg_models_show(struct call *call);
void msg_models_load(struct call *call);
void msg_models_unload(struct call *call);
void msg_models_pin(struct call *call);
void msg_models_pass(struct call *call);
void msg_tokenize(struct call *call);
void msg_detokenize(struct call *call);
void msg_render(struct call *call);
void msg_eval(struct call *call);
void msg_status(struct call *call);
void msg_shutdown(struct call *call);
void msg_on_model_progress(struct server *s, const void *body);
void msg_on_kv_saved(struct server *s, const void *body);
void msg_on_kv_used(struct server *s, const void *body);
void msg_on_kv_bad(struct server *s, const void *body);
void msg_yield(struct call *call);
/* msg_pass_lost() releases the model files that a lost connection has passed; msg_sweep_passed() closes those that
 * nobody uses, now or later. */
void msg_pass_lost(struct conn *c);
void msg_sweep_passed(void *server);

#endif

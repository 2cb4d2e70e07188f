/*
 * reconnect.c - a client that outlives its daemon: when the connection breaks it opens another one and continues the
 * generation after the tokens that it has printed.
 *
 *     cc reconnect.c $(pkg-config --cflags --libs hearth) -o reconnect
 *     ./reconnect tale "Once upon a time"
 *
 * The request id makes that safe. hearth_attach() finds the stream by it, running or ended, even after a crash of the
 * daemon; if there is no such stream, the request had not begun, and it is sent again under the same id.
 */
#include <hearth.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static int64_t tokens; /* tokens printed so far */
static char request[64];

static int begin(struct hearth *h, const char *const argv[], bool again, uint32_t *id, struct hearth_err *err)
{
    struct hearth_generate g;
    if (again)
        return hearth_attach(h, -1, request, tokens, id, err);
    hearth_generate_init(&g, sizeof g);
    g.model = argv[1];
    g.text = hearth_text(argv[2]);
    g.request = request;
    g.max_tokens = 400;
    g.sampling.temperature = 0;
    return hearth_submit(h, &g, id, err);
}

/* Prints the text until the generation ends. Returns 0, or the error that prevented its end. */
static int follow(struct hearth *h, struct hearth_err *err)
{
    struct hearth_event ev;
    int got;
    for (;;) {
        while ((got = hearth_next(h, &ev, err)) == 1) {
            if (ev.type == HEARTH_EVENT_TOKENS) {
                fwrite(ev.body.tokens->text.data, 1, ev.body.tokens->text.len, stdout);
                fflush(stdout);
                tokens = ev.body.tokens->index + ev.body.tokens->count;
            } else if (ev.type == HEARTH_EVENT_DONE) {
                printf("\n[%s after %lld tokens]\n", ev.body.result->finish_reason,
                       (long long)ev.body.result->usage.completion_tokens);
                return 0;
            } else if (ev.type == HEARTH_EVENT_ERROR) {
                *err = ev.err;
                return err->code;
            }
        }
        if (got < 0 || (got = hearth_wait(h, -1, NULL, err)) < 0)
            return got;
    }
}

int main(int argc, char **argv)
{
    struct hearth_err err = {0};
    bool again = false;
    int rc = HEARTH_ECONNECT;

    if (argc != 3) {
        fprintf(stderr, "usage: reconnect MODEL PROMPT\n");
        return 2;
    }
    snprintf(request, sizeof request, "reconnect-%lld-%ld", (long long)time(NULL), (long)getpid());
    for (int tries = 0; tries < 5; tries++) { /* consecutive attempts without a token */
        struct hearth *h;
        uint32_t id;
        int64_t before = tokens;
        rc = hearth_open_or_start(&h, NULL, &err);
        if (rc)
            break;
        rc = begin(h, (const char *const *)argv, again, &id, &err);
        if (!rc)
            rc = follow(h, &err);
        hearth_close(h);
        if (rc == HEARTH_ECONNECT)
            again = true;
        else if (rc == HEARTH_ENOSTREAM && again)
            again = false;
        else
            break;
        if (tokens > before)
            tries = 0;
    }
    if (rc)
        fprintf(stderr, "reconnect: %s\n", err.msg);
    return rc ? 1 : 0;
}

/*
 * libevent.c - several prompts at once on one connection, in a libevent loop. The daemon batches them: together they
 * take little longer than one.
 *
 *     cc libevent.c $(pkg-config --cflags --libs hearth libevent_core) -o libevent
 *     ./libevent tale "Once upon a time" "There was a king" "In the wood"
 */
#include <hearth-libevent.h>
#include <stdio.h>

struct app {
    struct event_base *base;
    struct hearth *h;
    int n_prompt;
    char **prompt;
    uint32_t *request; /* [n_prompt] */
    int running;
    int status;
};

static int prompt_of(const struct app *app, uint32_t request)
{
    for (int i = 0; i < app->n_prompt; i++)
        if (app->request[i] == request)
            return i;
    return -1;
}

static void on_event(void *arg, const struct hearth_event *ev)
{
    struct app *app = arg;
    int i = prompt_of(app, ev->request);

    if (ev->type == HEARTH_EVENT_DONE) {
        const struct hearth_generate_result *r = ev->body.result;
        printf("%d: %s|%.*s (%s)\n", i, app->prompt[i], (int)r->text.len, r->text.data, r->finish_reason);
    } else if (ev->type == HEARTH_EVENT_ERROR) {
        fprintf(stderr, "%d: %s\n", i, ev->err.msg);
        app->status = 1;
    } else {
        return; /* begin, tokens, progress, notice: a real application would show them */
    }
    if (--app->running == 0)
        event_base_loopbreak(app->base);
}

static void on_closed(void *arg, const struct hearth_err *err)
{
    struct app *app = arg;
    fprintf(stderr, "libevent: %s\n", err->msg);
    app->status = 1;
    event_base_loopbreak(app->base);
}

int main(int argc, char **argv)
{
    struct hearth_err err;
    struct hearth_libevent *le;
    struct hearth_generate g;

    if (argc < 3) {
        fprintf(stderr, "usage: libevent MODEL PROMPT...\n");
        return 2;
    }
    struct app app = {.n_prompt = argc - 2, .prompt = argv + 2};
    if (hearth_open(&app.h, NULL, &err)) {
        fprintf(stderr, "libevent: %s\n", err.msg);
        return 1;
    }
    app.base = event_base_new();
    app.request = calloc((size_t)app.n_prompt, sizeof *app.request);
    le = app.base && app.request ? hearth_libevent_new(app.base, app.h, on_event, on_closed, &app) : NULL;
    if (!le) {
        fprintf(stderr, "libevent: no memory\n");
        return 1;
    }

    hearth_generate_init(&g, sizeof g);
    g.model = argv[1];
    g.max_tokens = 16;
    g.sampling.temperature = 0;
    g.stream = false; /* the whole text at the end is enough here */
    for (int i = 0; i < app.n_prompt; i++) {
        g.text = hearth_text(app.prompt[i]);
        if (hearth_submit(app.h, &g, &app.request[i], &err)) {
            fprintf(stderr, "%d: %s\n", i, err.msg);
            app.status = 1;
        } else {
            app.running++;
        }
    }
    hearth_libevent_update(le);
    if (app.running)
        event_base_dispatch(app.base);

    hearth_libevent_free(le);
    hearth_close(app.h);
    event_base_free(app.base);
    free(app.request);
    return app.status;
}

/*
 * blocking.c - the shortest useful client: one prompt, its text as it is generated, and what it cost.
 *
 *     cc blocking.c $(pkg-config --cflags --libs hearth) -o blocking
 *     ./blocking tale "Once upon a time"
 */
#include <hearth.h>
#include <stdio.h>

static int on_event(void *arg, const struct hearth_event *ev)
{
    (void)arg;
    if (ev->type == HEARTH_EVENT_TOKENS) {
        fwrite(ev->body.tokens->text.data, 1, ev->body.tokens->text.len, stdout);
        fflush(stdout);
    }
    return ferror(stdout); /* the output is closed: cancel */
}

int main(int argc, char **argv)
{
    struct hearth *h;
    struct hearth_err err;
    struct hearth_generate g;
    struct hearth_generate_result *r;

    if (argc != 3) {
        fprintf(stderr, "usage: blocking MODEL PROMPT\n");
        return 2;
    }
    if (hearth_open(&h, NULL, &err)) {
        fprintf(stderr, "blocking: %s\n", err.msg);
        return 1;
    }
    hearth_generate_init(&g, sizeof g);
    g.model = argv[1];
    g.text = hearth_text(argv[2]);
    g.max_tokens = 32;
    g.sampling.temperature = 0;
    if (hearth_run(h, &g, on_event, NULL, NULL, &r, &err)) {
        fprintf(stderr, "blocking: %s\n", err.msg);
        hearth_close(h);
        return 1;
    }
    printf("\n[%s after %lld tokens, %lld of %lld prompt tokens reused]\n", r->finish_reason,
           (long long)r->usage.completion_tokens, (long long)r->usage.reused_tokens, (long long)r->usage.prompt_tokens);
    hearth_free(r);
    hearth_close(h);
    return 0;
}

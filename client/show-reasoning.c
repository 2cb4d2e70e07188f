/* show-reasoning.c - prints a model's reasoning on stdout. See cmd.h. */
#include <string.h>
#include <unistd.h>

#include "client/cmd.h"

static bool is_shown(const struct gen *gen)
{
    if (gen->think && !strcmp(gen->think, "hide"))
        return false;
    return gen->think || isatty(STDOUT_FILENO);
}

void reasoning_show(struct gen *gen, struct hearth_bytes thought)
{
    if (!thought.len || !is_shown(gen))
        return;
    if (gen->shown == SHOWN_TEXT)
        fputs("\n\n", stdout);
    if (gen->shown != SHOWN_REASONING && !style_is_on(stdout))
        fputs("<think>\n", stdout);
    gen->shown = SHOWN_REASONING;
    style_begin(stdout, STYLE_ASIDE);
    print_text(thought.data, thought.len);
    style_end(stdout);
    fflush(stdout);
}

void reasoning_end(struct gen *gen)
{
    if (gen->shown == SHOWN_REASONING)
        fputs(style_is_on(stdout) ? "\n\n" : "\n</think>\n\n", stdout);
    gen->shown = SHOWN_TEXT;
}

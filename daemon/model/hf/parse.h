/* parse.h - JSON, with a lack of memory told from a fault of the text. */
#ifndef HEARTH_HF_PARSE_H
#define HEARTH_HF_PARSE_H

#include <jansson.h>
#include <stdbool.h>

/* Like json_loadb(), which must not be called here: without memory it may end the process. *no_memory: memory was
 * lacking, and the result is NULL whatever *why says. */
json_t *hf_parse(const char *s, size_t n, size_t flags, json_error_t *why, bool *no_memory);

#endif

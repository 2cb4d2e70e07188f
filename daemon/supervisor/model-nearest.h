/* model-nearest.h - how model names are built, and which names are similar to another. Pure. */
#ifndef DAEMON_SUPERVISOR_MODEL_NEAREST_H
#define DAEMON_SUPERVISOR_MODEL_NEAREST_H

#include <stddef.h>

/* The length of a name without its quantisation suffix: "-q4_k_m", ".Q8_0", "-IQ3_XS", "-f16", "-UD-Q4_K_XL". */
size_t model_name_length(const char *name);

/* Writes up to three names that are most similar to `want`, the most similar first; "" if there is none. `want` may be
 * in the notation of other programs: "hf.co/org/Name-GGUF:Q4_K_M", "name:latest". */
void model_names_near(const char *const *names, size_t n, const char *want, char *out, size_t size);

#endif

/* model-nearest.c - see model-nearest.h. */
#include "config.h"

#include "daemon/supervisor/model-nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "libclient/distance.h"

enum { NEAR_MAX = 3 };

/* See model-nearest.h; also "-BF16". The suffix starts at the last '-' or '.' of the name. */
size_t model_name_length(const char *name)
{
    static const char *const starts[] = {"q", "iq", "tq", "mxfp", "nvfp", "f16", "f32", "bf16", "fp16", "fp8"};
    size_t len = strlen(name);
    for (size_t i = len; i-- > 1;) {
        if (name[i] != '-' && name[i] != '.')
            continue;
        const char *tail = name + i + 1;
        bool quant = false;
        for (size_t k = 0; k < sizeof starts / sizeof starts[0] && !quant; k++) {
            size_t n = strlen(starts[k]);
            /* "q4_k_m", but not "qwen" */
            quant =
                strncasecmp(tail, starts[k], n) == 0 && (k >= 5 ? tail[n] == '\0' : tail[n] >= '0' && tail[n] <= '9');
        }
        if (!quant)
            return len;
        if (i > 3 && strncasecmp(name + i - 3, "-UD", 3) == 0)
            i -= 3;
        return i;
    }
    return len;
}

static size_t lower(char *to, const char *from, size_t n)
{
    n = n < DISTANCE_MAX ? n : DISTANCE_MAX;
    for (size_t i = 0; i < n; i++)
        to[i] = (char)tolower((unsigned char)from[i]);
    return n;
}

/* Reduces a name to the part that identifies the model; other programs write "hf.co/org/Name-GGUF:Q4_K_M" and
 * "name:latest". */
static size_t core_of(const char *name, char core[DISTANCE_MAX])
{
    const char *slash = strrchr(name, '/');
    name = slash ? slash + 1 : name;
    size_t n = strcspn(name, ":");
    if (n > 5 && (!strncasecmp(name + n - 5, "-gguf", 5) || !strncasecmp(name + n - 5, ".gguf", 5)))
        n -= 5;
    return lower(core, name, n);
}

/* The distance of two names: 0 if they are equal; a name of which the other one is a prefix is as near as one with a
 * single wrong letter. */
static size_t unlike(const char *core, size_t n, const char *name, size_t len)
{
    char other[DISTANCE_MAX] = "";
    len = lower(other, name, len);
    size_t common = n < len ? n : len, d = text_distance(core, n, other, len);
    return common >= 3 && d > 1 && !memcmp(core, other, common) ? 1 : d;
}

static size_t name_unlike(const char *core, size_t n, const char *whole_name)
{
    const char *slash = strrchr(whole_name, '/'), *name = slash ? slash + 1 : whole_name;
    size_t whole = unlike(core, n, name, strlen(name)), stem = unlike(core, n, name, model_name_length(name));
    return whole < stem ? whole : stem;
}

static bool is_among(const char *const *near, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(near[i], name))
            return true;
    return false;
}

/* Ignores names that differ in much more than a third of their letters; two transposed letters are two edits. */
static size_t find_near(const char *const *names, size_t n, const char *want, const char *near[static NEAR_MAX])
{
    char core[DISTANCE_MAX] = "";
    size_t len = core_of(want, core), found = 0;
    while (found < NEAR_MAX) {
        size_t best = len / 3 + (len < 4 ? 1 : 2);
        near[found] = NULL;
        for (size_t i = 0; i < n; i++) {
            size_t d = name_unlike(core, len, names[i]);
            if (d < best && !is_among(near, found, names[i])) {
                best = d;
                near[found] = names[i];
            }
        }
        if (!near[found])
            break;
        found++;
    }
    return found;
}

void model_names_near(const char *const *names, size_t n, const char *want, char *out, size_t size)
{
    const char *near[NEAR_MAX];
    size_t n_near = find_near(names, n, want, near), used = 0;
    *out = '\0';
    for (size_t i = 0; i < n_near && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", near[i]);
}

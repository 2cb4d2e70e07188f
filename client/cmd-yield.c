/* cmd-yield.c - hearth yield: gives the device's memory to other programs for a while. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/cmd.h"

/* Parses a size as in hearth.conf: bytes, or with the suffix K, M or G. Returns false where it is not one. */
static bool size_parse(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    static const char units[] = "KMG";
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    end += unit != NULL;
    if (errno || end == text || *end || v < 1 || v > INT64_MAX >> shift)
        return false;
    *out = v << shift;
    return true;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    const char *size = NULL;
    bool all = false, end = false, json = false;
    double seconds = 0;
    const struct opt own[] = {
        {"for", 0, OPT_TEXT, &size, 0, 0, "SIZE", "until so much is free, such as 8G"},
        {"all", 0, OPT_FLAG, &all, 0, 0, NULL, "all that can be given back"},
        {"seconds", 0, OPT_REAL, &seconds, 0.001, 86400, "SECONDS", "for so long (60)"},
        {"end", 0, OPT_FLAG, &end, 0, 0, NULL, "take it again now"},
        {"json", 0, OPT_FLAG, &json, 0, 0, NULL, "{\"freed\":..., \"free\":...} in bytes"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    json_errors = json;
    int64_t bytes = 0;
    if (argc || (size != NULL) + all + end != 1)
        return usage(cmd, "say one of --for SIZE, --all and --end");
    if (end && seconds > 0)
        return usage(cmd, "--seconds goes without --end");
    if (size && !size_parse(size, &bytes))
        return usage(cmd, "--for wants a size such as 8G or 500M, not '%s'", size);

    struct hearth *h;
    int status = daemon_open_running(&h);
    if (status != STATUS_OK)
        return status;
    struct hearth_yield_result *r;
    struct hearth_err err;
    if (hearth_yield(h, bytes, all, end ? 0 : seconds > 0 ? seconds : 60, NULL, &r, &err))
        return verb_end(h, NULL, fail(&err));
    if (json)
        status = print_json(json_pack("{s:I, s:I}", "freed", (json_int_t)r->freed, "free", (json_int_t)r->free));
    else if (!end && !r->free) /* without an engine it is not known, and nothing is held */
        puts("no engine runs, which could hold memory");
    else if (!end)
        printf("%s given back, %s free\n", human_bytes(r->freed), human_bytes(r->free));
    return verb_end(h, r, status);
}

const struct cmd cmd_yield = {"yield", "--for SIZE | --all [--seconds N] | --end [--json]",
                              "give memory to other programs", run};

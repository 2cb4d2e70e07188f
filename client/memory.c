/* memory.c - who holds the device's memory, as text and as JSON, for status, ps, top and doctor. */
#include <stdarg.h>
#include <string.h>

#include "client/cmd.h"

json_t *json_memory(const struct hearth_memory *m)
{
    json_t *programs = json_array();
    for (size_t i = 0; i < m->n_programs; i++)
        json_array_append_new(programs,
                              json_pack("{s:I, s:I, s:o}", "pid", (json_int_t)m->programs[i].pid, "bytes",
                                        (json_int_t)m->programs[i].bytes, "name", json_str(m->programs[i].name)));
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "limit", (json_int_t)m->limit, "weights",
                     (json_int_t)m->weights, "kv", (json_int_t)m->kv, "workspace", (json_int_t)m->workspace, "cache",
                     (json_int_t)m->cache, "context", (json_int_t)m->context, "pinned", (json_int_t)m->pinned, "others",
                     (json_int_t)m->others, "others_unknown", json_str(m->others_unknown), "programs", programs);
}

__attribute__((format(printf, 3, 4))) static void add(char *line, size_t size, const char *fmt, ...)
{
    size_t n = strlen(line);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line + n, size - n, fmt, ap);
    va_end(ap);
}

void memory_own_line(const struct hearth_memory *m, char *line, size_t size)
{
    const struct {
        const char *what;
        int64_t bytes;
    } part[] = {{"weights", m->weights}, {"KV", m->kv}, {"workspace", m->workspace}, {"context", m->context}};
    int64_t own = 0;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        own += part[i].bytes;
    snprintf(line, size, "%s", human_bytes(own));
    if (m->limit)
        add(line, size, " of %s", human_bytes(m->limit));
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (part[i].bytes)
            add(line, size, ", %s %s", part[i].what, human_bytes(part[i].bytes));
    if (m->cache)
        add(line, size, "; copies of weights %s, for as long as nobody wants it", human_bytes(m->cache));
    if (m->pinned)
        add(line, size, "; pinned host memory %s", human_bytes(m->pinned));
}

void memory_others_line(const struct hearth_memory *m, char *line, size_t size)
{
    if (m->others_unknown) {
        snprintf(line, size, "not known: %s", m->others_unknown);
        return;
    }
    snprintf(line, size, "%s%s", human_bytes(m->others), m->context ? "" : ", the engine's own context among it");
    for (size_t i = 0; i < m->n_programs; i++) {
        const struct hearth_program *p = &m->programs[i];
        add(line, size, "; %s (%lld)", p->name ? p->name : "process", (long long)p->pid);
        if (p->bytes)
            add(line, size, " %s", human_bytes(p->bytes));
    }
}

const char *memory_where(const struct hearth_loaded_model *m, char *out, size_t size)
{
    if (m->vocab_only)
        return "vocabulary";
    if (!m->where || m->host_bytes <= 0 || m->bytes <= 0)
        return m->where ? m->where : "-";
    double host = 100.0 * (double)m->host_bytes / (double)m->bytes;
    snprintf(out, size, "%s %.0f %%, host %.0f %%", m->where, 100 - host, host);
    return out;
}

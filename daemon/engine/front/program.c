/* program.c - see program.h. Thread: the loop's. */
#include "config.h"

#include "daemon/engine/front/program.h"

#include <stdlib.h>

void program_rows_free(struct program_rows *r)
{
    free(r->row);
    free(r->text);
    *r = (struct program_rows){0};
}

static int describe(struct program_rows *out, const struct program *p, struct hearth_err *e)
{
    out->row = calloc(p->n_op, sizeof *out->row);
    out->text = calloc(p->n_op, sizeof *out->text);
    if (!out->row || !out->text) {
        program_rows_free(out);
        return err_set(e, HEARTH_ENOMEM, "no memory for a program of %u ops", p->n_op);
    }
    out->n = p->n_op;
    for (uint32_t i = 0; i < p->n_op; i++)
        out->row[i] = (struct wire_op){.op = op_name(p->op[i].kind), .text = op_describe(&p->op[i], out->text[i])};
    return 0;
}

static void add_paths(struct program_rows *out, const struct op_table *t)
{
    for (size_t i = 0; i < out->n && i < t->n; i++) {
        const char *const *at = t->op[i].at;
        out->row[i].one = at[OP_STEP_ONE];
        out->row[i].few = at[OP_STEP_FEW];
        out->row[i].many = at[OP_STEP_MANY];
        out->row[i].invariant = at[OP_STEP_INVARIANT];
    }
}

int program_rows(struct program_rows *out, const struct model_entry *m, struct hearth_err *e)
{
    struct model *outline;
    *out = (struct program_rows){0};
    int rc = model_outline(&outline, m->gguf, e);
    if (rc)
        return rc;
    rc = describe(out, &outline->program, e);
    model_free(outline);
    const struct op_table *t = atomic_load(&m->loaded) ? atomic_load(&m->ops) : NULL;
    if (!rc && t)
        add_paths(out, t);
    return rc;
}

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
        out->row[i] = (struct wire_op){op_name(p->op[i].kind), op_describe(&p->op[i], out->text[i])};
    return 0;
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
    return rc;
}

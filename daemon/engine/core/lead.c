/* lead.c - see lead.h. Thread: the device thread's. */
#include "config.h"

#include "daemon/engine/core/lead.h"

#include <math.h>
#include <poll.h>

#include "daemon/engine/core/events.h"

/* Whether whoever comes, decodes in it, or has had less than others, would wait for the steps behind it too. */
static bool is_long(const struct plan *p)
{
    return p->work.prompt && (p->work.decode || p->users || p->n_row > ROWS_GPU_LEAST);
}

/* Whether the step was computed while it was submitted. */
static bool is_at_once(const struct engine *eng, const struct in_flight *f)
{
    return eng->max_in_flight == 1 || f->plan.seq[0].seq->model->model->dev != eng->dev;
}

/* The longest of late, since it is what the device must not wait for. */
void lead_submitted(struct engine *eng, struct in_flight *f)
{
    static const double share = 0.2; /* of the last one, where others took longer */
    f->submitted = engine_now();
    double took = f->submitted - f->begin;
    if (is_long(&f->plan))
        eng->submission += (took < eng->submission ? share : 1) * (took - eng->submission);
}

/* Steps are done one after the other. One begins with its submission, or when the one before it is done; where that was
 * not seen, the host having been busy, it began somewhere between. */
static double began_first(const struct engine *eng, const struct in_flight *f)
{
    return f->begin < eng->step_done_at && eng->step_end_seen ? eng->step_done_at : f->begin;
}

/* The time between two answers is not always a step's own: to take it for that once had steps of 500 rows cost nothing.
 * Nor is it where the device waited for the end of the submission. */
void lead_learn(struct engine *eng, const struct in_flight *f, bool done, double asked, double now)
{
    static const double at_once = 5e-5; /* an answer that took no longer was there before it was asked for */
    bool exact = is_at_once(eng, f), late = !exact && now - asked <= at_once;
    double last = fmax(exact ? f->begin : f->submitted, eng->step_done_at);
    if (done)
        cost_learn_between(&f->plan.group->cost, &f->plan.work, late ? 0 : now - last, now - began_first(eng, f));
    eng->step_done_at = now;
    eng->step_end_seen = !late;
}

double lead_left(const struct engine *eng)
{
    enum { PART = 8 }; /* of the step: the error of its estimate */
    const struct in_flight *f = &eng->in_flight[eng->first_in_flight];
    bool any_long = false, known = true;
    double begun = began_first(eng, f), most = f->plan.work.decode ? f->plan.group->pace.gap : INFINITY, left = 0;
    for (uint32_t i = 0; i < eng->n_in_flight; i++) {
        f = &eng->in_flight[(eng->first_in_flight + i) % IN_FLIGHT_MAX];
        left += f->plan.expected;
        any_long |= is_long(&f->plan);
        known &= f->plan.expected > 0;
    }
    if (!any_long)
        return 0;
    if (!known || !eng->step_end_seen) /* nor a third one meanwhile: of the next two the ends will be seen */
        return eng->n_in_flight > 1 ? INFINITY : 0;
    left -= eng->submission + f->plan.expected / PART;
    return (eng->n_in_flight > 1 ? left : fmin(left, most)) - (engine_now() - begun);
}

bool lead_wait(struct engine *eng, double seconds)
{
    struct pollfd inbox = {eng->inbox.fd, POLLIN, 0};
    struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
    engine_notify(eng, true);
    return ppoll(&inbox, 1, &t, NULL) > 0;
}

/* A GPU's bits depend on how a prompt is cut: alone it is cut by rows, of which a step has the more the better, as its
 * weights are read once for all of them; but no step is stopped, and whoever comes waits for the end of it. Of the 40
 * ms that whoever decodes may wait a quarter is for who comes beside him, for the error of an estimate and the way to
 * him, and of the 100 ms of who comes where nobody decodes a tenth. A CPU's step may be stopped (step.c), so it may be
 * long. */
const struct sched_pace *lead_pace(const struct device_info *info)
{
    static const struct sched_pace gpu = {.rows_first = 64,
                                          .gap = 0.03,
                                          .alone = 0.09,
                                          .least = 0.036,
                                          .rows_alone = ROWS_GPU_LEAST},
                                   cpu = {.rows_first = 8, .gap = 0.1, .alone = 1};
    return info->gpu ? &gpu : &cpu;
}

/* lead.c - see lead.h. Thread: the device thread's. */
#include "config.h"

#include "daemon/engine/core/lead.h"

#include <math.h>
#include <poll.h>

#include "daemon/engine/core/events.h"

/* Whether a step is long enough that a newly arrived, decoding or under-served request would notice queueing behind
 * it. */
static bool is_long(const struct plan *p)
{
    return p->work.prompt && (p->work.decode || p->users || p->n_row > ROWS_GPU_LEAST);
}

/* Whether the step was computed during its submission. */
static bool is_at_once(const struct engine *eng, const struct in_flight *f)
{
    return eng->max_in_flight == 1 || f->plan.seq[0].seq->model->model->dev != eng->dev;
}

/* Tracks the longest recent submission of a long step, because the device must not run dry while the host submits. */
void lead_submitted(struct engine *eng, struct in_flight *f)
{
    static const double share = 0.2; /* weight of the last submission if it was shorter */
    f->submitted = engine_now();
    double took = f->submitted - f->begin;
    if (is_long(&f->plan))
        eng->submission += (took < eng->submission ? share : 1) * (took - eng->submission);
}

/* The device computes steps one after the other. A step begins when it is submitted or when the one before it is done.
 * If the host was too busy to see that, the step began somewhere between the two. */
static double began_first(const struct engine *eng, const struct in_flight *f)
{
    return f->begin < eng->step_done_at && eng->step_end_seen ? eng->step_done_at : f->begin;
}

/* The time between the ends of two steps is not always the duration of one: taking it for that once made steps of 500
 * rows seem to cost nothing. Nor is it if the device had to wait for the end of the submission. So the cost is learnt
 * from a lower and an upper bound. */
void lead_learn(struct engine *eng, const struct in_flight *f, bool done, double asked, double now)
{
    static const double at_once = 5e-5; /* a wait that took no longer found the step done already */
    bool exact = is_at_once(eng, f), late = !exact && now - asked <= at_once;
    double last = fmax(exact ? f->begin : f->submitted, eng->step_done_at);
    if (done)
        cost_learn_between(&f->plan.group->cost, &f->plan.work, late ? 0 : now - last, now - began_first(eng, f));
    eng->step_done_at = now;
    eng->step_end_seen = !late;
}

double lead_left(const struct engine *eng)
{
    enum { PART = 8 }; /* fraction of the step, for the estimate's error */
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
    if (!known || !eng->step_end_seen) /* no third step meanwhile: the ends of the two in flight will be seen */
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

/* The bits that a GPU computes depend on how a prompt is cut into chunks, so a prompt that nobody decodes beside is cut
 * by rows. A step should have as many as possible, as the weights are read once for all of them; but a GPU's step
 * cannot be stopped, and a request that arrives waits for its end. A decoding stream may wait 40 ms for its next token.
 * A quarter of that is reserved for a request that arrives meanwhile, for the estimate's error and for delivery. A
 * request that arrives while nobody decodes may wait 100 ms, of which a tenth is reserved likewise. A CPU's step can be
 * stopped (step.c), so it may be long. */
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

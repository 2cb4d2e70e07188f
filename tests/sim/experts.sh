#!/bin/sh
# experts.sh - mixtures of experts on a simulated GPU: what it has time for.
. "$top_srcdir/tests/sim/lib.sh"
run experts cuda fast quick
# A product computes a router's logits only where its tiles are two a processor at most, so that these have an H100's.
HEARTH_SIM_SMS=132
run experts-layers cuda fast quick
# Also when copies arrive as late as they may: a fragment that is read too early, or replaced too early, is another.
HEARTH_SIM_LATE=1
export HEARTH_SIM_LATE
run experts-layers cuda fast quick
done_testing

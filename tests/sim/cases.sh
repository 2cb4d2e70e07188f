#!/bin/sh
# cases.sh - the case table of the ops, every type and shape, on a simulated GPU: in each kind of step. In fast ones blocks
# wait for others of their launch, and find nothing that an earlier launch left.
. "$top_srcdir/tests/sim/lib.sh"
run ops cuda auto decode
run ops cuda auto prompt
run ops cuda auto batch
export HEARTH_SIM_REVERSED=1
run ops cuda auto fast
done_testing

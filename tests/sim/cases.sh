#!/bin/sh
# cases.sh - the case table of the ops, every type and shape, on a simulated GPU: in each kind of step.
. "$top_srcdir/tests/sim/lib.sh"
for how in fast decode prompt; do
    run ops cuda auto $how
done
done_testing

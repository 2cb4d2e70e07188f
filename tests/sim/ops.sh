#!/bin/sh
# ops.sh - layers, moves of KV, routes and steps of the CUDA backend on a simulated GPU, whose cases are quick there.
. "$top_srcdir/tests/sim/lib.sh"
for program in layers beside moves step route; do
    run $program cuda
done
done_testing

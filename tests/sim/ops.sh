#!/bin/sh
# ops.sh - layers, moves of KV, routes and sampling of the CUDA backend on a simulated GPU, and rows beside others, as far
# as they are quick.
. "$top_srcdir/tests/sim/lib.sh"
for program in layers beside moves route; do
    run $program cuda
done
run order cuda auto only 'RMS norms'
for case in large batch logprobs hostile_logits refusals; do
    run sample cuda only test_$case
done
done_testing

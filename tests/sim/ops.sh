#!/bin/sh
# ops.sh - layers, moves of KV, routes, steps and sampling of the CUDA backend on a simulated GPU, of which what is quick
# there.
. "$top_srcdir/tests/sim/lib.sh"
for program in layers beside moves step route; do
    run $program cuda
done
for case in large batch logprobs hostile_logits refusals; do
    run sample cuda only test_$case
done
done_testing

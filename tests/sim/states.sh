#!/bin/sh
# states.sh - models with recurrent states, in pieces of any length, on a simulated GPU.
. "$top_srcdir/tests/sim/lib.sh"
run states
done_testing

#!/bin/sh
# experts.sh - mixtures of experts on a simulated GPU: what it has time for.
. "$top_srcdir/tests/sim/lib.sh"
run experts cuda fast quick
done_testing

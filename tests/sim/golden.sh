#!/bin/sh
# golden.sh - whole models of every architecture on a simulated GPU.
. "$top_srcdir/tests/sim/lib.sh"
run golden 'test_hf_*' 'test_hf_gguf*'
run golden 'test_more_*'
done_testing

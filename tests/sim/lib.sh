# lib.sh - sourced by the tests of the CUDA backend on a simulated GPU: each program's cases are cases of the test. Eight
# multiprocessors, as blocks without work take time too.
HEARTH_SIM_SMS=8 HEARTH_BACKEND=cuda CMOCKA_MESSAGE_OUTPUT=TAP
export HEARTH_SIM_SMS HEARTH_BACKEND CMOCKA_MESSAGE_OUTPUT
n=0
# run PROGRAM [ARGUMENT...]: of cmocka's TAP only the cases and what it says of them; a program that ends otherwise, or has
# no case, is a case that failed, and so is a complaint of the simulator.
run() {
    program=$* failed=0 before=$n
    "$top_builddir/tests/sim/$@" >"$out" 2>&1
    status=$?
    while IFS= read -r line; do
        case $line in
        'ok '* | 'not ok '*)
            n=$((n + 1))
            case $line in
            *'# SKIP'*) echo "ok $n # SKIP ${line##*# SKIP }" ;;
            'ok '*) echo "ok $n - $program: ${line#* - }" ;;
            *) failed=1; echo "not ok $n - $program: ${line#* - }" ;;
            esac
            ;;
        1..*) ;;
        'sim: '*) n=$((n + 1)) failed=1; echo "not ok $n - $program: $line" ;;
        *) echo "# $line" ;;
        esac
    done <"$out"
    if [ "$failed" = 0 ] && { [ "$status" != 0 ] || [ "$n" = "$before" ]; }; then
        n=$((n + 1))
        echo "not ok $n - $program ran $((n - 1 - before)) cases and ended with $status"
    fi
}
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
done_testing() { echo "1..$n"; }

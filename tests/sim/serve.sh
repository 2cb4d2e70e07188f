#!/bin/sh
# serve.sh - hearthd, its engine and the model that comes along on the simulated GPU: a session is gone on with, forked,
# restored from its file after a restart and taken back after a yield, with the texts that an undisturbed one has.
. "$top_srcdir/tests/cli/lib.sh"
HEARTH_SIM_SMS=8
export HEARTH_SIM_SMS
configure "engine = $top_builddir/tests/sim/hearth-engine"

# turn NAME SESSION PROMPT - a greedy turn of eight tokens; its text.
turn() {
    status 0 "$1" "$hearth" run -n 8 --temp 0 -s "$2" --json "$3"
    text=$(json "$dir/out" 'd["text"]')
}
turn "a first turn" fables "There was once a fox"
status 0 "where the model is" "$hearth" ps --json
json_is "it is on the GPU, checked" 'd["models"][0]["where"] == "cuda:0" and d["models"][0]["self_check"] == "passed"'
status 0 "what the engine has done" "$hearth" status --json
json_is "no step of the self-check is counted" '0 < d["engine"]["replays"] < d["engine"]["steps"]'
turn "a second turn goes on" fables " The next day"
json_is "... with what was there" 'd["usage"]["prompt_tokens"] - d["usage"]["computed_tokens"] >= 8'
status 0 "a fork at the first turn" "$hearth" fork fables other
turn "the session goes on" fables " And then"
undisturbed=$text
status 0 "the daemon ends" "$hearth" stop --daemon
turn "the fork goes on after a restart" other " And then"
is "... as the session did" "$text" "$undisturbed"
json_is "... from its file" 'd["usage"]["restored_tokens"] >= 16'
turn "another turn" other " So"
status 0 "all memory is given back" "$hearth" yield --all --seconds 60
status 0 "and taken back" "$hearth" yield --end
turn "the fork goes on after a yield" other " At last"
done_testing

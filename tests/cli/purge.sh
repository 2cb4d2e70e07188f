#!/bin/sh
# purge.sh - hearth purge: what hearth has kept goes, and nothing else.
. "$top_srcdir/tests/cli/lib.sh"
status 0 "a session" "$hearth" run -n 2 -s kept "Once"
status 2 "purge without a terminal" sh -c '"$1" purge </dev/null' sh "$hearth"
err_has "asks for a word" "--yes"
status 0 "and removes nothing" test -f "$dir/state/hearth/sessions.db"
status 1 "nor does hearthd beside another" "$top_builddir/hearthd" --purge
err_has "which has the folder" "in use by a hearthd"
status 1 "nor of a folder without a name, which is not the one where it stands" "$top_builddir/hearthd" --purge --state ""
err_has "and that is said" 'state_dir: a value is missing'
mkdir "$dir/elsewhere" && echo mine >"$dir/elsewhere/file"
ln -s "$dir/elsewhere" "$dir/state/hearth/kv/link"
echo mine >"$dir/state/hearth/sessions.txt"
echo secret >"$dir/state/hearth/chat_history"
status 0 "purge --yes" "$hearth" purge --yes
is "says what stays" "$(sed 's/.*; //' "$dir/out")" "1 that are not hearthd's stay"
is "a file of somebody's stays, alone" "$(ls "$dir/state/hearth")" "sessions.txt"
is "and what a link led to" "$(cat "$dir/elsewhere/file")" "mine"
rm "$dir/state/hearth/sessions.txt"
status 0 "once more" "$hearth" purge -y
status 1 "the folder goes, too" test -e "$dir/state/hearth"
status 0 "and with nothing there" "$hearth" purge -y
status 0 "no session is left" sh -c '! "$1" sessions show kept' sh "$hearth"
done_testing

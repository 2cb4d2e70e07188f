#!/bin/sh
# peer.sh - whom the command talks to: no other user's socket in a default place gets to see a prompt. Root only, since
# it takes two users.
. "$top_srcdir/tests/cli/lib.sh"
if [ "$(id -u)" != 0 ]; then
    echo "1..0 # SKIP this takes two users, and so root"
    exit 0
fi

# Listens at the path as another user, and writes what it is sent; the path is there when it prints "ready".
cat >"$dir/listen.py" <<'P'
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
os.setegid(65534)
os.seteuid(65534)  # whom the kernel tells of is who called listen()
s.listen(8)
s.settimeout(60)
print("ready", flush=True)
c, _ = s.accept()
c.settimeout(60)
sys.stdout.write("got %d bytes\n" % len(c.recv(1000)))
P
# listen PATH - begins to listen there, in the background, with its output in $dir/heard.
listen() {
    : >"$dir/heard"
    python3 "$dir/listen.py" "$1" >"$dir/heard" &
    listener=$!
    until grep -q ready "$dir/heard"; do :; done
}

mkdir -p "$dir/run/hearth"
listen "$dir/run/hearth/hearth.sock"
unset HEARTH_SOCKET
status 1 "another user's socket in the runtime folder" "$hearth" run -n 1 "my secret prompt"
err_has "is refused by name" "hearth: PERMISSION: $dir/run/hearth/hearth.sock is served by uid 65534, who is neither you nor root"
wait $listener
is "and gets nothing" "$(grep got "$dir/heard")" "got 0 bytes"

export HEARTH_SOCKET="$dir/theirs.sock"
listen "$HEARTH_SOCKET"
status 1 "a named socket of root's that another user serves" "$hearth" status
err_has "is refused" "is served by uid 65534"
wait $listener
rm "$HEARTH_SOCKET"
listen "$HEARTH_SOCKET"
chown 65534 "$HEARTH_SOCKET"
"$hearth" status >/dev/null 2>&1 &
asked=$!
wait $listener
kill $asked 2>/dev/null
[ "$(grep got "$dir/heard")" != "got 0 bytes" ]
result $? "a named socket of the user who serves it is talked to"
done_testing

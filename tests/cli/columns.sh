#!/bin/sh
# columns.sh - tables stay aligned where names have wide or combining characters, tabs or newlines.
. "$top_srcdir/tests/cli/lib.sh"
configure "engine = $(cd "$top_builddir" && pwd)/tests/daemon/fake-engine"

# columns.py FILE PATTERN - how many lines have the pattern, and what stands before it, in columns of a terminal.
cat >"$dir/columns.py" <<'P'
import re, sys, unicodedata
def columns(text):
    return sum(0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 1 + (unicodedata.east_asian_width(c) in "WF")
               for c in text)
found = [columns(re.split(sys.argv[2], line)[0]) for line in open(sys.argv[1], encoding="utf-8", errors="replace")
         if re.search(sys.argv[2], line)]
print(len(found), *sorted(set(found)))
P
for session in plain "日本語の会話" "$(printf 'e\314\201te\314\201')" "🔥 한국어" "とても長い会話の名前があります"; do
    status 0 "a session '$session'" "$hearth" run -m tale -s "$session" -n 1 "n=1"
    "$hearth" run -m tale -s "$session" -p hang >/dev/null 2>&1 &
done
until [ "$("$hearth" streams | wc -l)" = 6 ]; do
    sleep 0.1
done
for locale in C.UTF-8 C; do
    LC_ALL=$locale "$hearth" sessions >"$dir/out"
    is "sessions align ($locale)" "$(python3 "$dir/columns.py" "$dir/out" ' [0-9a-f]{16} ')" "5 31"
    LC_ALL=$locale "$hearth" streams >"$dir/out"
    is "so do streams" "$(python3 "$dir/columns.py" "$dir/out" ' tale ')" "5 39"
    LC_ALL=$locale "$hearth" top --once >"$dir/out"
    is "and those of top, whose names are cut" "$(grep -a running "$dir/out" >"$dir/rows"; python3 "$dir/columns.py" "$dir/rows" ' tale ')" "5 29"
done

# Neither a newline nor a tab in the name of a file breaks a row.
mkdir -p "$dir/data/hearth/models"
odd=$(printf 'a\tb\nc')
cp "$top_srcdir/contrib/models/tale-q4_k_m.gguf" "$dir/data/hearth/models/$odd.gguf"
status 0 "a model of an odd name" "$hearth" load "$odd"
"$hearth" ps >"$dir/out"
is "is in a row of its own" "$(grep -c '^a?b?c ' "$dir/out")" 1
"$hearth" top --once >"$dir/out"
is "in top likewise" "$(grep -c '^a?b?c ' "$dir/out")" 1

# A line is cut where the terminal ends, not where so many characters do, nor amidst one.
cat >"$dir/narrow.py" <<'P'
import fcntl, re, struct, sys, termios, unicodedata
from terminal import Terminal, case
t = Terminal("/bin/sh", "-c", "read go; exec \"$0\" top", sys.argv[1])
fcntl.ioctl(t.fd, termios.TIOCSWINSZ, struct.pack("4H", 24, 20, 0, 0))
t.type(b"\n")
t.expect(rb"STREAM .*\033\[J")
t.type(b"q")
case(t.end() == 0, "top in 20 columns")
rows = re.findall(r"^\d+ +(.*)\033\[K", t.all.decode(), re.M)
case(len(rows) >= 5, "has the streams")
wide = [sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in row if not unicodedata.combining(c)) for row in rows]
case(max(wide) <= 11, "... within them")
P
terminal 3 "$dir/narrow.py"
done_testing

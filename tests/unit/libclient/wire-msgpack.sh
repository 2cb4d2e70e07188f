#!/bin/sh
# wire-msgpack.sh: runs wire-msgpack.py where Debian's python3-msgpack is there.
if ! /usr/bin/python3 -c 'import msgpack' 2>/dev/null; then
    echo "1..0 # SKIP /usr/bin/python3 has no msgpack"
    exit 0
fi
exec /usr/bin/python3 "$top_srcdir/tests/unit/libclient/wire-msgpack.py"

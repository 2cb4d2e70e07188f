#!/bin/sh
# install.sh - make install puts every file where it belongs, and the installed programs work.
. "$top_srcdir/tests/cli/lib.sh"
root=$dir/root
unset MAKEFLAGS MAKELEVEL MFLAGS

if make -C "$top_builddir" install DESTDIR="$root" >"$dir/out" 2>&1; then result 0 "make install"; else
    result 1 "make install"
    tail -n 20 "$dir/out" | sed 's/^/# /'
fi
for f in bin/hearth sbin/hearthd libexec/hearth-engine libexec/hearth-bench lib/libhearth.so include/hearth.h lib/pkgconfig/hearth.pc \
    share/man/man1/hearth.1 share/man/man8/hearthd.8 share/man/man5/hearth.conf.5 \
    share/hearth/models/tale-q4_k_m.gguf lib/systemd/system/hearthd.service lib/systemd/system/hearthd.socket \
    lib/systemd/user/hearthd.service lib/systemd/user/hearthd.socket lib/sysusers.d/hearth.conf \
    share/bash-completion/completions/hearth share/zsh/site-functions/_hearth share/fish/vendor_completions.d/hearth.fish; do
    found=$(find "$root" -path "*/$f" 2>/dev/null | head -n 1)
    [ -n "$found" ]
    result $? "$f"
done
is "no header but the public ones" "$(find "$root" -name '*.h' | sed 's,.*/,,' | sort | tr '\n' ' ')" "hearth-libevent.h hearth.h "

hearth=$(find "$root" -path '*/bin/hearth')
status 0 "the installed command" "$hearth" run -n 4 --json "Once upon a time"
status 0 "its daemon" "$hearth" status --json
pid=$(json "$dir/out" "d['pid']")
engine=$(json "$dir/out" "d['engine']['pid']")
is "is the installed one" "$(readlink "/proc/$pid/exe")" "$(find "$root" -path '*/sbin/hearthd')"
is "and so is the engine" "$(readlink "/proc/$engine/exe")" "$(find "$root" -path '*/libexec/hearth-engine')"

pc=$(find "$root" -name hearth.pc)
prefix=${pc%/lib/pkgconfig/hearth.pc}
cc=${CC:-cc}
sanitize=$(sed -n 's/^HEARTH_LDFLAGS = //p' "$top_builddir/Makefile") # a sanitized library wants a sanitized program
# shellcheck disable=SC2046,SC2086
$cc $sanitize "$top_srcdir/libclient/examples/blocking.c" -o "$dir/blocking" \
    $(PKG_CONFIG_LIBDIR=${pc%/hearth.pc} pkg-config --define-variable=prefix="$prefix" --cflags --libs hearth) >"$dir/err" 2>&1
result $? "a program builds with hearth.pc alone, without the files of what libhearth is made of"
sed 's/^/# /' "$dir/err"
status 0 "and runs" env LD_LIBRARY_PATH="$prefix/lib" "$dir/blocking" tale "Once upon a time"
done_testing

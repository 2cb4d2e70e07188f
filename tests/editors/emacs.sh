#!/bin/sh
# emacs.sh - contrib/emacs in the real Emacs, in a terminal: ghost text, accept, cancel, chat; and that it compiles
# without a warning.
editor=emacs
. "$top_srcdir/tests/editors/lib.sh"
in_terminal "$top_srcdir/tests/editors/emacs.lua"

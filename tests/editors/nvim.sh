#!/bin/sh
# nvim.sh - contrib/nvim in the real Neovim, in a terminal: ghost text, accept, cancel, chat.
editor=nvim
. "$top_srcdir/tests/editors/lib.sh"
in_terminal "$top_srcdir/tests/editors/nvim.lua"

#!/bin/sh
# completion.sh - what bash offers: every name once, and names with blanks as one word.
if ! command -v bash >/dev/null; then
    echo "1..0 # SKIP bash is not installed"
    exit 0
fi
. "$top_srcdir/tests/cli/lib.sh"
cat >"$dir/try" <<'B'
cd "$1" || exit 1
source "$2"
hearth() { # --no-start VERB --json
    case $2 in
    list) echo '{"models":[{"name":"tale","path":"/m/tale.gguf"},{"name":"tale","path":"/n/tale.gguf"},{"name":"my model","path":"/m"},{"name":"qwen"}]}' ;;
    sessions) echo '{"sessions":[{"name":"new name","id":"1"},{"name":"news","id":"2"},{"name":null}]}' ;;
    esac
}
shift 2
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
_hearth
printf '[%s]' "${COMPREPLY[@]}"
B
touch "$dir/a file.gguf"
offers() { # NAME WANTED WORD...
    name=$1 wanted=$2
    shift 2
    is "$name" "$(bash "$dir/try" "$dir" "$top_srcdir/contrib/completions/hearth.bash" "$@")" "$wanted"
}
offers "a model of two folders is offered once" '[tale]' hearth run -m ta
offers "a name with a blank is one word" '[my\ model]' hearth show my
offers "as it is typed on" '[my\ model]' hearth show 'my\ m'
offers "within quotes it is not quoted again" '[my model]' hearth show '"my'
offers "sessions likewise" '[new\ name][news]' hearth resume new
offers "a file with a blank, too" '[a\ file.gguf]' hearth chat -m a
offers "an option is no name" '[--ops]' hearth show --o
offers "all of them" '[--json][--ops][--help][--no-start][tale][my\ model][qwen]' hearth show ''
offers "a verb" '[streams]' hearth stre
offers "a verb to be explained" '[purge]' hearth help pu
offers "one of sessions" '[adopt]' hearth sessions ad
offers "the options of the list that is its own" '[--json][--ephemeral][--help][--no-start]' hearth sessions --
done_testing

#!/bin/sh
# completion.sh - what bash offers: every name once, and names with blanks as one word; and that each shell offers the
# options that `hearth VERB --help` lists, and no others.
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
    ps) echo '{"models":[{"name":"tale","path":"/m"},{"name":"mine","path":"/n"}],"memory":{"programs":[{"pid":1,"name":"Xorg"},{"pid":2,"name":"game"}]},"engines":[{"pid":3,"memory":{"programs":[{"pid":1,"name":"Xorg"}]}}]}' ;;
    sessions) echo '{"sessions":[{"name":"new name","id":"1"},{"name":"news","id":"2"},{"name":null},{"name":"odd:1=2@3"},{"name":"odd:2"}]}' ;;
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
offers "a name with what bash would take for the end of a word" '[odd\:1\=2\@3][odd\:2]' hearth resume od
offers "as it is typed on, too" '[odd\:2]' hearth resume 'odd\:2'
offers "a file with a blank, too" '[a\ file.gguf]' hearth chat -m a
touch "$dir/odd \$(touch ran)y"
offers "a file is never run, nor cut at a blank" '[odd\ \$\(touch\ ran\)y]' hearth backup odd
offers "where it is imported likewise" '[odd\ \$\(touch\ ran\)y]' hearth sessions import odd
offers "as a template likewise" '[odd\ \$\(touch\ ran\)y]' hearth render --template odd
offers "within double quotes it stays text" '[odd \$(touch ran)y]' hearth backup '"odd'
[ ! -e "$dir/ran" ]
result $? "nothing of it ran"
offers "models that are loaded, and no other programs" '[--daemon][--now][--json][--help][--no-start][tale][mine]' hearth stop ''
offers "an option is no name" '[--ops]' hearth show --o
offers "all of them" '[--json][--ops][--help][--no-start][tale][my\ model][qwen]' hearth show ''
offers "a verb" '[streams]' hearth stre
offers "a verb to be explained" '[purge]' hearth help pu
offers "one of sessions" '[adopt]' hearth sessions ad
offers "the options of the list that is its own" '[--json][--ephemeral][--help][--no-start]' hearth sessions --

# What the shells offer after `hearth VERB --`, an option a line. fish is asked as the user asks it; zsh, for which one
# must sit at a terminal, shows what _hearth tells _arguments.
cat >"$dir/try.bash" <<'B'
source "$1"
shift
COMP_WORDS=(hearth "$@" --) COMP_CWORD=$(($# + 1)) COMPREPLY=()
_hearth
printf '%s\n' "${COMPREPLY[@]}"
B
cat >"$dir/try.fish" <<'B'
source $argv[1]
complete -C "hearth $argv[2..] --" | string replace -r '\t.*' ''
B
cat >"$dir/try.zsh" <<'B'
_arguments() { print -rl -- "$@" | sed -n 's/^\(([^)]*)\)\{0,1\}\*\{0,1\}\(--[a-z-]*\).*/\2/p' }
file=$1
words=(hearth "${@[2,-1]}" --) CURRENT=$(( $# + 1 ))
set --
source $file
B
options() { "$hearth" "$@" --help | sed -n 's/^  \(-.,\|   \) \(--[a-z-]*\).*/\2/p' | known; }
known() { grep -vx -e --help -e --no-start -e --version | LC_ALL=C sort -u | tr '\n' ' '; }
"$hearth" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' | grep -vx -e sessions -e serve >"$dir/verbs"
"$hearth" sessions --help | sed -n 's/^  \([a-z]*\)  .*/sessions \1/p' >>"$dir/verbs"
[ "$(grep -c . "$dir/verbs")" -gt 30 ]
result $? "there are verbs with options"
PATH=$top_builddir:$PATH # fish asks the command for names, too
for shell in bash fish zsh; do
    if ! command -v $shell >/dev/null; then
        n=$((n + 1))
        echo "ok $n - the options of every verb # SKIP $shell is not installed"
        continue
    fi
    file=$top_srcdir/contrib/completions/hearth.$shell
    [ $shell != zsh ] || file=$top_srcdir/contrib/completions/_hearth
    while read -r verb; do
        # shellcheck disable=SC2086
        offered=$("$shell" "$dir/try.$shell" "$file" $verb 2>&1 </dev/null | known) wanted=$(options $verb)
        [ "$offered" = "$wanted" ] || echo "$verb: $offered, not $wanted"
    done <"$dir/verbs" >"$dir/differ"
    is "$shell: the options of every verb" "$(cat "$dir/differ")" ""
done
done_testing

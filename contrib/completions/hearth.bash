# bash completion for hearth(1)
# One name a line, each once: the first of an object's names, and none of the programs that `ps` lists too.
_hearth_names()
{
    hearth --no-start "$@" --json 2>/dev/null | sed 's/},{/}\n{/g' |
        sed -n '/^{"pid":/!{s/"name":"\([^"\\]*\)".*/\n\1/;s/.*\n//p;}' | awk '!seen[$0]++'
}

# Offers a name, quoted for where the word stands: a name may hold blanks, or `$(...)`, which the shell must never run.
_hearth_add()
{
    local name=$1
    case $cur in
    \"*) COMPREPLY+=("$(sed 's/[\\$`"]/\\&/g' <<<"$name")") ;;
    \'*) COMPREPLY+=("${name//\'/\'\\\'\'}") ;;
    *)
        local home=
        [[ $cur != \~* ]] || home=\~ name=${name:1} # a quoted tilde would be no home directory
        name=$(printf %q "$name")
        [[ $name == \$\'* ]] || name=$(sed 's/[:=@]/\\&/g' <<<"$name") # a bare one would end the word that bash completes
        COMPREPLY+=("$home$name") ;;
    esac
}

# Offers the names that a verb lists.
_hearth_offer()
{
    local typed=${1//\\/} name
    shift
    [[ $typed == [\"\']* ]] && typed=${typed:1}
    while IFS= read -r name; do
        [[ $name != "$typed"* ]] || _hearth_add "$name"
    done < <(_hearth_names "$@")
}

# Offers files. They are not given to compgen -W, which expands its words as the shell does.
_hearth_files()
{
    local typed=${cur//\\/} name
    [[ $typed == [\"\']* ]] && typed=${typed:1}
    while IFS= read -r name; do _hearth_add "$name"; done < <(compgen -f "$@" -- "$typed")
}

_hearth()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= i
    local verbs="serve run chat list ps show load pin yield stop sessions resume attach streams top metrics doctor trace rm
        fork backup purge tokenize render eval bench status"
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == -* ]] || { verb=${COMP_WORDS[i]}; break; }
    done
    if [[ -z $verb ]]; then
        COMPREPLY=($(compgen -W "$verbs help --no-start --version --help" -- "$cur"))
        return
    fi
    if [[ $verb == help ]]; then
        COMPREPLY=($(compgen -W "$verbs" -- "$cur"))
        return
    fi
    case $prev in
    -m | --model)
        _hearth_offer "$cur" list
        _hearth_files -X '!*.gguf'
        return ;;
    -s | --session)
        _hearth_offer "$cur" sessions
        return ;;
    esac
    local generate="--model --session --max-tokens --system --temp --temperature --top-k --top-p --min-p --seed --stop
        --repeat-penalty --presence-penalty --frequency-penalty --penalty-last --template --set --think --class --stats --json"
    local words= names= files= # of which verb the names are offered, too; whether files are
    case $verb in
    serve)
        COMPREPLY=($(compgen -W "--foreground --check --purge --config --socket --state --engine --log-level --ready-fd
            --help --version" -- "$cur"))
        return ;;
    run) words="$generate --prompt --chat --raw --logprobs --request --choices"; names=list ;;
    chat) words=$generate ;;
    resume) words=$generate names=sessions ;;
    attach) words="--from --request --stats --json" ;;
    streams) words="--all --json" ;;
    trace) words="--json" ;;
    top) words="--interval --once" ;;
    metrics) words="--vllm --output" ;;
    rm) words="--all --yes --json" names=sessions ;;
    sessions)
        words="list show rename rm pin unpin adopt export import --json --ephemeral"
        for ((i++; i < COMP_CWORD; i++)); do
            case ${COMP_WORDS[i]} in
            list) words="--json --ephemeral" ;;
            show) words="--json --tokens" names=sessions ;;
            rename | pin | unpin) words="--json" names=sessions ;;
            rm) words="--all --yes --json" names=sessions ;;
            adopt) words="--force --json" names=sessions ;;
            export) words="--markdown --json" names=sessions ;;
            import)
                words="--name --model --force --json" files=1 ;;
            *) continue ;;
            esac
            break
        done ;;
    fork) words="--at --count --ephemeral --json" names=sessions ;;
    backup)
        words="--force --json" files=1 ;;
    purge) words="--yes" ;;
    show | load | bench)
        words="--json"
        [[ $verb == show ]] && words+=" --ops"
        [[ $verb == bench ]] &&
            words+=" --prompt --depth --batch --resume --kv --load --socket --csv --backend --variant --threads --name --commit"
        [[ $verb == bench ]] &&
            words+=" --clients --output --requests --rate --seed --shared --late --arrivals --goodput"
        names=list ;;
    pin) words="--off --json" names=list ;;
    yield) words="--for --all --seconds --end --json" ;;
    stop) words="--daemon --now --json" names=ps ;;
    tokenize) words="--model --special --bos --no-bos --decode --json" ;;
    render)
        words="--model --template --now --json"
        [[ $prev == --template ]] && files=1 ;;
    eval) words="--model --tokens --top --greedy --json" ;;
    list | ls | ps | status) words="--json" ;;
    esac
    if [[ -n $files && $cur != -* ]]; then
        _hearth_files
        return
    fi
    COMPREPLY=($(compgen -W "$words --help --no-start" -- "$cur"))
    [[ -z $names || $cur == -* ]] || _hearth_offer "$cur" "$names"
}
complete -F _hearth hearth

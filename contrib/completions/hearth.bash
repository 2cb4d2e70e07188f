# bash completion for hearth(1)
_hearth_names()
{
    hearth --no-start "$@" --json 2>/dev/null | sed 's/},{/}\n{/g' |
        sed -n 's/.*"name":"\([^"\\]*\)".*/\1/p'
}

_hearth()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == -* ]] || { verb=${COMP_WORDS[i]}; break; }
    done
    if [[ -z $verb ]]; then
        COMPREPLY=($(compgen -W "serve run chat list ps show load stop sessions resume attach streams trace rm backup tokenize render eval bench status
            --no-start --version --help" -- "$cur"))
        return
    fi
    case $prev in
    -m | --model)
        COMPREPLY=($(compgen -W "$(_hearth_names list)" -- "$cur") $(compgen -f -X '!*.gguf' -- "$cur"))
        return ;;
    -s | --session)
        COMPREPLY=($(compgen -W "$(_hearth_names sessions)" -- "$cur"))
        return ;;
    esac
    local generate="--model --session --max-tokens --system --temp --temperature --top-k --top-p --min-p --seed --stop
        --repeat-penalty --presence-penalty --frequency-penalty --penalty-last --stats --json"
    local words=
    case $verb in
    run) words="$generate --prompt --chat --raw --logprobs --request"; [[ $cur == -* ]] || words=$(_hearth_names list) ;;
    chat) words=$generate ;;
    resume) words=$generate; [[ $cur == -* ]] || words=$(_hearth_names sessions) ;;
    attach) words="--from --request --stats --json" ;;
    streams) words="--all --json" ;;
    trace) words="--json" ;;
    rm) words="--all --yes --json $(_hearth_names sessions)" ;;
    sessions)
        words="list show rename rm pin unpin export import --json"
        for ((i++; i < COMP_CWORD; i++)); do
            case ${COMP_WORDS[i]} in
            list) words="--json" ;;
            show) words="--json --tokens $(_hearth_names sessions)" ;;
            rename | pin | unpin) words="--json $(_hearth_names sessions)" ;;
            rm) words="--all --yes --json $(_hearth_names sessions)" ;;
            export) words="--markdown --json $(_hearth_names sessions)" ;;
            import)
                words="--name --model --force --json"
                [[ $cur == -* ]] || words=$(compgen -f -- "$cur") ;;
            *) continue ;;
            esac
            break
        done ;;
    backup)
        words="--force --json"
        [[ $cur == -* ]] || words=$(compgen -f -- "$cur") ;;
    show | load | bench)
        words="--json"
        [[ $verb == show ]] && words+=" --ops"
        [[ $verb == bench ]] &&
            words+=" --prompt --depth --batch --resume --kv --load --socket --csv --backend --variant --threads --name --commit"
        [[ $cur == -* ]] || words=$(_hearth_names list) ;;
    stop) words="--daemon --now --json $(_hearth_names ps)" ;;
    tokenize) words="--model --special --bos --no-bos --decode --json" ;;
    render)
        words="--model --template --now --json"
        [[ $prev == --template ]] && words=$(compgen -f -- "$cur") ;;
    eval) words="--model --tokens --top --greedy --json" ;;
    list | ps | status) words="--json" ;;
    esac
    COMPREPLY=($(compgen -W "$words --help --no-start" -- "$cur"))
}
complete -F _hearth hearth

# fish completion for hearth(1)
function __hearth_names
    hearth --no-start $argv --json 2>/dev/null | sed 's/},{/}\n{/g' | sed -n 's/.*"name":"\([^"\\]*\)".*/\1/p'
end

set -l verbs serve run chat list ps show load stop sessions resume attach rm tokenize eval bench status
set -l none "not __fish_seen_subcommand_from $verbs"
complete -c hearth -n $none -f
complete -c hearth -n $none -l no-start -d 'never start a daemon'
complete -c hearth -n $none -l version -d 'print the version'
complete -c hearth -n $none -a serve -d 'run the daemon in the foreground'
complete -c hearth -n $none -a run -d 'answer a prompt, or what stdin holds'
complete -c hearth -n $none -a chat -d 'a conversation'
complete -c hearth -n $none -a list -d 'models that can be named'
complete -c hearth -n $none -a ps -d 'models in memory'
complete -c hearth -n $none -a show -d 'what a model is'
complete -c hearth -n $none -a load -d 'bring a model into memory'
complete -c hearth -n $none -a stop -d 'unload a model, or end the daemon'
complete -c hearth -n $none -a sessions -d 'list, show, rename, remove sessions'
complete -c hearth -n $none -a resume -d 'a conversation in a session that exists'
complete -c hearth -n $none -a attach -d 'go on with a generation that was begun before'
complete -c hearth -n $none -a rm -d 'remove sessions'
complete -c hearth -n $none -a tokenize -d 'text to token ids, and back'
complete -c hearth -n $none -a eval -d 'logits of a model'
complete -c hearth -n $none -a bench -d 'how fast a model is'
complete -c hearth -n $none -a status -d 'the daemon, its engine and their counters'

set -l generates '__fish_seen_subcommand_from run chat resume'
complete -c hearth -n $generates -s s -l session -x -a '(__hearth_names sessions)' -d 'go on with the session'
complete -c hearth -n $generates -s n -l max-tokens -x -d 'tokens at most'
complete -c hearth -n $generates -l system -x -d 'a system message'
complete -c hearth -n $generates -l temp -x -d temperature
complete -c hearth -n $generates -l top-k -x -d 'of the K best tokens'
complete -c hearth -n $generates -l top-p -x -d 'of the best that reach P'
complete -c hearth -n $generates -l min-p -x -d 'at least P times the best'
complete -c hearth -n $generates -l seed -x -d 'the same seed gives the same text'
complete -c hearth -n $generates -l stop -x -d 'ends the text'
complete -c hearth -n $generates -l repeat-penalty -x -d 'divides logits of seen tokens'
complete -c hearth -n $generates -l presence-penalty -x -d 'taken off logits of seen tokens'
complete -c hearth -n $generates -l frequency-penalty -x -d 'for each time seen'
complete -c hearth -n $generates -l penalty-last -x -d 'tokens that count as seen'
complete -c hearth -n $generates -l stats -d 'what was reused, how fast'
complete -c hearth -n '__fish_seen_subcommand_from run' -l chat -d 'the prompt is a message'
complete -c hearth -n '__fish_seen_subcommand_from run' -l raw -d 'no special tokens in the prompt'
complete -c hearth -n '__fish_seen_subcommand_from run' -l logprobs -x -d 'alternatives per token'

complete -c hearth -n '__fish_seen_subcommand_from run chat resume tokenize eval' -s m -l model -r -a '(__hearth_names list)'
complete -c hearth -n '__fish_seen_subcommand_from show load bench' -a '(__hearth_names list)'
complete -c hearth -n '__fish_seen_subcommand_from stop' -f -a '(__hearth_names ps)'
complete -c hearth -n '__fish_seen_subcommand_from stop' -l daemon -d 'end the daemon'
complete -c hearth -n '__fish_seen_subcommand_from stop' -l now -d 'cancel what runs'
complete -c hearth -n '__fish_seen_subcommand_from resume rm' -f -a '(__hearth_names sessions)'
complete -c hearth -n '__fish_seen_subcommand_from sessions' -f -a 'list show rename rm (__hearth_names sessions)'
complete -c hearth -n '__fish_seen_subcommand_from sessions' -l tokens -d 'token ids too'
complete -c hearth -n '__fish_seen_subcommand_from tokenize' -l special -d 'special tokens are special'
complete -c hearth -n '__fish_seen_subcommand_from tokenize' -l bos
complete -c hearth -n '__fish_seen_subcommand_from tokenize' -l no-bos
complete -c hearth -n '__fish_seen_subcommand_from tokenize' -s d -l decode -d 'ids to bytes'
complete -c hearth -n '__fish_seen_subcommand_from eval' -s t -l tokens -x -d 'token ids'
complete -c hearth -n '__fish_seen_subcommand_from eval' -l top -x -d 'best logits per position'
complete -c hearth -n '__fish_seen_subcommand_from eval' -l greedy -x -d 'go on greedily'
complete -c hearth -n '__fish_seen_subcommand_from bench' -l prompt -x -d 'tokens of the prompt'
complete -c hearth -n '__fish_seen_subcommand_from bench' -l depth -x -d 'tokens before'
complete -c hearth -n '__fish_seen_subcommand_from bench' -l socket -d 'as a client sees it'
complete -c hearth -n "__fish_seen_subcommand_from $verbs" -l json -d JSON
complete -c hearth -n '__fish_seen_subcommand_from attach' -l from -x -d 'tokens to leave out'
complete -c hearth -n '__fish_seen_subcommand_from attach' -l request -d 'STREAM is a request id'
complete -c hearth -n '__fish_seen_subcommand_from run' -l request -x -d 'name the request'

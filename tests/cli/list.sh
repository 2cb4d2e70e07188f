#!/bin/sh
# list.sh - hearth list in a folder of all sorts of files: what each is, whether it runs, and why not.
. "$top_srcdir/tests/cli/lib.sh"
mkdir -p "$dir/models"
configure "model_dir = $dir/models"
tale=$(echo "$top_srcdir"/contrib/models/tale-q4_k_m.gguf)
cp "$tale" "$dir/models/good.gguf"
touch -d '25 hours ago' "$dir/models/good.gguf"
cat >"$dir/make.py" <<'P'
"""Files made of keys alone, and tale with one tensor's type changed."""
import struct, sys
out, tale = sys.argv[1:]
def text(s): return struct.pack("<Q", len(s)) + s
def write(name, n_tensor, keys, tensors=b"", data=b""):
    head = b"GGUF" + struct.pack("<IQQ", 3, n_tensor, len(keys))
    body = head + b"".join(text(k) + struct.pack("<I", 8) + text(v) for k, v in keys) + tensors
    with open(out + "/" + name, "wb") as f:
        f.write(body + b"\0" * (-len(body) % 32) + data)
one = text(b"a") + struct.pack("<IQIQ", 1, 8, 0, 0), b"\0" * 32
write("lora.gguf", 1, [(b"general.architecture", b"llama"), (b"general.type", b"adapter"), (b"adapter.type", b"lora")], *one)
write("mmproj.gguf", 1, [(b"general.architecture", b"clip")], *one)
write("bert.gguf", 1, [(b"general.architecture", b"bert")], *one)
write("future.gguf", 1, [(b"general.architecture", b"llama9")], *one)
write("words.gguf", 0, [(b"general.architecture", b"llama")])
open(out + "/html.gguf", "w").write("<html>")
b = bytearray(open(tale, "rb").read())
at = b.index(text(b"blk.0.attn_q.weight")) + 8 + len(b"blk.0.attn_q.weight")
n_dim, = struct.unpack_from("<I", b, at)
struct.pack_into("<I", b, at + 4 + 8 * n_dim, 19)
open(out + "/odd.gguf", "wb").write(b)
P
python3 "$dir/make.py" "$dir/models" "$tale"

status 0 "list --json" "$hearth" list --json
json_is "every header has been read" "all(m['read'] for m in d['models'])"
json_is "what each file is" "{m['name']: m['kind'] for m in d['models']} == {'good': 'language', 'tale': 'language', 'odd': 'language', 'future': 'language', 'lora': 'adapter', 'mmproj': 'projector', 'bert': 'embedding', 'words': 'vocabulary', 'html': None}"
json_is "what runs" "sorted(m['name'] for m in d['models'] if m['refusal'] is None) == ['good', 'tale']"
json_is "architecture, type and parameters" "[(m['arch'], m['type'], m['parameters'] > 7e6) for m in d['models'] if m['name'] in ('good', 'odd')] == [('llama', 'Q4_K_M', True)] * 2"
json_is "no folder has .." "not any('/../' in f for f in d['folders'])"
json_is "the folders are told" "d['folders'][0] == '$dir/models' and d['default_model'] == 'tale'"
cp "$tale" "$dir/models/new
line.gguf"
status 0 "list" "$hearth" list
is "a line for each file" "$(wc -l <"$dir/out")" 11
rm "$dir/models/new
line.gguf"
says() { # NAME MODEL TEXT
    grep "^$2 " "$dir/out" | grep -qF -- "$3"
    result $? "$1"
}
says "a model runs" good "yes"
says "its age is in hours for two days" good " 25 h ago "
says "an adapter is said to be one" lora "no: this is an adapter (LoRA) for a llama model"
says "a projector likewise" mmproj "no: this is a projector (mmproj)"
says "an embedding model" bert "no: this is an embedding model (bert)"
says "an architecture that is not known" future 'no: architecture "llama9" is not one hearth runs'
says "a type that does not run has its name, and what runs" odd "is of type IQ1_S, which hearth does not run; the Q4_K_M or Q8_0 of the same model does"
says "no weights" words "no: it holds a vocabulary and no weights"
says "no model at all" html "no: "
status 1 "what does not run says the same" "$hearth" run -m lora x
err_has "as an error" "UNSUPPORTED: this is an adapter (LoRA)"
status 0 "show of an adapter" "$hearth" show lora
is "has no shape" "$(grep -c 'layers of' "$dir/out")" 0
is "but says what it is" "$(grep -c '^kind  *adapter' "$dir/out")" 1

# A file that was replaced is read anew.
cp "$tale" "$dir/models/mmproj.gguf"
status 0 "list after a change" "$hearth" list --json
json_is "is of the new file" "[m['refusal'] for m in d['models'] if m['name'] == 'mmproj'] == [None]"

# What was not the file's fault is not held against it: an engine without a descriptor to spare opens no file.
nofile() { # HOW-MANY
    python3 -c 'import resource, sys; resource.prlimit(int(sys.argv[1]), resource.RLIMIT_NOFILE, (int(sys.argv[2]), resource.prlimit(int(sys.argv[1]), resource.RLIMIT_NOFILE)[1]))' \
        "$engine" "$1"
}
"$hearth" status --json >"$dir/out"
engine=$(json "$dir/out" "d['engine']['pid']")
nofile 0
cp "$tale" "$dir/models/late.gguf"
status 0 "list without descriptors" "$hearth" list --json
json_is "tells that" "['Too many open files' in m['refusal'] for m in d['models'] if m['name'] == 'late'] == [True]"
nofile "$(ulimit -n)"
end=$(($(date +%s) + 30))
until "$hearth" list --json >"$dir/out" && [ "$(json "$dir/out" "[m['refusal'] for m in d['models'] if m['name'] == 'late']")" = "[None]" ] ||
    [ "$(date +%s)" -ge $end ]; do :; done
json_is "but not once there are some" "[(m['read'], m['refusal']) for m in d['models'] if m['name'] == 'late'] == [(True, None)]"
rm "$dir/models/late.gguf"

# The key that says what type most weights are of is optional.
python3 -c 'import sys; b = open(sys.argv[1], "rb").read(); open(sys.argv[2], "wb").write(b.replace(b"general.file_type", b"general.file_typo"))' \
    "$tale" "$dir/models/typeless.gguf"
status 0 "show of a file that names no type" "$hearth" show typeless --json
json_is "has none, and all else" "d['type'] is None and d['layers'] == 8 and d['arch'] == 'llama'"

"$hearth" list --json >"$dir/out"
modified=$(json "$dir/out" "[m['modified'] for m in d['models'] if m['name'] == 'tale'][0]")
status 0 "show --json" "$hearth" show tale --json
json_is "the time of its change is that of the list" "d['modified'] == $modified"
json_is "capabilities" "d['capabilities'] == ['chat', 'fim']"
json_is "special tokens by role" "{t['role']: (t['id'], t['text']) for t in d['special']} == {'bos': (0, '<|endoftext|>'), 'eos': (0, '<|endoftext|>'), 'eot': (2, '<|im_end|>'), 'fim_pre': (3, '<|fim_prefix|>'), 'fim_suf': (4, '<|fim_suffix|>'), 'fim_mid': (5, '<|fim_middle|>')}"
json_is "no sampling of its makers" "d['sampling'] == []"

# What is in memory is what the engine says now, not what it said last.
status 0 "load" "$hearth" load good
status 0 "ps" "$hearth" ps
status 0 "list of what is loaded" "$hearth" list --json
json_is "a model in memory" "[m['name'] for m in d['models'] if m['loaded']] == ['good']"
status 0 "stop" "$hearth" stop good
status 0 "list of what was loaded" "$hearth" list --json
json_is "none any more" "[m['name'] for m in d['models'] if m['loaded']] == []"

# A link to a model's folder is one; a link to any other folder is not walked into.
mkdir "$dir/elsewhere"
echo '{"model_type": "future"}' >"$dir/elsewhere/config.json"
echo none >"$dir/elsewhere/model.safetensors"
ln -s "$dir/elsewhere" "$dir/models/linked"
ln -s "$dir/models" "$dir/models/loop"
status 0 "list of links to folders" "$hearth" list --json
json_is "has a model's folder by the link's name" "[m['path'] for m in d['models'] if m['name'] == 'linked'] == ['$dir/models/linked']"
json_is "and nothing through others" "not any('/loop' in m['path'] for m in d['models'])"
status 1 "a file of a folder" "$hearth" show "$dir/elsewhere/model.safetensors"
err_has "is not the model's name" "model.safetensors: not a GGUF file; a Hugging Face model is named by its folder"

# Damaged weights, in a file that the command does not name.
cat >"$dir/nan.py" <<'P'
"""tale with a NaN as the first number of its last norm, which is the file's first tensor."""
import struct, sys
b = bytearray(open(sys.argv[1], "rb").read())
n_tensor, = struct.unpack_from("<Q", b, 8)
at = b.index(b"output_norm.weight") - 8
for _ in range(n_tensor):
    n, = struct.unpack_from("<Q", b, at)
    name, at = bytes(b[at + 8:at + 8 + n]), at + 8 + n
    n_dim, = struct.unpack_from("<I", b, at)
    offset, = struct.unpack_from("<Q", b, at + 4 + 8 * n_dim + 4)
    at += 4 + 8 * n_dim + 4 + 8
    if name == b"output_norm.weight":
        norm = offset
struct.pack_into("<f", b, (at + 31) // 32 * 32 + norm, float("nan"))
open(sys.argv[2], "wb").write(b)
P
python3 "$dir/nan.py" "$tale" "$dir/models/damaged.gguf"
status 1 "damaged weights" env HEARTH_MODEL=damaged "$hearth" run -n 1 x
err_has "are said of their file" "hearth: MODEL_INVALID: damaged.gguf: tensor output_norm.weight: number 0 is nan"

# An index all of whose files lie elsewhere is named, with the file; and where there is neither, what is missing.
mkdir "$dir/indexed"
cp "$top_srcdir"/tests/golden/data/hf/deepseek_v3-yarn/[ct]*.json "$dir/indexed"
for file in ../x.safetensors /x.safetensors sub/x.safetensors ''; do
    echo "{\"weight_map\": {\"lm_head.weight\": \"$file\"}}" >"$dir/indexed/model.safetensors.index.json"
    status 1 "a folder whose index names '$file'" "$hearth" show "$dir/indexed"
    err_has "says so" "\"$file\", where lm_head.weight is, is no file of the folder"
done
rm "$dir/indexed/model.safetensors.index.json"
status 1 "a folder without safetensors" "$hearth" show "$dir/indexed"
err_has "says so" "not a regular file, nor a folder with config.json and safetensors"

# Folders without models: where to put one.
"$hearth" stop --daemon --now >/dev/null 2>&1
rm -rf "$dir/models"
mkdir "$dir/models"
cat >"$dir/hint.py" <<'P'
import sys
from terminal import Terminal, case
t = Terminal(sys.argv[1], "list")
t.end()
case(b"a GGUF file or a Hugging Face folder is found in " in t.all and b"`model_dir = FOLDER`" in t.all,
     "a list without models of one's own says where they go")
P
terminal 1 "$dir/hint.py"
done_testing

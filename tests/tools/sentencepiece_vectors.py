#!/usr/bin/env python3
"""sentencepiece_vectors.py OUT: a small Unigram vocabulary trained by SentencePiece, with a table of replacements, and
the ids that SentencePiece gives for difficult texts. Writes OUT/sentencepiece.gguf and OUT/sentencepiece.json; and
OUT/precompiled.tokenizer.json, the same vocabulary as Hugging Face's converters write it, with OUT/precompiled.json,
the ids of the Rust library, if the Python package `tokenizers` is installed. Needs the Python package
`sentencepiece`."""
import base64, json, os, random, struct, sys, tempfile
import sentencepiece
out = sys.argv[1]; os.makedirs(out, exist_ok=True)
LINES = """Once upon a time there was a king who had three daughters, and the youngest was so beautiful that the sun itself was astonished.
There was once a fox who wanted the grapes; he could not reach them, and so he said: they are sour!
Am Brunnen vor dem Tore, da steht ein Lindenbaum; ich träumt' in seinem Schatten so manchen süßen Traum.
Жили-были старик со старухой у самого синего моря. 中文分词很有意思。 한국어 문장입니다.
It's 9:30; I'll pay $12.50 for 3 of 'em, don't you? naïve café résumé coöperate.
hello hello hello world world HELLO Hello WORLD the the the and and of of in in to to a a""".split("\n") * 8
# What SentencePiece replaces before it tokenises: spaces of all kinds, ligatures, full width, composed accents,
# overlapping strings, and characters that are removed.
RULES = {"\t": " ", "\n": " ", "\u00a0": " ", "\u3000": " ", "ﬁ": "fi", "½": "1/2", "Ⅷ": "VIII", "①": "1", "e\u0301": "é", "u\u0308": "ü", "\u200b": "", "...": "…", "..": "‥", "ＡＢＣ": "abc", "ＡＢ": "ab", "Ａ": "a", "…": " . "}
HARD = ["", " ", "  ", "a", " a", "a ", "Hello world", "  Hello  world  ", "Hello\nworld\n\n", "\t\ttabs\t", "naïve café", "nai\u0308ve cafe\u0301 su\u0308\u00dfen", "ﬁne ½ Ⅷ ①", "中文 한국어", "👨‍👩‍👧 🦙!", "\u00a0nbsp\u2003em\u3000",
        "zzzzqqqq", "▁low▁line", "é" * 20, "ab" * 50, "\u200bzero\u200dwidth\u200b", "a.b..c...d....e", "ＡＢＣＡＢＡＤ", "e\u0301\u0301", "x\u200b \u200b y", "Hello…world", "Once upon a time there was a fox", "WORLDhelloHELLO"]
random.seed(11); pool = "abcdefgh ABC 0123 .,!?'\n\téß中あ🦙ﬁ\u0301ＡＢ"
HARD += ["".join(random.choice(pool) for _ in range(random.randint(1, 40))) for _ in range(80)]

def fields(b):
    """The fields of a protocol buffer: (number, value), with bytes for those with a length."""
    i = 0
    def varint():
        nonlocal i
        v = k = 0
        while True:
            v |= (b[i] & 127) << k; k += 7; i += 1
            if b[i - 1] < 128: return v
    while i < len(b):
        key = varint()
        if key & 7 == 2:
            n = varint(); yield key >> 3, b[i:i + n]; i += n
        elif key & 7 == 5: yield key >> 3, b[i:i + 4]; i += 4
        elif key & 7 == 1: yield key >> 3, b[i:i + 8]; i += 8
        else: yield key >> 3, varint()

with tempfile.TemporaryDirectory() as d:
    open(d + "/rules.tsv", "w").write("".join(" ".join("%X" % ord(c) for c in k) + "\t" + " ".join("%X" % ord(c) for c in v) + "\n" for k, v in RULES.items()))
    open(d + "/text", "w").write("\n".join(LINES))
    sentencepiece.SentencePieceTrainer.train(f"--input={d}/text --model_prefix={d}/m --vocab_size=300 --model_type=unigram --character_coverage=0.98 --normalization_rule_tsv={d}/rules.tsv --hard_vocab_limit=false --minloglevel=2")
    proto = open(d + "/m.model", "rb").read()
    sp = sentencepiece.SentencePieceProcessor(model_file=d + "/m.model")
pieces = [dict(fields(v)) for k, v in fields(proto) if k == 1]
charsmap = next(dict(fields(v)).get(2, b"") for k, v in fields(proto) if k == 3)
text = [p[1].decode() for p in pieces]; score = [struct.unpack("<f", p[2])[0] for p in pieces]; kind = [p.get(3, 1) for p in pieces]

def s(x): x = x.encode() if isinstance(x, str) else x; return struct.pack("<Q", len(x)) + x
def key(name, t, raw): return s(name) + struct.pack("<I", t) + raw
def array(t, n, raw): return struct.pack("<IQ", t, n) + raw
keys = [key("general.architecture", 8, s("t5")), key("tokenizer.ggml.model", 8, s("t5")), key("tokenizer.ggml.pre", 8, s("default")),
        key("tokenizer.ggml.tokens", 9, array(8, len(text), b"".join(s(x) for x in text))), key("tokenizer.ggml.scores", 9, array(6, len(score), struct.pack(f"<{len(score)}f", *score))),
        key("tokenizer.ggml.token_type", 9, array(5, len(kind), struct.pack(f"<{len(kind)}i", *kind))), key("tokenizer.ggml.precompiled_charsmap", 9, array(0, len(charsmap), charsmap)),
        key("tokenizer.ggml.add_space_prefix", 7, b"\1"), key("tokenizer.ggml.remove_extra_whitespaces", 7, b"\1"), key("tokenizer.ggml.eos_token_id", 4, struct.pack("<I", sp.eos_id())),
        key("tokenizer.ggml.unknown_token_id", 4, struct.pack("<I", sp.unk_id()))]
open(out + "/sentencepiece.gguf", "wb").write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(keys))
json.dump({"reference": "SentencePiece", "cases": [[x, sp.encode(x)] for x in HARD]}, open(out + "/sentencepiece.json", "w"), separators=(",", ":"))
print("sentencepiece", len(text), len(charsmap))
tokenizer = {"version": "1.0", "truncation": None, "padding": None, "post_processor": None,
    "added_tokens": [dict(id=i, content=text[i], single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for i in range(3)],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}, {"type": "Strip", "strip_left": False, "strip_right": True},
                                                       {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}]},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}, "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
    "model": {"type": "Unigram", "unk_id": 0, "vocab": list(map(list, zip(text, score))), "byte_fallback": False}}
json.dump(tokenizer, open(out + "/precompiled.tokenizer.json", "w"), separators=(",", ":"))
try:
    from tokenizers import Tokenizer
except ImportError:
    sys.exit("precompiled.json is not written: the package `tokenizers` is missing")
t = Tokenizer.from_str(json.dumps(tokenizer))
json.dump({"reference": "tokenizers (Rust)", "cases": [[x, t.encode(x, add_special_tokens=False).ids] for x in HARD]}, open(out + "/precompiled.json", "w"), separators=(",", ":"))

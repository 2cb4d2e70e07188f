#!/usr/bin/env python3
"""tokenizer_vectors.py OUT: small tokenizers of every kind that hearth reads from a tokenizer.json, trained by the Rust
library `tokenizers` on a few lines, and the ids that the library gives for difficult texts. Writes
OUT/NAME.tokenizer.json and OUT/NAME.json. Needs the Python package `tokenizers`."""
import json, os, random, sys
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers as P, trainers
out = sys.argv[1]; os.makedirs(out, exist_ok=True)
random.seed(7)
LINES = """Once upon a time there was a king who had three daughters, and the youngest was so beautiful that the sun itself was astonished.
There was once a fox who wanted the grapes; he could not reach them, and so he said: they are sour!
int main(void) { return printf("%d\\n", 42 + 1337); } // a comment
Am Brunnen vor dem Tore, da steht ein Lindenbaum; ich träumt' in seinem Schatten so manchen süßen Traum.
Жили-были старик со старухой у самого синего моря. 中文分词很有意思。 日本語のテキスト。 한국어 문장입니다.
It's 9:30; I'll pay $12.50 for 3 of 'em, don't you?   Tabs\tand   spaces, and naïve café résumé coöperate.
hello hello hello world world HELLO Hello WORLD the the the and and of of in in to to a a""".split("\n") * 8
HARD = ["", " ", "  ", "a", " a", "a ", "Hello world", "  Hello  world  ", "Hello\nworld\n\n", "\t\ttabs\t", "it's I'LL we'Ve", "123 4567 8.9", "x=1;y=2", "naïve café", "nai\u0308ve cafe\u0301",
        "ﬁne ½ Ⅷ ①", "中文 日本語 한국어", "👨‍👩‍👧 🦙!", "\u00a0nbsp\u2003em\u3000", "zzzzqqqq", "a\u0000b", "▁low▁line", "<s>Hello</s>", "Hello <sep> world", "Hello<sep>   world", "  <tool>  x", "a<s>b<s> c", "<s><s>", "é" * 20, "ab" * 50, "İstanbul ǅ ſ", "\u200bzero\u200dwidth"]
pool = "abcdefgh ABC 0123 .,!?'\n\téß中あ🦙"
HARD += ["".join(random.choice(pool) for _ in range(random.randint(1, 40))) for _ in range(60)]
SPECIAL = [AddedToken("<s>", special=True), AddedToken("</s>", special=True), AddedToken("<unk>", special=True)]
EXTRA = [AddedToken("<sep>", special=True, rstrip=True), AddedToken("<tool>", special=True, lstrip=True)]
C = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN = C + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTES = ["<0x%02X>" % i for i in range(256)]

def save(name, t):
    t.add_special_tokens(EXTRA)
    t.save(f"{out}/{name}.tokenizer.json")
    cases = [[x, t.encode(x, add_special_tokens=False).ids] for x in HARD]
    json.dump({"reference": "tokenizers (Rust)", "cases": cases}, open(f"{out}/{name}.json", "w"), separators=(",", ":"))
    print(name, t.get_vocab_size(), sum(len(c[1]) for c in cases))

def byte_level(name, norm, pre, **k):
    t = Tokenizer(models.BPE(**k))
    if norm: t.normalizer = norm
    t.pre_tokenizer = pre; t.decoder = decoders.ByteLevel()
    t.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=600, special_tokens=SPECIAL, initial_alphabet=P.ByteLevel.alphabet(), show_progress=False))
    save(name, t)
byte_level("gpt2", None, P.ByteLevel(add_prefix_space=False))
byte_level("gpt2-prefix", None, P.ByteLevel(add_prefix_space=True))
byte_level("qwen2", normalizers.NFC(), P.Sequence([P.Split(Regex(QWEN), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]))
byte_level("digits", normalizers.NFKC(), P.Sequence([P.Digits(individual_digits=True), P.Punctuation(), P.ByteLevel(add_prefix_space=False, use_regex=True)]))
byte_level("ignore-merges", None, P.Sequence([P.Split(Regex(QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]), ignore_merges=True)

def raw(name, norm, pre):
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if norm: t.normalizer = norm
    if pre: t.pre_tokenizer = pre
    t.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=900, special_tokens=SPECIAL + BYTES, limit_alphabet=70, show_progress=False, max_token_length=12))
    save(name, t)
LOW = "\u2581"
raw("llama2", normalizers.Sequence([normalizers.Prepend(LOW), normalizers.Replace(" ", LOW)]), None)
raw("metaspace", None, P.Metaspace(replacement=LOW, prepend_scheme="first", split=False))
raw("gemma", normalizers.Replace(" ", LOW), P.Split(" ", "merged_with_previous"))

def unigram(name, norm, pre, fallback):
    t = Tokenizer(models.Unigram())
    if norm: t.normalizer = norm
    t.pre_tokenizer = pre
    t.train_from_iterator(LINES, trainers.UnigramTrainer(vocab_size=500, special_tokens=SPECIAL + (BYTES if fallback else []), unk_token="<unk>", show_progress=False))
    if fallback:
        j = json.loads(t.to_str()); j["model"]["byte_fallback"] = True; t = Tokenizer.from_str(json.dumps(j))
    save(name, t)
unigram("unigram", normalizers.NFKC(), P.Metaspace(replacement=LOW, prepend_scheme="always"), False)
unigram("unigram-bytes", None, P.Metaspace(replacement=LOW, prepend_scheme="always"), True)

def wordpiece(name, **norm):
    """BERT's arrangement over a vocabulary of whole words, their halves and single characters; the library itself does
    not define which tokens there are."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    fold = normalizers.BertNormalizer(**norm)
    words = sorted({w for x in LINES for w, _ in P.BertPreTokenizer().pre_tokenize_str(fold.normalize_str(x))})
    chars = sorted({c for w in words for c in w} - set("q9"))
    vocab = special + words[::2] + chars + ["##" + c for c in chars] + ["##" + w[len(w) // 2:] for w in words[::3] if len(w) > 3]
    t = Tokenizer(models.WordPiece({w: i for i, w in enumerate(dict.fromkeys(vocab))}, unk_token="[UNK]"))
    t.normalizer = fold; t.pre_tokenizer = P.BertPreTokenizer(); t.decoder = decoders.WordPiece()
    t.add_special_tokens([AddedToken(x, special=True) for x in special])
    save(name, t)
HARD += ["[CLS] Hello [SEP] world[MASK]!", "ÜBER naïve CAFÉ", "x\u0130y \u01c5 \u1e9e", "a\u200db\u00adc\ue000d\u0378e", "don't-stop (now)…", "“quoted”—dash", "中文abc한국", "ab" * 49 + "c", "ab" * 50 + "c", "\ufffd\u2028x\u0085y"]
wordpiece("bert", clean_text=True, handle_chinese_chars=True, lowercase=True)
wordpiece("bert-cased", clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=False)

"""pretok_vectors.py [CASED]: the words into which the Rust library `tokenizers` splits texts by the makers' patterns,
as JSON. CASED is a file with the letters that deepseek-llm's pattern lists, as in daemon/model/tok/pretok.c. Needs the
Python package `tokenizers`."""
import json, random, sys
from tokenizers import Regex, pre_tokenizers as P
O200K_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
U, L = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
C = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
def llama3(n): return C + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + n + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
def NOT_HAN(s): return s[:-1] + r"&&[^\p{Han}]]"
CASED = open(sys.argv[1], encoding="utf-8").read().strip() if len(sys.argv) > 1 else None
K = {
 "gpt-2": [GPT2], "llama-bpe": [llama3("{1,3}")], "qwen2": [llama3("")], "glm4": [llama3("{1,3}")],
 "seed-coder": [C + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"],
 "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", r"[^\r\n\p{L}\p{N}]?" + U + "*" + L + "+" + C + r"?|[^\r\n\p{L}\p{N}]?" + U + "+" + L + "*" + C + r"?|\p{N}{1,3}" + O200K_TAIL],
 "kimi-k2": [r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?" + NOT_HAN(U) + "*" + NOT_HAN(L) + "+" + C + r"?|[^\r\n\p{L}\p{N}]?" + NOT_HAN(U) + "+" + NOT_HAN(L) + "*" + C + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
 "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
 "bloom": [r" ?[^(\s|[.,!?…。，、।۔،])]+"], "viking": [r" ?[^(\s|[.,!?…。，、।۔،])]+", r"\p{N}"],
 "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
 "qwen35": [C + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
 "gpt-4o": [r"[^\r\n\p{L}\p{N}]?" + U + "*" + L + "+" + C + r"?|[^\r\n\p{L}\p{N}]?" + U + "+" + L + "*" + C + r"?|\p{N}{1,3}" + O200K_TAIL],
 "tekken": [r"[^\r\n\p{L}\p{N}]?" + U + "*" + L + "+" + r"|[^\r\n\p{L}\p{N}]?" + U + "+" + L + "*" + r"|\p{N}" + O200K_TAIL],
 "deepseek-v3": [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
 "deepseek-llm": [r"[\r\n]", r"\s?[" + (CASED or "A-Za-z") + "]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}+"],
 "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
 "minicpm5": [r"\p{N}{1,3}", llama3("+")],
 "starcoder": [r"\p{N}", GPT2], "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
}
random.seed(20261122)
pools = ["abcdexyz", "ABCXYZ", "0123456789", "'’", ".,!?;:-()[]{}<>/\\\"@#&*_", "$+=~`^|%", " ", "  ", "\n", "\r\n", "\t", "\u00a0\u2003\u2028\u3000", "éßñøÅŒ", "ŠžĞ", "ǅǈʰˢ", "αβΓΩ", "жЩя", "אב", "عربي", "हिन्दी", "ไทย", "中文漢字", "ひらがな", "カタカナ", "한국어", "½Ⅷ٣²", "😀👨‍👩‍👧🇩🇪", "\u0301\u0308", "©™→∑", "！（）：", "‘’“”…", "ſK"]
words = ["don't", "I'LL", "we'Ve", "it'S", "he'd", "HelloWorld", "iPhone15Pro", "HTTPServer", "x=3.14159;", "1,234,567", "naïve", "Ünïcödé", "#include <stdio.h>", "    return 0;", "\n\n\n", "a/b//c\n", "café's", "ОДИН'S", "  end  "]
def text():
    out = ""
    for _ in range(random.randint(3, 14)):
        if random.random() < 0.3: out += random.choice(words)
        else:
            p = random.choice(pools); out += "".join(random.choice(p) for _ in range(random.randint(1, 5)))
    return out
texts = [text() for _ in range(80)]
res = {"reference": "tokenizers (Rust), the makers' patterns", "texts": texts, "ends": {}}
for name, ps in K.items():
    pre = P.Sequence([P.Split(Regex(p), "isolated") for p in ps])
    rows = []
    for t in texts:
        at, ends = 0, []
        for piece, (a, b) in pre.pre_tokenize_str(t): ends.append(len(t[:b].encode()))
        rows.append(ends)
    res["ends"][name] = rows
json.dump(res, sys.stdout, ensure_ascii=True, separators=(",", ":"))

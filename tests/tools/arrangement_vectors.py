"""arrangement_vectors.py FILE: fills in the ids of tests/unit/model/tokenizers/arrangements.json, or of normalized.json
beside it. Each row there is a tokenizer of tests/tools/tokenizer_vectors.py in another arrangement: its changes, texts,
and the ids that the Rust library gives, or the text that hearth's refusal must contain. Needs the Python package
`tokenizers`."""
import json, os, sys
from tokenizers import Tokenizer

path = sys.argv[1]
rows = json.load(open(path))
for row in rows:
    t = json.load(open(f"{os.path.dirname(path)}/{row['base']}.tokenizer.json"))
    t["model"].update(row["change"].get("model", {}))
    t.update({k: v for k, v in row["change"].items() if k in ("normalizer", "pre_tokenizer")})
    t["added_tokens"] += row["change"].get("added_tokens", [])
    if "refused" not in row:
        t = Tokenizer.from_str(json.dumps(t))
        row["cases"] = [[x, t.encode(x, add_special_tokens=False).ids] for x, _ in row["cases"]]
with open(path, "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]\n")

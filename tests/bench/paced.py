#!/usr/bin/python3
"""How the engine plans for a GPU, without a GPU: `hearth bench` through a daemon whose device is paced like an H100
with Llama 3 8B (tests/fault/paced.h). Milliseconds.

    top_srcdir=. top_builddir=build PYTHONPATH=tests/daemon tests/bench/paced.py [FACTOR[,trials][,slow] [ROW ...]]

The model is the embedded one with a longer context. The time of the daemon, of the socket and of `hearth bench` itself
is this machine's, so it should be idle; if it is not, a higher priority (nice -n -10) helps.
"""
import glob, json, os, subprocess, sys

sys.dont_write_bytecode = True
from harness import BUILD, SRC, Box

ROWS = {  # the options of `hearth bench`, and what is printed of its JSON
    "alone": ("--clients 1 --requests 9 --prompt 4096 --output 2", ("median_ttft_ms", "p99_ttft_ms")),
    "long": ("--clients 1 --requests 5 --prompt 16000 --output 2", ("median_ttft_ms", "p99_ttft_ms")),
    "late": ("--clients 16 --prompt 128 --output 1200 --late 16000 --arrivals 12",
             ("late_prompts", "late_ttft_ms", "keystroke_ttft_ms", "others_longest_gap_ms")),
    "decode": ("--clients 16 --prompt 128 --output 400", ("median_itl_ms", "p99_itl_ms", "output_throughput")),
    "one": ("--clients 1 --prompt 128 --output 400", ("median_itl_ms", "p99_itl_ms", "output_throughput")),
    "sixty": ("--clients 60 --prompt 512 --output 256", ("duration", "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms")),
}


def long_context(path):
    """The embedded model with a longer context in its file."""
    with open(glob.glob(SRC + "/contrib/models/tale*.gguf")[0], "rb") as f:
        model = bytearray(f.read())
    key = b"llama.context_length"
    at = model.index(key) + len(key) + 4
    model[at:at + 4] = (131072).to_bytes(4, "little")
    with open(path, "wb") as f:
        f.write(model)


def main():
    by, rows = (sys.argv + ["1"])[1], sys.argv[2:] or list(ROWS)
    box = Box("paced")
    try:
        box.engine("--paced", by)
        os.mkdir(box.dir + "/models")
        long_context(box.dir + "/models/long.gguf")
        box.configure("model_dir = %s/models" % box.dir, "kv_ram = 0", "kv_disk = 0", "kv_bytes = 2G",
                      "connections_per_uid = 100", "streams_per_uid = 100")
        box.start()
        for row in rows:
            options, keys = ROWS[row]
            r = subprocess.run([BUILD + "/hearth", "bench", "long", *options.split(), "--json"], env=box.env,
                               stdout=subprocess.PIPE, text=True)
            got = json.loads(r.stdout) if r.stdout.startswith("{") else {}
            print("%-7s %s" % (row, ", ".join("%s %.2f" % (k, got[k]) for k in keys if k in got)), flush=True)
    finally:
        box.stop()
        if os.environ.get("KEEP"):
            print(box.log())
        box.remove()


main()

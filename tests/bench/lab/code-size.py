#!/usr/bin/python3
"""Bytes of machine code by kernel, the largest first.

    code-size.py FILE... [--of TEXT]

FILE is an object of the build, or a cubin; --of: only kernels with TEXT in their names. Names are those of c++filt.
Code in a step's kernels beyond what they execute competes for the instruction caches: NOTES.md, "Code in the caches".
"""
import argparse, struct, subprocess

CUDA = 190  # e_machine


def kernels(data):
    """(name, bytes) of each section of code in the CUDA ELF images within data."""
    at = data.find(b"\x7fELF")
    while at >= 0:
        if struct.unpack_from("<H", data, at + 18)[0] == CUDA:
            table = at + struct.unpack_from("<Q", data, at + 40)[0]
            number, names = struct.unpack_from("<HH", data, at + 60)
            heads = [struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * i) for i in range(number)]
            for head in heads:
                name = at + heads[names][4] + head[0]
                name = data[name:data.index(b"\0", name)].decode()
                if name.startswith(".text."):
                    yield name[len(".text."):], head[5]
        at = data.find(b"\x7fELF", at + 4)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("file", nargs="+")
    p.add_argument("--of", default="")
    args = p.parse_args()
    found = []
    for path in args.file:
        with open(path, "rb") as f:
            found += kernels(f.read())
    plain = subprocess.run(["c++filt"], input="\n".join(n for n, _ in found), capture_output=True, text=True).stdout
    for size, name in sorted(zip((s for _, s in found), plain.split("\n")), reverse=True):
        if args.of in name:
            print(f"{size:8d} {name}")


main()

#!/usr/bin/env python3
"""An independent reader and writer of KV files, written from daemon/engine/kvtier/kv-format.md alone, with which
kvfile.c is compared.

    kvfile.py write FILE      the file that tests/unit/kvtier/kvfile.c expects, byte for byte
    kvfile.py read FILE       checks everything and prints the contents
"""
import ctypes
import ctypes.util
import os
import struct
import sys

PAGE = 16


class Hash128(ctypes.Structure):
    _fields_ = [("lo", ctypes.c_uint64), ("hi", ctypes.c_uint64)]


xx = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
xx.XXH3_128bits.restype = Hash128
xx.XXH3_64bits.restype = ctypes.c_uint64
for f in (xx.XXH3_128bits, xx.XXH3_64bits):
    f.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def hash128(b):
    h = xx.XXH3_128bits(b, len(b))
    return struct.pack("<QQ", h.lo, h.hi)


def chain(parent, uid, ids):
    return hash128(parent + struct.pack("<q16i", uid, *ids))


def fingerprint(n_layer, n_kv, d_head, kv_type, backend):
    item = {0: 4, 1: 2}[kv_type]
    return (hash128(b"model") + hash128(b"tokenizer") + hash128(b"rope") +
            struct.pack("<QIIIIIIII16s", n_layer * 2 * n_kv * PAGE * d_head * item, n_layer, n_kv, d_head, 0, kv_type,
                        PAGE, 1, 0, backend))


def build(print_, uid, pos, parent, ids, pages):
    n = len(pages)
    head_bytes = (256 + 128 * n + 4095) // 4096 * 4096
    entries, at, above = b"", head_bytes, parent
    for i, data in enumerate(pages):
        page = ids[i * PAGE:(i + 1) * PAGE]
        above = chain(above, uid, page)
        entries += struct.pack("<II16i16sQQ16sQ", 1, pos + i * PAGE, *page, above, at, len(data), hash128(data), 0)
        at += len(data)

    def head(head_sum):
        h = struct.pack("<8sII16sQq16sII", b"HEARTHKV", 1, head_bytes, head_sum, at, uid, parent, pos, n) + print_
        return (h + bytes(256 - len(h)) + entries).ljust(head_bytes, b"\0")

    return head(hash128(head(bytes(16)))) + b"".join(pages), name(print_, above)


def name(print_, last):
    lo, hi = struct.unpack("<QQ", last)
    return "%016x-%016x%016x.kv" % (xx.XXH3_64bits(print_, len(print_)), hi, lo)


def sample():
    """The extent that tests/unit/kvtier/kvfile.c makes as well: see sample() there."""
    print_ = fingerprint(2, 1, 4, 0, b"cpu")
    parent = chain(bytes(16), 1000, range(100, 116))
    ids = [7 * i + 3 for i in range(3 * PAGE)]
    pages = [bytes((p * 31 + i * 7 + i // 256) % 256 for i in range(1024)) for p in range(3)]
    return build(print_, 1000, 16, parent, ids, pages)


def read(path):
    with open(path, "rb") as f:
        b = f.read()
    magic, version, head_bytes, head_sum, file_bytes, uid, parent, pos, n = struct.unpack_from("<8sII16sQq16sII", b)
    print_ = b[72:176]
    page_bytes = struct.unpack_from("<Q", print_, 48)[0]
    assert magic == b"HEARTHKV" and version == 1 and file_bytes == len(b)
    assert head_sum == hash128(b[:16] + bytes(16) + b[32:head_bytes])
    at, above = head_bytes, parent
    print("uid %d, tokens %d-%d, %d pages of %d bytes, backend %s" %
          (uid, pos, pos + n * PAGE - 1, n, page_bytes, print_[88:].rstrip(b"\0").decode()))
    for i in range(n):
        e = struct.unpack_from("<II16i16sQQ16sQ", b, 256 + 128 * i)
        kind, where, ids, h, offset, size, total = e[0], e[1], e[2:18], e[18], e[19], e[20], e[21]
        above = chain(above, uid, ids)
        assert kind == 1 and where == pos + i * PAGE and h == above and offset == at and size == page_bytes
        assert total == hash128(b[at:at + size])
        at += size
    assert at == len(b)
    assert os.path.basename(path) in (name(print_, above), "sound"), "not its name"
    print("sound")


if __name__ == "__main__":
    if sys.argv[1] == "write":
        data, file_name = sample()
        with open(sys.argv[2], "wb") as out:
            out.write(data)
        print(file_name)
    else:
        read(sys.argv[2])

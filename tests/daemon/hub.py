#!/usr/bin/python3
"""Model folders in the form of a hub's cache: of a repository's snapshots the one that refs/main names is listed, under
the repository's name, whatever refs/main contains. A GGUF file is listed from that one, if it has the file. A folder
full of other files hides no other folder, and a model's folder no GGUF file in it. Prints TAP.
"""
import glob, os, shutil, sys

sys.dont_write_bytecode = True
import harness
from harness import Box, check

box = Box("hub")
try:
    repo = box.dir + "/models/models--someone--small-model"
    main = repo + "/refs/main"
    for snapshot in "aaaa", "bbbb":
        shutil.copytree(os.path.dirname(sorted(glob.glob(harness.SRC + "/tests/golden/data/hf/*/config.json"))[0]),
                        "%s/snapshots/%s" % (repo, snapshot))
    os.mkdir(repo + "/refs")
    box.configure("model_dir = %s/models" % box.dir)
    box.start()
    c = box.client()

    def listed():
        return sorted((m["name"], os.path.basename(m["path"])) for m in c.call("models.list")["models"] if repo in m["path"])

    def put(text):
        with open(main, "w") as f:
            f.write(text)

    put("bbbb\n")
    check(listed() == [("someone/small-model", "bbbb")], "refs/main names the snapshot", listed())
    put("aaaa")
    check(listed() == [("someone/small-model", "aaaa")], "without a line's end, too", listed())
    put("cccc\n" + "x" * 1000)
    check(listed() == [], "one that is not here, or not whole", listed())
    put("")
    check(listed() == [], "none", listed())
    both = [("someone/small-model", "aaaa"), ("someone/small-model", "bbbb")]
    for what, make in (("no file", lambda: None), ("a pipe", lambda: os.mkfifo(main)), ("a folder", lambda: os.mkdir(main)),
                       ("a device", lambda: os.symlink("/dev/zero", main))):
        shutil.rmtree(main) if os.path.isdir(main) else os.path.lexists(main) and os.unlink(main)
        make()
        check(listed() == both, what + ": all are listed, and nobody waits", listed())
    shutil.rmtree(main) if os.path.isdir(main) else os.path.lexists(main) and os.unlink(main)
    files = box.dir + "/models/models--someone--files"
    for where in "aaaa/m.gguf", "aaaa/UD/m.gguf", "bbbb/m.gguf", "bbbb/UD/m.gguf", "aaaa/only.gguf":
        at = "%s/snapshots/%s" % (files, where)
        os.makedirs(os.path.dirname(at), exist_ok=True)
        shutil.copy(glob.glob(harness.SRC + "/contrib/models/tale*.gguf")[0], at)
    os.mkdir(files + "/refs")

    def paths():
        found = (m["path"] for m in c.call("models.list")["models"])
        return sorted(path[len(files + "/snapshots/"):] for path in found if files in path)

    every = ["aaaa/UD/m.gguf", "aaaa/m.gguf", "aaaa/only.gguf", "bbbb/UD/m.gguf", "bbbb/m.gguf"]
    check(paths() == every, "without refs/main, the GGUF files of all snapshots", paths())
    for text, want in (("bbbb", every[2:]), ("aaaa\n", every[:3]), ("cccc", every), ("", every), ("../bbbb", every)):
        with open(files + "/refs/main", "w") as f:
            f.write(text)
        check(paths() == want, "of a GGUF file, the snapshot that refs/main names: " + repr(text), paths())
    c.close()
    box.stop()
    full = box.dir + "/full"
    os.mkdir(full)
    for i in range(100001):
        os.close(os.open("%s/%d" % (full, i), os.O_CREAT))
    box.configure("model_dir = " + full, "model_dir = %s/models" % box.dir)
    box.start()
    c = box.client()
    check(listed() == both, "behind a folder full of other files, too", listed())
    harness.refused(c, "MODEL_NOT_FOUND", "of %s, only the first 100000 entries were searched" % full, "models.show",
                    model="nonesuch")
    tune = box.dir + "/models/tune"
    for where in tune, tune + "/checkpoint-1":
        shutil.copytree(repo + "/snapshots/aaaa", where)
        shutil.copy(glob.glob(harness.SRC + "/contrib/models/tale*.gguf")[0], where + "/tune-F16.gguf")
    names = sorted(m["path"][len(tune):] for m in c.call("models.list")["models"] if tune in m["path"])
    with open(tune + "/tune-F16.gguf", "rb") as f:
        data = f.read()
    for part, size in (1, 1000), (2, 200), (3, 30):
        with open(tune + "/split-%05d-of-00004.gguf" % part, "wb") as f:
            f.write(data[:size])
    sizes = [m["bytes"] for m in c.call("models.list")["models"] if tune + "/split" in m["path"]]
    check(sizes == [1230], "a model that is split has the size of all of its parts", sizes)
    check(names == ["", "/tune-F16.gguf"], "a model's folder and a GGUF file in it, but no folder in it", names)
finally:
    harness.end(box)
sys.exit(harness.failed > 0)

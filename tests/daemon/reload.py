#!/usr/bin/python3
"""SIGHUP: the configuration is read again. Settings that may change do so at once, others are named in the log, and a
file with an error changes nothing."""
import os, signal, subprocess, sys, time

sys.dont_write_bytecode = True
from harness import BUILD, Box, Refused, Wrong, check, end


def reread(c, sign):
    """Sends the signal, and returns once the log has another line of that kind."""
    before = box.log().count(sign)
    box.daemon.send_signal(signal.SIGHUP)
    until = time.monotonic() + 60
    while box.log().count(sign) == before:
        if time.monotonic() > until:
            raise Wrong("no line with \"%s\"" % sign)
        c.call("streams.list")
    c.call("streams.list")  # it is answered after hearthd has done everything that the signal requires


box = Box("reload")
try:
    box.configure("sessions_per_uid = 2")
    box.start()
    c = box.client()
    make = dict(model="tale", text="Once", max_tokens=1)
    c.call("generate", session="one", **make)
    names = [m["name"] for m in c.call("models.list")["models"]]

    box.models()
    box.configure("sessions_per_uid = 1  # fewer", "model_dir = %s/models" % box.dir, "threads = 1", "log_level = debug")
    reread(c, "was read again")
    check("changed: model_dir, log_level, sessions_per_uid" in box.log(), "what has changed is told", box.log())
    check("not before hearthd is started again: threads" in box.log(), "what cannot is named", box.log())
    try:
        c.call("generate", session="two", **make)
        check(False, "a limit counts at once")
    except Refused as e:
        check(e.args[0] == "LIMIT", "a limit counts at once", e)
    check("other" in [m["name"] for m in c.call("models.list")["models"]] and "other" not in names,
          "so does a folder of models")
    check("debug: " in box.log(), "and the level of the log")
    reread(c, "nothing has changed")

    box.configure("sessions_per_uid = 5", "sesions_per_uid = 6")
    reread(c, "the configuration stays as it is")
    check("hearth.conf:4: \"sesions_per_uid\" is not a configuration key; is sessions_per_uid meant?" in box.log(),
          "an error is told by its line", box.log())
    try:
        c.call("generate", session="two", **make)
        check(False, "and changes nothing")
    except Refused as e:
        check(e.args[0] == "LIMIT", "and changes nothing", e)
    file = box.dir + "/config/hearth/hearth.conf"
    os.unlink(file)
    os.mkfifo(file)  # nobody will write to it
    reread(c, "the configuration stays as it is")
    check(file + " is not a regular file" in box.log(), "a FIFO is not waited for, and named", box.log())
    check(c.call("generate", session="one", **make)["finish_reason"] == "length", "generations go on")

    check(c.call("status")["config"] == file, "the file that was read is told")
    os.unlink(file)
    reread(c, "was read again")
    check("config" not in c.call("status"), "and that there is none")
    box.configure("model_dir = %s" % box.dir, "model_dir = %s/models" % box.dir)
    reread(c, "was read again")
    paths = [m["path"] for m in c.call("models.list")["models"]]
    check(len(paths) == len(set(paths)) and box.dir + "/models/other.gguf" in paths,
          "a model of two folders, one within the other, is listed once", paths)
    box.stop()

    # In the background hearthd leaves the folder to which paths of its command line are relative.
    log = box.dir + "/log"
    box.configure("log_file = " + log)
    subprocess.run([BUILD + "/hearthd", "--state", "state/hearth"], check=True, cwd=box.dir,
                   env=dict(box.env, HEARTH_SOCKET="run/hearth/hearth.sock"))
    c = box.client()
    os.rename(log, log + ".old")
    os.kill(c.call("status")["pid"], signal.SIGHUP)
    until = time.monotonic() + 60
    while not (os.path.exists(log) and "was read again" in open(log).read()) and time.monotonic() < until:
        c.call("streams.list")
    c.call("streams.list")
    check("nothing has changed" in open(log).read() and "started again" not in open(log).read(),
          "relative paths mean the same as at the start", open(log).read())
    os.kill(c.call("status")["pid"], signal.SIGTERM)
    while c.read() is not None:
        pass
finally:
    end(box)

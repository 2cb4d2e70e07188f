#!/usr/bin/python3
"""Games on a session bus of this test: memory is yielded when the first game registers, beside a stream that continues
where it stopped when the last game has gone, in whatever way. No service is started for this, and other messages on the
bus have no effect.
"""
import os, re, shutil, socket, struct, subprocess, sys, time

from harness import Box, Refused, check, end

NAME, PATH = "com.feralinteractive.GameMode", "/com/feralinteractive/GameMode"
BUS = "org.freedesktop.DBus"
daemon = shutil.which("dbus-daemon")
if not daemon:
    print("1..0 # SKIP no dbus-daemon")
    sys.exit(0)


class Peer:
    """A connection to the bus: as much of the wire format of the D-Bus specification as is needed, little-endian."""

    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(120)
        self.s.connect(path)
        self.s.sendall(b"\0AUTH EXTERNAL %s\r\n" % str(os.getuid()).encode().hex().encode())
        assert self.s.recv(200).startswith(b"OK")
        self.s.sendall(b"BEGIN\r\n")
        self.serial = 0
        self.call("Hello")

    def send(self, kind, fields, signature="", body=b""):
        self.serial += 1
        if signature:
            fields = fields + [(8, "g", signature)]
        array = b""
        for code, type, value in fields:
            array += b"\0" * (-len(array) % 8) + struct.pack("BB2s", code, 1, type.encode() + b"\0")
            if type == "g":
                array += struct.pack("B", len(value)) + value.encode() + b"\0"
            else:
                array += b"\0" * (-len(array) % 4) + text(value)
        head = struct.pack("<4BIII", ord("l"), kind, 1, 1, len(body), self.serial, len(array)) + array
        self.s.sendall(head + b"\0" * (-len(head) % 8) + body)

    def take(self, n):
        data = b""
        while len(data) < n:
            data += self.s.recv(n - len(data)) or sys.exit("the bus has gone")
        return data

    def call(self, member, signature="", body=b""):
        """Calls the bus and returns the body of its answer."""
        self.send(1, [(1, "o", "/org/freedesktop/DBus"), (2, "s", BUS), (3, "s", member), (6, "s", BUS)], signature, body)
        while True:
            head = self.take(16)
            n_body, _, n_fields = struct.unpack("<III", head[4:])
            fields = self.take(n_fields + -n_fields % 8)
            answer = self.take(n_body)
            if head[1] in (2, 3) and struct.pack("<I", self.serial) in fields:
                assert head[1] == 2, answer
                return answer

    def own(self, name, answer=1):
        """Becomes the name's owner, or with the answer 2 the one that waits for it."""
        assert self.call("RequestName", "su", aligned(text(name)) + struct.pack("<I", 0)) == struct.pack("<I", answer)

    def signal(self, member, pid, path=PATH, interface=NAME, signature="io", body=None, to=None):
        body = struct.pack("<i", pid) + text(PATH + "/Games/%d" % pid) if body is None else body
        to = [(6, "s", to)] if to else []
        self.send(4, [(1, "o", path), (2, "s", interface), (3, "s", member)] + to, signature, body)

    def names(self):
        return self.call("ListNames")

    def close(self):
        self.s.close()


def text(s):
    return struct.pack("<I", len(s)) + s.encode() + b"\0"


def aligned(data):
    return data + b"\0" * (-len(data) % 4)


box = Box("gamemode")
bus = None
try:
    path = box.dir + "/bus"
    os.makedirs(box.dir + "/services")
    with open(box.dir + "/services/gamemode.service", "w") as f: # a service that must not be started
        f.write("[D-BUS Service]\nName=%s\nExec=/bin/touch %s/started\n" % (NAME, box.dir))
    with open(box.dir + "/bus.conf", "w") as f:
        f.write("<busconfig><type>session</type><listen>unix:path=%s</listen><servicedir>%s/services</servicedir>"
                "<policy context='default'><allow send_destination='*' eavesdrop='true'/><allow eavesdrop='true'/>"
                "<allow own='*'/></policy></busconfig>" % (path, box.dir))

    def begin_bus():
        p = subprocess.Popen([daemon, "--config-file=" + box.dir + "/bus.conf", "--nofork", "--print-address=1"],
                             stderr=subprocess.DEVNULL,
                             stdout=subprocess.PIPE)
        p.stdout.readline()
        return p

    bus = begin_bus()
    box.env["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=" + path
    box.models()
    box.configure("model_dir = %s/models" % box.dir)
    box.start()
    c, control = box.client(), box.client()

    def until(what, is_so):
        """Requests the status until the condition is true, for 30 s at most."""
        stop = time.monotonic() + 30
        while time.monotonic() < stop:
            s = control.call("status")
            if is_so(s):
                break
        check(is_so(s), what, [s.get(k) for k in ("games", "no_games")] + [s["engine"]["memory"]])

    def held(s):
        return s["engine"]["memory"]["weights"] + s["engine"]["memory"]["kv"]

    until("the bus is listened to", lambda s: s["games"] == 0 and "no_games" not in s)
    prompt = dict(model="tale", text="Once upon a time", max_tokens=900, ignore_eos=True,
                  sampling={"temperature": 0.8, "seed": 5})
    alone = c.call("generate", **prompt)["tokens"]

    mode = Peer(path)
    mode.own(NAME)
    asked = c.submit("generate", request="r", **prompt)
    notices, answer = [], None

    def take():
        global answer
        frame = c.read()
        if frame[0] == 1:
            answer = frame
        elif frame[0] == 2 and frame[1] == "notice":
            notices.append(frame[2][0]["name"])
        return frame

    while take()[1] != "stream.tokens":
        pass
    mode.signal("GameRegistered", 4711)
    until("one game: nothing is held", lambda s: s["games"] == 1 and held(s) == 0 and s["engine"]["queued"] == 1)
    while "PARKED" not in notices:
        take()
    check(answer is None, "the stream waits")
    mode.signal("GameRegistered", 4711) # registered twice
    mode.signal("GameRegistered", 4712)
    until("two games", lambda s: s["games"] == 2 and held(s) == 0)
    mode.signal("GameUnregistered", 4711)
    mode.signal("GameUnregistered", 99)
    until("one is left, and nothing is held", lambda s: s["games"] == 1 and held(s) == 0)
    try:
        control.call("models.load", model="tale")
        check(False, "a load is refused meanwhile")
    except Refused as e:
        check("OUT_OF_MEMORY" in str(e) and "yielded" in str(e), "a load is refused meanwhile", e)
    mode.signal("GameUnregistered", 4712)
    while answer is None:
        take()
    check(answer[3]["tokens"] == alone, "the last has gone: the stream goes on, and its text is the same as alone")
    until("no game is left", lambda s: s["games"] == 0)

    def load_waits():
        """The seconds for which a load is refused."""
        try:
            control.call("models.load", model="tale")
            return 0
        except Refused as e:
            return float(re.search("for ([0-9]+) s more", e.args[1]).group(1))

    # A yield on request, beside a game and across one.
    control.call("models.load", model="tale")
    mode.signal("GameRegistered", 4713)
    until("a game again", lambda s: s["games"] == 1 and held(s) == 0)
    control.call("yield", bytes=1, seconds=60)
    check(load_waits() > 86000, "the end of a short yield beside a game will not end the one to the game", load_waits())
    control.call("yield", all=True, seconds=3600)
    mode.signal("GameUnregistered", 4713)
    until("a longer one outlasts the game", lambda s: s["games"] == 0 and load_waits() <= 3600)
    check(3000 < load_waits(), "... for the time that is left of it", load_waits())
    mode.signal("GameRegistered", 4714)
    until("a game during a yield", lambda s: s["games"] == 1 and load_waits() > 3600)
    mode.signal("GameUnregistered", 4714)
    until("... goes", lambda s: s["games"] == 0 and load_waits() <= 3600)
    check(3000 < load_waits(), "... and the yield stays", load_waits())
    mode.signal("GameRegistered", 4715)
    until("another game", lambda s: s["games"] == 1 and load_waits() > 3600)
    control.call("yield", seconds=0)
    check(load_waits() == 0, "memory may be taken again beside a game if somebody says so")
    mode.signal("GameUnregistered", 4715)
    until("no game is left again", lambda s: s["games"] == 0)

    # A pinned model that a game has kept the next engine from loading is loaded when the game has ended.
    control.call("models.unload", model="tale")
    control.call("models.pin", model="other")
    mode.signal("GameRegistered", 4716)
    until("a game beside a pinned model", lambda s: s["games"] == 1 and load_waits() > 0)
    os.kill(control.call("status")["engine"]["pid"], 9)
    until("the engine has ended", lambda s: s["engine"]["state"] == "absent")
    control.call("tokenize", model="tale", text="x")
    until("the pinned model was refused", lambda s: "a pinned model was not loaded" in box.log() and held(s) == 0)
    mode.signal("GameUnregistered", 4716)
    until("... and is loaded after all", lambda s: [m["pinned"] for m in s["engine"]["models"] if m["name"] == "other"] == [True])
    control.call("models.unload", model="other")

    for member, signature, body in (("GameRegistered", "s", text("4711")), ("GameRegistered", "", b""),
                                    ("Else", "io", None), ("GameRegistered", "ay", struct.pack("<I", 60000) + bytes(60000))):
        mode.signal(member, 1, signature=signature, body=body)
    mode.signal("GameRegistered", 1, interface="com.example.Other")
    other = Peer(path)
    other.signal("GameRegistered", 2) # not from the owner of the name
    everybody = {n.decode() for n in re.findall(rb":1\.[0-9]+", other.names())}
    for name in everybody: # a message that is addressed to a connection is delivered whatever it has subscribed to
        other.signal("GameRegistered", 3, to=name)
    for i in range(2000):
        mode.signal("GameRegistered", i % 100)
        mode.signal("GameUnregistered", i % 100)
    mode.signal("GameRegistered", 7)
    until("what is no such signal counts for nothing, and a flood for its end", lambda s: s["games"] == 1 and held(s) == 0)
    for name in everybody:
        other.signal("NameOwnerChanged", 0, "/org/freedesktop/DBus", BUS, "sss",
                     aligned(text(NAME)) + aligned(text(":1.1")) + text(""), to=name)
    mode.signal("GameRegistered", 8)
    until("nobody says of another that he has gone", lambda s: s["games"] == 2)
    heir = Peer(path)
    heir.own(NAME, 2)
    mode.close() # gamemoded dies
    until("another one has the name at once, and no games", lambda s: s["games"] == 0)
    heir.signal("GameRegistered", 9)
    until("... until it registers one", lambda s: s["games"] == 1 and held(s) == 0)
    heir.close()
    until("GameMode has gone, and its game with it", lambda s: s["games"] == 0)
    check(c.call("generate", **dict(prompt, max_tokens=20))["tokens"] == alone[:20], "and memory may be taken again")

    again = Peer(path)
    again.own(NAME)
    for pid in range(1000, 1200):
        again.signal("GameRegistered", pid)
    until("no more games are told apart than 64", lambda s: s["games"] == 64)
    check(b"gamemode" not in other.names().replace(NAME.encode(), b""), "nobody else is on the bus for it")
    bus.kill()
    bus.wait()
    until("the bus has gone", lambda s: s["games"] == 0 and "bus" in s.get("no_games", ""))
    check(c.call("generate", **dict(prompt, max_tokens=20))["tokens"] == alone[:20], "... and memory may be taken again")
    check(not os.path.exists(box.dir + "/started"), "GameMode was never started")
    box.stop()

    for name, value, conf, says in ((("DBUS_SESSION_BUS_ADDRESS"), "unixexec:path=/bin/touch,argv1=%s/started" % box.dir, "", "no session bus"),
                                    ("DBUS_SESSION_BUS_ADDRESS", "", "", "no session bus"),
                                    ("DBUS_SESSION_BUS_ADDRESS", "unix:path=" + path + ".gone", "", "the session bus: "),
                                    ("DBUS_SESSION_BUS_ADDRESS", "unix:path=" + path, "gamemode = off", "off in the configuration")):
        box.env[name] = value
        box.configure("model_dir = %s/models" % box.dir, conf)
        box.start()
        control = box.client()
        until("without a bus, or where it is off: %s" % says, lambda s: s["games"] == 0 and says in s.get("no_games", ""))
        box.stop()
    check(not os.path.exists(box.dir + "/started"), "an address never runs a program")
finally:
    if bus and bus.poll() is None:
        bus.kill()
    end(box)

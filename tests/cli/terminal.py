"""terminal.py - a user at a terminal, for tests of the command: waits for a text, then types. If a text does not appear
within 60 s, the script ends and shows what appeared instead. lib.sh's terminal() runs such scripts.
"""
import os, pty, re, select, signal, sys, time

signal.alarm(900)  # a limit for the whole script


class Terminal:
    def __init__(self, *argv, **env):
        self.seen = b""  # what has appeared since the last expect()
        self.all = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm", "LC_ALL": "C.UTF-8"}, **env)
            os.execv(argv[0], argv)

    def read(self, timeout):
        """False at the end, or if nothing appeared."""
        if not select.select([self.fd], [], [], max(timeout, 0))[0]:
            return False
        try:
            data = os.read(self.fd, 4096)
        except OSError:
            data = b""
        self.seen += data
        self.all += data
        return bool(data)

    def expect(self, pattern, within=60):
        """Returns what appeared before the pattern."""
        end = time.monotonic() + within
        while not re.search(pattern, self.seen, re.S):
            if not self.read(end - time.monotonic()):
                sys.exit("# no %r in %r" % (pattern, self.seen))
        found = re.search(pattern, self.seen, re.S)
        before, self.seen = self.seen[: found.start()], self.seen[found.end() :]
        return before

    def type(self, text):
        os.write(self.fd, text)

    def end(self):
        """The exit status; the last output is in `seen`."""
        while self.read(60):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def case(fine, name):
    print("%s - %s" % ("ok" if fine else "not ok", name), flush=True)

"""Lets a compiler begin once there is memory for it, and repeats it alone if the kernel killed it.

Usage: memory.py FOLDER MIB COMMAND...

FOLDER is shared by all compilers of a build, which start as many as there are cores; MIB is what one of them may take.
Each waits until what is free, less what those that began lately will still take, is enough for it. A compiler begins
at once where no other one runs. Its streams, signals and exit status are the caller's; what is wrong with the folder
costs the waiting and nothing else.
"""

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import time

# Seconds in which a compiler takes what it will take. It is counted as taken before.
GROWS = 60
ASKS_AGAIN = 0.25
# Seconds that what a compiler started, and left behind, may keep its error stream.
LINGERS = 5
REPEATS = 2
# What nvcc, gcc, clang, sccache and a shell say of a program that the kernel ended (signal 9).
KILLED = re.compile(
    rb"died due to signal 9|[Kk]illed signal terminated program|[Kk]illed by signal 9|"
    rb"terminated by signal 9|[Ss]ignal 9 \(Kill|signal: 9|^Killed$|: Killed$|unable to execute command: Killed", re.MULTILINE)
# Of a control group, in both versions: its limit, what it uses, and where what it could give back stands.
GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", "inactive_file"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
     "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file"),
)


def field(path, name):
    """The number of a line `NAME NUMBER` or `NAME: NUMBER kB`."""
    with open(path) as file:
        for line in file:
            words = line.split()
            if words and words[0].rstrip(":") == name:
                return int(words[1])
    raise OSError(path + " has no " + name)


def number(path):
    with open(path) as file:
        return int(file.read())


def free_mib(groups=GROUPS, machine="/proc/meminfo"):
    """What can be taken now without swapping and without a kill, in MiB."""
    free = field(machine, "MemAvailable") // 1024
    for limit, used, stat, reclaimable in groups:
        try:
            left = number(limit) - number(used) + field(stat, reclaimable)
        except (OSError, ValueError):
            # Not this version, or no limit (`max`).
            continue
        free = min(free, left >> 20)
    return free


def has_room(free, needs, running):
    """Whether a compiler of `needs` MiB may begin; `running` holds seconds since the start and needs of the others."""
    if not running:
        return True
    promised = sum(need * max(0, 1 - age / GROWS) for age, need in running)
    return free - promised >= needs


class Gate:
    """The compilers of a build that run: each holds a lock on a file of its own, which the kernel gives back."""

    def __init__(self, folder, mib):
        self.folder = folder
        self.mib = mib
        os.makedirs(os.path.join(folder, "running"), exist_ok=True)
        # Compilers pass it one after another, in the order in which they come.
        self.door = open(os.path.join(folder, "door"), "w")
        self.mine = None

    def enter(self, alone):
        """Waits. A compiler that goes alone keeps the door shut until it leaves."""
        began = time.monotonic()
        fcntl.flock(self.door, fcntl.LOCK_EX)
        while True:
            running = self.running()
            if not running if alone else has_room(free_mib(), self.mib, running):
                break
            time.sleep(ASKS_AGAIN)
        self.mine = open(os.path.join(self.folder, "running", "%d %d" % (os.getpid(), self.mib)), "w")
        fcntl.flock(self.mine, fcntl.LOCK_EX)
        if not alone:
            fcntl.flock(self.door, fcntl.LOCK_UN)
        waited = time.monotonic() - began
        if waited > 1:
            self.note("waited %.1f" % waited)

    def leave(self):
        # In this order: who passes the door next does not find it.
        with contextlib.suppress(OSError):
            os.unlink(self.mine.name)
        self.mine.close()
        self.door.close()

    def running(self):
        """Seconds since the start, and needs, of each compiler that runs."""
        found = []
        for entry in os.scandir(os.path.join(self.folder, "running")):
            # One that is leaving may remove its file at any time.
            with contextlib.suppress(FileNotFoundError), open(entry.path) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # Nobody holds it: that one was killed.
                    os.unlink(entry.path)
                except BlockingIOError:
                    age = time.time() - os.fstat(file.fileno()).st_mtime
                    found.append((max(0, age), int(entry.name.split()[1])))
        return found

    def note(self, line):
        with contextlib.suppress(OSError), open(os.path.join(self.folder, "notes"), "a") as file:
            file.write(line + "\n")


def run(command):
    """(exit status as subprocess has it, whether the kernel killed the compiler). Its errors are passed on."""
    try:
        child = subprocess.Popen(command, stderr=subprocess.PIPE)
    except OSError as error:
        sys.exit("%s: %s" % (command[0], error.strerror))
    # The group's signals reach the compiler by themselves, others do not.
    pass_signal = lambda number, _: child.poll() is None and child.send_signal(number)
    before = {number: signal.signal(number, pass_signal) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    tail = bytearray()

    def pass_on():
        while True:
            data = os.read(child.stderr.fileno(), 65536)
            if not data:
                return
            tail.extend(data)
            del tail[:-65536]
            while data:
                data = data[os.write(2, data):]

    reader = threading.Thread(target=pass_on, daemon=True)
    reader.start()
    status = child.wait()
    reader.join(LINGERS)
    for number, handler in before.items():
        signal.signal(number, handler)
    killed = status in (-signal.SIGKILL, 128 + signal.SIGKILL) or (status != 0 and KILLED.search(bytes(tail)) is not None)
    return status, killed


def end(status):
    """Ends as the compiler did."""
    if status >= 0:
        sys.exit(status)
    if status != -signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)


def main(folder, mib, command):
    # Python's own handler, which prints a traceback. Where the signal is ignored there is none.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # A source that came through a pipe cannot be read again.
    tries = 1 if "-" in command else 1 + REPEATS
    for attempt in range(tries):
        try:
            gate = Gate(folder, int(mib))
            gate.enter(alone=attempt > 0)
        except OSError:
            os.execvp(command[0], command)
        try:
            status, killed = run(command)
        finally:
            gate.leave()
        if not killed or attempt + 1 == tries:
            break
        gate.note("killed")
        sys.stderr.write("stackforge: the kernel ended this compiler for want of memory; it runs again, alone\n")
        sys.stderr.flush()
    end(status)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])

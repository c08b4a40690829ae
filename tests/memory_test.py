"""What lets compilers begin once there is memory for them: templates/steps/memory.py."""

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "templates" / "steps" / "memory.py"
_spec = importlib.util.spec_from_file_location("memory", str(PROGRAM))
memory = importlib.util.module_from_spec(_spec)
sys.dont_write_bytecode = True
_spec.loader.exec_module(memory)


class Room(unittest.TestCase):
    def test_the_first_compiler_begins_whatever_is_free(self):
        self.assertTrue(memory.has_room(10, 5000, []))

    def test_what_began_lately_is_counted_with_what_it_will_take(self):
        for free, running, room in [
            (10000, [(0, 5000)], True),
            (9999, [(0, 5000)], False),
            # Half of it is in what is free by now.
            (7500, [(30, 5000)], True),
            (5000, [(60, 5000), (400, 5000)], True),
            (4999, [(400, 5000)], False),
            (12000, [(0, 5000), (0, 1500)], True),
            (11000, [(0, 5000), (0, 1500)], False),
        ]:
            self.assertEqual(memory.has_room(free, 5000, running), room, (free, running))

    def test_the_smaller_of_machine_and_control_group_is_free(self):
        with tempfile.TemporaryDirectory() as folder:
            def file(name, text):
                path = os.path.join(folder, name)
                pathlib.Path(path).write_text(text)
                return path

            machine = file("meminfo", "MemTotal: 9000000 kB\nMemAvailable:  2097152 kB\n")
            used, stat = file("used", "%d\n" % (600 << 20)), file("stat", "anon 5\ninactive_file %d\n" % (100 << 20))
            for limit, free in [("max", 2048), (str(1 << 30), 524), (str(1 << 40), 2048), ("", 2048), (str(300 << 20), -200)]:
                groups = [(file("limit", limit + "\n"), used, stat, "inactive_file"), ("/absent",) * 4]
                self.assertEqual(memory.free_mib(groups, machine), free, limit)

    def test_this_machine_has_something_free(self):
        self.assertGreater(memory.free_mib(), 0)


class Compilers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def command(self, *command, mib=100):
        return [sys.executable, "-I", str(PROGRAM), str(self.folder / "gate"), str(mib), *command]

    def program(self, text, mib=100):
        return self.command(sys.executable, "-c", text, mib=mib)

    def run_one(self, text):
        return subprocess.run(self.program(text), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)

    def notes(self):
        path = self.folder / "gate" / "notes"
        return path.read_text().splitlines() if path.exists() else []

    def test_streams_and_status_are_the_compilers(self):
        done = self.run_one("import sys; print('out'); sys.stderr.write('err'); sys.exit(3)")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (3, b"out\n", b"err"))
        done = self.run_one("import sys; sys.stderr.write('x' * 300000)")
        self.assertEqual((done.returncode, len(done.stderr)), (0, 300000))
        self.assertEqual(self.notes(), [])
        self.assertEqual(list((self.folder / "gate" / "running").iterdir()), [])

    def test_a_command_that_is_not_there(self):
        done = subprocess.run(self.command("/absent/nvcc"), stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stderr), (1, b"/absent/nvcc: No such file or directory\n"))

    def test_signals_reach_the_compiler_and_end_both(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Tests that a shell runs in the background ignore SIGINT, and what they start does too.
            heeds = lambda number=number: signal.signal(number, signal.SIG_DFL)
            child = subprocess.Popen(self.program("import time; print('up', flush=True); time.sleep(60)"), stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL, preexec_fn=heeds)
            self.assertEqual(child.stdout.readline(), b"up\n")
            child.send_signal(number)
            self.assertEqual(child.wait(timeout=30), -number)
            child.stdout.close()
        self.assertEqual(list((self.folder / "gate" / "running").iterdir()), [])

    def test_a_signal_that_is_ignored_stays_ignored(self):
        ask = "import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
        ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
        done = subprocess.run(self.program(ask), stdout=subprocess.PIPE, preexec_fn=ignore)
        self.assertEqual(done.stdout, b"True\n")

    def test_what_a_compiler_leaves_behind_is_not_waited_for(self):
        # As a server that it starts, which keeps its streams.
        text = "import subprocess; child = subprocess.Popen(['sleep', '300']); print(child.pid)"
        with subprocess.Popen(self.program(text), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as gate:
            left = int(gate.stdout.readline())
            self.assertEqual(gate.wait(timeout=120), 0)
            os.kill(left, signal.SIGKILL)

    def test_one_that_waits_to_run_again_can_be_ended(self):
        other = subprocess.Popen(self.program("import time; print('up', flush=True); time.sleep(300)"), stdout=subprocess.PIPE)
        other.stdout.readline()
        killed = subprocess.Popen(self.program("import os; os.kill(os.getpid(), 9)"), stderr=subprocess.PIPE)
        self.assertIn(b"runs again, alone", killed.stderr.readline())
        killed.terminate()
        self.assertEqual(killed.wait(timeout=60), -signal.SIGTERM)
        other.terminate()
        other.wait()
        killed.stderr.close()
        other.stdout.close()

    def killed_once(self, how):
        """A program that ends like a killed one the first time."""
        mark = str(self.folder / "mark")
        return "import os, sys\nif not os.path.exists({0!r}):\n  open({0!r}, 'w'); {1}\nprint('made')".format(mark, how)

    def test_a_compiler_that_the_kernel_killed_runs_again(self):
        for how in ("os.kill(os.getpid(), 9)", "sys.exit(137)",
                    "sys.stderr.write(\"nvcc error   : 'cicc' died due to signal 9 (Kill signal)\\n\"); sys.exit(9)",
                    "sys.stderr.write('g++: fatal error: Killed signal terminated program cc1plus\\n'); sys.exit(1)",
                    "sys.stderr.write('sh: line 1:  77 Killed\\nKilled\\n'); sys.exit(2)"):
            done = self.run_one(self.killed_once(how))
            self.assertEqual((done.returncode, done.stdout), (0, b"made\n"), how)
            self.assertIn(b"runs again, alone", done.stderr)
            (self.folder / "mark").unlink()
        self.assertEqual(self.notes(), ["killed"] * 5)

    def test_an_error_that_only_speaks_of_killing_is_one(self):
        for text in ("error: no member named 'Killed_t'", "note: Killed: see below", "signal 99"):
            done = self.run_one("import sys; sys.stderr.write({!r}); sys.exit(1)".format(text))
            self.assertEqual((done.returncode, done.stderr), (1, text.encode()))
        self.assertEqual(self.notes(), [])

    def test_what_is_killed_each_time_ends_so(self):
        done = self.run_one("import os; os.kill(os.getpid(), 9)")
        self.assertEqual(done.returncode, -signal.SIGKILL)
        self.assertEqual(self.notes(), ["killed"] * 2)

    def test_it_runs_again_with_no_other_one(self):
        log = str(self.folder / "log")
        say = "open({!r}, 'a').write({!r} + chr(10)); "
        text = "import time\n" + self.killed_once(say.format(log, "killed") + "os.kill(os.getpid(), 9)").replace(
            "print('made')", say.format(log, "alone") + "time.sleep(1); " + say.format(log, "done"))
        other = "import time; time.sleep(1); " + say.format(log, "other")
        first = subprocess.Popen(self.program(other))
        time.sleep(0.5)
        killed = subprocess.Popen(self.program(text), stderr=subprocess.DEVNULL)
        while "killed" not in (pathlib.Path(log).read_text() if os.path.exists(log) else ""):
            time.sleep(0.01)
        time.sleep(0.3)
        last = subprocess.Popen(self.program(other))
        self.assertEqual([child.wait(timeout=60) for child in (first, killed, last)], [0, 0, 0])
        self.assertEqual(pathlib.Path(log).read_text().split(), ["killed", "other", "alone", "done", "other"])

    def test_the_place_of_one_that_was_killed_is_free(self):
        gate = memory.Gate(str(self.folder / "gate"), 100)
        child = subprocess.Popen(self.program("import time; print('up', flush=True); time.sleep(2)"), stdout=subprocess.PIPE)
        child.stdout.readline()
        [(age, mib)] = gate.running()
        self.assertEqual((mib, age < 30), (100, True))
        child.kill()
        child.wait()
        child.stdout.close()
        self.assertEqual(gate.running(), [])
        gate.door.close()

    def test_without_a_folder_it_runs_all_the_same(self):
        (self.folder / "gate").write_text("a file")
        done = self.run_one("print('made')")
        self.assertEqual((done.returncode, done.stdout), (0, b"made\n"))

    def test_a_source_from_a_pipe_is_not_read_twice(self):
        command = self.command(sys.executable, "-", mib=100)
        done = subprocess.run(command, input=b"import os; os.kill(os.getpid(), 9)", stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stderr), (-signal.SIGKILL, b""))


GROUPS = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]


class ControlGroup:
    """A control group with little memory, or None where this machine gives none."""

    @classmethod
    def make(cls, limit):
        for parent in map(pathlib.Path, GROUPS):
            group = parent / "stackforge-test-{}".format(os.getpid())
            name = "memory.limit_in_bytes" if parent.name == "memory" else "memory.max"
            try:
                group.mkdir()
            except OSError:
                continue
            try:
                (group / name).write_text(str(limit))
                if memory.field("/proc/meminfo", "SwapTotal"):
                    # Else it would swap where it is to be killed.
                    swap, text = ("memory.memsw.limit_in_bytes", str(limit)) if "limit" in name else ("memory.swap.max", "0")
                    (group / swap).write_text(text)
                return cls(group, name)
            except OSError:
                group.rmdir()
        return None

    def __init__(self, group, limit):
        self.group = group
        v1 = limit != "memory.max"
        usage, reclaimable = ("memory.usage_in_bytes", "total_inactive_file") if v1 else ("memory.current", "inactive_file")
        self.files = [str(group / name) for name in (limit, usage, "memory.stat")] + [reclaimable]

    def remove(self):
        for _ in range(50):
            try:
                return self.group.rmdir()
            except OSError:
                # The kernel has not taken the last process out yet.
                time.sleep(0.1)

    def enter(self):
        (self.group / "cgroup.procs").write_text(str(os.getpid()))


class Shortage(unittest.TestCase):
    """Real processes, and a kernel that kills them."""

    def setUp(self):
        self.group = ControlGroup.make(600 << 20)
        if self.group is None:
            why = "memory_test: no control group with a limit can be made here (it needs root)"
            if os.environ.get("STACKFORGE_TEST_LEFT_OUT"):
                with open(os.environ["STACKFORGE_TEST_LEFT_OUT"], "a") as file:
                    file.write(why + "\n")
            self.skipTest(why)
        self.addCleanup(self.group.remove)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_all(self, before):
        """Six processes that each take 170 MiB at once; their exit statuses."""
        take = [sys.executable, "-c", "import time; a = b'x' * (170 << 20); time.sleep(1)"]
        # In a container these stand below /sys/fs/cgroup; here the group's own are named.
        gate = "import sys; sys.path.insert(0, {!r}); import memory; memory.GROUPS = [{!r}]; " \
               "memory.free_mib.__defaults__ = (memory.GROUPS, '/proc/meminfo'); " \
               "memory.main({!r}, '170', sys.argv[1:])".format(str(PROGRAM.parent), tuple(self.group.files), self.folder)
        command = [sys.executable, "-B", "-c", gate, *take] if before else take
        children = [subprocess.Popen(command, preexec_fn=self.group.enter, stderr=subprocess.DEVNULL) for _ in range(6)]
        return [child.wait(timeout=120) for child in children]

    def test_compilers_wait_where_the_kernel_would_kill(self):
        self.assertIn(-signal.SIGKILL, self.run_all(before=False))
        self.assertEqual(self.run_all(before=True), [0] * 6)
        notes = pathlib.Path(self.folder, "notes").read_text().splitlines()
        self.assertEqual({note.split()[0] for note in notes}, {"waited"})


if __name__ == "__main__":
    unittest.main()

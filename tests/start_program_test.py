"""The program that measures starts, run as the image runs it, on packages made on the spot.

    python3 -m unittest tests/start_program_test.py
"""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "templates"
sys.dont_write_bytecode = True
source = importlib.util.spec_from_file_location("start", TEMPLATES / "start" / "start.py")
start = importlib.util.module_from_spec(source)
source.loader.exec_module(start)


class Measured(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.site = self.folder / "site"
        self.program = self.folder / "program"
        shutil.copytree(TEMPLATES / "validate", self.program)
        shutil.copy(TEMPLATES / "start" / "start.py", self.program)

    def install(self, name, text):
        information = self.site / "{}-1.0.dist-info".format(name)
        information.mkdir(parents=True)
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: {}\nVersion: 1.0\n".format(name))
        (information / "RECORD").write_text("{0}.py,,\n{0}-1.0.dist-info/METADATA,,\n".format(name))
        (self.site / (name + ".py")).write_text(textwrap.dedent(text))

    def measure(self, *names):
        """(exit code, report, stderr)."""
        libraries = [{"name": name, "distribution": name, "version": "1.0", "imports": [name]} for name in names]
        spec = self.folder / "spec.json"
        spec.write_text(json.dumps({"schema": 1, "stack": "test", "cuda": None, "sm": [], "checks": ["imports"],
                                    "libraries": libraries}))
        done = subprocess.run([sys.executable, str(self.program / "start.py"), "--spec", str(spec), "--out", "-"],
                              env=dict(os.environ, PYTHONPATH=str(self.site)), timeout=300, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, json.loads(done.stdout), done.stderr

    def test_a_library_that_sleeps_takes_at_least_as_long(self):
        self.install("quick", "")
        self.install("slow", "import time\ntime.sleep(0.4)\n")
        code, report, told = self.measure("quick", "slow")
        self.assertEqual(code, 0, told)
        quick, slow = report["start"]["libraries"]
        self.assertEqual((quick["name"], quick["modules"], quick["warm"]["runs"]), ("quick", ["quick"], 3))
        for times in (quick["warm"], slow["warm"]):
            self.assertLess(0, times["python"])
            self.assertLessEqual(times["python"], times["import"])
            self.assertNotIn("kernel", times)
        self.assertGreaterEqual(slow["warm"]["import"] - slow["warm"]["python"], 0.4)
        cold = report["start"]["cold"]
        self.assertTrue("reason" in cold or "cold" in slow, cold)
        self.assertIn("no GPU", report["start"]["kernel"]["reason"])
        self.assertIn("start: measuring slow", told)

    def test_a_bad_image_is_not_measured(self):
        self.install("broken", "raise ValueError('broken')\n")
        code, report, _ = self.measure("broken")
        self.assertEqual((code, report["ok"]), (1, False))
        self.assertNotIn("start", report)

    def test_a_library_that_fails_at_the_second_import_says_so(self):
        # The first import is the check's, the next ones are measured.
        mark = self.folder / "mark"
        self.install("once", """
            import os
            if os.path.exists({0!r}):
                raise RuntimeError("only once")
            open({0!r}, "w").close()
        """.format(str(mark)))
        code, report, _ = self.measure("once")
        self.assertEqual(code, 0)
        library, = report["start"]["libraries"]
        self.assertNotIn("warm", library)
        self.assertIn("RuntimeError: only once", library["reason"])
        self.assertEqual(report["start"]["cold"], {"reason": "nothing was imported"})

    def test_nothing_that_a_library_started_is_left(self):
        mark = self.folder / "alive"
        self.install("parent", """
            import subprocess
            subprocess.Popen(["sh", "-c", "sleep 2; touch {}"], start_new_session=False)
        """.format(mark))
        code, _, _ = self.measure("parent")
        self.assertEqual(code, 0)
        time.sleep(2.5)
        self.assertFalse(mark.exists())

    def test_what_a_library_prints_is_not_part_of_the_report(self):
        self.install("loud", "import os, sys\nprint('{}')\nos.write(2, b'noise\\n')\n")
        code, report, _ = self.measure("loud")
        self.assertEqual((code, report["start"]["libraries"][0]["name"]), (0, "loud"))


class PageCache(unittest.TestCase):
    def setUp(self):
        # /tmp may be in memory, where nothing can be dropped.
        folder = tempfile.TemporaryDirectory(dir=ROOT)
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "file")
        with open(self.path, "wb") as file:
            file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())

    def test_what_was_read_is_in_memory_until_it_is_let_go(self):
        self.assertEqual(start.cached([self.path]), (1 << 20, 1 << 20))
        start.evict([self.path, self.path + ".absent", os.path.dirname(self.path)])
        size, resident = start.cached([self.path, self.path + ".absent"])
        self.assertEqual(size, 1 << 20)
        if resident:
            self.skipTest("the file system of {} keeps its pages".format(ROOT))
        with open(self.path, "rb") as file:
            file.read()
        self.assertEqual(start.cached([self.path]), (1 << 20, 1 << 20))

    @unittest.skipUnless(os.geteuid() == 0, "only root can be somebody else")
    def test_who_may_not_see_the_page_cache_says_so(self):
        os.chmod(os.path.dirname(self.path), 0o755)
        os.chmod(self.path, 0o644)
        code = "import os, sys; sys.path.insert(0, {!r}); import start; os.setuid(65534); print(start.cached([{!r}]))"
        done = subprocess.run([sys.executable, "-B", "-c", code.format(str(TEMPLATES / "start"), self.path)],
                              stdout=subprocess.PIPE, text=True, check=True)
        self.assertEqual(done.stdout, "(0, None)\n")

    def test_a_cold_run_needs_that_most_was_let_go(self):
        real = start.cached
        self.addCleanup(setattr, start, "cached", real)
        start.installed, installed = lambda: iter([self.path]), start.installed
        self.addCleanup(setattr, start, "installed", installed)
        for resident, is_cold in (((100, 20), True), ((100, 60), False), ((100, None), False)):
            start.cached = lambda paths, found=resident: found
            told = start.let_go(set())
            self.assertEqual("reason" not in told, is_cold, told)


if __name__ == "__main__":
    unittest.main()

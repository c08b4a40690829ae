"""The program that changes the sources of compiled libraries.

    python3 -m unittest tests/patch_test.py
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "templates" / "builders" / "patch.py"


class Patches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "source").mkdir()
        self.file = self.folder / "source" / "setup.py"
        self.file.write_text("a32\nb32\nc64\n")

    def run_patches(self, *patches):
        path = self.folder / "patches.json"
        path.write_text(json.dumps([dict({"id": "p", "file": "setup.py", "with": ""}, **patch) for patch in patches]))
        done = subprocess.run([sys.executable, PROGRAM, path], cwd=self.folder / "source", capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_texts_are_replaced_and_lines_removed_in_order(self):
        code, said = self.run_patches({"replace": "a32", "with": "a128"}, {"replace": "32", "lines": True})
        self.assertEqual((code, self.file.read_text()), (0, "a128\nc64\n"))
        self.assertIn("setup.py, 1 places", said)

    def test_a_text_that_is_not_there_changes_nothing(self):
        for patch in ({"replace": "96"}, {"replace": "96", "lines": True}):
            code, said = self.run_patches(patch)
            self.assertEqual((code, self.file.read_text()), (1, "a32\nb32\nc64\n"))
            self.assertIn("setup.py does not hold '96'", said)

    def test_other_files_are_out_of_reach(self):
        self.assertIn("outside the source", self.run_patches({"file": "../patches.json", "replace": "p"})[1])
        self.assertIn("cannot read missing.py", self.run_patches({"file": "missing.py", "replace": "p"})[1])


if __name__ == "__main__":
    unittest.main()

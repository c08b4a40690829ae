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
        path.write_text(json.dumps([dict({"id": "p", "file": "setup.py"}, **patch) for patch in patches]))
        done = subprocess.run([sys.executable, PROGRAM, path], cwd=self.folder / "source", capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_texts_are_replaced_and_lines_removed_in_order(self):
        code, said = self.run_patches({"replace": "a32", "with": "a128"}, {"remove_lines": "32"})
        self.assertEqual((code, self.file.read_text()), (0, "a128\nc64\n"))
        self.assertIn("setup.py, 1 places", said)

    def test_a_text_that_is_not_there_changes_nothing(self):
        for patch in ({"replace": "96", "with": ""}, {"remove_lines": "96"}):
            code, said = self.run_patches(patch)
            self.assertEqual((code, self.file.read_text()), (1, "a32\nb32\nc64\n"))
            self.assertIn("setup.py does not hold '96'", said)

    def test_other_files_are_out_of_reach(self):
        self.assertIn("outside the source", self.run_patches({"file": "../patches.json", "replace": "p", "with": ""})[1])
        self.assertIn("cannot read missing.py", self.run_patches({"file": "missing.py", "replace": "p", "with": ""})[1])

    def kernels(self, text, sources="[\n    'csrc/k.cu',\n    'csrc/other.cu',\n]\n"):
        self.file.write_text(sources)
        (self.folder / "source" / "csrc").mkdir(exist_ok=True)
        (self.folder / "source" / "csrc" / "k.cu").write_text(text)

    def test_a_file_is_split_by_its_explicit_instantiations(self):
        head = "template<typename T>\nvoid f(T x) { g(x); }\ntemplate <>\nvoid f(char x);\nextern template void h<int>();\n"
        made = [f"template void f<{t}>({t} x);\n" for t in ("int", "float", "double")]
        self.kernels(head + made[0] + "\n" + made[1] + made[2] + "// end\n")
        code, said = self.run_patches({"file": "csrc/k.cu", "split": {"parts": 2, "listed_in": "setup.py"}})
        self.assertEqual(code, 0, said)
        parts = [(self.folder / "source" / "csrc" / f"k_part{n}.cu").read_text() for n in (1, 2)]
        self.assertEqual(parts, [head + made[0] + "\n" + made[2] + "// end\n", head + "\n" + made[1] + "// end\n"])
        listed = "[\n    'csrc/k_part1.cu',\n    'csrc/k_part2.cu',\n    'csrc/other.cu',\n]\n"
        self.assertEqual(self.file.read_text(), listed)

    def test_what_cannot_be_split_is_said_and_left(self):
        split = {"file": "csrc/k.cu", "split": {"parts": 2, "listed_in": "setup.py"}}
        two = "template void f<int>();\ntemplate void f<float>();\n"
        for text, sources, said in (
            ("template void f<int>();\n", "k.cu\n", "k.cu has 1 explicit instantiations of templates, too few for 2"),
            (two, "k.cu\nk.cu\n", "setup.py names k.cu in 2 lines"),
            (two, "other.cu\n", "setup.py names k.cu in 0 lines"),
        ):
            self.kernels(text, sources)
            code, output = self.run_patches(split)
            self.assertEqual((code, self.file.read_text()), (1, sources))
            self.assertIn(said, output)
            self.assertEqual(len(list((self.folder / "source" / "csrc").iterdir())), 1)


if __name__ == "__main__":
    unittest.main()

"""The exit status of scripts/test.sh is that of its parts. Those are programs of this test here."""

import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# It fails where its arguments begin with $FAILS.
PART = """#!/bin/sh
case "NAME $*" in
    "${FAILS:-nothing}"*) exit 1 ;;
esac
"""


class Status(unittest.TestCase):
    def run_script(self, fails):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "scripts"))
            os.makedirs(os.path.join(folder, "catalog"))
            os.makedirs(os.path.join(folder, "bin"))
            shutil.copy(os.path.join(ROOT, "scripts/test.sh"), os.path.join(folder, "scripts"))
            shutil.copy(os.path.join(ROOT, "catalog/tools.yaml"), os.path.join(folder, "catalog"))
            with open(os.path.join(folder, "scripts/test-engine.sh"), "w", encoding="utf-8") as file:
                file.write('exec "$@"\n')
            for name in ["docs", "docs-tools"]:
                with open(os.path.join(folder, f"scripts/{name}.sh"), "w", encoding="utf-8") as file:
                    file.write(f'[ "$FAILS" != {name} ]\n')
            # Where there is a browser the script looks at the book.
            for name in ["cargo", "python3", "chromium"]:
                path = os.path.join(folder, "bin", name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(PART.replace("NAME", name))
                os.chmod(path, 0o755)
            env = {"PATH": f"{folder}/bin:/usr/bin:/bin", "FAILS": fails, "TMPDIR": folder}
            script = ["sh", "scripts/test.sh"]
            done = subprocess.run(script, cwd=folder, env=env, capture_output=True, text=True, check=False)
            left = [name for name in os.listdir(folder) if name.startswith("tmp.")]
            return done.returncode, done.stderr, left

    def test_a_book_that_cannot_be_built_here_is_left_out(self):
        self.assertEqual(self.run_script("docs-tools"), (0, "", []))

    def test_it_fails_where_a_part_does(self):
        self.assertEqual(self.run_script("nothing"), (0, "", []))
        for fails, named in [
            ("cargo nextest run --locked --workspace --no-run", "failed: build"),
            ("cargo nextest run --locked --workspace --test", "failed: nextest"),
            ("cargo test --locked --workspace --doc", "failed: doc"),
            ("python3 -m unittest", "failed: python"),
            ("docs", "failed: docs"),
            # Without cargo-nextest.
            ("cargo", "failed: cargo-test"),
        ]:
            with self.subTest(fails):
                self.assertEqual(self.run_script(fails), (1, f"{named}\n", []))


if __name__ == "__main__":
    unittest.main()

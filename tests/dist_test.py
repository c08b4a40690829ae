"""The parts of `make dist` that need no build: scripts/dist.py."""
import os
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scripts", "dist.py")
ROOT = os.path.dirname(os.path.dirname(SCRIPT))


def elf(libraries, versions):
    """A file with the sections that the check reads: names, the dynamic section, versions that are needed."""
    names = b"\0"
    dynamic, at = b"", {}
    for name in libraries + versions:
        at[name] = len(names)
        names += name.encode() + b"\0"
    for name in libraries:
        dynamic += struct.pack("<QQ", 1, at[name])
    aux = b""
    for i, name in enumerate(versions):
        aux += struct.pack("<IHHII", 0, 0, 2, at[name], 16 if i + 1 < len(versions) else 0)
    need = struct.pack("<HHIII", 1, len(versions), 0, 16, 0) + aux
    bodies = [(0, b"", 0), (3, names, 0), (6, dynamic, 1), (0x6FFFFFFE, need, 1)]
    data, table = b"", b""
    for kind, body, link in bodies:
        table += struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, 64 + len(data), len(body), link, 0, 1, 0)
        data += body
    header = b"\x7fELF\x02\x01\x01" + bytes(33) + struct.pack("<Q", 64 + len(data)) + bytes(10)
    return header + struct.pack("<HHH", 64, len(bodies), 0) + data + table


def run(*arguments, **options):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, **options)


class Check(unittest.TestCase):
    def checked(self, data):
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            return run("check", file.name, "--glibc", "2.28", "--private", "/home/somebody")

    def test_an_old_glibc_is_enough(self):
        answer = self.checked(elf(["libc.so.6", "libm.so.6"], ["GLIBC_2.17", "GLIBC_2.28", "GLIBC_2.4"]))
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn("glibc 2.28", answer.stdout)

    def test_what_no_user_could_run_fails(self):
        for data, message in [
            (elf(["libc.so.6"], ["GLIBC_2.28", "GLIBC_2.34"]), "needs glibc 2.34, and 2.28 is promised"),
            (elf(["libc.so.6", "libssl.so.3"], ["GLIBC_2.17"]), "needs libssl.so.3"),
            (elf(["libc.so.6"], ["GLIBC_2.17"]) + b"/home/somebody/x.rs", "holds the path /home/somebody"),
            (elf(["libc.so.6"], ["GLIBC_2.17"]) + bytes(20_000_000), "more than 20000000"),
            (elf([], []), "needs glibc none"),
        ]:
            answer = self.checked(data)
            self.assertEqual(answer.returncode, 1)
            self.assertIn(message, answer.stderr)


class Wheel(unittest.TestCase):
    def test_the_same_program_makes_the_same_wheel_whenever_it_is_made(self):
        tag = "py3-none-manylinux_2_28_x86_64"
        wheels = []
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "stackforge")
            with open(program, "wb") as file:
                file.write(b"#!/bin/sh\necho here\n")
            for age in [0, 1000]:
                os.utime(program, (age, age))
                answer = run("wheel", program, "--version", "1.2.3", "--tag", tag, "-o", folder, cwd=ROOT)
                self.assertEqual(answer.returncode, 0, answer.stderr)
                with open(answer.stdout.strip(), "rb") as file:
                    wheels.append(file.read())
            self.assertEqual(wheels[0], wheels[1])
            with zipfile.ZipFile(answer.stdout.strip()) as archive:
                mode = archive.getinfo("stackforge-1.2.3.data/scripts/stackforge").external_attr >> 16
                self.assertEqual(mode & 0o777, 0o755)
                record = archive.read("stackforge-1.2.3.dist-info/RECORD").decode()
                self.assertEqual(len(record.splitlines()), len(archive.namelist()))


if __name__ == "__main__":
    unittest.main()

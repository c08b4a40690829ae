"""The parts of `make dist` that need no build: scripts/dist.py."""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scripts", "dist.py")
ROOT = os.path.dirname(os.path.dirname(SCRIPT))


def audit(libraries, glibc):
    """What `stackforge audit --json` says of a program."""
    return json.dumps({"objects": [{"needed": libraries, "floors": {"glibc": glibc}}]})


def run(*arguments, **options):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, **options)


class Check(unittest.TestCase):
    def checked(self, libraries, glibc, data=b"program"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            options = ["--glibc", "2.28", "--private", "/home/somebody"]
            return run("check", file.name, *options, input=audit(libraries, glibc))

    def test_an_old_glibc_is_enough(self):
        for glibc in ["2.28", "2.4"]:
            answer = self.checked(["libc.so.6", "libm.so.6"], glibc)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertIn(f"glibc {glibc}", answer.stdout)

    def test_what_no_user_could_run_fails(self):
        for arguments, message in [
            ((["libc.so.6"], "2.34"), "needs glibc 2.34, and 2.28 is promised"),
            ((["libc.so.6", "libssl.so.3"], "2.17"), "needs libssl.so.3"),
            ((["libc.so.6"], "2.17", b"..../home/somebody/x.rs"), "holds the path /home/somebody"),
            ((["libc.so.6"], "2.17", bytes(20_000_001)), "more than 20000000"),
            (([], None), "needs glibc None"),
        ]:
            answer = self.checked(*arguments)
            self.assertEqual(answer.returncode, 1)
            self.assertIn(message, answer.stderr)


def macho(libraries, processor=0x0100000c):
    """A program for Macs that has load commands alone, as Apple's <mach-o/loader.h> has them."""
    commands = [struct.pack("<6I", 0x32, 24, 1, 11 << 16, 11 << 16, 0)]
    for name in libraries:
        text = name.encode().ljust(len(name) // 8 * 8 + 8, b"\0")
        commands.append(struct.pack("<6I", 0x0c, 24 + len(text), 24, 0, 0, 0) + text)
    body = b"".join(commands)
    return struct.pack("<8I", 0xfeedfacf, processor, 0, 2, len(commands), len(body), 0, 0) + body


class Macos(unittest.TestCase):
    def checked(self, data):
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            return run("macos", file.name)

    def test_what_macos_brings_is_enough(self):
        security = "/System/Library/Frameworks/Security.framework/Versions/A/Security"
        answer = self.checked(macho(["/usr/lib/libSystem.B.dylib", security]))
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn(f"macOS 11.0, /usr/lib/libSystem.B.dylib, {security}", answer.stdout)

    def test_what_no_mac_could_load_fails(self):
        for data, message in [
            (macho(["/opt/lib/libssl.3.dylib"]), "needs /opt/lib/libssl.3.dylib"),
            (macho([], processor=0x01000007), "no program for Apple silicon"),
            (b"\x7fELF" + bytes(60), "no program for Apple silicon"),
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

"""Table-driven tests of templates/builders/nvcc_filter.py: `python3 -m unittest tests/nvcc_filter_test.py`."""

import importlib.util
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

FILTER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "templates", "builders", "nvcc_filter.py")
sys.dont_write_bytecode = True
SPEC = importlib.util.spec_from_file_location("nvcc_filter", FILTER)
nvcc_filter = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(nvcc_filter)

G90 = "-gencode=arch=compute_90,code=sm_90"
G90A = "-gencode=arch=compute_90a,code=sm_90a"
G100 = "-gencode=arch=compute_100,code=sm_100"
G100F = "-gencode=arch=compute_100f,code=sm_100f"
G103 = "-gencode=arch=compute_103,code=sm_103"
G110 = "-gencode=arch=compute_110,code=sm_110"
P90 = "-gencode=arch=compute_90,code=compute_90"
L90 = "-gencode=arch=compute_90,code=lto_90"
L110 = "-gencode=arch=compute_110,code=lto_110"
BOTH = G90 + " " + G110

# (what it shows, targets, the call, what nvcc gets; None: the same call)
CALLS = [
    # How a request may be written.
    ("two words", "90;110", "-c -gencode arch=compute_80,code=sm_80 x.cu", "-c " + BOTH + " x.cu"),
    ("one word", "90;110", "-c -gencode=arch=compute_80,code=sm_80 x.cu", "-c " + BOTH + " x.cu"),
    ("long, two words", "90", "--generate-code arch=compute_80,code=sm_80 -c x.cu", G90 + " -c x.cu"),
    ("long, one word", "90", "--generate-code=arch=compute_80,code=sm_80 -c x.cu", G90 + " -c x.cu"),
    ("bracketed list", "90", "-c -gencode=arch=compute_90,code=[sm_90,compute_90] x.cu", "-c " + G90 + " x.cu"),
    ("quoted list", "90", '-c -gencode=arch=compute_90,code="sm_90,compute_90" x.cu', "-c " + G90 + " x.cu"),
    ("code before arch", "90", "-c -gencode=code=sm_80,arch=compute_80 x.cu", "-c " + G90 + " x.cu"),
    ("-arch two words", "90", "-c -arch sm_80 x.cu", "-c " + G90 + " x.cu"),
    ("-arch one word", "90", "-c -arch=sm_80 x.cu", "-c " + G90 + " x.cu"),
    ("-arch of the target itself asks for PTX too", "90", "-c -arch=sm_90 x.cu", "-c " + G90 + " x.cu"),
    ("-arch as PTX only", "90", "-c --gpu-architecture=compute_80 x.cu", "-c " + G90 + " x.cu"),
    ("the last -arch wins", "90;110", "-c -arch=sm_90a -arch=sm_110a x.cu", "-c -gencode=arch=compute_110a,code=sm_110a x.cu"),
    ("-arch with -code list", "90;110", "-c -arch=compute_90 -code=sm_90,compute_90 -O3 x.cu", "-c " + BOTH + " -O3 x.cu"),
    ("--gpu-code repeated", "90;110", "-c -arch compute_90 --gpu-code sm_90 --gpu-code=sm_110 x.cu",
     "-c " + G90 + " -gencode=arch=compute_90,code=sm_110 x.cu"),
    ("-arch beside -gencode", "90", "-c -arch=sm_80 -gencode=arch=compute_75,code=sm_75 x.cu", "-c " + G90 + " x.cu"),
    ("all", "90;110", "-c -arch=all x.cu", "-c " + BOTH + " x.cu"),
    ("all-major", "90;110", "-c -arch all-major x.cu", "-c " + BOTH + " x.cu"),
    ("native", "90;110", "-c -arch=native x.cu", "-c " + BOTH + " x.cu"),
    # What is kept, dropped, added.
    ("others dropped, missing added, order kept", "90;110",
     "-c -gencode arch=compute_75,code=sm_75 -gencode arch=compute_110,code=sm_110 -O2 -gencode arch=compute_120,code=sm_120 x.cu",
     "-c " + G110 + " " + G90 + " -O2 x.cu"),
    ("PTX dropped", "90", "-c " + G90 + " " + P90 + " x.cu", "-c " + G90 + " x.cu"),
    ("the same SM twice", "90", "-c " + G90 + " " + G90 + " x.cu", "-c " + G90 + " x.cu"),
    ("exactly the targets", "90;110", "-c -gencode arch=compute_90,code=sm_90 " + G110 + " x.cu", None),
    ("the asked virtual architecture is kept", "90", "-c -gencode=arch=compute_80,code=[sm_80,sm_90] x.cu",
     "-c -gencode=arch=compute_80,code=sm_90 x.cu"),
    ("+PTX", "90+PTX", "-c -arch=sm_80 x.cu", "-c " + G90 + " " + P90 + " x.cu"),
    ("+PTX already asked", "90+PTX", "-c " + G90 + " " + P90 + " x.cu", None),
    ("a suffixed target", "90a", "-c -arch=sm_80 x.cu", "-c " + G90A + " x.cu"),
    ("plain code serves a suffixed target", "90a", "-c " + G90 + " " + G100 + " x.cu", "-c " + G90 + " x.cu"),
    # Files for one architecture.
    ("arch-specific, wanted", "90;110", "-c " + G90A + " x.cu", None),
    ("arch-specific, its PTX dropped, nothing added", "90;110+PTX", "-c -gencode=arch=compute_90a,code=[sm_90a,compute_90a] x.cu", "-c " + G90A + " x.cu"),
    ("arch-specific, another", "110", "-c " + G90A + " x.cu", "-c " + G110 + " x.cu"),
    ("several suffixed are a general request", "90;110", "-c " + G90A + " " + G100F + " x.cu", "-c " + G90A + " " + G110 + " x.cu"),
    ("suffixed beside plain is a general request", "90;110", "-c " + G90A + " -gencode=arch=compute_80,code=sm_80 x.cu", "-c " + G90A + " " + G110 + " x.cu"),
    ("family code serves a later SM of the family", "103", "-c " + G100F + " x.cu", None),
    ("family code serves no other family", "110", "-c " + G100F + " x.cu", "-c " + G110 + " x.cu"),
    ("family code serves no earlier SM", "100", "-c -gencode=arch=compute_103f,code=sm_103f -gencode=arch=compute_80,code=sm_80 x.cu", "-c " + G100 + " x.cu"),
    ("a-code is not enough for a family target", "100f", "-c -gencode=arch=compute_100a,code=sm_100a " + G103 + " x.cu",
     "-c -gencode=arch=compute_100a,code=sm_100a " + G100F + " x.cu"),
    # Link-time optimization.
    ("LTO intermediate stays what it is", "90;110", "-dc -gencode=arch=compute_80,code=lto_80 x.cu", "-dc " + L90 + " " + L110 + " x.cu"),
    ("LTO beside SASS", "90", "-dc -gencode=arch=compute_80,code=[lto_80,sm_80] x.cu", "-dc " + G90 + " " + L90 + " x.cu"),
    ("-dlto takes -arch only", "90", "-dc -dlto -arch=sm_80 x.cu", "-dc -dlto -arch=sm_90 x.cu"),
    ("-dlto, several targets", "90;110", "-dc -dlto -arch=sm_80 x.cu", None),
    ("-dlto at the device link", "90;110", "-dlink -dlto -gencode=arch=compute_80,code=sm_80 x.o", "-dlink -dlto " + BOTH + " x.o"),
    # No architecture named.
    (".cu", "90;110", "-c x.cu -o x.o", BOTH + " -c x.cu -o x.o"),
    (".cu with +PTX", "90+PTX", "-c x.cu", G90 + " " + P90 + " -c x.cu"),
    ("-x cu", "90", "-x cu -c x.cpp", G90 + " -x cu -c x.cpp"),
    ("-x=cu", "90", "-x=cu -c -", G90 + " -x=cu -c -"),
    ("-x c++", "90", "-x c++ -c x.cu", None),
    ("-dc", "90", "-dc x.cpp", G90 + " -dc x.cpp"),
    ("device link", "90", "-dlink a.o -o b.o", G90 + " -dlink a.o -o b.o"),
    ("link", "90", "a.o -o program", G90 + " a.o -o program"),
    ("host source only", "90", "-c x.cpp -o x.o", None),
    ("archive", "90", "-lib a.o -o a.a", None),
    ("preprocess", "90", "-E x.cu", None),
    ("dependencies", "90", "-M x.cu", None),
    ("preprocess as compiled", "90", "-E -arch=sm_80 x.cu", "-E " + G90 + " x.cu"),
    ("dependencies beside a compile", "90", "-MD -MF x.d -c x.cu", G90 + " -MD -MF x.d -c x.cu"),
    # One output for one architecture.
    ("cubin", "90;110", "-cubin x.cu", "-arch=sm_90 -cubin x.cu"),
    ("ptx", "110;90a", "-ptx x.cu", "-arch=sm_90a -ptx x.cu"),
    ("cubin as named", "90;110", "-cubin -arch=sm_80 x.cu -o x.sm80.cubin", None),
    ("ptx as named", "90;110", "--ptx -gencode=arch=compute_80,code=compute_80 x.cu", None),
    ("cubin for this machine", "90;110", "-cubin -arch=native x.cu", "-cubin -arch=sm_90 x.cu"),
    ("fatbin takes several", "90;110", "-fatbin -arch=sm_80 x.cu", "-fatbin " + BOTH + " x.cu"),
    # Probes and what is not ours.
    ("nothing", "90", "", None),
    ("version", "90", "--version", None),
    ("-V", "90", "-V", None),
    ("help", "90", "--help -arch=sm_80", None),
    ("list of codes", "90", "--list-gpu-code", None),
    ("CMake's probe for the toolkit", "90", "-v __cmake_determine_cuda", None),
    ("CMake's compiler-id", "90", "--keep --keep-dir tmp CMakeCUDACompilerId.cu -v", G90 + " --keep --keep-dir tmp CMakeCUDACompilerId.cu -v"),
    ("dry run of a compile", "90", "--dryrun -c x.cu", G90 + " --dryrun -c x.cu"),
    ("a value that looks like a flag", "90", "-Xcompiler -arch=sm_80 -c x.cpp", None),
    ("a value that looks like an input", "90", "-o x.cu -c x.cpp", None),
    ("-march", "90", "-Xcompiler=-march=native -c x.cpp", None),
    ("a macro", "90", "-D -arch -c x.cpp", None),
    ("unreadable -arch", "90", "-c -arch=sm_xx x.cu", None),
    ("unreadable -gencode", "90", "-c -gencode=arch=compute_80 x.cu", None),
    ("two specifications in one", "90", "-c -gencode=arch=compute_80,code=sm_80,arch=compute_90,code=sm_90 x.cu", None),
    ("-code without -arch", "90", "-c -code=sm_80 x.cu", None),
    ("-arch without a value", "90", "-c x.cu -arch", None),
    ("a real -arch with -code, which nvcc refuses", "90", "-c -arch=sm_80 -code=sm_80 x.cu", None),
    ("a missing response file", "90", "-c -arch=sm_80 x.cu -optf /nonexistent/file", None),
]


class Calls(unittest.TestCase):
    def test_table(self):
        for what, targets, asked, expected in CALLS:
            with self.subTest(what):
                asked = asked.split()
                given, changed, record = nvcc_filter.rewrite(asked, {}, nvcc_filter.parse_targets(targets))
                self.assertEqual(given, asked if expected is None else expected.split())
                self.assertEqual(changed, {})
                self.assertEqual(record is None, expected is None)

    def test_given_flags_are_given_again_unchanged(self):
        for what, targets, asked, _ in CALLS:
            if what in ("-dlto takes -arch only", "-dlto, several targets"):
                continue  # -arch cannot be told from the caller's own
            with self.subTest(what):
                targets = nvcc_filter.parse_targets(targets)
                once = nvcc_filter.rewrite(asked.split(), {}, targets)[0]
                self.assertEqual(nvcc_filter.rewrite(once, {}, targets)[0], once)

    def test_arguments_are_not_split_or_quoted(self):
        asked = ["-c", "-DTEXT=a b \"c\" 'd'", "-arch=sm_80", "dir with space/x.cu", ""]
        given = nvcc_filter.rewrite(asked, {}, nvcc_filter.parse_targets("90"))[0]
        self.assertEqual(given, asked[:2] + [G90] + asked[3:])


class Targets(unittest.TestCase):
    def test_separators_and_repeats(self):
        self.assertEqual(nvcc_filter.parse_targets("90;110,100f 90"), nvcc_filter.parse_targets("90;110;100f"))

    def test_refused(self):
        for text in ("", ";", "9.0", "sm_90", "90b", "90+ptx", "90;;110 x", "9", "1000"):
            with self.subTest(text), self.assertRaises(ValueError):
                nvcc_filter.parse_targets(text)


class Environment(unittest.TestCase):
    def test_flags_from_the_environment(self):
        environment = {
            "NVCC_PREPEND_FLAGS": '-DX="a b"  -arch=sm_80 -O3',
            "NVCC_APPEND_FLAGS": "-gencode arch=compute_75,code=sm_75\t-w",
        }
        given, changed, _ = nvcc_filter.rewrite(["-c", "x.cu"], environment, nvcc_filter.parse_targets("90"))
        self.assertEqual(given, ["-c", "x.cu"])
        self.assertEqual(changed, {"NVCC_PREPEND_FLAGS": '-DX="a b"  ' + G90 + " -O3", "NVCC_APPEND_FLAGS": " \t-w"})

    def test_untouched_without_architectures(self):
        environment = {"NVCC_APPEND_FLAGS": "-w"}
        given, changed, _ = nvcc_filter.rewrite(["-c", "x.cu"], environment, nvcc_filter.parse_targets("90"))
        self.assertEqual((given, changed), ([G90, "-c", "x.cu"], {}))


class Cache(unittest.TestCase):
    """What is handed to sccache, and how."""

    def through(self, asked, **environment):
        environment = {"STACKFORGE_SCCACHE": "/c/sccache", "PATH": "/c/bin:/usr/bin", "STACKFORGE_WRAPPERS": "/c/bin", **environment}
        return nvcc_filter.through_cache("/t/nvcc", asked.split(), environment)

    def test_what_makes_one_object(self):
        for asked in ("-c x.cu", "--compile x.cu -o x.o", "-dc x.cu", "-dw x.cu", "-x cu -c x.cc -MD -MF x.d", "-c -O3 -optf /nothing/is/here x.cu"):
            with self.subTest(asked):
                cached = self.through(asked)
                if "-optf" in asked:
                    self.assertIsNone(cached, "what it asks for cannot be read")
                    continue
                command, changed = cached
                self.assertEqual(command, ["/c/sccache", "/t/nvcc"] + asked.split())
                self.assertEqual(changed["PATH"], "/c/as:/usr/bin")

    def test_what_does_not(self):
        for asked in ("x.cu -o program", "-shared a.o b.o", "-dlink a.o -o b.o", "-E x.cu", "-M x.cu", "--version", "-c --version", "-c a.cu b.cu", "-cubin x.cu", "-c --dryrun x.cu", "-c -Xcompiler=-march=native x.cu", ""):
            with self.subTest(asked):
                self.assertIsNone(self.through(asked))
        self.assertIsNone(nvcc_filter.through_cache("/t/nvcc", ["-c", "x.cu"], {}))

    def test_flags_of_the_environment_become_arguments(self):
        command, changed = self.through("-c x.cu", NVCC_PREPEND_FLAGS='-DX="a b"', NVCC_APPEND_FLAGS="-w -O1")
        self.assertEqual(command[2:], ["-DX=a b", "-c", "x.cu", "-w", "-O1"])
        self.assertEqual((changed["NVCC_PREPEND_FLAGS"], changed["NVCC_APPEND_FLAGS"]), ("", ""))

    def test_the_host_compiler_is_no_wrapper(self):
        with tempfile.TemporaryDirectory() as folder:
            real = os.path.join(folder, "g++")
            with open(real, "w") as file:
                file.write("#!/bin/sh\n")
            os.chmod(real, 0o755)
            path = os.pathsep.join(["/c/bin/", folder])
            for asked, expected in [
                ("-ccbin /c/bin/g++ -c x.cu", "-ccbin %s -c x.cu" % real),
                ("--compiler-bindir=/c/bin/g++ -c x.cu", "--compiler-bindir=%s -c x.cu" % real),
                ("-ccbin=/usr/bin/g++-12 -c x.cu", "-ccbin=/usr/bin/g++-12 -c x.cu"),
                ("-ccbin /c/bin/absent -c x.cu", "-ccbin /c/bin/absent -c x.cu"),
                ("-ccbin /c/bin/ -c x.cu", "-ccbin %s -c x.cu" % real),
                ("-ccbin g++ -c x.cu", "-ccbin g++ -c x.cu"),
                ("-o -ccbin -c x.cu", "-o -ccbin -c x.cu"),
            ]:
                with self.subTest(asked):
                    command, changed = self.through(asked, PATH=path)
                    self.assertEqual(command[2:], expected.split())
                    self.assertEqual(changed["PATH"], "/c/as:" + folder)
            _, changed = self.through("-c x.cu", PATH=path, NVCC_CCBIN="/c/bin/g++")
            self.assertEqual(changed["NVCC_CCBIN"], real)

    def test_another_process_can_read_changed_response_files(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch("tempfile.tempdir", folder):
            path = nvcc_filter.in_a_file("-O3 \udcff")
            self.assertEqual(path, nvcc_filter.in_a_file("-O3 \udcff"))
            self.assertNotEqual(path, nvcc_filter.in_a_file("-O2"))
            with open(path, "rb") as file:
                self.assertEqual(file.read(), b"-O3 \xff")


class ResponseFiles(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.written = []

    def file(self, name, content):
        path = os.path.join(self.directory.name, name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def rewrite(self, asked, targets="90"):
        def write(text):
            self.written.append(text.encode("utf-8", "surrogateescape"))
            return "new%d" % len(self.written)

        return nvcc_filter.rewrite(asked, {}, nvcc_filter.parse_targets(targets), write)[0]

    def test_contents(self):
        g90 = G90.encode()
        table = [
            (b"-c -arch=sm_80 x.cu", b"-c " + g90 + b" x.cu"),
            (b"-c\n\t-arch\r\nsm_80\r\nx.cu\r\n", b"-c\n\t" + g90 + b"\r\n\r\nx.cu\r\n"),
            (b'-c "-gencode" "arch=compute_80,code=[sm_80,compute_80]" x.cu', b"-c " + g90 + b"  x.cu"),
            (b'-DX="-arch=sm_80 y" -arch=sm_80 -c x.cu', b'-DX="-arch=sm_80 y" ' + g90 + b" -c x.cu"),
            (b"-DX=a\\ -arch=sm_80 -arch=sm_80 -c x.cu", b"-DX=a\\ -arch=sm_80 " + g90 + b" -c x.cu"),
            (b"-DX=\xff -arch=sm_80 -c x.cu", b"-DX=\xff " + g90 + b" -c x.cu"),
            (b"-c x.cu '-arch=sm_80'", None),  # nvcc does not know single quotes
            (b"-c x.cpp", None),
        ]
        for content, expected in table:
            with self.subTest(content):
                self.written.clear()
                path = self.file("flags.rsp", content)
                given = self.rewrite(["-optf", path])
                if expected is None:
                    self.assertEqual(self.written, [])
                    self.assertEqual(given[-2:], ["-optf", path])
                else:
                    self.assertEqual(self.written, [expected])
                    self.assertEqual(given, ["-optf", "new1"])

    def test_only_the_changed_file_of_a_list_is_replaced(self):
        one, two = self.file("one", b"-DX"), self.file("two", b"-arch=sm_80")
        given = self.rewrite(["-c", "--options-file=%s,%s" % (one, two), "x.cu"])
        self.assertEqual(given, ["-c", "--options-file=%s,new1" % one, "x.cu"])

    def test_both_files_of_a_list(self):
        one, two = self.file("one", b"-arch=sm_75"), self.file("two", b"-gencode=arch=compute_80,code=sm_80 -w")
        given = self.rewrite(["-c", "-optf", "%s,%s" % (one, two), "x.cu"])
        self.assertEqual(given, ["-c", "-optf", "new1,new2", "x.cu"])
        self.assertEqual(self.written, [G90.encode(), b" -w"])

    def test_nested(self):
        inner = self.file("inner", b"-arch=sm_80")
        outer = self.file("outer", b"-c -optf " + inner.encode() + b" -w")
        self.assertEqual(self.rewrite(["x.cu", "-optf", outer]), ["x.cu", "-optf", "new2"])
        self.assertEqual(self.written, [G90.encode(), b"-c -optf new1 -w"])

    def test_a_file_that_names_itself(self):
        path = os.path.join(self.directory.name, "self")
        self.file("self", b"-arch=sm_80 -optf " + path.encode())
        self.assertEqual(self.rewrite(["x.cu", "-optf", path]), ["x.cu", "-optf", path])

    def test_input_in_a_file(self):
        path = self.file("flags", b"-c x.cu")
        self.assertEqual(self.rewrite(["-optf", path]), [G90, "-optf", path])


class Program(unittest.TestCase):
    """The file as a build runs it, before a compiler that prints what it got."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.compiler = self.script("nvcc", 'for a; do echo "$a"; done; while [ "$1" ]; do [ "$1" = -optf ] && cat "$2"; shift; done; exit 7')

    def script(self, name, body):
        path = os.path.join(self.directory, name)
        with open(path, "w") as file:
            file.write("#!/bin/sh\n" + body + "\n")
        os.chmod(path, stat.S_IRWXU)
        return path

    def run_filter(self, *arguments, **environment):
        environment = dict({"PATH": os.environ["PATH"], "STACKFORGE_NVCC": self.compiler, "STACKFORGE_SMS": "90;110"}, **environment)
        return subprocess.run(
            [sys.executable, FILTER] + list(arguments), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True
        )

    def test_arguments_and_exit_status_pass(self):
        result = self.run_filter("-c", "-arch=sm_80", "x y.cu")
        self.assertEqual((result.returncode, result.stdout.splitlines()), (7, ["-c", G90, G110, "x y.cu"]))

    def test_response_file_is_readable_by_the_compiler(self):
        path = os.path.join(self.directory, "flags")
        with open(path, "w") as file:
            file.write("-arch=sm_80 -w\n")
        result = self.run_filter("-c", "x.cu", "-optf", path)
        self.assertEqual(result.stdout.splitlines()[-1], BOTH + " -w")
        with open(path) as file:
            self.assertEqual(file.read(), "-arch=sm_80 -w\n")

    def test_signal_passes(self):
        result = self.run_filter("-c", "x.cu", STACKFORGE_NVCC=self.script("killed", "kill -TERM $$"))
        self.assertEqual(result.returncode, -signal.SIGTERM)

    def test_log(self):
        log = os.path.join(self.directory, "log")
        self.run_filter("-c", "-arch=sm_80", "x.cu", STACKFORGE_NVCC_LOG=log)
        self.run_filter("--version", STACKFORGE_NVCC_LOG=log)
        self.run_filter("-c", "y.cu", STACKFORGE_NVCC_LOG=log)
        with open(log) as file:
            records = [json.loads(line) for line in file]
        self.assertEqual(
            records,
            [
                {"asked": ["-arch=sm_80"], "given": [G90, G110], "inputs": ["x.cu"]},
                {"asked": [], "given": [G90, G110], "inputs": ["y.cu"]},
            ],
        )

    def test_wrong_environment(self):
        for environment in ({"STACKFORGE_SMS": ""}, {"STACKFORGE_SMS": "9.0"}, {"STACKFORGE_NVCC": ""}, {"STACKFORGE_NVCC": "/nonexistent/nvcc"}):
            with self.subTest(environment):
                result = self.run_filter("-c", "x.cu", **environment)
                self.assertEqual(result.returncode, 1)
                self.assertIn("nvcc filter: ", result.stderr)
                self.assertNotIn("Traceback", result.stderr)


if __name__ == "__main__":
    unittest.main()

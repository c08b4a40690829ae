"""The validation programs, run as the image runs them, against packages made on the spot.

    python3 -m unittest tests/validate_programs_test.py
"""

import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import zipfile
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "templates" / "validate" / "validate.py"
FIXTURE = ROOT / "tests" / "fixtures" / "validation-h200.json"
sys.dont_write_bytecode = True
sys.path.insert(0, str(PROGRAM.parent))

accuracy, attention, compilers, coverage, failure, imports, machine, options, report, spec, versions, vllm_smoke = (
    importlib.import_module("sfvalidate." + name)
    for name in ("accuracy", "attention", "compilers", "coverage", "failure", "imports", "machine", "options", "report", "spec",
                 "versions", "vllm_smoke"))

NO_GPU = {"gpu": None, "no_gpu": "no GPU: a test says so", "machine": "x86_64"}


class Validation(unittest.TestCase):
    """A folder that stands for site-packages, and the program run on it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.site = self.folder / "lib" / "site"
        self.site.mkdir(parents=True)

    def install(self, name, version="1.0", modules=None, extra=None, record=True):
        """A distribution of modules {"pkg/__init__.py": source} with its metadata."""
        information = self.site / "{}-{}.dist-info".format(name, version)
        files = dict({"{}/__init__.py".format(name): ""} if modules is None else modules)
        files.update({"{}/{}".format(information.name, key): text for key, text in (extra or {}).items()})
        files[information.name + "/METADATA"] = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n".format(name, version)
        for path, source in files.items():
            (self.site / path).parent.mkdir(parents=True, exist_ok=True)
            (self.site / path).write_text(textwrap.dedent(source))
        if record:
            (information / "RECORD").write_text("".join(path + ",,\n" for path in files))

    def stack(self, *libraries, **more):
        document = dict({"schema": 1, "stack": "test", "cuda": None, "sm": [], "checks": ["imports"],
                         "libraries": list(libraries)}, **more)
        path = self.folder / "spec.json"
        path.write_text(json.dumps(document))
        return path

    def command(self, spec_path, out):
        return [sys.executable, str(PROGRAM), "--spec", str(spec_path), "--out", str(out)]

    def environment(self, **more):
        return dict(os.environ, PYTHONPATH=str(self.site), **more)

    def validate(self, spec_path, **environment):
        """(exit code, report, stderr)."""
        out = self.folder / "report.json"
        done = subprocess.run(self.command(spec_path, out), env=self.environment(**environment), timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(done.stdout, "")
        document = json.loads(out.read_text())
        self.assertEqual(done.returncode, 0 if document["ok"] else 1)
        for check in document["checks"]:
            for entry in [check] + check["results"]:
                self.assertTrue(entry["status"] == "passed" or entry.get("reason"), entry)
        return done.returncode, document, done.stderr

    def only_result(self, name="thing", imports=("thing",), version="1.0", **more):
        """The result of a stack of that one library."""
        library = {"name": name, "distribution": name, "version": version, "imports": list(imports)}
        _, document, _ = self.validate(self.stack(library, **more))
        return document["checks"][0]["results"][0]



LOCKED = ROOT / "templates" / "validate" / "locked.py"


class Locked(unittest.TestCase):
    """The comparison of an image with its lock, on an environment made on the spot."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.sites = self.folder / "site-packages"
        self.install("six", "1.17.0", "six.py,sha256=aa,3\n")
        self.install("Jinja2", "3.1.0", "jinja2/__init__.py,sha256=bb,3\nJinja2-3.1.0.dist-info/INSTALLER,sha256=u,2\n")
        self.write("installed.txt", "jinja2==3.1\nsix==1.17.0\n")
        self.spec({"schema": 1, "stack": "t", "libraries": [{"name": "six", "version": "1.17.0"}]})
        self.report("1.17.0")

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def install(self, name, version, record):
        self.write("site-packages/{}-{}.dist-info/RECORD".format(name, version), record)

    def spec(self, document):
        self.write("spec.json", json.dumps(document))

    def report(self, version, **more):
        digest = "sha256:" + hashlib.sha256((self.folder / "spec.json").read_bytes()).hexdigest()
        results = [{"name": "six", "status": "passed", "version": version}]
        check = {"name": "imports", "status": "passed", "results": results}
        self.write("report.json", json.dumps(dict({"schema": 1, "spec": digest, "ok": True, "checks": [check]}, **more)))

    def wheel(self, library, name, record):
        path = self.folder / "wheels" / library / (name + "-py3-none-any.whl")
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name + ".dist-info/RECORD", record)

    def differences(self):
        """The lines that it prints, run as a Dockerfile runs it, but for where the environment is."""
        names = [str(self.folder / name) for name in ("installed.txt", "spec.json", "report.json", "wheels")]
        program = ("import importlib.util, sys; s = importlib.util.spec_from_file_location('locked', {!r}); "
                   "m = importlib.util.module_from_spec(s); s.loader.exec_module(m); "
                   "sys.exit(m.main(*sys.argv[1:], sites={!r}))").format(str(LOCKED), str(self.sites))
        done = subprocess.run([sys.executable, "-I", "-S", "-B", "-c", program] + names, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(done.stderr, "")
        mark = "stackforge-difference "
        lines = done.stdout.splitlines()
        self.assertTrue(all(line.startswith(mark) for line in lines), lines)
        self.assertEqual(done.returncode, 1 if lines else 0)
        return [line[len(mark):] for line in lines]

    def test_what_is_locked_is_fine(self):
        self.wheel("six", "six-1.17.0", "six.py,sha256=aa,3\nx.data/y,sha256=q,1\nsix-1.17.0.dist-info/RECORD,,\n")
        # An installer's own files are its own.
        self.wheel("jinja2", "Jinja2-3.1.0", "Jinja2-3.1.0.dist-info/INSTALLER,sha256=p,2\n")
        # What a package brings for itself is not installed.
        self.write("site-packages/pkg/_vendor/x-1.dist-info/RECORD", "")
        self.assertEqual(self.differences(), [])

    def test_other_versions(self):
        self.write("installed.txt", "six==1.16.0\ntorch==2.9.1+cu130\n")
        self.install("torch", "2.9.1+cu129", "")
        self.assertEqual(self.differences(), [
            "jinja2 3.1.0 is installed and not locked",
            "six 1.17.0 is installed, 1.16.0 is locked",
            "torch 2.9.1+cu129 is installed, 2.9.1+cu130 is locked",
        ])
        self.write("installed.txt", "six==1.17.0\njinja2==3.1\ntorch==2.9.1\nnumpy==2\n")
        self.assertEqual(self.differences(), ["numpy 2 is not installed"])

    def test_a_report_of_another_build(self):
        self.report("1.16.0")
        self.assertEqual(self.differences(), ["six 1.16.0 was validated, 1.17.0 is locked"])
        self.report("1.17.0", ok=False)
        self.assertEqual(self.differences(), ["the report of the validation says that it failed"])
        for stale in ({"spec": "sha256:00"}, {"spec": None}):
            self.report("1.17.0", **stale)
            self.assertEqual(self.differences(), ["the report of the validation is of another spec.json"])

    def test_a_wheel_of_another_compile(self):
        self.wheel("six", "six-1.17.0", "six.py,sha256=other,3\n")
        self.assertEqual(self.differences(), ["`six.py` of six is not that of its wheel"])

    def test_a_file_of_two_distributions(self):
        self.install("Jinja2", "3.1.0", "six.py,sha256=evil,3\ntests/a.py,sha256=x,1\nLICENSE,sha256=x,1\n")
        self.install("six", "1.17.0", "six.py,sha256=aa,3\ntests/a.py,sha256=y,1\nLICENSE,sha256=y,1\n")
        self.assertEqual(self.differences(), ["`six.py` is a file of jinja2 and another one of six"])

    def test_a_namespace_of_two_distributions(self):
        self.install("Jinja2", "3.1.0", "azureml/__init__.py,sha256=x,3\n")
        self.install("six", "1.17.0", "azureml/__init__.py,sha256=y,3\n")
        folder = os.path.join(self.sites, "azureml")
        os.makedirs(folder)
        difference = ["`azureml/__init__.py` is a file of jinja2 and another one of six"]
        for text, expected in (
            ("# Copyright\n__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n", []),
            ("try:\n    import pkg_resources\n    pkg_resources.declare_namespace(__name__)\nexcept ImportError:\n"
             "    import pkgutil\n    __path__ = pkgutil.extend_path(__path__, __name__)\n", []),
            ("import evil\n__import__('pkg_resources').declare_namespace(__name__)\n", difference),
            ("", difference),
        ):
            with open(os.path.join(folder, "__init__.py"), "w", encoding="utf-8") as file:
                file.write(text)
            self.assertEqual(self.differences(), expected, text)
        self.install("Jinja2", "3.1.0", "six.py,sha256=aa,3\n")
        self.assertEqual(self.differences(), [])

    def test_a_distribution_that_no_installer_wrote(self):
        self.write("site-packages/torch-9.0.dist-info/METADATA", "Name: torch\n")
        self.assertEqual(self.differences(), ["torch-9.0.dist-info was installed by no installer"])


class Imports(Validation):
    def test_passing_library(self):
        self.install("thing", "1.2.0+cu130", {"thing/__init__.py": "__version__ = '1.2'", "thing/deep.py": ""})
        code, document, progress = self.validate(self.stack(
            {"name": "thing", "distribution": "thing", "version": "1.2", "imports": ["thing", "thing.deep"]}))
        self.assertEqual((code, document["ok"], document["stack"]), (0, True, "test"))
        result = document["checks"][0]["results"][0]
        self.assertEqual(result["version"], "1.2.0+cu130")
        self.assertEqual([module["status"] for module in result["modules"]], ["passed", "passed"])
        self.assertEqual(progress, "imports: passed\n")

    def test_a_library_that_names_no_modules_is_imported_by_those_it_brings(self):
        self.install("my_thing", modules={
            "thing/__init__.py": "", "thing/deep.py": "raise SystemExit", "_fast.py": "", "single.py": "", "tests/__init__.py": "1/0",
            "data/table.txt": "", "space/part/__init__.py": "", "thing.libs/libx.so": "", "../../bin/run": "", "run-me.py": ""})
        result = self.only_result(name="my_thing", imports=())
        self.assertEqual([module["module"] for module in result["modules"]], ["single", "thing"])
        self.assertEqual(result["status"], "passed")

    def test_a_library_whose_files_are_gone_does_not_pass_by_its_metadata(self):
        self.install("thing", modules={"thing/__init__.py": "", "thing/a.py": ""})
        for path in (self.site / "thing").iterdir():
            path.unlink()
        (self.site / "thing").rmdir()
        result = self.only_result(imports=())
        self.assertEqual((result["status"], result["kind"]), ("failed", "missing-module"))

    def test_packages_of_a_namespace(self):
        self.install("thing", modules={
            "space/part/__init__.py": "", "space/part/deep/__init__.py": "1/0", "space/other/tests/__init__.py": "1/0",
            "space/core.cpython-39-x86_64-linux-gnu.so": "", "space/lib/libx.so.1": "", "space/lib/liby.so": "", "bin/tool.py": "1/0"})
        result = self.only_result(imports=())
        self.assertEqual([module["module"] for module in result["modules"]], ["space.core", "space.part"])

    def test_a_package_of_a_namespace_waits_for_what_the_distribution_does_not_require(self):
        self.install("thing", modules={"thing/part/__init__.py": "", "thing/other/__init__.py": "import absent_here.deep"})
        result = self.only_result(imports=())
        self.assertEqual([module["status"] for module in result["modules"]], ["not-run", "passed"])
        self.assertIn("it imports absent_here, which thing does not require", result["modules"][0]["reason"])
        self.assertEqual(result["status"], "passed")
        self.install("alone", modules={"alone/other/__init__.py": "import absent_here", "alone/more/__init__.py": "1/0"})
        self.assertEqual(self.only_result(name="alone", imports=())["status"], "failed")

    def test_packages_that_were_packed_twice(self):
        self.install("thing", modules={
            "thing/__init__.py": "", "thing/engine/__init__.py": "from .. import engine", "engine/__init__.py": "from .. import x",
            "data/__init__.py": "", "thing/thing/__init__.py": ""})
        result = self.only_result(imports=())
        self.assertEqual([module["module"] for module in result["modules"]], ["data", "thing"])
        self.assertEqual(result["status"], "passed")

    def test_only_private_or_compiled_modules(self):
        self.install("thing", modules={"_thing.py": "raise ValueError('it was imported')"})
        self.assertIn("it was imported", self.only_result(imports=())["reason"])
        self.install("other", modules={"other.cpython-311-x86_64-linux-gnu.so": "", "other.pyi": ""})
        self.assertEqual([m["module"] for m in self.only_result(name="other", imports=())["modules"]], ["other"])
        self.install("data", modules={"share/data/x.json": "{}"})
        self.assertEqual(self.only_result(name="data", imports=())["status"], "passed")

    def test_missing_submodule(self):
        self.install("thing", record=False)
        result = self.only_result(imports=["thing", "thing.absent"])
        self.assertEqual((result["status"], result["kind"]), ("failed", "missing-module"))
        self.assertEqual(result["modules"][1]["missing"], "thing.absent")
        self.assertIn("import thing.absent: No module named 'thing.absent'", result["reason"])

    def test_missing_library_is_found_behind_the_package_s_own_error(self):
        self.install("thing", modules={"thing/__init__.py": """
            def load():
                raise OSError("libcudart.so.12: cannot open shared object file: No such file or directory")
            try:
                load()
            except OSError as error:
                raise RuntimeError("thing does not work here") from error
            """})
        module = self.only_result()["modules"][0]
        self.assertEqual((module["kind"], module["library"]), ("missing-library", "libcudart.so.12"))
        self.assertEqual((module["exception"], module["message"]), ("RuntimeError", "thing does not work here"))
        self.assertTrue(module["frames"][-1].endswith("thing/__init__.py:3 in load"), module["frames"])

    def test_undefined_symbol(self):
        self.install("thing", modules={"thing/__init__.py": "raise ImportError('/x/_C.so: undefined symbol: _ZN3c105ErrorE')"})
        module = self.only_result()["modules"][0]
        self.assertEqual((module["kind"], module["symbol"]), ("undefined-symbol", "_ZN3c105ErrorE"))

    def test_driver_s_library_without_a_gpu_is_not_run(self):
        self.install("thing", modules={"thing/__init__.py": "raise ImportError('libnvidia-test.so.1: cannot open shared object file')"})
        with self.without_gpu():
            result = self.only_result()
        self.assertEqual(result["status"], "not-run")
        self.assertIn("libnvidia-test.so.1, which comes with a GPU's driver", result["reason"])

    def test_gpu_imports_wait_for_a_gpu(self):
        self.install("thing", modules={"thing/__init__.py": "", "thing/kernels.py": "raise RuntimeError('imported')"})
        with self.without_gpu():
            _, document, _ = self.validate(self.stack({"name": "thing", "imports": ["thing"], "gpu_imports": ["thing.kernels"]}))
        modules = document["checks"][0]["results"][0]["modules"]
        self.assertEqual([module["status"] for module in modules], ["passed", "not-run"])
        self.assertIn("no GPU", modules[1]["reason"])

    def test_editable_install_is_refused_before_it_is_imported(self):
        source = {"thing/__init__.py": "raise RuntimeError('imported')"}
        for mark in ({"direct_url.json": '{"url": "file:///src", "dir_info": {"editable": true}}'}, {"../__editable__.thing.pth": "/src"}):
            with self.subTest(mark=list(mark)):
                self.install("thing", modules=source, extra=mark)
                self.assertEqual(self.only_result()["kind"], "editable")

    def test_local_folder_that_is_not_editable_is_accepted(self):
        self.install("thing", extra={"direct_url.json": '{"url": "file:///src", "dir_info": {}}'})
        self.assertEqual(self.only_result()["status"], "passed")

    def test_another_version_than_the_stack_s(self):
        self.install("thing", "1.1")
        result = self.only_result()
        self.assertEqual((result["kind"], result["reason"]), ("version-mismatch", "1.1 is installed, the stack promises 1.0"))

    def test_missing_distribution(self):
        self.assertEqual(self.only_result()["kind"], "missing-distribution")

    def test_another_copy_that_shadows_the_installed_one(self):
        self.install("thing", "1.0", {"thing/__init__.py": ""}, record=True)
        shadow = self.folder / "shadow" / "thing"
        shadow.mkdir(parents=True)
        (shadow / "__init__.py").write_text("__version__ = '0.9'")
        library = {"name": "thing", "version": "1.0", "imports": ["thing"]}
        environment = dict(self.environment(), PYTHONPATH="{}:{}".format(shadow.parent, self.site))
        out = self.folder / "report.json"
        subprocess.run(self.command(self.stack(library), out), env=environment, stderr=subprocess.DEVNULL, timeout=120)
        result = json.loads(out.read_text())["checks"][0]["results"][0]
        self.assertEqual(result["kind"], "version-mismatch")
        self.assertIn("thing 0.9 is imported from", result["reason"])

    def test_a_backport_of_python_s_own_module_is_a_note(self):
        self.install("graphlib", "9.0", {"graphlib.py": "raise ImportError('of Python 2')"}, record=True)
        own = self.folder / "own"
        own.mkdir()
        (own / "graphlib.py").write_text("__version__ = '1.1'")
        library = {"name": "graphlib", "version": "9.0", "imports": ["graphlib"]}
        environment = dict(self.environment(), PYTHONPATH="{}:{}".format(own, self.site))
        out = self.folder / "report.json"
        subprocess.run(self.command(self.stack(library), out), env=environment, stderr=subprocess.DEVNULL, timeout=120)
        result = json.loads(out.read_text())["checks"][0]["results"][0]
        self.assertEqual(result["status"], "passed")
        self.assertEqual(result["note"], "Python has a module graphlib of its own, which is imported in its place")

    def test_a_module_that_asks_the_network_is_not_run(self):
        source = "import socket\ntry:\n    socket.getaddrinfo('nowhere.invalid', 443)\nexcept OSError:\n    raise RuntimeError('cannot fetch the vocabulary')"
        self.install("thing", modules={"thing/__init__.py": source})
        result = self.only_result()
        self.assertEqual(result["status"], "not-run")
        self.assertEqual(result["reason"], "it asks the network when it is imported, and there is none here: cannot fetch the vocabulary")

    def test_a_module_beside_the_own_one_may_want_what_is_not_required(self):
        beside = {"thing/__init__.py": "", "aside_thing/__init__.py": "import elsewhere.deep"}
        self.install("thing", modules=beside, record=True)
        result = self.only_result(imports=())
        statuses = {module["module"]: module["status"] for module in result["modules"]}
        self.assertEqual((result["status"], statuses), ("passed", {"thing": "passed", "aside_thing": "not-run"}))
        self.assertEqual(result["modules"][0]["reason"], "it imports elsewhere, which thing does not require")
        # Who names it wants it, and the own one has to be there.
        self.assertEqual(self.only_result(imports=("thing", "aside_thing"))["status"], "failed")
        self.install("other", modules={"thing/__init__.py": "", "aside_thing/__init__.py": "import elsewhere"}, record=True)
        self.assertEqual(self.only_result(name="other", imports=())["status"], "failed")
        self.install("part", modules={"part/__init__.py": "", "aside_part/__init__.py": "import part.gone"}, record=True)
        self.assertEqual(self.only_result(name="part", imports=())["status"], "failed")

    def test_modules_that_wait_do_not_fail_together(self):
        for name in ("one", "two"):
            self.install(name, modules={name + "/__init__.py": "", "aside_" + name + "/__init__.py": "import elsewhere"}, record=True)
        code, _, _ = self.validate(self.stack(*({"name": name} for name in ("one", "two"))))
        self.assertEqual(code, 0)

    def test_stale_version_in_the_distribution_s_own_module_is_a_note(self):
        self.install("thing", "1.0", {"thing/__init__.py": "__version__ = '0.9'"})
        result = self.only_result()
        self.assertEqual((result["status"], result["note"]), ("passed", "the module says 0.9, its distribution 1.0"))

    def test_libraries_that_only_import_apart(self):
        self.install("one", modules={"one/__init__.py": "import builtins; builtins.taken = True"})
        self.install("two", modules={"two/__init__.py": "import builtins\nif hasattr(builtins, 'taken'): raise ImportError('taken')"})
        code, document, _ = self.validate(self.stack(*({"name": name, "imports": [name]} for name in ("one", "two"))))
        results = {result["name"]: result for result in document["checks"][0]["results"]}
        self.assertEqual((results["one"]["status"], results["two"]["status"]), ("passed", "passed"))
        self.assertEqual(results["together"]["status"], "failed")
        self.assertIn("two imports alone", results["together"]["reason"])

    def test_nothing_beside_the_program_can_be_imported(self):
        self.install("thing", modules={"thing/__init__.py": "import validate"})
        self.assertEqual(self.only_result()["modules"][0]["missing"], "validate")

    @contextlib.contextmanager
    def without_gpu(self):
        """On a machine that has one, this test cannot show anything."""
        with contextlib.suppress(machine.DriverError):
            machine.gpu()
            self.skipTest("this machine has a GPU")
        yield


class Processes(Validation):
    def test_crash_names_its_signal_and_the_others_still_run(self):
        self.install("bad", modules={"bad/__init__.py": """
            import os, signal, sys
            print("about to fall", file=sys.stderr)
            os.kill(os.getpid(), signal.SIGSEGV)
            """})
        self.install("good")
        code, document, progress = self.validate(self.stack({"name": "bad", "imports": ["bad"]}, {"name": "good", "imports": ["good"]}))
        bad, good = document["checks"][0]["results"]
        self.assertEqual(code, 1)
        self.assertEqual((bad["kind"], bad["signal"]), ("signal", "SIGSEGV"))
        self.assertEqual(bad["reason"], "killed by SIGSEGV while importing bad")
        self.assertIn("about to fall", bad["output"])
        self.assertEqual(good["status"], "passed")
        self.assertIn("imports: failed: bad: killed by SIGSEGV", progress)

    def test_hang_ends_at_the_limit_and_shows_where(self):
        self.install("bad", modules={"bad/__init__.py": """
            import os, subprocess, sys, time
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
            open(os.environ["CHILD"], "w").write(str(child.pid))
            def wait_for_ever():
                time.sleep(300)
            wait_for_ever()
            """})
        self.install("good")
        note = self.folder / "child"
        _, document, _ = self.validate(self.stack(
            {"name": "bad", "imports": ["bad"]}, {"name": "good", "imports": ["good"]}, time_limit=2), CHILD=str(note))
        bad, good = document["checks"][0]["results"]
        self.assertEqual((bad["kind"], good["status"]), ("time-limit", "passed"))
        self.assertEqual(bad["reason"], "no sign of life for 2 s while importing bad")
        self.assertTrue(any("wait_for_ever" in line for line in bad["output"]), bad["output"])
        self.assertTrue(gone(int(note.read_text())), "what the hung process started is still there")

    def test_hang_after_the_last_result_fails_nothing(self):
        self.install("thing", modules={"thing/__init__.py": "import atexit, time\natexit.register(time.sleep, 300)"})
        start = time.monotonic()
        self.assertEqual(self.only_result()["status"], "passed")
        self.assertLess(time.monotonic() - start, 250)

    def test_exit_while_importing(self):
        self.install("polite", modules={"polite/__init__.py": "import sys; sys.exit(3)"})
        self.install("abrupt", modules={"abrupt/__init__.py": "import os; os._exit(3)"})
        _, document, _ = self.validate(self.stack(*({"name": name, "imports": [name]} for name in ("polite", "abrupt"))))
        polite, abrupt = document["checks"][0]["results"]
        self.assertEqual((polite["kind"], abrupt["kind"]), ("exit", "exit"))
        self.assertEqual(abrupt["reason"], "its process ended with exit code 3 while importing abrupt")

    def test_stopped_from_outside_still_reports(self):
        self.install("slow", modules={"slow/__init__.py": "import os, time; open(os.environ['HERE'], 'w'); time.sleep(300)"})
        out, here = self.folder / "report.json", self.folder / "here"
        process = subprocess.Popen(self.command(self.stack({"name": "slow", "imports": ["slow"]}, checks=["imports", "cuda"]), out),
                                   env=self.environment(HERE=str(here)), stderr=subprocess.DEVNULL)
        while not here.exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 1)
        checks = {check["name"]: check for check in json.loads(out.read_text())["checks"]}
        self.assertEqual((checks["imports"]["status"], checks["cuda"]["status"]), ("not-run", "not-run"))
        self.assertEqual(checks["validate"]["reason"], "ended by SIGTERM")

    def test_two_runs_write_the_same_report(self):
        self.install("thing")
        path = self.stack({"name": "thing", "imports": ["thing", "absent"]}, cuda="13.0", sm=["90"], checks=list(spec.CHECKS))
        self.assertEqual(unmeasured(self.validate(path)[1]), unmeasured(self.validate(path)[1]))


class Programs(Validation):
    """What a library's own program leaves behind, with stand-ins for the libraries."""

    def test_a_compiler_that_fails_is_named_with_what_it_said(self):
        self.install("thing", modules={"thing/__init__.py": """
            import subprocess, sys
            subprocess.check_call([sys.executable, "-c", "import sys; sys.exit('fatal error: Python.h: No such file')"])
            """})
        code, document, _ = self.validate(self.stack({"name": "thing", "imports": ["thing"]}))
        result = document["checks"][0]["results"][0]
        self.assertEqual((code, result["output"]), (1, ["fatal error: Python.h: No such file"]))
        error = subprocess.CalledProcessError(1, ["gcc", "a.c"])
        self.assertEqual(failure.summary(error), "CalledProcessError: `gcc` ended with exit code 1")
        wrapper = RuntimeError("compiling failed")
        wrapper.inner_exception = error
        self.assertEqual(failure.summary(wrapper), "RuntimeError: `gcc` ended with exit code 1")

    def test_a_reason_is_the_line_that_matters(self):
        for text, line in (("CUDA error: x\nFor debugging consider\n", "CUDA error: x"), ("because of:\n\nNo module\nmore", "because of: No module"), ("", "")):
            self.assertEqual(failure.headline(text), line)

    def test_units_after_a_failed_one_run_in_a_new_process(self):
        self.install("torch", "2.13.0", {
            "torch/__init__.py": """
                from torch import version
                __version__ = "2.13.0"
                class _C:
                    calls = 0
                    def _cuda_getArchFlags():
                        _C.calls += 1
                        return "sm_90" if _C.calls == 1 else "sm_0"
                """,
            "torch/version.py": "__version__ = '2.13.0'\ncuda = '13.0'"})
        _, document, _ = self.validate(self.stack(cuda="13.0", sm=["75", "90"], checks=["cuda"]))
        statuses = [result["status"] for result in document["checks"][0]["results"]]
        self.assertEqual(statuses[:3], ["passed", "failed", "passed"])

    def test_one_backend_alone_in_each_torch(self):
        # torch.nn.attention came with 2.3; before, flags chose.
        old = mock.MagicMock(__version__="2.0.1")
        with mock.patch.dict(sys.modules, {"torch.nn.attention": None}):
            attention.backend_alone(old, "FLASH_ATTENTION")()
            with self.assertRaisesRegex(attention.Unavailable, "torch 2.0.1 has no such backend"):
                attention.backend_alone(old, "CUDNN_ATTENTION")
        old.backends.cuda.sdp_kernel.assert_called_once_with(
            enable_math=False, enable_flash=True, enable_mem_efficient=False)
        new = mock.MagicMock()
        with mock.patch.dict(sys.modules, {"torch": mock.MagicMock(), "torch.nn": mock.MagicMock(), "torch.nn.attention": new}):
            attention.backend_alone(mock.MagicMock(__version__="2.13.0"), "MATH")()
        new.sdpa_kernel.assert_called_once_with(new.SDPBackend.MATH)

    def test_a_torch_without_attention_of_its_own_is_not_asked(self):
        torch = mock.MagicMock(__version__="1.13.1")
        del torch.nn.functional.scaled_dot_product_attention
        with self.assertRaisesRegex(attention.Unavailable, "came with 2.0"):
            attention.sdpa(torch, "MATH", False)

    def test_vllm_s_generation(self):
        for length, status in ((vllm_smoke.NEW_TOKENS, "passed"), (1, "failed")):
            with self.subTest(length=length), tempfile.TemporaryDirectory() as scratch, changed(TMPDIR=scratch), \
                    mock.patch.dict(sys.modules, {"torch": torch_with_memory(), "vllm": vllm_that_gives(length)}), \
                    mock.patch.dict(os.environ):
                result = vllm_smoke.run("generate", mock.Mock())
                config = json.loads((pathlib.Path(scratch) / "model" / "config.json").read_text())
                arguments = sys.modules["vllm"].LLM.call_args[1]
            self.assertEqual(result["status"], status, result)
            self.assertEqual(config["architectures"], ["LlamaForCausalLM"])
            self.assertEqual((arguments["load_format"], arguments["skip_tokenizer_init"]), ("dummy", True))
            self.assertEqual("timing" in result, status == "passed")


class Options(unittest.TestCase):
    """Parts of a library that were compiled or left out, with stand-ins for their probes."""

    def run_part(self, compiled, *probes):
        library = {"name": "lib", "options": [{"option": "heads", "kept": ["a"], "left_out": ["b"]}]}
        document = spec.check({"schema": 1, "stack": "s", "libraries": [library]})
        job = mock.Mock()
        job.spec = document
        with mock.patch.dict(options.PROBES, {"lib": {"heads": (lambda _, part, __: part, probes)}}), \
                mock.patch.dict(options.REFUSALS, {"lib": "This build does not support"}), \
                mock.patch.dict(sys.modules, {"torch": mock.MagicMock()}):
            self.assertEqual(options.units(document, {}), ["lib heads a", "lib heads b"])
            return options.run("lib heads " + ("a" if compiled else "b"), job)

    def test_what_was_compiled_has_to_be_right(self):
        self.assertEqual(self.run_part(True, lambda *_: None), {"name": "lib heads a", "status": "passed", "compiled": True})
        wrong = self.run_part(True, self.differs)
        self.assertEqual((wrong["status"], wrong["kind"], wrong["reason"]), ("failed", "wrong-result", "differs: by 1"))
        with self.assertRaisesRegex(RuntimeError, "does not support a"):
            self.run_part(True, self.refuses)

    @staticmethod
    def differs(case):
        return "by 1"

    @staticmethod
    def refuses(case):
        raise RuntimeError("This build does not support {}.".format(case))

    def test_each_function_of_a_library_is_tried(self):
        tried = []
        right = lambda case: tried.append(case)
        self.assertEqual(self.run_part(True, right, right)["status"], "passed")
        self.assertEqual(tried, ["a", "a"])
        self.assertEqual(self.run_part(True, right, self.differs)["reason"], "differs: by 1")
        result = self.run_part(False, self.refuses, right)
        self.assertEqual((result["status"], result["kind"], result.get("refused")), ("failed", "wrong-result", None))

    def test_what_was_left_out_has_to_refuse(self):
        refused = self.run_part(False, self.refuses)
        self.assertEqual((refused["status"], refused["refused"]), ("passed", "This build does not support b."))
        result = self.run_part(False, lambda *_: None)
        self.assertEqual((result["status"], result["kind"]), ("failed", "wrong-result"))

        def other(*_):
            raise RuntimeError("Softcapping does not support dropout")

        with self.assertRaisesRegex(RuntimeError, "Softcapping"):
            self.run_part(False, other)

    def test_each_library_with_probes_says_how_it_refuses(self):
        self.assertEqual(set(options.PROBES), set(options.REFUSALS))

    def test_a_library_whose_parts_nobody_can_try_has_no_units(self):
        document = {"libraries": [{"name": "other", "options": {"heads": {"a": True}}}]}
        self.assertEqual(options.units(document, {}), [])
        self.assertEqual(options.obstacle({}, NO_GPU), ("not-run", NO_GPU["no_gpu"]))

    def test_a_spec_without_sound_options_is_refused(self):
        for options_of in ("x", [{}], [{"option": "a", "kept": "b"}]):
            with self.assertRaises(spec.SpecError):
                spec.check({"schema": 1, "stack": "s", "libraries": [{"name": "l", "options": options_of}]})


class Reports(Validation):
    def test_report_is_written_for_a_spec_that_is_none(self):
        broken = self.folder / "broken.json"
        for text, words in (("{", "cannot read the spec"), ("[]", "not a JSON object"), ('{"schema": 2}', "schema 1"),
                            ("[" * 100000, "cannot read the spec")):
            broken.write_text(text)
            code, document, _ = self.validate(broken)
            self.assertEqual((code, document["checks"][0]["name"]), (1, "spec"))
            self.assertIn(words, document["checks"][0]["reason"])

    def test_report_on_stdout(self):
        self.install("thing")
        done = subprocess.run(self.command(self.stack({"name": "thing", "imports": ["thing"]}), "-"), env=self.environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120)
        self.assertTrue(json.loads(done.stdout)["ok"])

    def test_every_check_says_something_where_torch_is_absent(self):
        if importlib.util.find_spec("torch"):
            self.skipTest("this Python has torch")
        _, document, _ = self.validate(self.stack({"name": "torch", "version": "2.13.0", "imports": ["torch"]},
                                                  cuda="13.0", sm=["90"], checks=list(spec.CHECKS)))
        checks = {check["name"]: check for check in document["checks"]}
        self.assertEqual(list(checks), list(spec.CHECKS))
        self.assertEqual(checks["imports"]["reason"], "torch: torch is not installed")
        self.assertIn("No module named 'torch'", checks["cuda"]["reason"])
        self.assertEqual((checks["attention"]["status"], checks["attention"]["reason"]), ("failed", "torch is not installed"))

    def test_required_gpu_that_is_not_there(self):
        with contextlib.suppress(machine.DriverError):
            machine.gpu()
            self.skipTest("this machine has a GPU")
        code, document, _ = self.validate(self.stack(checks=[], require_gpu=True))
        self.assertEqual((code, document["checks"][0]["name"]), (1, "gpu"))
        self.assertIn("no GPU", document["checks"][0]["reason"])

    def test_cpu_only_torch_for_a_cuda_stack(self):
        self.install("torch", "2.13.0", {"torch/__init__.py": "from torch import version\n__version__ = '2.13.0+cpu'",
                                         "torch/version.py": "__version__ = '2.13.0+cpu'\ncuda = None"})
        code, document, _ = self.validate(self.stack(cuda="13.0", sm=["90"], checks=["cuda"]))
        self.assertEqual((code, document["device"]["torch"], document["device"]["cuda"]), (1, "2.13.0+cpu", None))
        build = document["checks"][0]["results"][0]
        self.assertEqual((build["kind"], build["reason"]),
                         ("cpu-only", "torch 2.13.0+cpu is built without CUDA, the stack is for CUDA 13.0"))

    def test_torch_that_serves_some_of_the_gpus(self):
        self.install("torch", "2.13.0", {
            "torch/__init__.py": """
                from torch import version
                __version__ = "2.13.0"
                class _C:
                    def _cuda_getArchFlags():
                        return "sm_80 sm_90 compute_90"
                """,
            "torch/version.py": "__version__ = '2.13.0'\ncuda = '12.8'"})
        _, document, _ = self.validate(self.stack(cuda="12.9", sm=["75", "86", "100"], checks=["cuda"]))
        results = {result["name"]: result for result in document["checks"][0]["results"]}
        self.assertIn("note", results["build"])
        self.assertEqual((results["sm_75"]["status"], results["sm_75"]["kind"]), ("failed", "no-device-code"))
        self.assertEqual((results["sm_86"]["served_by"], results["sm_100"]["served_by"]), ("sm_80", "compute_90"))


class Rules(unittest.TestCase):
    def test_coverage(self):
        for sm, arch_list, cuda, expected in (
            ("90", ["sm_80", "sm_90"], (13, 0), "sm_90"),
            ("89", ["sm_80", "sm_86"], (13, 0), "sm_86"),
            ("86", ["sm_89"], (13, 0), None),
            ("90", ["sm_80"], (13, 0), None),
            ("90", ["compute_80"], (13, 0), "compute_80"),
            ("87", ["sm_80", "sm_86"], (12, 6), None),
            ("87", ["sm_80", "sm_86"], (13, 2), "sm_86"),
            ("87", ["sm_80", "compute_80"], (12, 6), "compute_80"),
            ("110", ["sm_100", "sm_120"], (13, 0), None),
            ("110", ["sm_101"], (13, 0), "sm_101"),
            ("100", ["sm_100a"], (13, 0), "sm_100a"),
            ("103", ["sm_100a"], (13, 0), None),
            ("103", ["sm_100f"], (13, 0), "sm_100f"),
            ("110", ["sm_100f"], (13, 0), None),
            ("100", ["compute_90a"], (13, 0), None),
            ("90a", ["sm_90a"], (13, 0), "sm_90a"),
        ):
            with self.subTest(sm=sm, arch_list=arch_list, cuda=cuda):
                self.assertEqual(coverage.covered_by(sm, arch_list, cuda), expected)

    def test_gpus_that_no_such_machine_has(self):
        self.assertIn("Jetson Thor", coverage.impossible("110", "x86_64"))
        self.assertIsNone(coverage.impossible("110", "aarch64"))
        self.assertIsNone(coverage.impossible("90", "x86_64"))

    def test_versions(self):
        for expected, installed in (("2.13.0", "2.13.0+cu130"), ("1.0", "1.0.0"), ("2.8.3.post2", "2.8.3-post2"), ("1.0rc1", "1.0.0.rc1"),
                                    ("0.1.1.post2209072238", "0.1.1-2209072238"), ("1.0.post1", "1.0r1"), ("1.0rc2", "1.0c2"),
                                    ("1.0a0", "1.0alpha"), ("1.0.post0", "1.0.post"), ("1.0.dev0", "1.0-dev"), ("1!1.0", "v1!1"),
                                    ("1.0+ubuntu.1", "1.0+Ubuntu-1"), ("2013b0", "2013b"), ("0.2.0.post1.dev3", "0.2-1dev3")):
            self.assertTrue(versions.same_version(expected, installed), (expected, installed))
        for expected, installed in (("2.13.0", "2.13.1"), ("2.13.0+cu130", "2.13.0+cu128"), ("1.0", "1.0.post1"), ("1.1", "1.10"),
                                    ("1.0", "1.0.1-1"), ("1.0", "1!1.0"), ("1.0a1", "1.0b1"), ("1.0.1", "1.0-1"), ("odd", "odder")):
            self.assertFalse(versions.same_version(expected, installed), (expected, installed))
        self.assertTrue(versions.related_version("4.10.0", "4.10.0.84"))
        self.assertFalse(versions.related_version("4.1", "4.10.0.84"))

    def test_kinds_of_loader_errors(self):
        for message, kind in (
            ("libc10.so: cannot open shared object file: No such file or directory", "missing-library"),
            ("a.so: undefined symbol: foo, version X", "undefined-symbol"),
            ("/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by a.so)", "symbol-version"),
            ("a.so: wrong ELF class: ELFCLASS32", "wrong-architecture"),
            ("a.so: cannot allocate memory in static TLS block", "static-tls"),
            ("cannot import name 'x' from 'y'", "error"),
        ):
            self.assertEqual(failure.classify(ImportError(message))["kind"], kind, message)

    def test_spec_says_what_is_wrong(self):
        good = {"schema": 1, "stack": "s"}
        self.assertEqual(spec.check(good)["attention"], spec.DEFAULT_ATTENTION)
        for change, words in (
            ({"cheks": []}, "unknown keys: cheks"), ({"checks": ["gpu"]}, "`checks` holds 'gpu'"), ({"sm": ["9.0"]}, "`sm` holds '9.0'"),
            ({"cuda": 13}, "`cuda` is 13"), ({"attention": {"batch": 0}}, "attention.batch"), ({"time_limit": 0}, "time_limit"),
            ({"libraries": [{"name": "a", "imports": ["a; b"]}]}, "not a module's name"), ({"stack": ""}, "`stack` is missing"),
            ({"libraries": [{"name": "a"}, {"name": "a"}]}, "twice"), ({"require_gpu": 1}, "require_gpu"),
        ):
            with self.subTest(change=change), self.assertRaises(spec.SpecError) as caught:
                spec.check(dict(good, **change))
            self.assertIn(words, str(caught.exception))

    def test_conclusions(self):
        def of(*statuses):
            return report.conclusion([{"name": "n", "status": status, "reason": "r"} for status in statuses])[0]

        self.assertEqual(of("passed", "unavailable"), "passed")
        self.assertEqual(of("passed", "failed"), "failed")
        self.assertEqual(of("not-run", "unavailable"), "not-run")
        self.assertEqual(report.conclusion([])[0], "not-run")
        same = [{"name": name, "status": "failed", "reason": "r"} for name in "ab"]
        self.assertEqual(report.conclusion(same), ("failed", "a, b: r"))

    def test_missing_compilers_are_named(self):
        with tempfile.TemporaryDirectory() as empty, changed(PATH=empty, CC="", CXX=""):
            self.assertIn("no C compiler", compilers.missing_c())
            self.assertIn("no C++ compiler", compilers.missing_cxx())


class MeasuredReport(unittest.TestCase):
    """The report of a real GPU keeps the form that this program writes."""

    def setUp(self):
        self.document = json.loads(FIXTURE.read_text())
        self.checks = {check["name"]: check for check in self.document["checks"]}

    def test_says_where_it_was_measured(self):
        self.assertIn("NVIDIA H200", self.document["note"])
        self.assertEqual((self.document["device"]["gpu"], self.document["device"]["sm"]), ("NVIDIA H200", "9.0"))

    def test_figures_follow_from_each_other(self):
        shape = self.checks["attention"]["shape"]
        operations = 4 * shape["batch"] * shape["heads"] * shape["seq"] ** 2 * shape["head_dim"]
        timed = [result for result in self.checks["attention"]["results"] if result["status"] == "passed"]
        self.assertGreaterEqual(len(timed), 5)
        for result in timed:
            self.assertAlmostEqual(result["timing"]["tflops"] * result["timing"]["median_ms"] * 1e9 / operations, 1, places=2)
            self.assertLess(result["accuracy"]["max_abs_error"], accuracy.LARGEST[shape["dtype"]])

    def test_every_entry_has_a_status_and_a_reason(self):
        self.assertTrue(self.document["ok"])
        for check in self.document["checks"]:
            for entry in [check] + check["results"]:
                self.assertIn(entry["status"], ("passed", "not-run", "unavailable"))
                self.assertTrue(entry["status"] == "passed" or entry["reason"])


@contextlib.contextmanager
def changed(**variables):
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def unmeasured(document):
    """The report without what differs from run to run (a Python with torch measures here)."""
    if isinstance(document, dict):
        return {key: unmeasured(value) for key, value in document.items() if key not in ("timing", "accuracy")}
    return [unmeasured(value) for value in document] if isinstance(document, list) else document


def torch_with_memory():
    torch = mock.Mock()
    torch.cuda.get_device_properties.return_value.total_memory = 64 << 30
    return torch


def vllm_that_gives(length):
    """A vllm whose every answer has that many tokens."""
    vllm = mock.Mock()
    vllm.LLM.return_value.generate.side_effect = lambda prompts, sampling, use_tqdm: [
        mock.Mock(outputs=[mock.Mock(token_ids=[5] * length)]) for _ in prompts]
    return vllm


def gone(process):
    """Whether it ends within a moment (a zombie that nobody reaps has ended)."""
    for _ in range(200):
        try:
            with open("/proc/{}/stat".format(process)) as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


if __name__ == "__main__":
    unittest.main()

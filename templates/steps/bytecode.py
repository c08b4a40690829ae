"""Writes byte code (PEP 552, not checked against its source) beside installed Python files.

Usage: bytecode.py [environment] [system]: of all files of the image's environment; of those of this Python's own
library, and of OS packages, that have none yet. Runs none of them. What does not compile, such as a template in old Python, has no byte code, as after
`compileall`; it is said at the end. A file whose compiler is killed by it is left out alone. For each core there
is a process. The paths in the code are those of the image.
"""

import glob
import importlib.util
import os
import py_compile
import signal
import sys
import warnings

ENVIRONMENT = "/opt/venv/lib/python*/site-packages"
SYSTEM = (os.path.dirname(os.__file__), "/usr/lib/python3")
LARGEST = 16 << 20  # bytes of a source; the compiler needs a hundred times as much


def below(root):
    for folder, _, files in os.walk(root):
        paths = (os.path.join(folder, file) for file in files if file.endswith(".py"))
        yield from (path for path in paths if os.path.isfile(path) and os.path.getsize(path) <= LARGEST)


def has_code(path):
    return os.path.exists(importlib.util.cache_from_source(path, optimization=""))


def sources(of):
    found = set()
    if "environment" in of:
        found.update(path for root in glob.glob(ENVIRONMENT) for path in below(root))
    if "system" in of:
        found.update(path for root in SYSTEM for path in below(root) if not has_code(path))
    return sorted(found)


def compiled(path):
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    try:
        py_compile.compile(path, doraise=True, optimize=0, invalidation_mode=mode)
    except OSError:
        raise  # the image cannot be written
    except Exception:
        return False
    return True


def start(numbers, paths, done):
    """Start a process that compiles the files of these numbers. It writes a line for each."""
    child = os.fork()
    if child:
        return child
    try:
        for number in numbers:
            word = "+" if compiled(paths[number]) else "-"
            os.write(done, "{}{}\n".format(word, number).encode())
    except BaseException as error:
        print("{}: {}".format(paths[number], error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def run(batches, paths):
    """Compile batches at once; returns which numbers did and did not compile, and those of killed processes."""
    reading, writing = os.pipe()
    children = {start(batch, paths, writing): batch for batch in batches}
    os.close(writing)
    with os.fdopen(reading, "rb") as lines:
        results = [line.decode().strip() for line in lines]
    made = {int(line[1:]) for line in results if line[0] == "+"}
    refused = {int(line[1:]) for line in results if line[0] == "-"}
    left = []
    for child, batch in children.items():
        status = os.waitpid(child, 0)[1]
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            sys.exit(1)
        if os.WIFSIGNALED(status):
            if os.WTERMSIG(status) == signal.SIGKILL:
                sys.exit("a process was killed: is there too little memory?")
            left += [number for number in batch if number not in made and number not in refused]
    return made, refused, left


def main():
    warnings.simplefilter("ignore")
    paths = sources(sys.argv[1:])
    cores = len(os.sched_getaffinity(0)) or 1
    made, refused, left = run([range(core, len(paths), cores) for core in range(cores)], paths)
    for number in left:
        one, none, dead = run([[number]], paths)
        made |= one
        refused |= none | set(dead)
    for number in sorted(refused):
        print("no byte code: {} does not compile".format(paths[number]))
    print("byte code of {} of {} files".format(len(made), len(paths)), flush=True)


main()

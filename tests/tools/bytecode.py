"""Judge normal forms of byte code by the interpreter itself.

    bytecode.py tag                  version of this Python, if the normal form knows it
    bytecode.py compile FOLDER SEED DAY  byte code of the standard library and of what is installed, in an order by
                                         SEED; of the library's own tests, most of it, the quarter whose turn DAY is
    bytecode.py compare FOLDER OTHER     the same code in each file
"""

import marshal
import os
import py_compile
import random
import sys
import types
import warnings
import zlib

HEADER = 16


def sources(day):
    root = os.path.dirname(os.__file__)
    for folder, _, files in sorted(os.walk(root)):
        own_tests = "test" in os.path.relpath(folder, root).split(os.sep)
        for file in sorted(files):
            has_turn = not own_tests or zlib.crc32(file.encode()) % 4 == day % 4
            if file.endswith(".py") and has_turn:
                yield os.path.join(folder, file)


def compile_all(folder, seed, day):
    warnings.simplefilter("ignore")
    # What a process did before decides how its objects are shared.
    if seed % 2:
        import argparse, asyncio, decimal, email.message, inspect, typing, unittest  # noqa: E401, F401
    files = list(sources(day))
    random.Random(seed).shuffle(files)
    made = 0
    for path in files:
        out = os.path.join(folder, path.replace("/", "%") + "c")
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        try:
            py_compile.compile(path, out, doraise=True, optimize=0, invalidation_mode=mode)
            made += 1
        except (py_compile.PyCompileError, OSError):
            pass  # templates, and files that test the compiler
    print(made)


def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, types.CodeType):
        names = [name for name in dir(one) if name.startswith("co_") and name != "co_lnotab"]
        pairs = [(getattr(one, name), getattr(other, name)) for name in names]
        return all(same(a, b) for a, b in pairs if not callable(a)) and list(lines(one)) == list(lines(other))
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, frozenset):
        return len(one) == len(other) and same(*(tuple(sorted(each, key=repr)) for each in (one, other)))
    if isinstance(one, (float, complex)):
        return repr(one) == repr(other)  # also -0.0 and nan
    if isinstance(one, slice):
        return same(*((each.start, each.stop, each.step) for each in (one, other)))
    return one == other


def lines(code):
    return code.co_lines() if hasattr(code, "co_lines") else [code.co_lnotab]


def compare(folder, other):
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            one = file.read()
        with open(os.path.join(other, name), "rb") as file:
            two = file.read()
        if one[:HEADER] != two[:HEADER] or not same(marshal.loads(one[HEADER:]), marshal.loads(two[HEADER:])):
            print(name)


if sys.argv[1] == "tag":
    if (3, 9) <= sys.version_info < (3, 15) and sys.version_info.releaselevel == "final":
        print("{}.{}".format(*sys.version_info[:2]))
elif sys.argv[1] == "compile":
    compile_all(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
else:
    compare(*sys.argv[2:])

"""The compilers that just-in-time code needs at run time, and the headers it includes.

Triton builds its launcher in C against Python.h; inductor's code for processors is C++. An image
without them is a fact about the image: each function gives the reason, or None.
"""

import os
import shutil
import sysconfig


def missing_c():
    if not find("CC", ("gcc", "clang")):
        return "no C compiler (CC, gcc or clang) in the image: Triton compiles its launcher with one"
    scheme = "posix_prefix" if default_scheme() == "posix_local" else default_scheme()
    folder = sysconfig.get_path("include", scheme)
    if not os.path.isfile(os.path.join(folder, "Python.h")):
        return "no Python.h in {}: Triton compiles its launcher against it".format(folder)
    return None


def missing_cxx():
    if not find("CXX", ("g++",)):
        return "no C++ compiler (CXX or g++) in the image: torch.compile for processors needs one"
    return None


def find(variable, names):
    named = os.environ.get(variable)
    if named:
        return shutil.which(named.split()[0])
    return next(filter(None, map(shutil.which, names)), None)


def default_scheme():
    """sysconfig's public name for it came with Python 3.10."""
    return getattr(sysconfig, "get_default_scheme", getattr(sysconfig, "_get_default_scheme", None))()

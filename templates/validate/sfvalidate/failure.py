"""What an exception means: its kind, and the few lines of it that a reader needs.

Kinds of a failed import: missing-module, missing-library, undefined-symbol, symbol-version,
wrong-architecture, static-tls, network, exit, error. The whole chain of causes is read, since packages
often wrap the loader's message in one of their own.
"""

import errno
import re
import socket
import subprocess
import traceback

PATTERNS = (
    ("missing-library", re.compile(r"(?P<library>\S+): cannot open shared object file")),
    ("undefined-symbol", re.compile(r"undefined symbol: (?P<symbol>[^\s,]+)")),
    ("symbol-version", re.compile(r"version [`'](?P<symbol>[^']+)' not found")),
    ("wrong-architecture", re.compile(r"wrong ELF class|invalid ELF header|cannot open shared object file: Exec format")),
    ("static-tls", re.compile(r"cannot allocate memory in static TLS block")),
)
DRIVER_LIBRARY = re.compile(r"^lib(cuda|nvidia-[\w-]+|nvcuvid|nvoptix)\.so(\.\d+)*$")
UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH)
MESSAGE_LIMIT = 2000
FRAMES = 6


def describe(error):
    """{"kind", "exception", "message", "frames"} and what the kind adds: library, symbol, missing."""
    chain = causes(error)
    found = {"kind": "error"}
    for link in chain:
        found = classify(link)
        if found["kind"] != "error":
            break
    found["exception"] = type(error).__name__
    found["message"] = shorten(str(error) or repr(error))
    if len(chain) > 1:
        found["because"] = ["{}: {}".format(type(link).__name__, shorten(str(link), 500)) for link in chain[1:4]]
    found["frames"] = frames(chain[-1])
    return found


def causes(error):
    """The error and what it was raised from, outermost first."""
    chain = []
    while error is not None and error not in chain:
        chain.append(error)
        # inductor's wrapper hides its cause from Python and keeps it in an attribute of its own.
        hidden = getattr(error, "inner_exception", None)
        error = error.__cause__ or hidden or (None if error.__suppress_context__ else error.__context__)
    return chain


def classify(error):
    if isinstance(error, SystemExit):
        return {"kind": "exit"}
    if isinstance(error, ModuleNotFoundError):
        return {"kind": "missing-module", "missing": error.name}
    if isinstance(error, socket.gaierror) or isinstance(error, OSError) and error.errno in UNREACHABLE:
        return {"kind": "network"}
    if isinstance(error, (ImportError, OSError)):
        for kind, pattern in PATTERNS:
            match = pattern.search(str(error))
            if match:
                return dict({"kind": kind}, **match.groupdict())
    return {"kind": "error"}


def from_driver(description):
    """Whether what is missing is a library that only a GPU's driver brings."""
    return description["kind"] == "missing-library" and bool(DRIVER_LIBRARY.match(description["library"]))


def frames(error):
    """The last frames of the error's own traceback, without the import machinery and this program."""
    lines = [
        "{}:{} in {}".format(frame.filename, frame.lineno, frame.name)
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and "/sfvalidate/" not in frame.filename
        and "/importlib/__init__.py" not in frame.filename
    ]
    return lines[-FRAMES:]


def summary(error):
    """One line for a reason."""
    for link in causes(error):
        if isinstance(link, subprocess.CalledProcessError):
            command = link.cmd.split() if isinstance(link.cmd, str) else [str(word) for word in link.cmd]
            return "{}: `{}` ended with exit code {}".format(type(error).__name__, command[0], link.returncode)
    return shorten("{}: {}".format(type(error).__name__, headline(str(error))), 500)


def headline(text):
    """The first line, and the next if that only announces it: torch appends pages of advice to its errors."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[:2] if lines[:1] and lines[0].endswith(":") else lines[:1])


def shorten(text, limit=MESSAGE_LIMIT):
    text = text.strip()
    return text if len(text) <= limit else text[:limit] + " [...]"

"""What the stack promises: spec.json, read and checked once.

    {"schema": 1, "stack": "name", "cuda": "13.0" | null, "sm": ["90", "110"],
     "libraries": [{"name", "distribution", "version": "2.13.0" | null,
                    "imports": ["torch", ...], "gpu_imports": [...],
                    "options": [{"option": "head_dims", "kept": ["64"], "left_out": ["32"]}]}],
     "checks": ["imports", "cuda", "triton", "compile", "attention", "options", "vllm"],
     "attention": {"batch", "heads", "seq", "head_dim", "dtype", "causal"},
     "require_gpu": false, "time_limit": 600}

`options` is there for a library of which a build left out parts. `gpu_imports` need a driver and are only tried where there is a GPU. `require_gpu` makes a
missing GPU a failure. `time_limit` replaces every check's own limit, in seconds. `sm` takes
nvcc's suffixes (90a, 100f). Anything malformed is a SpecError, never a traceback.
"""

import json
import re

CHECKS = ("imports", "cuda", "triton", "compile", "attention", "options", "vllm")
DTYPES = ("float16", "bfloat16", "float32")
DEFAULT_ATTENTION = {"batch": 16, "heads": 16, "seq": 2048, "head_dim": 64, "dtype": "float16", "causal": False}
SM = re.compile(r"^(\d{1,2})(\d)([af]?)$")
MODULE = re.compile(r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")
CUDA = re.compile(r"^\d+\.\d+(\.\d+)?$")


class SpecError(Exception):
    """spec.json cannot be read or does not say what it must."""


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise SpecError("cannot read the spec: {}".format(error)) from error
    return check(document)


def check(document):
    """The document with every optional key filled in."""
    expect(isinstance(document, dict), "the spec is not a JSON object")
    expect(document.get("schema") == 1, "`schema` is {!r}; this program reads schema 1".format(document.get("schema")))
    known = {"schema", "stack", "cuda", "sm", "libraries", "checks", "attention", "require_gpu", "time_limit"}
    unknown = sorted(set(document) - known)
    expect(not unknown, "unknown keys: {}".format(", ".join(unknown)))
    cuda = document.get("cuda")
    limit = document.get("time_limit")
    expect(cuda is None or is_text(cuda) and CUDA.match(cuda), "`cuda` is {!r}, not like 13.0".format(cuda))
    expect(limit is None or is_number(limit) and limit > 0, "`time_limit` is not a positive number of seconds")
    expect(is_text(document.get("stack")), "`stack` is missing")
    expect(isinstance(document.get("require_gpu", False), bool), "`require_gpu` is not true or false")
    sms = texts(document, "sm")
    for sm in sms:
        expect(SM.match(sm), "`sm` holds {!r}, which is not like 90, 90a or 110".format(sm))
    checks = texts(document, "checks")
    for name in checks:
        expect(name in CHECKS, "`checks` holds {!r}; there are {}".format(name, ", ".join(CHECKS)))
    expect(len(set(checks)) == len(checks), "`checks` names a check twice")
    libraries = document.get("libraries", [])
    expect(isinstance(libraries, list), "`libraries` is not a list")
    libraries = [library(entry) for entry in libraries]
    names = [entry["name"] for entry in libraries]
    expect(len(set(names)) == len(names), "`libraries` names a library twice")
    return {
        "stack": document["stack"],
        "cuda": cuda,
        "sm": sms,
        "libraries": libraries,
        "checks": checks,
        "attention": attention(document.get("attention", {})),
        "require_gpu": document.get("require_gpu", False),
        "time_limit": limit,
    }


def library(entry):
    expect(isinstance(entry, dict), "`libraries` holds something that is not an object")
    name = entry.get("name")
    expect(is_text(name) and re.match(r"^[\w.-]+$", name), "a library has no name, or an impossible one")
    distribution = entry.get("distribution", name)
    expect(is_text(distribution), "library {}: `distribution` is not a name".format(name))
    version = entry.get("version")
    expect(version is None or is_text(version), "library {}: `version` is not text".format(name))
    modules = {key: texts(entry, key) for key in ("imports", "gpu_imports")}
    for module in modules["imports"] + modules["gpu_imports"]:
        expect(MODULE.match(module), "library {}: {!r} is not a module's name".format(name, module))
    return dict(modules, name=name, distribution=distribution, version=version, options=options(name, entry))


def options(name, entry):
    """{option: {part: whether it was compiled}}"""
    value = entry.get("options", [])
    expect(isinstance(value, list) and all(isinstance(option, dict) and is_text(option.get("option")) for option in value),
           "library {}: `options` is not a list of options".format(name))
    return {option["option"]: dict([(part, True) for part in texts(option, "kept")]
                                   + [(part, False) for part in texts(option, "left_out")]) for option in value}


def attention(entry):
    expect(isinstance(entry, dict), "`attention` is not an object")
    unknown = sorted(set(entry) - set(DEFAULT_ATTENTION))
    expect(not unknown, "`attention` has unknown keys: {}".format(", ".join(unknown)))
    shape = dict(DEFAULT_ATTENTION, **entry)
    for key in ("batch", "heads", "seq", "head_dim"):
        value = shape[key]
        expect(isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 1 << 20,
               "`attention.{}` is not a positive number".format(key))
    expect(shape["dtype"] in DTYPES, "`attention.dtype` is {!r}; there are {}".format(shape["dtype"], ", ".join(DTYPES)))
    expect(isinstance(shape["causal"], bool), "`attention.causal` is not true or false")
    return shape


def texts(document, key):
    value = document.get(key, [])
    expect(isinstance(value, list) and all(is_text(entry) for entry in value), "`{}` is not a list of texts".format(key))
    return value


def is_text(value):
    return isinstance(value, str) and value != ""


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def expect(condition, message):
    if not condition:
        raise SpecError(message)

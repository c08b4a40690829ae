#!/usr/bin/env python3
"""Stands in front of nvcc and narrows what a build asks for to the target's SMs.

In: nvcc's own arguments, its response files and its NVCC_PREPEND_FLAGS and
NVCC_APPEND_FLAGS; the real compiler's path in STACKFORGE_NVCC and the targets in
STACKFORGE_SMS ("90;110", "90a;100f", "90+PTX"). Out: an exec of the real nvcc,
so that its output, signals and exit status are the caller's own. With
STACKFORGE_NVCC_LOG set, each call appends one JSON line to that file. With
STACKFORGE_SCCACHE set, a call that makes one object is handed to that program,
which asks its cache before nvcc.

Nothing but architecture flags is ever changed, and a request that cannot be read
is handed on as it stands: nvcc's own message is the right one.

The rules on how nvcc reads its flags were measured with nvcc 13.0.88 (--dryrun).
"""

import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections import namedtuple

GENCODE = {"-gencode", "--generate-code"}
ARCH = {"-arch", "--gpu-architecture"}
CODE = {"-code", "--gpu-code"}
RESPONSE_FILE = {"-optf", "--options-file"}

INFORMATION = set(
    "-V --version -h --help -code-ls --list-gpu-code -arch-ls --list-gpu-arch -clean --clean-targets".split()
)
# One output for one architecture: nvcc refuses several.
SINGLE = set("-ptx --ptx -cubin --cubin -optix-ir --optix-ir -ltoir --ltoir".split())
# Makes no device code, so that a missing flag needs no answer.
HOST_ONLY = set(
    "-E --preprocess -M --generate-dependencies -MM --generate-nonsystem-dependencies -lib --lib".split()
)
DEVICE = set("-dc --device-c -dw --device-w -dlink --device-link -fatbin --fatbin".split())
COMPILE_ONLY = {"-c", "--compile"}
ONE_OBJECT = COMPILE_ONLY | {"-dc", "--device-c", "-dw", "--device-w"}
HOST_COMPILER = {"-ccbin", "--compiler-bindir"}
ASSEMBLER_INCLUDES = "/dev/stackforge/objects/assembler-includes"
LINK_TIME = {"-dlto", "--dlink-time-opt", "-lto", "--lto"}
LINKED = (".o", ".obj", ".a", ".so", ".cpp", ".cc", ".cxx", ".c")

# The next argument belongs to these ("nvcc --help" of 13.0.88, and -MF, whose
# value that text leaves out): it is never a flag, whatever it looks like.
TAKES_VALUE = set(
    """
    -o --output-file -include --pre-include -l --library -D --define-macro -U
    --undefine-macro -I --include-path -isystem --system-include -L --library-path
    -odir --output-directory -MF --dependency-output -MT --dependency-target-name
    -ccbin --compiler-bindir -arbin --archiver-binary -cudart --cudart -cudadevrt
    --cudadevrt -ldir --libdevice-directory -target-dir --target-directory
    -opt-info --optimization-info -O --optimize -Ofc --Ofast-compile -dopt --dopt
    -ftemplate-backtrace-limit --ftemplate-backtrace-limit -ftemplate-depth
    --ftemplate-depth -x --x -std --std -m --machine -Xcompiler --compiler-options
    -Xlinker --linker-options -Xarchive --archive-options -Xptxas --ptxas-options
    -Xnvlink --nvlink-options -t --threads -split-compile --split-compile
    -split-compile-extended --split-compile-extended -fdevice-time-trace
    --fdevice-time-trace -keep-dir --keep-dir -time --time -run-args --run-args
    -idp --input-drive-prefix -ddp --dependency-drive-prefix -dp --drive-prefix
    -rdc --relocatable-device-code -e --entries -maxrregcount --maxrregcount -ftz
    --ftz -prec-div --prec-div -prec-sqrt --prec-sqrt -fmad --fmad -default-stream
    --default-stream -Werror --Werror -diag-error --diag-error -diag-suppress
    --diag-suppress -diag-warn --diag-warn -hls --host-linker-script -brief-diag
    --brief-diagnostics -jtd --jump-table-density -device-stack-protector
    --device-stack-protector -compress-mode --compress-mode -frandom-seed
    --frandom-seed -sanitize --sanitize
    """.split()
)

NESTED_FILES = 8

Target = namedtuple("Target", "number suffix ptx")
# kind: "sm" (SASS), "lto" (LTO intermediate) or "compute" (PTX).
Entry = namedtuple("Entry", "virtual kind number suffix")
Word = namedtuple("Word", "text start end")


class Unreadable(Exception):
    """A request that this filter does not understand: the call is passed on as asked."""


def parse_targets(text):
    """STACKFORGE_SMS as a list of targets; ValueError on anything else."""
    targets = []
    for item in re.split(r"[;,\s]+", text.strip()):
        match = re.fullmatch(r"([0-9]{2,3})([af]?)(\+PTX)?", item)
        if not match:
            raise ValueError("%r is not an SM such as 90, 90a, 100f or 90+PTX" % item)
        target = Target(int(match.group(1)), match.group(2), bool(match.group(3)))
        if target not in targets:
            targets.append(target)
    return targets


class Words:
    """One source of words, an argument list or a text, and the edits made to it."""

    def __init__(self, words, text=None):
        self.words = words
        self.text = text
        self.edits = {}

    @classmethod
    def of_arguments(cls, arguments):
        return cls([Word(argument, 0, 0) for argument in arguments])

    @classmethod
    def of_text(cls, text):
        """Split as nvcc does: white space, double quotes, backslash; ' is a letter."""
        words = []
        for match in re.finditer(r'(?:[^\s"\\]|\\.|"(?:[^"\\]|\\.)*"?|\\$)+', text, re.DOTALL):
            plain = re.sub(r'\\(.)|"', lambda part: part.group(1) or "", match.group(), flags=re.DOTALL)
            words.append(Word(plain, match.start(), match.end()))
        return cls(words, text)

    def replace(self, index, words):
        self.edits[index] = words

    def arguments(self):
        out = []
        for index, word in enumerate(self.words):
            out.extend(self.edits.get(index, [word.text]))
        return out

    def rendered(self):
        out, at = [], 0
        for index in sorted(self.edits):
            word = self.words[index]
            out += [self.text[at : word.start], " ".join(self.edits[index])]
            at = word.end
        return "".join(out) + self.text[at:]


class Call:
    """What a call says: where its architecture flags stand, its options, its inputs."""

    def __init__(self):
        self.requests = []  # (words, indexes, name, value)
        self.options = set()
        self.inputs = []
        self.language = None
        self.files = []  # (words of the file, words that name it, index, place in the list)

    def read(self, words, depth=0):
        index, texts = 0, [word.text for word in words.words]
        while index < len(texts):
            name, equals, value = texts[index].partition("=")
            at = [index]
            index += 1
            if not name.startswith("-") or name == "-":
                self.inputs.append(texts[at[0]])
                continue
            named = name in GENCODE or name in ARCH or name in CODE or name in RESPONSE_FILE
            if not equals and (named or name in TAKES_VALUE):
                if index == len(texts):
                    raise Unreadable("%s has no value" % name)
                value = texts[index]
                at.append(index)
                index += 1
            if name in RESPONSE_FILE:
                self.read_files(words, at, value, depth)
            elif named:
                self.requests.append((words, at, name, value))
            elif name in ("-x", "--x"):
                self.language = value
            else:
                self.options.add(name)

    def read_files(self, words, at, value, depth):
        if depth == NESTED_FILES:
            raise Unreadable("response files nested deeper than %d" % NESTED_FILES)
        for place, path in enumerate(value.split(",")):
            try:
                with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
                    content = Words.of_text(file.read())
            except OSError as error:
                raise Unreadable(str(error))
            self.read(content, depth + 1)
            # After the files inside it: those are written first, it then names the new ones.
            self.files.append((content, words, at, place))

    def makes_device_code(self):
        """Whether nvcc would, without an architecture flag, fall back to its default SM."""
        if self.options & HOST_ONLY:
            return False
        if self.options & (SINGLE | DEVICE):
            return True
        if self.language is not None:
            return self.language == "cu" and bool(self.inputs)
        if any(path.endswith(".cu") for path in self.inputs):
            return True
        # A link embeds the device link's own code, for the default SM if none is named.
        return not self.options & COMPILE_ONLY and any(path.endswith(LINKED) for path in self.inputs)


def parse_entry(virtual, code):
    match = re.fullmatch(r"(sm|lto|compute)_([0-9]{2,3})([af]?)", code)
    if not match:
        raise Unreadable("code %r" % code)
    return Entry(virtual, match.group(1), int(match.group(2)), match.group(3))


def parse_codes(virtual, codes):
    if not re.fullmatch(r"compute_[0-9]{2,3}[af]?", virtual):
        raise Unreadable("arch %r" % virtual)
    return [parse_entry(virtual, code) for code in re.sub(r"[\[\]\"'\\\s]", "", codes).split(",")]


def parse_requests(requests):
    """(entries, open): open is a request for whatever SMs there are (all, native)."""
    arch, codes, entries, unbounded = None, [], [], False
    for _, _, name, value in requests:
        if name in ARCH:
            arch = value  # the last one wins
        elif name in CODE:
            codes.append(value)
        else:
            match = re.fullmatch(r"arch=([^,]*),code=(.*)", value)
            if not match:
                match = re.fullmatch(r"code=(?P<code>.*),arch=(?P<arch>[^,]*)", value)
                if not match:
                    raise Unreadable("generate-code %r" % value)
                entries += parse_codes(match.group("arch"), match.group("code"))
            else:
                entries += parse_codes(*match.groups())
    if codes:
        entries += parse_codes(arch or "", ",".join(codes))
    elif arch in ("all", "all-major", "native"):
        unbounded = True
    elif arch is not None:
        entry = parse_entry("", arch)
        entries.append(entry._replace(virtual="compute_%d%s" % (entry.number, entry.suffix)))
    return entries, unbounded


def in_family(entry, target):
    """Family code (sm_100f) runs on every later SM of its major generation."""
    return entry.suffix == "f" and entry.number // 10 == target.number // 10 and entry.number < target.number


def covers(entry, target):
    if entry.number == target.number:
        return not (target.suffix == "f" and entry.suffix == "a")
    return in_family(entry, target)


def narrow(entries, unbounded, targets):
    """The entries to give for the entries that were asked for."""
    kept = []
    for entry in entries:
        wanted = any(entry.number == target.number or in_family(entry, target) for target in targets)
        if entry.kind != "compute" and wanted and not any(entry[1:] == other[1:] for other in kept):
            kept.append(entry)
    general = unbounded or len({entry.number for entry in entries}) > 1 or any(not entry.suffix for entry in entries)
    if kept and not general:
        return kept
    kinds = sorted({entry.kind for entry in entries} - {"compute"}, reverse=True) or ["sm"]
    given = list(kept)
    for target in targets:
        virtual = "compute_%d%s" % (target.number, target.suffix)
        for kind in kinds:
            if not any(entry.kind == kind and covers(entry, target) for entry in kept):
                given.append(Entry(virtual, kind, target.number, target.suffix))
    for target in targets:
        if target.ptx:
            given.append(Entry("compute_%d%s" % (target.number, target.suffix), "compute", target.number, target.suffix))
    return given


def name_of(entry):
    return "%s_%d%s" % (entry.kind, entry.number, entry.suffix)


def flags_for(call, targets):
    """The flags to give instead of the call's own, or None to leave it as it is."""
    if call.options & INFORMATION:
        return None
    lowest = "-arch=sm_%d%s" % min((target.number, target.suffix) for target in targets)
    if call.requests:
        entries, unbounded = parse_requests(call.requests)
        if call.options & SINGLE:
            # The caller names the output after what it asked for; only "native" is open.
            return [lowest] if unbounded else None
        given = narrow(entries, unbounded, targets)
        if call.options & LINK_TIME and not any(name in GENCODE | CODE for _, _, name, _ in call.requests):
            # -dlto takes -arch only: with several targets there is no equivalent to give.
            return [lowest] if len(targets) == 1 else None
        # The shorthand -arch=sm_90 asks for PTX besides, so it is never the same request.
        if given == entries and not any(name in ARCH for _, _, name, _ in call.requests):
            return None
    elif not call.makes_device_code():
        return None
    elif call.options & SINGLE or (call.options & LINK_TIME and len(targets) == 1):
        return [lowest]
    elif call.options & LINK_TIME:
        return None
    else:
        given = narrow([], True, targets)
    return ["-gencode=arch=%s,code=%s" % (entry.virtual, name_of(entry)) for entry in given]


def in_a_file(text):
    """A path that another process can read, the same for the same text."""
    data = text.encode("utf-8", "surrogateescape")
    try:
        folder = os.path.join(tempfile.gettempdir(), "nvcc-options")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, hashlib.sha256(data).hexdigest())
        if not os.path.exists(path):
            # Compiles of several files may write it at once.
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(data)
            os.replace(file.name, path)
        return path
    except OSError:
        os.environ.pop("STACKFORGE_SCCACHE", None)
        return in_memory(text)


def makes_one_object(arguments):
    call = Call()
    try:
        call.read(Words.of_arguments(arguments))
    except Unreadable:
        return False
    if call.options & (INFORMATION | {"-dryrun", "--dryrun"}) or any("=native" in word for word in arguments):
        return False
    return bool(call.options & ONE_OBJECT) and len(call.inputs) == 1


def without(wrappers, arguments, path):
    """(arguments, PATH) that name no compiler of the folder `wrappers`: those ask the cache themselves."""
    wrappers = os.path.normpath(wrappers)
    path = os.pathsep.join(entry for entry in path.split(os.pathsep) if os.path.normpath(entry or ".") != wrappers)

    def real(compiler):
        if os.path.normpath(compiler) == wrappers:
            compiler = os.path.join(wrappers, "g++")
        if os.path.normpath(os.path.dirname(compiler) or ".") != wrappers:
            return compiler
        return shutil.which(os.path.basename(compiler), path=path) or compiler

    given, previous = [], None
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if previous in HOST_COMPILER:
            argument = real(argument)
        elif name in HOST_COMPILER and equals:
            argument = name + equals + real(value)
        previous = argument
        given.append(argument)
    return given, path


def through_cache(compiler, arguments, environment):
    """(command, changed environment) for a call that the cache may answer; None for another one."""
    sccache = environment.get("STACKFORGE_SCCACHE")
    # An assembler of this library reads files that sccache does not know of.
    if not sccache or os.path.exists(ASSEMBLER_INCLUDES):
        return None
    # The cache knows a call by its arguments, so all of them stand there.
    words = [Words.of_text(environment.get(name, "")).arguments() for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")]
    arguments = words[0] + arguments + words[1]
    if not makes_one_object(arguments):
        return None
    wrappers = environment.get("STACKFORGE_WRAPPERS", os.devnull)
    path = environment.get("PATH", os.defpath)
    changed = {"NVCC_PREPEND_FLAGS": "", "NVCC_APPEND_FLAGS": ""}
    if "NVCC_CCBIN" in environment:
        changed["NVCC_CCBIN"] = without(wrappers, ["-ccbin", environment["NVCC_CCBIN"]], path)[0][1]
    arguments, path = without(wrappers, arguments, path)
    # In front of the assembler stands what notes that.
    changed["PATH"] = os.pathsep.join([os.path.join(os.path.dirname(wrappers), "as"), path])
    return [sccache, compiler] + arguments, changed


def in_memory(text):
    """A path that the nvcc of this very process can read and that leaves no file behind."""
    descriptor = os.memfd_create("nvcc-options", 0)
    os.set_inheritable(descriptor, True)
    data = text.encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(descriptor, data) :]
    return "/proc/self/fd/%d" % descriptor


def rewrite(arguments, environment, targets, write_file=in_memory):
    """(arguments, changed environment, log record) for the real nvcc."""
    before = Words.of_text(environment.get("NVCC_PREPEND_FLAGS", ""))
    middle = Words.of_arguments(arguments)
    after = Words.of_text(environment.get("NVCC_APPEND_FLAGS", ""))
    call = Call()
    unchanged = (list(arguments), {}, None)
    try:
        for words in (before, middle, after):
            call.read(words)
        flags = flags_for(call, targets)
    except Unreadable:
        return unchanged
    if flags is None:
        return unchanged
    asked = []
    for position, (words, indexes, name, value) in enumerate(call.requests):
        asked.append("%s=%s" % (name, value))
        words.replace(indexes[0], flags if position == 0 else [])
        for index in indexes[1:]:
            words.replace(index, [])
    for content, parent, indexes, place in call.files:
        if content.edits:
            name_file(parent, indexes, place, write_file(content.rendered()))
    changed = {}
    if before.edits:
        changed["NVCC_PREPEND_FLAGS"] = before.rendered()
    if after.edits:
        changed["NVCC_APPEND_FLAGS"] = after.rendered()
    given = middle.arguments() if call.requests else flags + middle.arguments()
    return given, changed, {"asked": asked, "given": flags, "inputs": call.inputs}


def name_file(parent, indexes, place, path):
    """Let the option at `indexes` name `path` as the file at `place` of its list."""
    last = indexes[-1]
    text = parent.edits[last][0] if last in parent.edits else parent.words[last].text
    option, equals, value = text.partition("=") if len(indexes) == 1 else ("", "", text)
    paths = value.split(",")
    paths[place] = path
    parent.replace(last, [option + equals + ",".join(paths)])


def main():
    compiler = os.environ.get("STACKFORGE_NVCC")
    if not compiler:
        sys.exit("nvcc filter: STACKFORGE_NVCC does not name the real nvcc")
    try:
        targets = parse_targets(os.environ.get("STACKFORGE_SMS", ""))
    except ValueError as error:
        sys.exit("nvcc filter: STACKFORGE_SMS: %s" % error)
    write_file = in_a_file if os.environ.get("STACKFORGE_SCCACHE") else in_memory
    arguments, changed, record = rewrite(sys.argv[1:], os.environ, targets, write_file)
    os.environ.update(changed)
    log = os.environ.get("STACKFORGE_NVCC_LOG")
    if log and record:
        import json

        with open(log, "ab", buffering=0) as file:  # one write: parallel calls do not mix
            file.write(json.dumps(record).encode() + b"\n")
    command = [compiler] + arguments
    cached = through_cache(compiler, arguments, os.environ)
    if cached:
        command, changed = cached
        os.environ.update(changed)
    try:
        os.execv(command[0], command)
    except OSError as error:
        sys.exit("nvcc filter: cannot run %s: %s" % (command[0], error.strerror))


if __name__ == "__main__":
    main()

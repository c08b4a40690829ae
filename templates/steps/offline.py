"""Runs a command that has no network and no settings of it: offline.py COMMAND...

For compiles, whose programs are foreign code. Dockerfiles of Docker 20.10 cannot say
`RUN --network=none`, and a build has no right to make namespaces, but every process may give up
system calls for itself and all that it starts: sockets other than local ones, io_uring, which opens
sockets too, and calls in the convention of another processor, whose numbers mean other things.
"""

import ctypes
import os
import platform
import struct
import sys

# Of linux/audit.h and asm/unistd.h: AUDIT_ARCH, socket.
MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
IO_URING_SETUP = 425
AF_UNIX, AF_NETLINK = 1, 16
X32 = 0x40000000
# Of struct seccomp_data: the call's number, the convention, the low half of the first argument.
NUMBER, CONVENTION, FIRST = 0, 4, 16
LOAD, EQUAL, AT_LEAST, ANSWER = 0x20, 0x15, 0x35, 0x06
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, ENETUNREACH = 1, 101
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def instructions(convention, socket):
    return b"".join(struct.pack("HBBI", *i) for i in [
        (LOAD, 0, 0, CONVENTION),
        (EQUAL, 1, 0, convention),
        (ANSWER, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
        (AT_LEAST, 6, 0, X32),
        (EQUAL, 5, 0, IO_URING_SETUP),
        (EQUAL, 0, 3, socket),
        (LOAD, 0, 0, FIRST),
        (EQUAL, 1, 0, AF_UNIX),
        (EQUAL, 0, 2, AF_NETLINK),
        (ANSWER, 0, 0, ALLOW),
        (ANSWER, 0, 0, REFUSE | EPERM),
        (ANSWER, 0, 0, REFUSE | ENETUNREACH),
    ])


def give_up_the_network():
    try:
        code = instructions(*MACHINES[platform.machine()])
    except KeyError:
        sys.exit(f"stackforge: compiles cannot be held off the network on {platform.machine()}")
    buffer = ctypes.create_string_buffer(code)
    program = Program(len(code) // 8, ctypes.addressof(buffer))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    long = ctypes.c_ulong
    if prctl(PR_SET_NO_NEW_PRIVS, long(1), long(0), long(0), long(0)):
        sys.exit(f"stackforge: no_new_privs: {os.strerror(ctypes.get_errno())}")
    if prctl(PR_SET_SECCOMP, long(MODE_FILTER), ctypes.byref(program), long(0), long(0)):
        sys.exit(f"stackforge: the network filter: {os.strerror(ctypes.get_errno())}")


give_up_the_network()
# Proxies may hold passwords, and a build gives them to every step.
kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
os.execvpe(sys.argv[1], sys.argv[1:], kept)

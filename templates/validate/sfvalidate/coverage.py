"""Which GPUs a binary's device code serves.

Rules as in torch/cuda/__init__.py (DEVICE_REQUIREMENT) of torch 2.15 and NVIDIA's compute
capability documentation: SASS runs on its own major version with an equal or higher minor, but
the GPUs of Jetson modules only run their own; `a` is exact, `f` stays in its family; PTX without
`a` is compiled by the driver for any later GPU.
"""

import re

TARGET = re.compile(r"^(?P<kind>sm|compute)_(?P<major>\d{1,2})(?P<minor>\d)(?P<suffix>[af]?)$")
# Compute capabilities of GPUs that only Jetson and DRIVE modules have, which are all 64-bit Arm.
EMBEDDED = {(5, 3): "Jetson TX1", (6, 2): "Jetson TX2", (7, 2): "Jetson Xavier", (8, 7): "Jetson Orin",
            (10, 1): "Jetson Thor", (11, 0): "Jetson Thor"}
# One chip, renamed by CUDA 13.
THOR = {(10, 1), (11, 0)}


def capability(sm):
    """(9, 0) of 90, 90a, 9.0."""
    digits = re.sub(r"[^0-9]", "", sm)
    return int(digits[:-1]), int(digits[-1])


def covered_by(sm, arch_list, cuda):
    """The entry of the arch list that serves the GPU best, or None."""
    wanted = capability(sm)
    entries = [match for match in map(TARGET.match, arch_list) if match]
    sass = [entry for entry in entries if entry["kind"] == "sm" and runs(numbers(entry), entry["suffix"], wanted, cuda)]
    if sass:
        return max(sass, key=numbers).group()
    ptx = [entry for entry in entries if entry["kind"] == "compute" and numbers(entry) <= wanted
           and (entry["suffix"] == "" or numbers(entry) == wanted)]
    return max(ptx, key=numbers).group() if ptx else None


def numbers(entry):
    return int(entry["major"]), int(entry["minor"])


def runs(code, suffix, wanted, cuda):
    """Whether SASS for `code` runs on a GPU of capability `wanted`."""
    if code == wanted:
        return True
    if suffix == "a":
        return False
    if code in THOR or wanted in THOR:
        return {code, wanted} <= THOR
    if code[0] != wanted[0] or code[1] > wanted[1]:
        return False
    # From CUDA 13.2 on, code for other GPUs of the same major version runs on Jetson too.
    return (code not in EMBEDDED and wanted not in EMBEDDED) or cuda >= (13, 2)


def impossible(sm, machine):
    """Why no machine with this processor has such a GPU, or None."""
    name = EMBEDDED.get(capability(sm))
    if name is None or machine == "aarch64":
        return None
    return "compute capability {}.{} is {}, which is aarch64: a machine with {} never has it".format(
        *capability(sm), name, machine)

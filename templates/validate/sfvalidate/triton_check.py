"""Does Triton compile a kernel for the GPU that is here, and is what it computes right?"""

import importlib.util

from sfvalidate import accuracy, compilers

LIMIT = 300
ISOLATED = False


def obstacle(spec, device):
    if importlib.util.find_spec("triton") is None:
        return "failed", "triton is not installed"
    if not device.get("gpu"):
        return "not-run", device["no_gpu"]
    reason = compilers.missing_c()
    return None if reason is None else ("failed", reason)


def facts(spec, device):
    return {}


def units(spec, device):
    return ["add", "softmax", "matmul"]


def run(unit, job):
    job.step("importing torch and triton")
    import torch

    from sfvalidate import triton_kernels as kernels

    torch.manual_seed(0)
    job.step("compiling and running the Triton kernel " + unit)
    # Sizes that no block divides: the masks are part of what is tested.
    if unit == "add":
        left, right = torch.randn(2, 98765, device="cuda")
        got, reference, dtype = kernels.add(left, right), left.double() + right.double(), "float32"
    elif unit == "softmax":
        values = torch.randn(123, 781, device="cuda")
        got, reference, dtype = kernels.softmax(values), torch.softmax(values.double(), dim=-1), "float32"
    else:
        left, right = torch.randn(2, 200, 200, device="cuda").half() / 8
        got, reference, dtype = kernels.matmul(left, right), left.double() @ right.double(), "float16"
    figures, reason = accuracy.compare(torch, got, reference, dtype)
    result = {"name": unit, "status": "passed", "accuracy": figures}
    return result if reason is None else dict(result, status="failed", kind="wrong-result", reason=reason)

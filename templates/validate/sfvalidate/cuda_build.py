"""Is torch built for the stack's CUDA and GPUs, and does a kernel run on the GPU that is here?

`build` compares the CUDA that torch was built with, `sm_NN` one per GPU of the stack looks for
code that runs on it, `kernel` (only with a GPU) computes on it and compares with the processor's
result. A torch without CUDA in a stack that has CUDA fails.
"""

from sfvalidate import coverage

LIMIT = 300
ISOLATED = False


def obstacle(spec, device):
    if spec["cuda"] is None:
        return "not-run", "the stack has no CUDA"
    return None


def facts(spec, device):
    return {}


def units(spec, device):
    return ["build"] + ["sm_" + sm for sm in spec["sm"]] + ["kernel"]


def run(unit, job):
    job.step("importing torch")
    import torch

    cuda = torch.version.cuda
    if unit == "build":
        return build(cuda, job.spec["cuda"], torch.__version__)
    if cuda is None:
        return {"name": unit, "status": "failed", "kind": "cpu-only", "reason": "torch is built without CUDA"}
    if unit == "kernel":
        return kernel(torch, job)
    return architecture(unit, torch, job)


def build(cuda, wanted, version):
    result = {"name": "build", "status": "passed", "cuda": cuda, "expected": wanted}
    if cuda is None:
        return dict(result, status="failed", kind="cpu-only",
                    reason="torch {} is built without CUDA, the stack is for CUDA {}".format(version, wanted))
    if cuda.split(".")[0] != wanted.split(".")[0]:
        return dict(result, status="failed", kind="cuda-major",
                    reason="torch {} is built for CUDA {}, the stack is for CUDA {}".format(version, cuda, wanted))
    if cuda.split(".")[:2] != wanted.split(".")[:2]:
        result["note"] = "another minor version of the same CUDA: it runs with the same drivers"
    return result


def architecture(unit, torch, job):
    sm = unit[len("sm_"):]
    # torch.cuda.get_arch_list() is empty on older releases where there is no GPU.
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
    available = flags.split() if flags else torch.cuda.get_arch_list()
    result = {"name": unit, "status": "passed", "available": available}
    cuda = tuple(int(part) for part in torch.version.cuda.split(".")[:2])
    served = coverage.covered_by(sm, available, cuda)
    if served is not None:
        return dict(result, served_by=served)
    reason = coverage.impossible(sm, job.device.get("machine"))
    if reason is not None:
        return dict(result, status="not-run", reason=reason)
    return dict(result, status="failed", kind="no-device-code",
                reason="torch holds no code for compute capability {}.{}, only {}".format(
                    *coverage.capability(sm), " ".join(available)))


def kernel(torch, job):
    """A product and a reduction of small whole numbers: exact in float32, so equal or wrong."""
    if not job.device.get("gpu"):
        return {"name": "kernel", "status": "not-run", "reason": job.device.get("no_gpu")}
    job.step("starting CUDA in torch")
    left = (torch.arange(64 * 64, dtype=torch.float32) % 13).reshape(64, 64)
    right = (torch.arange(64 * 64, dtype=torch.float32) % 7).reshape(64, 64)
    there = left.cuda() @ right.cuda() + 1
    if not torch.equal(there.cpu(), left @ right + 1):
        return {"name": "kernel", "status": "failed", "kind": "wrong-result",
                "reason": "a matrix product on the GPU differs from the processor's"}
    return {"name": "kernel", "status": "passed", "served_by": coverage.covered_by(
        job.device["sm"], torch.cuda.get_arch_list(), tuple(int(part) for part in torch.version.cuda.split(".")[:2]))}

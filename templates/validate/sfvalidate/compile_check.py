"""Does torch.compile (inductor) work here, and what does it gain on a small model?

One block of a language model: RMS norm, attention, RMS norm and a gated MLP, each half added to its
input, the norms written out as models have them. Eager and compiled are compared with float64, then
timed. Inductor compiles with Triton on a GPU and with a C++ compiler on a processor: without those
it is not run.
"""

import importlib.util

from sfvalidate import accuracy, compilers, timing

LIMIT = 600
ISOLATED = False
# (batch, sequence, width, heads, number format); large enough on a GPU that launches do not dominate
ON_GPU = (8, 1024, 1024, 16, "float16")
ON_PROCESSOR = (2, 64, 64, 4, "float32")
REACH = 4  # the block's outputs stay below it


def obstacle(spec, device):
    if importlib.util.find_spec("torch") is None:
        return "failed", "torch is not installed"
    if not device.get("gpu"):
        reason = compilers.missing_cxx()
    elif importlib.util.find_spec("triton") is None:
        reason = "triton is not installed: torch.compile for GPUs needs it"
    else:
        reason = compilers.missing_c()
    return None if reason is None else ("not-run", reason)


def facts(spec, device):
    batch, seq, width, heads, dtype = ON_GPU if device.get("gpu") else ON_PROCESSOR
    model = {"batch": batch, "seq": seq, "width": width, "heads": heads, "dtype": dtype}
    return {"model": model} if device.get("gpu") else {"model": model, "threads": 1}


def units(spec, device):
    return ["inductor"]


def run(unit, job):
    job.step("importing torch")
    import torch

    gpu = bool(job.device.get("gpu"))
    timing.one_thread(torch, gpu)
    batch, seq, width, heads, dtype = ON_GPU if gpu else ON_PROCESSOR
    torch.manual_seed(0)
    device = "cuda" if gpu else "cpu"
    exact = block(torch, width, heads).double()
    given = torch.rand(batch, seq, width, dtype=torch.float64) - 0.5
    model = block(torch, width, heads)
    model.load_state_dict(exact.state_dict())
    model, inputs = model.to(device, getattr(torch, dtype)), given.to(device, getattr(torch, dtype))
    result = {"name": unit, "status": "passed", "device": device}
    with torch.no_grad():
        job.step("computing the float64 reference")
        expected = exact.to(device)(inputs.double())
        job.step("compiling the model")
        compiled = torch.compile(model)
        got = compiled(inputs)
        for name, output in (("eager", model(inputs)), ("compiled", got)):
            figures, reason = accuracy.compare(torch, output, expected, dtype, REACH)
            result.setdefault("accuracy", {})[name] = figures
            if reason is not None:
                return dict(result, status="failed", kind="wrong-result", reason="{}: {}".format(name, reason))
        job.step("timing the model")
        eager = timing.median_ms(torch, lambda: model(inputs), gpu)
        fast = timing.median_ms(torch, lambda: compiled(inputs), gpu)
    ratio = round(eager["median_ms"] / fast["median_ms"], 3)
    return dict(result, timing={"eager_ms": eager["median_ms"], "compiled_ms": fast["median_ms"], "ratio": ratio,
                                "repeats": fast["repeats"]})


def block(torch, width, heads):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = torch.nn.Linear(width, 3 * width)
            self.join = torch.nn.Linear(width, width)
            self.gate = torch.nn.Linear(width, 2 * width)
            self.up = torch.nn.Linear(width, 2 * width)
            self.down = torch.nn.Linear(2 * width, width)

        def norm(self, x):
            wide = x if x.dtype == torch.float64 else x.float()
            return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

        def forward(self, x):
            split = self.mix(self.norm(x)).unflatten(-1, (3, heads, width // heads)).permute(2, 0, 3, 1, 4)
            mixed = torch.nn.functional.scaled_dot_product_attention(split[0], split[1], split[2])
            x = x + self.join(mixed.transpose(1, 2).flatten(2))
            normed = self.norm(x)
            return x + self.down(torch.nn.functional.silu(self.gate(normed)) * self.up(normed))

    return Block().eval()

"""The attention benchmark: every implementation that is here, checked, then timed.

Naive, each backend of torch's scaled_dot_product_attention, the flash_attn package and a Triton
kernel of this program get the same inputs. An implementation that declines them is `unavailable`
with the reason that it gives, or that this program has; one that fails in any other way, or is too far from the float64
reference, is `failed`, and is not timed. Without a GPU the shape is a small one in float32.

Queries and keys are standard normal, values uniform in [-1, 1]: every output then lies in
[-1, 1], and an absolute bound means the same for every shape, causal or not.
"""

import importlib.util
import warnings

from sfvalidate import accuracy, compilers, failure, timing

LIMIT = 600
ISOLATED = False
SMALL = {"batch": 1, "heads": 2, "seq": 256, "head_dim": 64, "dtype": "float32"}
BACKENDS = {"sdpa-math": "MATH", "sdpa-flash": "FLASH_ATTENTION", "sdpa-efficient": "EFFICIENT_ATTENTION",
            "sdpa-cudnn": "CUDNN_ATTENTION"}
# What torch says of inputs that a backend does not take, and a flash_attn of parts that were not compiled. Other errors
# are failures.
DECLINES = ("No available kernel", "No viable backend", "Invalid backend", "This flash attention build does not support")
REFERENCE_BYTES = 256 << 20


class Unavailable(Exception):
    """The implementation does not take these inputs."""


def obstacle(spec, device):
    if importlib.util.find_spec("torch") is None:
        return "failed", "torch is not installed"
    return None


def facts(spec, device):
    if device.get("gpu"):
        return {"shape": spec["attention"]}
    return {"shape": shape(spec, device), "threads": 1, "note": "shape reduced: " + str(device.get("no_gpu"))}


def shape(spec, device):
    return spec["attention"] if device.get("gpu") else dict(SMALL, causal=spec["attention"]["causal"])


def units(spec, device):
    return ["naive"] + list(BACKENDS) + ["flash_attn", "triton"]


def run(unit, job):
    gpu, wanted = bool(job.device.get("gpu")), shape(job.spec, job.device)
    job.step("importing torch")
    import torch

    timing.one_thread(torch, gpu)
    result = {"name": unit, "status": "passed"}
    try:
        attend = implementation(unit, torch, job, wanted)
        inputs = job.keep("inputs", lambda: make_inputs(torch, wanted, gpu))
        expected = job.keep("reference", lambda: reference(torch, job, *inputs, wanted["causal"]))
        job.step("running " + unit)
        got = first_call(torch, attend, inputs)
    except Unavailable as declined:
        return dict(result, status="unavailable", reason=str(declined))
    result["accuracy"], reason = accuracy.compare(torch, got, expected, wanted["dtype"])
    if reason is not None:
        return dict(result, status="failed", kind="wrong-result", reason=reason)
    del got
    job.step("timing " + unit)
    with torch.no_grad():
        measured = timing.median_ms(torch, lambda: attend(*inputs), gpu)
    measured["tflops"] = float("{:.4g}".format(operations(wanted) / (measured["median_ms"] * 1e9)))
    return dict(result, timing=measured)


def operations(wanted):
    """Multiplications and additions of the two products; half of the scores exist when causal."""
    full = 4 * wanted["batch"] * wanted["heads"] * wanted["seq"] ** 2 * wanted["head_dim"]
    return full / 2 if wanted["causal"] else full


def make_inputs(torch, wanted, gpu):
    torch.manual_seed(0)
    size = (wanted["batch"], wanted["heads"], wanted["seq"], wanted["head_dim"])
    device, dtype = "cuda" if gpu else "cpu", getattr(torch, wanted["dtype"])
    q, k = (torch.randn(size, device=device).to(dtype) for _ in range(2))
    return q, k, (torch.rand(size, device=device) * 2 - 1).to(dtype)


def reference(torch, job, q, k, v, causal):
    """The same in float64, a few heads at a time, so that the scores stay within REFERENCE_BYTES."""
    batch, heads, seq, head_dim = q.shape
    flat = [tensor.reshape(batch * heads, seq, head_dim) for tensor in (q, k, v)]
    out = torch.empty(batch * heads, seq, head_dim, dtype=torch.float64, device=q.device)
    rows = max(1, min(seq, REFERENCE_BYTES // (8 * seq)))
    together = max(1, REFERENCE_BYTES // (8 * seq * rows))
    for head in range(0, batch * heads, together):
        job.step("computing the float64 reference")
        queries, keys, values = (tensor[head:head + together].double() for tensor in flat)
        for row in range(0, seq, rows):
            scores = queries[:, row:row + rows] @ keys.transpose(1, 2) * head_dim ** -0.5
            if causal:
                scores.masked_fill_(later(torch, row, scores), float("-inf"))
            out[head:head + together, row:row + rows] = torch.softmax(scores, dim=-1) @ values
    return out.reshape(batch, heads, seq, head_dim)


def later(torch, first, scores):
    """Which keys come after their query, for queries from `first` on."""
    row = torch.arange(first, first + scores.shape[-2], device=scores.device)
    return torch.arange(scores.shape[-1], device=scores.device)[None, :] > row[:, None]


def first_call(torch, attend, inputs):
    """The result, with everything that makes an implementation unavailable told apart."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with torch.no_grad():
                got = attend(*inputs)
            if got.is_cuda:
                torch.cuda.synchronize()
            return got
        except torch.cuda.OutOfMemoryError as error:
            raise Unavailable("the GPU's memory is too small for it") from error
        except RuntimeError as error:
            if not any(words in str(error) for words in DECLINES):
                raise
            raise Unavailable("; ".join([failure.headline(str(error))] + explanations(said))) from error


def explanations(said):
    """What torch warned about this backend: it explains all of them, also those that were switched off for the test."""
    texts = [failure.headline(str(warning.message).split(" (Triggered internally")[0]) for warning in said]
    return [text for text in dict.fromkeys(texts)
            if not text.endswith("not used because:") and not text.endswith("has been runtime disabled.")]


def implementation(unit, torch, job, wanted):
    """The function (q, k, v) -> out, or Unavailable."""
    causal = wanted["causal"]
    if unit in BACKENDS:
        return sdpa(torch, BACKENDS[unit], causal)
    if unit == "flash_attn":
        return flash_attn(job, causal, wanted["dtype"])
    if unit == "triton":
        return triton(torch, job, causal, wanted["head_dim"])

    def naive(q, k, v):
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        if causal:
            scores = scores.masked_fill(later(torch, 0, scores), float("-inf"))
        return torch.softmax(scores, dim=-1) @ v

    return naive


def sdpa(torch, name, causal):
    if not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        raise Unavailable("torch {} has no scaled_dot_product_attention, which came with 2.0".format(torch.__version__))
    alone = backend_alone(torch, name)

    def attend(q, k, v):
        with alone():
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return attend


def backend_alone(torch, name):
    """Returns a function that makes a context in which torch takes one backend and no other."""
    missing = Unavailable("torch {} has no such backend".format(torch.__version__))
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        # Before 2.3.
        flags = {"MATH": "enable_math", "FLASH_ATTENTION": "enable_flash", "EFFICIENT_ATTENTION": "enable_mem_efficient"}
        if name not in flags:
            raise missing from None
        chosen = {flag: flag == flags[name] for flag in flags.values()}
        return lambda: torch.backends.cuda.sdp_kernel(**chosen)
    backend = getattr(SDPBackend, name, None)
    if backend is None:
        raise missing
    return lambda: sdpa_kernel(backend)


def flash_attn(job, causal, dtype):
    """The package's own layout is (batch, seq, heads, head_dim): the views cost nothing."""
    if importlib.util.find_spec("flash_attn") is None:
        raise Unavailable("flash_attn is not installed")
    if not job.device.get("gpu"):
        raise Unavailable(job.device.get("no_gpu"))
    if dtype == "float32":
        raise Unavailable("flash_attn takes float16 and bfloat16 only")
    job.step("importing flash_attn")
    from flash_attn import flash_attn_func

    def attend(q, k, v):
        return flash_attn_func(*(tensor.transpose(1, 2) for tensor in (q, k, v)), causal=causal).transpose(1, 2)

    return attend


def triton(torch, job, causal, head_dim):
    if importlib.util.find_spec("triton") is None:
        raise Unavailable("triton is not installed")
    if not job.device.get("gpu"):
        raise Unavailable(job.device.get("no_gpu"))
    reason = compilers.missing_c()
    if reason is not None:
        raise Unavailable(reason)
    if head_dim > 256:
        raise Unavailable("the kernel takes a head_dim of at most 256")
    job.step("importing triton")
    from sfvalidate import triton_kernels

    outputs = []

    def attend(q, k, v):
        # The checked first call fills NaN over; the timed ones write to the same place again.
        if not outputs:
            outputs.append(torch.full_like(q, float("nan")))
        return triton_kernels.attention(q, k, v, causal, outputs[0])

    return attend

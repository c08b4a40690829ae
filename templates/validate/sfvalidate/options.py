"""Tries the parts of a library that were compiled, and those that were left out.

A part that was compiled has to give the float64 reference's result. One that was left out has to raise an
error that says so: a result, whatever it is, is a failure. Options that are on or off are tried with the first
head dimension and type that were kept.
"""

import importlib.util

from sfvalidate import accuracy, failure

LIMIT = 600
ISOLATED = False
SHAPE = {"batch": 2, "heads": 2, "seq": 256}


def obstacle(spec, device):
    if not device.get("gpu"):
        return "not-run", device["no_gpu"]
    if importlib.util.find_spec("torch") is None:
        return "failed", "torch is not installed"
    return None


def facts(spec, device):
    return {}


def units(spec, device):
    """LIBRARY OPTION PART, for each part of each option that a probe is known for."""
    return ["{} {} {}".format(library["name"], option, part)
            for library in spec["libraries"] if library["name"] in PROBES
            for option, parts in library["options"].items() if option in PROBES[library["name"]]
            for part in parts]


def run(unit, job):
    name, option, part = unit.split(" ")
    options = {library["name"]: library["options"] for library in job.spec["libraries"]}[name]
    compiled = options[option][part]
    job.step("importing torch")
    import torch

    result = {"name": unit, "status": "passed", "compiled": compiled}
    job.step("running " + unit)
    try:
        reason = PROBES[name][option](torch, part, options)
    except RuntimeError as error:
        if compiled or REFUSALS[name] not in str(error):
            raise
        return dict(result, refused=failure.headline(str(error)))
    if not compiled:
        return dict(result, status="failed", kind="wrong-result",
                    reason="it was not compiled, and gives a result in place of an error")
    return result if reason is None else dict(result, status="failed", kind="wrong-result", reason=reason)


def some(options, option, default):
    """A part that was compiled, for the tests of other options."""
    parts = options.get(option, {})
    return next((part for part, compiled in parts.items() if compiled), default)


class Case:
    """Inputs of flash_attn in its layout (batch, seq, heads, head_dim), and their attention in float64."""

    def __init__(self, torch, options, head_dim=None, dtype=None):
        self.torch = torch
        self.head_dim = int(head_dim or some(options, "head_dims", "64"))
        self.dtype = {"fp16": "float16", "bf16": "bfloat16"}[dtype or some(options, "dtypes", "fp16")]
        torch.manual_seed(0)
        size = (SHAPE["batch"], SHAPE["seq"], SHAPE["heads"], self.head_dim)
        self.q, self.k = (torch.randn(size, device="cuda").to(getattr(torch, self.dtype)) for _ in range(2))
        self.v = (torch.rand(size, device="cuda") * 2 - 1).to(getattr(torch, self.dtype))

    def inputs(self):
        return self.q, self.k, self.v

    def flash(self, **more):
        from flash_attn import flash_attn_func

        out = flash_attn_func(*self.inputs(), **more)
        self.torch.cuda.synchronize()
        return out

    def scores(self, q, k):
        return self.torch.einsum("bqhd,bkhd->bhqk", q, k) * self.head_dim ** -0.5

    def reference(self, change=lambda scores: scores):
        q, k, v = (tensor.double() for tensor in self.inputs())
        return self.torch.einsum("bhqk,bkhd->bqhd", change(self.scores(q, k)).softmax(-1), v)

    def compare(self, got, expected):
        """None, or what is wrong. Gradients may be larger than 1, which outputs are not."""
        reach = max(1.0, float(expected.abs().max()))
        return accuracy.compare(self.torch, got, expected, self.dtype, reach)[1]

    def distance(self):
        """Of each key from each query, in positions."""
        place = self.torch.arange(SHAPE["seq"], device="cuda")
        return place[None, :] - place[:, None]


def head_dims(torch, part, options):
    case = Case(torch, options, head_dim=part)
    reason = case.compare(case.flash(), case.reference())
    causal = lambda scores: scores.masked_fill(case.distance() > 0, float("-inf"))
    return reason or case.compare(case.flash(causal=True), case.reference(causal))


def dtypes(torch, part, options):
    case = Case(torch, options, dtype=part)
    return case.compare(case.flash(), case.reference())


def backward(torch, part, options):
    case = Case(torch, options)
    for tensor in case.inputs():
        tensor.requires_grad_()
    case.flash().float().sum().backward()
    got = [tensor.grad for tensor in case.inputs()]
    torch.cuda.synchronize()
    for tensor in case.inputs():
        tensor.grad = None
    case.reference().sum().backward()
    reasons = (case.compare(grad, tensor.grad) for grad, tensor in zip(got, case.inputs()))
    return next((reason for reason in reasons if reason), None)


def dropout(torch, part, options):
    case = Case(torch, options)
    got, whole = case.flash(dropout_p=0.5), case.flash()
    if not torch.isfinite(got).all():
        return "dropout gives values that are not finite"
    return "dropout changes nothing" if torch.equal(got, whole) else None


def alibi(torch, part, options):
    case = Case(torch, options)
    slopes = torch.linspace(0.1, 0.5, SHAPE["heads"], device="cuda", dtype=torch.float32)
    bias = lambda scores: scores - slopes.double()[None, :, None, None] * case.distance().abs()
    return case.compare(case.flash(alibi_slopes=slopes), case.reference(bias))


def softcap(torch, part, options):
    case = Case(torch, options)
    capped = lambda scores: 2.0 * (scores / 2.0).tanh()
    return case.compare(case.flash(softcap=2.0), case.reference(capped))


def local(torch, part, options):
    case = Case(torch, options)
    near = lambda scores: scores.masked_fill(case.distance().abs() > 16, float("-inf"))
    return case.compare(case.flash(window_size=(16, 16)), case.reference(near))


def uneven_k(torch, part, options):
    case = Case(torch, options, head_dim=int(some(options, "head_dims", "64")) - 8)
    return case.compare(case.flash(), case.reference())


# How each library begins to say that a part was left out.
REFUSALS = {"flash-attn": "This flash attention build does not support"}
# By library and option: a function (torch, part, options) that uses the part, and returns None or what is wrong.
PROBES = {"flash-attn": {probe.__name__: probe for probe in (
    head_dims, dtypes, backward, dropout, alibi, softcap, local, uneven_k)}}

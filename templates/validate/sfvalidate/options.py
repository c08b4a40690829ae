"""Tries the parts of a library that were compiled, and those that were left out.

A part that was compiled has to give the float64 reference's result. One that was left out has to raise an
error that says so: a result, whatever it is, is a failure. Each part is tried through every function of the library
that may take it: training calls one, a server that packs its requests another, decoding a third. Options that are
on or off are tried with the first head dimension and type that were kept.
"""

import importlib.util

from sfvalidate import accuracy, failure

LIMIT = 600
ISOLATED = False
SHAPE = {"batch": 2, "heads": 2, "seq": 256}
# The smallest page of a cache that flash_attn takes, in tokens.
PAGE = 256


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
    make, probes = PROBES[name][option]
    for probe in probes:
        job.step("running {}, {}".format(unit, probe.__name__))
        try:
            reason = probe(make(torch, part, options))
        except RuntimeError as error:
            if compiled or REFUSALS[name] not in str(error):
                raise
            result["refused"] = failure.headline(str(error))
            continue
        if not compiled:
            reason = "it was not compiled, and gives a result in place of an error"
        if reason is not None:
            result.pop("refused", None)
            return dict(result, status="failed", kind="wrong-result", reason="{}: {}".format(probe.__name__, reason))
    return result


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

    def flash(self, function="flash_attn_func", *arguments, **more):
        """A function of the package, on the case's inputs where no others are given."""
        flash_attn = importlib.import_module("flash_attn")
        out = getattr(flash_attn, function)(*(arguments or self.inputs()), **more)
        self.torch.cuda.synchronize()
        return out

    def reference(self, change=lambda scores: scores, inputs=None):
        q, k, v = (tensor.double() for tensor in inputs or self.inputs())
        scores = self.torch.einsum("bqhd,bkhd->bhqk", q, k) * self.head_dim ** -0.5
        return self.torch.einsum("bhqk,bkhd->bqhd", change(scores).softmax(-1), v)

    def compare(self, got, expected):
        """None, or what is wrong. Gradients may be larger than 1, which outputs are not."""
        reach = max(1.0, float(expected.abs().max()))
        return accuracy.compare(self.torch, got, expected, self.dtype, reach)[1]

    def distance(self):
        """Of each key from each query, in positions."""
        place = self.torch.arange(SHAPE["seq"], device="cuda")
        return place[None, :] - place[:, None]

    def packed(self):
        """The inputs of sequences of different lengths one after another, and where each begins in the batch's first."""
        lengths = [SHAPE["seq"] - 91 * index for index in range(SHAPE["batch"])]
        packed = [self.torch.cat([tensor[index, :length] for index, length in enumerate(lengths)]).detach()
                  for tensor in self.inputs()]
        starts = self.torch.tensor([sum(lengths[:index]) for index in range(len(lengths) + 1)], device="cuda")
        return packed, starts.int(), lengths

    def packed_reference(self, packed, lengths):
        parts = zip(*(tensor.split(lengths) for tensor in packed))
        return self.torch.cat([self.reference(inputs=[tensor[None] for tensor in part])[0] for part in parts])

    def varlen(self, packed, starts, lengths):
        return self.flash("flash_attn_varlen_func", *packed, starts, starts, max(lengths), max(lengths))

    def first_wrong(self, pairs):
        reasons = (self.compare(got, expected) for got, expected in pairs)
        return next((reason for reason in reasons if reason), None)


def whole(case):
    return case.compare(case.flash(), case.reference())


def causal(case):
    earlier = lambda scores: scores.masked_fill(case.distance() > 0, float("-inf"))
    return case.compare(case.flash(causal=True), case.reference(earlier))


def packed(case):
    """Sequences of different lengths, as a server packs its requests."""
    inputs, starts, lengths = case.packed()
    return case.compare(case.varlen(inputs, starts, lengths), case.packed_reference(inputs, lengths))


def decoding(case, window=None, table=False):
    """One new token for each sequence, with the keys of the earlier ones in a cache; the work is split along the keys."""
    torch = case.torch
    length = PAGE * 4
    size = (SHAPE["batch"], length, SHAPE["heads"], case.head_dim)
    keys, values = (torch.rand(size, device="cuda").to(case.q.dtype) * 2 - 1 for _ in range(2))
    new = [tensor[:, :1].contiguous() for tensor in case.inputs()]
    lengths = torch.tensor([length - 1 - 300 * index for index in range(SHAPE["batch"])], device="cuda").int()
    more = {"cache_seqlens": lengths}
    given = [keys.clone(), values.clone()]
    if table:
        # Page p of sequence b lies at its place in reverse order.
        pages = SHAPE["batch"] * length // PAGE
        given = [tensor.reshape(pages, PAGE, SHAPE["heads"], case.head_dim).flip(0).contiguous() for tensor in given]
        more["block_table"] = torch.arange(pages - 1, -1, -1, device="cuda").int().reshape(SHAPE["batch"], -1)
    if window is not None:
        more["window_size"] = (window, 0)
    got = case.flash("flash_attn_with_kvcache", new[0], *given, *new[1:], causal=True, **more)
    place = torch.arange(length, device="cuda")[None, :]
    last = lengths[:, None]
    seen = (place <= last) if window is None else (place <= last) & (place >= last - window)
    for cache, fresh in ((keys, new[1]), (values, new[2])):
        cache[torch.arange(SHAPE["batch"], device="cuda"), lengths.long()] = fresh[:, 0]
    masked = lambda scores: scores.masked_fill(~seen[:, None, None, :], float("-inf"))
    return case.compare(got, case.reference(masked, (new[0], keys, values)))


def paged(case):
    """Decoding with a cache in pages."""
    return decoding(case, table=True)


def gradients(case, inputs, out, expected):
    """The gradients of the sums of both, compared. Each is a function of the inputs."""
    for tensor in inputs:
        tensor.requires_grad_()
    out(inputs).float().sum().backward()
    got = [tensor.grad for tensor in inputs]
    case.torch.cuda.synchronize()
    for tensor in inputs:
        tensor.grad = None
    expected(inputs).sum().backward()
    return case.first_wrong(zip(got, [tensor.grad for tensor in inputs]))


def backward(case):
    return gradients(case, case.inputs(), lambda _: case.flash(), lambda _: case.reference())


def packed_backward(case):
    inputs, starts, lengths = case.packed()
    return gradients(case, inputs, lambda tensors: case.varlen(tensors, starts, lengths),
                     lambda tensors: case.packed_reference(tensors, lengths))


def dropout(case):
    got, kept = case.flash(dropout_p=0.5), case.flash()
    if not case.torch.isfinite(got).all():
        return "dropout gives values that are not finite"
    return "dropout changes nothing" if case.torch.equal(got, kept) else None


def alibi(case):
    slopes = case.torch.linspace(0.1, 0.5, SHAPE["heads"], device="cuda", dtype=case.torch.float32)
    bias = lambda scores: scores - slopes.double()[None, :, None, None] * case.distance().abs()
    return case.compare(case.flash(alibi_slopes=slopes), case.reference(bias))


def softcap(case):
    capped = lambda scores: 2.0 * (scores / 2.0).tanh()
    return case.compare(case.flash(softcap=2.0), case.reference(capped))


def local(case):
    near = lambda scores: scores.masked_fill(case.distance().abs() > 16, float("-inf"))
    return case.compare(case.flash(window_size=(16, 16)), case.reference(near))


def local_decoding(case):
    return decoding(case, window=16)


def by_head_dim(torch, part, options):
    return Case(torch, options, head_dim=part)


def by_dtype(torch, part, options):
    return Case(torch, options, dtype=part)


def usual(torch, part, options):
    return Case(torch, options)


def uneven(torch, part, options):
    return Case(torch, options, head_dim=int(some(options, "head_dims", "64")) - 8)


# How each library begins to say that a part was left out.
REFUSALS = {"flash-attn": "This flash attention build does not support"}
# By library and option: what makes a case of (torch, part, options), and the functions that use the part on one and
# return None or what is wrong.
PROBES = {"flash-attn": {
    "head_dims": (by_head_dim, (whole, causal, packed, decoding, paged)),
    "dtypes": (by_dtype, (whole, packed, decoding)),
    "backward": (usual, (backward, packed_backward)),
    "dropout": (usual, (dropout,)),
    "alibi": (usual, (alibi,)),
    "softcap": (usual, (softcap,)),
    "local": (usual, (local, local_decoding)),
    "uneven_k": (uneven, (whole, packed, decoding)),
}}

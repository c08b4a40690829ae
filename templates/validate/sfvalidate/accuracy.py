"""How far a result is from its float64 reference, and whether that is near enough.

Two measures, both bounded: the largest difference, and ||got - reference|| / ||reference||,
which also sees a result that is wrong everywhere by a little. NaN and infinity never pass.
"""

# float16 keeps 10 bits after the point and bfloat16 7: its bounds are eight times as wide. A
# float32 product may go through tf32, which keeps as many bits as float16.
LARGEST = {"float16": 2e-3, "float32": 2e-3, "bfloat16": 1.6e-2}
RELATIVE = {"float16": 5e-3, "float32": 5e-3, "bfloat16": 4e-2}


def compare(torch, got, reference, dtype, reach=1):
    """(figures for the report's "accuracy", reason why it is not near enough or None).

    `reach` is what the largest results are of: floating-point errors grow with them.
    """
    bound = LARGEST[dtype] * reach
    if tuple(got.shape) != tuple(reference.shape):
        return {}, "the result's shape is {}, not {}".format(tuple(got.shape), tuple(reference.shape))
    difference = got.double() - reference
    if not bool(torch.isfinite(difference).all()):
        return {}, "the result holds NaN or infinity"
    largest = float(difference.abs().max())
    relative = float(difference.norm() / reference.norm())
    figures = {"max_abs_error": float("{:.3g}".format(largest)), "max_abs_bound": bound,
               "relative_error": float("{:.3g}".format(relative)), "relative_bound": RELATIVE[dtype]}
    if largest >= bound:
        return figures, "differs from float64 by {:.3g}, the bound is {:g}".format(largest, bound)
    if relative >= RELATIVE[dtype]:
        return figures, "differs from float64 by {:.3g} of its norm, the bound is {:g}".format(relative, RELATIVE[dtype])
    return figures, None

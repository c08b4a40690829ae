"""The Triton kernels of the checks: add, masked softmax, matrix product, attention (forward).

Small and masked at every edge. Each function takes and returns torch tensors on the GPU; outputs
are filled with NaN first, so that an element that no program wrote is seen (attention's caller
does so, since it also times it).
"""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(left, right, out, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.store(out + place, tl.load(left + place, mask=inside) + tl.load(right + place, mask=inside), mask=inside)


@triton.jit
def softmax_kernel(values, out, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    loaded = tl.load(values + row * stride + column, mask=inside, other=-float("inf")).to(tl.float32)
    raised = tl.exp(loaded - tl.max(loaded, axis=0))
    tl.store(out + row * stride + column, raised / tl.sum(raised, axis=0), mask=inside)


@triton.jit
def matmul_kernel(left, right, out, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        depth = start + inner
        a = tl.load(left + row[:, None] * K + depth[None, :], mask=(row[:, None] < M) & (depth[None, :] < K), other=0.0)
        b = tl.load(right + depth[:, None] * N + column[None, :], mask=(depth[:, None] < K) & (column[None, :] < N), other=0.0)
        total += tl.dot(a, b)
    inside = (row[:, None] < M) & (column[None, :] < N)
    tl.store(out + row[:, None] * N + column[None, :], total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def attention_kernel(q, k, v, out, scale, S, D, CAUSAL: tl.constexpr,
                     BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr):
    """One block of queries of one head against all keys, with a running maximum and sum (base 2)."""
    first = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64) * S * D
    row = first + tl.arange(0, BLOCK_M)
    depth = tl.arange(0, BLOCK_D)
    column = tl.arange(0, BLOCK_N)
    queries = tl.load(q + head + row[:, None] * D + depth[None, :], mask=(row[:, None] < S) & (depth[None, :] < D), other=0.0)
    most = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    sums = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    end = S
    if CAUSAL:
        end = tl.minimum(S, first + BLOCK_M)
    for start in range(0, end, BLOCK_N):
        key = start + column
        there = (key[:, None] < S) & (depth[None, :] < D)
        keys = tl.load(k + head + key[:, None] * D + depth[None, :], mask=there, other=0.0)
        values = tl.load(v + head + key[:, None] * D + depth[None, :], mask=there, other=0.0)
        scores = tl.dot(queries, tl.trans(keys)) * scale
        seen = key[None, :] < S
        if CAUSAL:
            seen = seen & (key[None, :] <= row[:, None])
        scores = tl.where(seen, scores, -float("inf"))
        # Key 0 is in the first block and every row sees it: `now` is finite from there on.
        now = tl.maximum(most, tl.max(scores, axis=1))
        weights = tl.exp2(scores - now[:, None])
        shrink = tl.exp2(most - now)
        total = total * shrink + tl.sum(weights, axis=1)
        sums = sums * shrink[:, None] + tl.dot(weights.to(values.dtype), values)
        most = now
    result = sums / total[:, None]
    tl.store(out + head + row[:, None] * D + depth[None, :], result.to(out.dtype.element_ty),
             mask=(row[:, None] < S) & (depth[None, :] < D))


def add(left, right):
    out = torch.full_like(left, float("nan"))
    add_kernel[(triton.cdiv(left.numel(), 1024),)](left, right, out, left.numel(), BLOCK=1024)
    return out


def softmax(values):
    out = torch.full_like(values, float("nan"))
    rows, columns = values.shape
    softmax_kernel[(rows,)](values, out, values.stride(0), columns, BLOCK=triton.next_power_of_2(columns))
    return out


def matmul(left, right):
    (M, K), N = left.shape, right.shape[1]
    out = torch.full((M, N), float("nan"), dtype=left.dtype, device=left.device)
    matmul_kernel[(triton.cdiv(M, 64), triton.cdiv(N, 64))](left, right, out, M, N, K, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    return out


def attention(q, k, v, causal, out):
    """Contiguous (batch, heads, seq, head_dim) in, `out` filled."""
    batch, heads, seq, head_dim = q.shape
    wide = head_dim > 64 or q.dtype == torch.float32
    block_m, block_n = (64, 32) if wide else (128, 64)
    scale = head_dim ** -0.5 * 1.4426950408889634
    attention_kernel[(triton.cdiv(seq, block_m), batch * heads)](
        q, k, v, out, scale, seq, head_dim, CAUSAL=causal, BLOCK_M=block_m, BLOCK_N=block_n,
        BLOCK_D=max(16, triton.next_power_of_2(head_dim)), num_warps=4, num_stages=2 if wide else 3)
    return out

"""The shim that runs CUDA kernels on the host finds what it is there to find."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_host import ORDERS, missing, run_on_host, run_sanitized

from robodyn.engines.gpu.source import KernelSource

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")

_HEAD = (
    'extern "C" __global__ void kernel(const double* x, double* y, const long long* numbers, double* work, '
    "long long rows)"
)


def _kernel(body: str, **more: int) -> KernelSource:
    """A kernel from x (rows, 64) to y (rows, 64), whose constants are 0, 10, 20."""
    options = {"threads_per_state": 64, "block_threads": 64, **more}
    numbers = (np.array([0, 10, 20]),)
    return KernelSource("kernel", f"{_HEAD} {{\n{body}\n}}\n", np.dtype("float64"), ("x",), ("y",), numbers, **options)


def _reversal(barrier: str, last: str = "__syncthreads();", shared: str = "extern __shared__ double held[];") -> str:
    return f"""{shared}
    const int t = threadIdx.x;
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {{
        held[t] = x[64 * row + t];
        {barrier}
        y[64 * row + t] = held[63 - t];
        {last}
    }}"""


def _run(source: KernelSource, order: str, blocks: int = 2, rows: int = 5) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(3).normal(size=(rows, 64))
    return x, run_on_host(source, {"x": x}, {"y": np.empty((rows, 64))}, order, blocks)["y"]


@pytest.mark.parametrize("shared", ["extern __shared__ double held[];", "__shared__ double held[64];"])
@pytest.mark.parametrize("order", ORDERS)
def test_gpu_shim_runs_a_kernel_with_barriers(order: str, shared: str) -> None:
    source = _kernel(_reversal("__syncthreads();", shared=shared), shared_bytes=512)
    for blocks in (1, 2, 7):
        x, y = _run(source, order, blocks)
        assert (y == x[:, ::-1]).all()


@pytest.mark.parametrize(("barrier", "last"), [("", "__syncthreads();"), ("__syncthreads();", "")])
def test_gpu_shim_shows_a_missing_barrier_in_some_order(barrier: str, last: str) -> None:
    source = _kernel(_reversal(barrier, last), shared_bytes=512)
    results = [_run(source, order) for order in ORDERS]
    assert any(not (y == x[:, ::-1]).all() for x, y in results)


def test_gpu_shim_shows_a_missing_warp_barrier_in_some_order() -> None:
    body = """__shared__ double held[64];
    const int t = threadIdx.x, lane = t % 32, first = t - lane;
    held[t] = x[t];
    {}
    y[t] = held[first + 31 - lane];"""
    for barrier, right in (("__syncwarp();", True), ("", False)):
        source = _kernel(body.format(barrier))
        found = [(x.reshape(2, 32)[:, ::-1].ravel(), y[0]) for x, y in (_run(source, order, 1, 1) for order in ORDERS)]
        assert all((x == y).all() for x, y in found) == right


@pytest.mark.parametrize(
    "body",
    [
        "if (threadIdx.x < 3) __syncthreads();",
        "if (threadIdx.x % 32 < 3) __syncwarp();",
        "if (threadIdx.x < 3) return; __shfl_sync(0xffffffff, 1, 0);",
        "if (threadIdx.x < 3)\n__syncthreads();\nelse\n__syncthreads();",
    ],
)
def test_gpu_shim_reports_barriers_that_threads_do_not_share(body: str) -> None:
    with pytest.raises(RuntimeError, match="barrier"):
        _run(_kernel(body), "forward")


_EXCHANGES = {
    "__shfl_sync(all, v, 5)": lambda v: np.full(32, v[5]),
    "__shfl_sync(all, v, 5, 16)": lambda v: np.repeat(v[[5, 21]], 16),
    "__shfl_up_sync(all, v, 3)": lambda v: np.concatenate([v[:3], v[:-3]]),
    "__shfl_down_sync(all, v, 3)": lambda v: np.concatenate([v[3:], v[-3:]]),
    "__shfl_down_sync(all, v, 2, 8)": lambda v: v[[k + 2 if k % 8 < 6 else k for k in range(32)]],
    "__shfl_xor_sync(all, v, 6)": lambda v: v[np.arange(32) ^ 6],
    "__ballot_sync(all, v > 0)": lambda v: np.full(32, float(sum(1 << k for k in range(32) if v[k] > 0))),
    "__any_sync(all, v > 100)": lambda v: np.zeros(32),
    "__all_sync(all, v < 100)": lambda v: np.ones(32),
    "numbers[1] + numbers[2]": lambda v: np.full(32, 30.0),
}


@pytest.mark.parametrize("order", ORDERS)
def test_gpu_shim_exchanges_values_in_a_warp(order: str) -> None:
    """Each line of x is what one expression is computed from, and each line of y what it gave in both warps."""
    lines = "\n".join(f"if (row == {k}) y[64 * row + t] = {expression};" for k, expression in enumerate(_EXCHANGES))
    body = f"""const int t = threadIdx.x; const unsigned all = 0xffffffff;
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {{
        const double v = x[64 * row + t];
        {lines}
    }}"""
    x, y = _run(_kernel(body), order, rows=len(_EXCHANGES))
    for k, (expression, wanted) in enumerate(_EXCHANGES.items()):
        for warp in (0, 1):
            part = slice(32 * warp, 32 * warp + 32)
            assert (y[k, part] == wanted(x[k, part])).all(), expression


def test_gpu_shim_exchanges_values_within_masks_and_adds() -> None:
    body = """__shared__ double total;
    const int t = threadIdx.x, lane = t % 32;
    if (t == 0) total = 0;
    __syncthreads();
    atomicAdd(&total, 1.0);
    __syncthreads();
    double found = total;
    if (lane < 4) found = __shfl_sync(0xf, x[t], 3);
    y[t] = found;"""
    x, y = _run(_kernel(body), "random", 1, 1)
    wanted = np.full((2, 32), 64.0)
    wanted[:, :4] = x.reshape(2, 32)[:, 3:4]
    assert (y == wanted.ravel()).all()


def test_gpu_shim_fills_shared_memory_and_workspace_with_nan() -> None:
    for shared in ("extern __shared__ double held[];", "__shared__ double held[64];"):
        _, y = _run(_kernel(f"{shared} y[threadIdx.x] = held[threadIdx.x];", shared_bytes=512), "forward", 1, 1)
        assert np.isnan(y).all()
    source = _kernel("y[threadIdx.x] = work[threadIdx.x];", workspace_scalars=64)
    assert np.isnan(_run(source, "forward", 1, 1)[1]).all()


def _sanitized(source: KernelSource, sanitizer: str) -> str:
    if reason := missing(sanitizer):
        pytest.skip(reason)
    x, outputs = np.random.default_rng(3).normal(size=(3, 64)), {"y": np.empty((3, 64))}
    said = run_sanitized(source, {"x": x}, outputs, sanitizer)
    assert said or (outputs["y"] == x[:, ::-1]).all()
    return said


@pytest.mark.kernels
def test_gpu_shim_under_thread_sanitizer_names_a_race() -> None:
    good = _kernel(_reversal("__syncthreads();"), shared_bytes=512)
    assert not _sanitized(good, "thread")
    assert "data race" in _sanitized(_kernel(_reversal(""), shared_bytes=512), "thread")


@pytest.mark.kernels
def test_gpu_shim_under_address_sanitizer_finds_a_short_array() -> None:
    assert not _sanitized(_kernel(_reversal("__syncthreads();"), shared_bytes=512), "address")
    assert "heap-buffer-overflow" in _sanitized(_kernel(_reversal("__syncthreads();"), shared_bytes=504), "address")

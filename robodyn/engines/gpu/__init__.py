"""The GPU engine: algorithms as CUDA kernels for batches of states."""

from robodyn.engines.gpu.options import GpuOptions

__all__ = ["GpuOptions"]

"""The GPU engine: algorithms as CUDA kernels for batches of states."""

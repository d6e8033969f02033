"""Bridges to other libraries: JAX, PyTorch, simulators, Dask."""

"""Other libraries: JAX, PyTorch, simulators, Dask."""

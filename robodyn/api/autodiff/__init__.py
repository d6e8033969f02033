"""Derivative rules of queries for libraries with automatic differentiation; `robodyn.jax` and `robodyn.torch` use
them."""

"""Kernels of chains: algorithms, solves with the mass matrix, and products, one after another."""

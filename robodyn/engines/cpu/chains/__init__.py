"""Queries of several stages: algorithms, solves with the mass matrix, products."""

"""Engines run algorithms: they allocate fields and choose the order of computation."""

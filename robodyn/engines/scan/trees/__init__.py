"""Paths, subtrees and scans over them."""

"""Scans on arrays of a GPU."""

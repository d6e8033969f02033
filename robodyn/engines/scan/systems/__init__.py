"""Recursions and linear systems along paths."""

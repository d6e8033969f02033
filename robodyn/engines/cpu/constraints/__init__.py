"""Queries about constraints of large trees as loops over bodies, constraints and rows."""

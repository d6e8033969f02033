"""Prints straight-line programs as C."""

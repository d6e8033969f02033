"""Straight-line programs as C."""

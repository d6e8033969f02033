"""Algorithms of constraints: their rows, forces, assembly, redundancy and wrenches."""

"""Distances between shapes: formulas, and tasks of engines that are made of them."""

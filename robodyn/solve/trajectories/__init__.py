"""Optimal trajectories: cost terms, iterative linear-quadratic regulators, and control with a receding horizon."""

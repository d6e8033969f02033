"""Trajectory optimisation: costs, differential dynamic programming, multiple shooting, model predictive control."""

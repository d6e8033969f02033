"""Solvers on top of the queries: inverse kinematics."""

"""Solvers on top of the queries."""

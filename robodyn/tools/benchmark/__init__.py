"""Benchmarks: how fast queries are on a robot, compared with other installed libraries."""

"""Tracing: an algorithm runs on symbolic expressions instead of numbers, and the record of its operations is a
program."""

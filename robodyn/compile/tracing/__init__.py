"""Tracing: an algorithm run on expressions instead of numbers becomes a program."""

"""Threads that share a batch."""

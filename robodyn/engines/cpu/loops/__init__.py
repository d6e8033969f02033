"""Loops over bodies, for robots whose programs would be too long."""

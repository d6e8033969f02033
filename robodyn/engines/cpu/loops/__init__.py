"""Loops over bodies ("rolled code"), for robots whose straight-line programs would be too long."""

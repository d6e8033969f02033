"""Measuring: how fast queries are on a robot, beside whatever else is installed that answers them."""

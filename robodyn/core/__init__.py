"""Robots as data:

spatial algebra, joints, trees, descriptions, models, constraints; and sweeps, in which algorithms are written.
"""

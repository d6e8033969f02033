"""Robot data: spatial algebra, joints, trees, descriptions, models and constraints.

This package also defines sweeps, the building blocks of algorithms.
"""

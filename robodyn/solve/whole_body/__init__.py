"""Whole-body control: joint torques and contact forces by a quadratic programme."""

"""Contacts with friction, limits and dry friction of joints: the soft rows of MuJoCo's convex model.

Todorov, "Convex and analytically-invertible dynamics with contacts and constraints", ICRA 2014, and MuJoCo's
documentation, chapter Computation. docs/contacts.md is the guide.
"""

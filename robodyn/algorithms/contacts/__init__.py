"""Contacts with friction: geometry of slots, soft rows, Newton's method on accelerations."""

"""Contacts with friction."""

"""Robots from files and into files: builders, edits, conventions of other libraries."""

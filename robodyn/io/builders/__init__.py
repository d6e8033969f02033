"""Builds descriptions and models from robot files, other libraries' models and random numbers."""

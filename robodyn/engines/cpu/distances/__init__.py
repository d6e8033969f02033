"""Queries about distances as loops over tables of pairs."""

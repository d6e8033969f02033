"""Infrastructure that every package may use and that knows nothing of robots.

Strict types, errors, messages, files, records, and locks that survive forks.
"""

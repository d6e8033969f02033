"""Parts that any room may use:

strict types, errors, messages, files, records, locks for forks. They know nothing of robots.
"""

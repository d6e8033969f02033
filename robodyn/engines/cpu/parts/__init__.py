"""One tree on several threads: its parts, the order in which they are worked on, and code that does so."""

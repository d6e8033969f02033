"""The pool of threads that share a batch."""

"""Built-in functions in machine code: from Python's arguments to kernels."""

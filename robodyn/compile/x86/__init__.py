"""A code generator for straight-line programs on x86-64 processors with AVX2 or AVX-512."""

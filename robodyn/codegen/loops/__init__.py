"""Functions with loops, written in restricted Python and printed in the language of a compiler.

`language` has what such functions may use, `gpu` what those of GPU kernels may; they run as plain Python, too, which is
how they are tested. `reader` turns a function into blocks of operations (`blocks`), `llvm` prints these. `cuda` prints
the same functions in C and CUDA C++, whose loops and tests stay what they are (`c_statements`, `c_expressions`).
"""

"""Functions with loops, written in restricted Python and printed in the language of a compiler.

`language` has what such functions may use, `gpu` what those of GPU kernels may; they run as plain Python, too, which is
how they are tested. `walk` goes through a function's syntax tree and computes what is known. What becomes of the rest,
two back ends say: `flow` and `reader` make blocks of operations (`blocks`), which `llvm` prints; `c_statements` and
`c_expressions` print C and CUDA C++, whose loops and tests stay what they are (`cuda`).
"""

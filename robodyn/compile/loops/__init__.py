"""A compiler for functions with loops, written in restricted Python and printed in LLVM's language, C or CUDA C++.

`language` defines what such functions may use, `gpu` what functions of GPU kernels may use in addition. Tests run the
functions as plain Python. `walk` walks a function's syntax tree and computes everything that is known when the function
is printed. Two back ends translate the rest. `flow` and `reader` make blocks of operations (`blocks`), which `llvm`
prints. `c_statements` and `c_expressions` print C and CUDA C++ and keep loops and tests as statements (`cuda`).
"""

"""Functions with loops, written in restricted Python and printed in the language of a compiler.

`language` has what such functions may use; they run as plain Python, too, which is how they are tested. `reader` turns
a function into blocks of operations (`blocks`), `llvm` prints these.
"""

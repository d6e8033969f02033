"""Prints straight-line programs as LLVM's language (LLVM IR), and compiles and links them with LLVM."""

"""The CPU engine: programs compiled by LLVM for vectors of states."""

"""The CPU engine: algorithms compiled to machine code for vectors of states."""

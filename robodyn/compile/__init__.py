"""The compiler: traces algorithms into programs and translates these into machine code."""

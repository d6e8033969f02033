"""Machine code from traced programs."""

"""Programs around the library: command line, viewer, plots, test helpers for users, hardware, benchmarks."""

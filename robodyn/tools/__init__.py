"""Programs around the library: the command line, viewer, figures, tests of users' models, hardware, benchmarks."""

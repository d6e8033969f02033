"""The GPU engine: queries, partitions of a gradient, first answers, and which kernel is the fastest where."""

"""Models made of other models: frames, locked joints, parts, robots put together, files written."""

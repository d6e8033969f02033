"""Edits of models: adding frames, locking joints, extracting and combining robots, rerooting, and writing files."""

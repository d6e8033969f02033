"""Linear systems along paths."""

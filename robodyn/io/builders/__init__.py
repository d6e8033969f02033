"""From robot files and recipes to descriptions and models."""

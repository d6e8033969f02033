"""The scan engine on GPUs."""

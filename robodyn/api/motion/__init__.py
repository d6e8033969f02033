"""Motion over time: rollouts and simulation."""

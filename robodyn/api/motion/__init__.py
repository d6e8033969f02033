"""Motion over time: rollouts, their gradients, and simulation with error control."""

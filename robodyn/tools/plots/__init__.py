"""Plots of trajectories and trees by Matplotlib (the extra `plot`).

    run = dyn.rollout(q0, qd0, dt=1e-3, steps=500)
    figure = run.plot(what=("positions", "energies"), joints=["elbow"])
    figure.savefig("elbow.svg")

Figures are made by Matplotlib's pyplot: notebooks show them, `pyplot.show()` opens windows, `pyplot.close(figure)`
frees them. Functions here do not call show().
"""

from __future__ import annotations

from robodyn.tools.plots.style import COLORS, STYLE
from robodyn.tools.plots.trajectories import WHAT, trajectory
from robodyn.tools.plots.trees import plot_tree

__all__ = ["COLORS", "STYLE", "WHAT", "plot_tree", "trajectory"]

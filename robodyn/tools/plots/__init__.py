"""Figures of trajectories and of trees, by Matplotlib: the extra `plot`.

    run = dyn.rollout(q0, qd0, dt=1e-3, steps=500)
    figure = run.plot(what=("positions", "energies"), joints=["elbow"])
    figure.savefig("elbow.svg")

Figures are Matplotlib's, made by its pyplot: notebooks show them, `pyplot.show()` opens windows, `pyplot.close(figure)`
forgets them. Nothing here calls show().
"""

from __future__ import annotations

from robodyn.tools.plots.style import COLORS, STYLE
from robodyn.tools.plots.trajectories import WHAT, trajectory
from robodyn.tools.plots.trees import plot_tree

__all__ = ["COLORS", "STYLE", "WHAT", "plot_tree", "trajectory"]

"""A robot to look at: sliders and configurations that follow each other, forces, a dragged tool, and a page that plays.

python examples/25_viewer.py          # does all of it without a browser, and checks it
python examples/25_viewer.py look     # stays, for a browser to look at it
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import robodyn as rd

try:
    import viser  # noqa: F401
except ImportError:
    print("viser is not installed (pip install '.[viewer]'): nothing to look at")
    raise SystemExit(0) from None

PATH = Path(__file__).resolve().parent.parent / "models" / "arm7.urdf"
START = np.array([0.3, 0.5, 0.2, -1.2, 0.3, 0.9, 0.0])


def main() -> None:
    """Show an arm, push it, let it fall, and write that as a page."""
    model = rd.load_urdf(PATH)
    dyn = rd.Dynamics(model, joint_forces="damping")
    tool = model.link_names[-1]

    with rd.show(model, START) as view:
        print(f"{model.name} is at {view.url}; layers: {', '.join(view.layers)}")
        assert not view.left_out

        push = np.array([0.0, 0.0, 0.0, 0.0, 0.0, -20.0])
        view.show(START, f_ext=rd.external_force(model, START, tool, push))
        print(f"a force of 20 N on {tool}, as an arrow")

        goal = dyn.link_pose(START, tool)
        goal[2, 3] += 0.1
        q, report = rd.InverseKinematics(model, tool).solve(goal, q0=START)
        assert bool(report.converged)
        view.target(tool)
        view.show(q)
        print(f"{tool} 10 cm higher, with a handle to drag it by: q = {np.round(view.q, 3)}")
        assert np.abs(dyn.link_pose(view.q, tool) - goal).max() < 1e-5

    run = dyn.rollout(START, np.zeros(model.nv), dt=1e-3, steps=1500)
    with rd.show(run) as view:
        view.go(0.75)
        assert (view.q == run.q[750]).all()
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "run.html"
            run.save_html(page)
            print(f"it falls for {run.t[-1]} s; a page that plays it takes {page.stat().st_size / 1e6:.2f} MB")
            assert "__VISER_EMBED_DATA__" in page.read_text(encoding="utf-8")
        if sys.argv[1:] == ["look"]:
            view.play()
            print(f"look at {view.url}; Ctrl-C ends it")
            view.wait()


if __name__ == "__main__":
    main()

"""Photograph the viewer: docs/_static/viewer.png, viewer_inertia.png and viewer_run.png.

    python docs/_pictures/viewer.py [FOLDER [NAME.png ...]]

needs viser, selenium, Pillow and Chromium (`pip install ".[viewer]" selenium pillow`, `apt-get install chromium
chromium-driver`). Pages are those that users get, seen by a browser that renders in software.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import robodyn as rd

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "viewer"))
from browser import chromium, served  # noqa: E402

WIDTH, HEIGHT = 1000, 560
STANDING = np.array([0.1, 0.8, -1.6, -0.1, 0.8, -1.6])


def standing() -> tuple[rd.Model, np.ndarray]:
    """A quadruped on its feet."""
    model = rd.load_urdf(ROOT / "models" / "quadruped.urdf", base="floating")
    q = model.neutral()
    q[7:] = np.tile(STANDING, 2)
    return model, q


def the_view(browser, path: Path) -> None:
    """The humanoid of the README, with its panel."""
    model = rd.load_urdf(ROOT / "models" / "humanoid.urdf", base="floating")
    q = model.neutral()
    names = list(model.coordinate_names)
    for name, value in {
        "left_shoulder_pitch": -1.1, "left_elbow": -1.0, "right_shoulder_roll": -0.5, "right_elbow": -0.6,
        "left_hip_pitch": -0.5, "left_knee": 0.8, "left_ankle_pitch": -0.3, "waist_yaw": 0.25,
    }.items():  # fmt: skip
        q[names.index(name)] = value
    with rd.show(model, q) as view:
        view.target("left_hand" if "left_hand" in model.link_names else model.link_names[-1])
        browser.open(view.url)
        browser.save(path)


def the_inertia(browser, path: Path) -> None:
    """A quadruped that is carried by its feet: ellipsoids, frames, the centre of mass, forces."""
    model, q = standing()
    feet = [name for name in model.link_names if name.endswith("_foot")]
    share = np.array([0.0, 0.0, 0.0, *(-model.total_mass * model.gravity / len(feet))])
    f_ext = sum(rd.external_force(model, q, foot, share) for foot in feet)
    with rd.show(model, q, f_ext=f_ext) as view:
        for layer, shown in {"shapes": False, "inertia": True, "frames": True, "centre of mass": True}.items():
            view.layer(layer, shown)
        browser.open(view.url)
        browser.save(path)


def the_run(browser, path: Path) -> None:
    """A page of a rollout, stopped."""
    model = rd.load_urdf(ROOT / "models" / "arm7.urdf")
    q0 = np.array([0.3, 0.5, 0.2, -1.2, 0.3, 0.9, 0.0])
    run = rd.Dynamics(model, joint_forces="damping").rollout(q0, np.zeros(7), dt=1e-3, steps=1000)
    with tempfile.TemporaryDirectory() as folder:
        run.save_html(Path(folder) / "run.html")
        with served(folder) as where:
            browser.open(f"{where}/run.html", plays=True)
            browser.press_play()
            browser.save(path)


PICTURES = {"viewer.png": the_view, "viewer_inertia.png": the_inertia, "viewer_run.png": the_run}


def main() -> None:
    """Photograph them."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "_static"
    with chromium(WIDTH, HEIGHT) as browser:
        for name in sys.argv[2:] or PICTURES:
            PICTURES[name](browser, folder / name)
            print(f"wrote {name}")


if __name__ == "__main__":
    main()

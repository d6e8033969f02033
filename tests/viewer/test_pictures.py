"""The pictures of the README and the guide are what their command makes."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from browser import chromium
from robots import ROOT

NAMES = ("viewer.png", "viewer_inertia.png")
"""Of those that come to rest by themselves; that of a rollout stops where the button was pressed."""


def test_pages_name_the_command_and_its_pictures():
    guide = (ROOT / "docs" / "viewer.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = (ROOT / "docs" / "_pictures" / "viewer.py").read_text(encoding="utf-8")
    assert "python docs/_pictures/viewer.py" in guide and "docs/_static/viewer.png" in readme
    shown = set(re.findall(r"_static/(viewer\w*\.png)", guide + readme))
    assert shown == set(re.findall(r'"(viewer\w*\.png)": ', script))
    assert all((ROOT / "docs" / "_static" / name).stat().st_size < 200_000 for name in shown)


@pytest.mark.extras
def test_the_command_makes_the_pictures(tmp_path):
    pytest.importorskip("viser")
    image = pytest.importorskip("PIL.Image")
    with chromium():  # or a skip that says what is missing
        pass
    script = ROOT / "docs" / "_pictures" / "viewer.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    subprocess.run([sys.executable, script, tmp_path, *NAMES], check=True, env=environment, timeout=900)
    for name in NAMES:
        made, kept = (
            np.asarray(image.open(folder / name).convert("RGB")).astype(int)
            for folder in (tmp_path, ROOT / "docs" / "_static")
        )
        assert made.shape == kept.shape
        # Fonts, and the last step of what is smoothed, differ between versions of the browser.
        different = np.abs(made - kept).max(axis=2) > 60
        assert different.mean() < 0.03, f"{name}: {different.mean():.3f} of the pixels differ"
        scene = kept[:, : kept.shape[1] // 2]
        assert scene.std() > 5.0

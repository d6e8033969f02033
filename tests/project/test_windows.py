"""What robodyn does where Python has no more than on Windows: see the program `windows.py` for what that is here."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from robots import ROOT

from robodyn.compile.cache import FOLDER_VARIABLE


@pytest.mark.matrix
def test_robots_answer_without_what_windows_lacks(tmp_path):
    cache = tmp_path / "cache"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), FOLDER_VARIABLE: str(cache)}
    program = [sys.executable, "-W", "error", str(ROOT / "tests" / "windows.py"), str(ROOT / "models"), str(tmp_path)]
    kept = []
    for _ in range(2):
        done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr
        kept.append({each.name: each.stat().st_ino for each in cache.iterdir() if each.suffix == ".object"})
    assert kept[0] and kept[0] == kept[1], "the second process finds what the first has compiled"

"""Measurements that are kept for other processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robodyn import measurements, scheduler
from robodyn.engines.cpu.cache import ObjectCache
from robodyn.engines.gpu import choice
from robodyn.engines.scan import costs
from robodyn.measurements import Subject, load, store

HERE, THERE = Subject("times"), Subject("times", "a device")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_measurements_are_kept_by_device_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(HERE) is None
    assert store(HERE, [1.5]) and store(THERE, {"a": 2}) and store(HERE, [2.5])
    assert load(HERE) == [2.5] and load(THERE) == {"a": 2} and load(Subject("others")) is None
    monkeypatch.setattr(measurements, "__version__", "0.0.0")
    assert load(HERE) is None


@pytest.mark.parametrize("damage", [b"[1, 2", b"\xff\xfe", b"[" * 100_000])
def test_what_cannot_be_read_is_nothing(damage: bytes) -> None:
    ObjectCache.from_environment().put(HERE.key(), damage, "damaged")
    assert load(HERE) is None


@pytest.mark.parametrize(
    ("keep", "one", "other"),
    [
        pytest.param(
            lambda rows: scheduler.keep(scheduler.Table(rows)),
            [],
            [scheduler.Row("mass_matrix", "float64", 3, 3, 1, "cpu", 1.0)],
            id="engines",
        ),
        pytest.param(
            lambda rows: choice.keep(rows, "a device"),
            [],
            [choice.Row("rnea", "float64", 3, 1, "warp", "complete", 1.0)],
            id="kernels",
        ),
        pytest.param(costs.keep, costs.BUILT_IN, costs.Costs({}, "none"), id="scans"),
    ],
)
def test_what_cannot_be_written_is_not_said_to_be_kept(
    keep: Any, one: Any, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert keep(one)
    monkeypatch.setattr(ObjectCache, "put", lambda *_: None)  # what was kept before is still there
    assert not keep(other)

"""What was measured, and is kept for other processes: one store for all choosers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.api.queries import engine_selector
from robodyn.compile.cache import ObjectCache
from robodyn.engines import tuning_store
from robodyn.engines.gpu import choice
from robodyn.engines.gpu.best_kernels import BEST, MEASURED_ON
from robodyn.engines.gpu.options import GpuOptions
from robodyn.engines.scan import costs
from robodyn.engines.tuning_store import Row, Table, forget, keep, table

ENGINE = Row("engines", "mass_matrix", "float64", 3, 3, 1, "cpu", 1.0)
KERNEL = Row("kernels", "rnea", "float64", 3, 3, 1, "warp", 1.0)
FITTED = costs.Costs({name: [1e-6] * len(terms) for name, terms in costs.TERMS.items()}, "here")
AS_KEPT = ["mass_matrix", "float64", 3, 3, 1, "cpu", 1.0]


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache of its own, in which nothing is known of this machine."""
    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path / "cache"))
    forget()
    yield
    forget()


def engines(*rows: Row) -> Table:
    return Table(engine_selector.SECTION, rows)


def kernels(*rows: Row) -> Table:
    return Table(choice.SECTION, rows)


def known(device: str = "") -> tuple[Row, ...]:
    return table(choice.SECTION if device else engine_selector.SECTION, device).rows


def put(file: Any) -> None:
    """Place a file in the store, bytes as they are."""
    data = file if isinstance(file, bytes) else json.dumps(file).encode()
    ObjectCache.from_environment().put(tuning_store._key(), data, "placed")
    forget()


def nothing_is_known() -> bool:
    return not known() and not known("a device") and costs.measured_costs() is None


# What is kept.


def test_sections_and_devices_are_kept_beside_each_other() -> None:
    assert nothing_is_known()
    other = replace(KERNEL, choice="thread")
    assert keep(engines(ENGINE)) and keep(kernels(KERNEL), "a device")
    assert costs.keep(FITTED) and keep(kernels(other), "another device")
    for _ in range(2):
        assert known() == (ENGINE,) and known("a device") == (KERNEL,) and known("another device") == (other,)
        assert costs.measured_costs() == costs.current_costs() == FITTED and known("a third device") == ()
        forget()
    assert len(ObjectCache.from_environment().entries()) == 1


_KEEPS = """
from robodyn.engines import tuning_store
from robodyn.api.queries import engine_selector
from robodyn.engines.gpu import choice
from robodyn.engines.scan import costs

def row(section, asked, name):
    return tuning_store.Table(section, [tuning_store.Row(section.name, asked, "float64", 3, 3, 1, name, 1.0)])

"""


@pytest.mark.parametrize("first", ["engines", "scans"])
def test_what_processes_keep_one_after_another_survives(first: str) -> None:
    """Also what this process had read before another one kept more."""
    does = {
        "engines": 'assert tuning_store.keep(row(engine_selector.SECTION, "mass_matrix", "cpu"))',
        "scans": f"assert costs.keep(costs.Costs({dict(FITTED.coefficients)}, 'here'))",
    }
    assert nothing_is_known()
    for name in sorted(does, key=lambda name: name != first):
        subprocess.run([sys.executable, "-c", _KEEPS + does[name]], check=True, timeout=100)
    assert keep(kernels(KERNEL), "a device")
    assert known() == (ENGINE,) and known("a device") == (KERNEL,) and costs.measured_costs() == FITTED


def test_what_is_measured_again_takes_the_place_of_what_was() -> None:
    scan, later = replace(ENGINE, choice="scan"), replace(ENGINE, seconds=2.0)
    others = tuple(replace(ENGINE, **{name: 2}) for name in ("bodies", "depth", "batch"))
    assert keep(engines(ENGINE, scan, *others)) and keep(engines(later))
    assert known() == (*others, later)
    alike = replace(KERNEL, batch=64, depth=2, choice="block")
    larger = replace(KERNEL, bodies=4)
    assert keep(kernels(KERNEL, larger), "a device") and keep(kernels(alike), "a device")
    assert known("a device") == (larger, alike)


def test_the_oldest_rows_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning_store, "_MOST_ROWS", 3)
    for batch in range(1, 6):
        assert keep(engines(replace(ENGINE, batch=batch)))
    assert [row.batch for row in known()] == [3, 4, 5]
    monkeypatch.setattr(tuning_store, "_MOST_BYTES", 10)
    assert not keep(engines(ENGINE))  # it would not be read again


def test_rows_of_other_choosers_are_left_out() -> None:
    assert engines(ENGINE, KERNEL).rows == (ENGINE,) and kernels(ENGINE, KERNEL).rows == (KERNEL,)


def test_another_version_or_processor_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep(engines(ENGINE))
    for name, value in (
        ("robodyn.engines.tuning_store.__version__", "0.0.0"),
        ("robodyn.compile.llvm.target.host_target", None),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(name, value or _unavailable)
            forget()
            assert known() == ()
            assert keep(kernels(KERNEL), "a device") and known("a device") == (KERNEL,)
    forget()
    assert known() == (ENGINE,) and known("a device") == ()


def _unavailable() -> Any:
    raise rd.UnavailableError("no compiler here")


@pytest.mark.parametrize(
    ("keep_it", "one", "other"),
    [
        pytest.param(keep, engines(), engines(ENGINE), id="engines"),
        pytest.param(lambda rows: keep(rows, "a device"), kernels(), kernels(KERNEL), id="kernels"),
        pytest.param(costs.keep, costs.BUILT_IN, costs.Costs({}, "none"), id="scans"),
    ],
)
def test_what_cannot_be_written_is_not_said_to_be_kept(
    keep_it: Callable[[Any], bool], one: Any, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert keep_it(one)
    monkeypatch.setattr(ObjectCache, "put", lambda *_: None)  # what was kept before is still there
    assert not keep_it(other)


# What is damaged or strange.


_DAMAGED = [b"", b"[1, 2", b"\xff\xfe", b"[" * 100_000, b"1" * 10_000]


@pytest.mark.parametrize("damage", _DAMAGED, ids=range(len(_DAMAGED)))
def test_a_file_that_cannot_be_read_is_nothing(damage: bytes) -> None:
    put(damage)
    assert nothing_is_known()
    assert keep(engines(ENGINE)) and known() == (ENGINE,)


_STRANGE: list[Any] = [None, True, 3, 10**400, float("nan"), "rows", [], [[]], [[[[]]]], {}, {"a": [1]}, [AS_KEPT, 3]]


@pytest.mark.parametrize("strange", [*_STRANGE, *({"": each} for each in _STRANGE)])
def test_a_strange_section_is_nothing_and_leaves_the_others(strange: Any) -> None:
    for file in (strange, dict.fromkeys(("engines", "kernels", "scans"), strange)):
        put(file)
        assert nothing_is_known()
    assert keep(kernels(KERNEL), "a device") and costs.keep(FITTED)
    assert known() == () and known("a device") == (KERNEL,) and costs.measured_costs() == FITTED
    assert keep(engines(ENGINE)) and known() == (ENGINE,)


_NUMBERS = (0, -1, 10**400, 1 << 60, float("nan"), float("inf"), "1", True)
_FIELDS: list[tuple[Any, ...]] = [(1,), (1,), *[(*_NUMBERS, 1.5)] * 3, (1, "abacus"), _NUMBERS]


@pytest.mark.parametrize(("field", "strange"), list(enumerate(_FIELDS)), ids=range(len(_FIELDS)))
def test_a_strange_field_makes_nothing_of_its_section(field: int, strange: tuple[Any, ...]) -> None:
    put({"engines": {"": [AS_KEPT]}})
    assert known() == (ENGINE,)
    before, after = AS_KEPT[:field], AS_KEPT[field + 1 :]
    odd = ([*before, each, *after] for each in (None, [], [[1]], {}, *strange))
    for row in (*odd, before + after, [*AS_KEPT, 1.0]):
        put({"engines": {"": [AS_KEPT, row]}})
        assert known() == ()


def test_a_file_that_is_too_large_is_nothing() -> None:
    text = json.dumps({"engines": {"": [AS_KEPT]}}).encode()
    put(text + b" " * (1 << 20))
    assert known() == (ENGINE,)
    put(text + b" " * (1 << 24))
    assert known() == ()


@pytest.mark.parametrize("number", [None, "1", True, [1.0], 10**400, float("nan"), float("inf")])
def test_strange_coefficients_are_none(number: Any) -> None:
    good = dict(FITTED.coefficients)
    put({"scans": {"": {"source": "here", "coefficients": good}}})
    assert costs.current_costs() == FITTED
    rnea = [*good["rnea"][:-1], number]
    for bad in ({**good, "rnea": rnea}, {**good, "rnea": number}, {"rnea": good["rnea"]}, number):
        put({"scans": {"": {"source": "here", "coefficients": bad}}})
        assert costs.measured_costs() is None and costs.current_costs() is costs.BUILT_IN
    put({"scans": {"": {"source": [number], "coefficients": good}}})
    assert costs.measured_costs() is None


def test_endless_rows_are_nothing() -> None:
    put({"engines": {"": [AS_KEPT] * 100_000}, "kernels": {"a device": [["rnea", *AS_KEPT[1:5], "warp", 1.0]]}})
    assert known() == () and known("a device") == (KERNEL,)


# How it is looked up.


def test_what_is_near_differs_by_chooser() -> None:
    """Engines: by depth too, what is asked by its whole name, and trees of up to 8 times the bodies."""
    rows = [replace(ENGINE, asked="rnea", bodies=8, depth=depth, choice="scan") for depth in (8, 2)]
    found = engines(*rows)
    assert found.near("rnea", "float64", 8, 3, 4) == rows[1:] and found.near("rnea", "float64", 8, 7, 4) == rows[:1]
    assert found.near("rnea", "float64", 64, 8, 1) == rows[:1] and found.near("rnea", "float64", 65, 8, 1) == []
    assert found.near("rnea_f_ext", "float64", 8, 8, 1) == found.near("rnea", "float32", 8, 8, 1) == []
    rows = [replace(KERNEL, bodies=8, depth=depth) for depth in (8, 2)]
    found = kernels(*rows)
    assert found.near("rnea", "float64", 8, 3, 4) == found.near("rnea_f_ext", "float64", 16, 7, 4) == rows
    assert found.near("rnea", "float64", 17, 8, 1) == found.near("rnea", "float64", 8, 8, 1, ("thread",)) == []
    assert found.near("rnea", "float64", 8, 8, 0) == []


def test_another_table_holds_where_nothing_was_measured() -> None:
    other = engines(replace(ENGINE, asked="aba", seconds=3.0), replace(ENGINE, seconds=3.0))
    found = Table(engine_selector.SECTION, [ENGINE], other)
    assert found.nearest("mass_matrix", "float64", 3, 3, 1) == {"cpu": 1.0}
    assert found.nearest("aba", "float64", 3, 3, 1) == {"cpu": 3.0}


def test_gpus_do_not_mix() -> None:
    model = rd.auto_tree(3)
    task = rd.Dynamics(model, engine="reference").plain_task("inverse_dynamics")
    for device, kernel in (("one", "thread"), ("other", "block")):
        assert keep(kernels(replace(KERNEL, asked=task.name, choice=kernel)), device)
    for device, kernel, how in (
        ("one", "thread", "measured"),
        ("other", "block", "measured"),
        ("third", "unrolled", "by rule"),
        ("", "unrolled", "by rule"),
    ):
        variant, why = choice.Chooser(model, np.dtype("float64"), GpuOptions(), device).choose(task, 1)
        assert (str(variant), why.split(":")[0]) == (kernel, how)


def test_what_was_the_best_on_one_gpu_is_chosen_where_nothing_was_measured() -> None:
    quadruped = rd.auto_tree(13, branching=2.0)
    task = rd.Dynamics(quadruped, engine="reference").plain_task("mass_matrix")
    chooser = choice.Chooser(quadruped, np.dtype("float64"), GpuOptions(), "never measured")
    for batch in (1, 1 << 20):  # a row has the same bits in all of them
        variant, why = chooser.choose(task, batch)
        assert str(variant) == "unrolled" and why.startswith(f"the best on {MEASURED_ON} for ")
    assert len(choice.BUILT_IN.rows) == sum(map(len, BEST.values()))
    assert {row.choice for row in choice.BUILT_IN.rows} <= set(map(str, choice.ALL))
    assert keep(kernels(replace(KERNEL, asked=task.name, bodies=13, choice="block")), "measured")
    variant, why = choice.Chooser(quadruped, np.dtype("float64"), GpuOptions(), "measured").choose(task, 1)
    assert str(variant) == "block" and why.startswith("measured: ")


@pytest.mark.matrix
def test_longer_code_than_what_was_fast_elsewhere_is_not_chosen_for_that() -> None:
    """An arm that floats has one body more than one that does not, and nearly three times as much to do."""
    for base, kernel in (("fixed", "unrolled"), ("floating", "unrolled, split")):
        model = rd.load_urdf(own("arm7"), base=base)
        task = rd.Dynamics(model, engine="reference").plain_task("forward_dynamics_gradient")
        variant, why = choice.Chooser(model, np.dtype("float32"), GpuOptions(), "never measured").choose(task, 1)
        assert str(variant) == kernel and why.startswith("the best on ")


@pytest.mark.matrix
def test_processes_that_keep_at_the_same_time_lose_nothing() -> None:
    """Each reads the file and writes it anew, one after the other."""
    code = """
import sys
from robodyn.engines.tuning_store import Row, Table, keep
from robodyn.api.queries.engine_selector import SECTION
for k in range(8):
    assert keep(Table(SECTION, [Row("engines", sys.argv[1], "float64", 5, 5, k + 1, "cpu", 1.0)]))
"""
    processes = [subprocess.Popen([sys.executable, "-c", code, f"query_{n}"]) for n in range(4)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 4
    forget()
    assert len(table(engine_selector.SECTION).rows) == 32

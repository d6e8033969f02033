"""Fixtures that every numeric test runs through: engine x dtype, batch shapes, tolerances."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import thin_out

import robodyn as rd
from robodyn.api.queries.fast_path import query as declared
from robodyn.compile.cache import FOLDER_VARIABLE, ObjectCache
from robodyn.engines.cpu import tiered_compilation
from robodyn.engines.protocol import DTYPES
from robodyn.engines.query_table import QUERIES

TESTS = Path(__file__).parent
# What tests share lies beside the rooms, and some rooms share with others.
sys.path[:0] = [str(TESTS), *sorted({str(path.parent) for path in TESTS.glob("*/test_*.py")})]

# Relative to the largest entry. Recursions of depth d lose about d roundings of 1.1e-16 or 6e-8, and results of FD
# the conditioning of H besides, so FD is judged by its residual.
TOLERANCE = {"float64": 1e-11, "float32": 2e-4}

BATCHES = [(), (1,), (3, 1, 2), (0,)]


def pytest_configure(config: pytest.Config) -> None:
    """Keep machine code in pytest's own cache folder: workers share it, later runs find it, and no home is touched."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of what a script starts in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # some tests interrupt, also what they start
    if FOLDER_VARIABLE in os.environ:  # asked for, or set by the process that started this worker
        return
    kept = None
    if hasattr(config, "cache"):
        with suppress(OSError):  # a checkout of another user, or one that cannot be written to
            kept = config.cache.mkdir("objects")
            kept.chmod(stat.S_IRWXU)
    os.environ[FOLDER_VARIABLE] = str(objects_folder(kept))


def objects_folder(kept: Path | None) -> Path:
    """The folder for machine code: the one in pytest's cache if it may be used, or else one for all runs of a user."""
    if kept is not None and ObjectCache(kept).problem() is None:
        return kept
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"robodyn-tests-{user}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Neighbouring tests share fixtures and machine code: workers take runs of them, and help each other at the end."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Objects that stand for tests live until the end: no collection of garbage looks at them, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Thin out tests with the mark `some`; skip what needs a GPU where there is none. Examples go first: some take
    minutes, for which all workers but one would wait at the end."""
    thin_out(items)
    items.sort(key=lambda item: item.path.name != "test_examples.py")
    marked = [item for item in items if item.get_closest_marker("gpu") is not None]
    missing = _missing_gpu() if marked else ""
    for item in marked if missing else ():
        item.add_marker(pytest.mark.skip(reason=missing))


def _missing_gpu() -> str:
    """Why no kernel can run on a GPU here; empty if it can."""
    try:
        import cupy

        return "" if cupy.cuda.runtime.getDeviceCount() else "no GPU"
    except ImportError:
        return "no CuPy"
    except RuntimeError as error:
        return f"no GPU: {error}"


_COMPLETE = set.intersection(*(set(question.engines) for question in QUERIES.values()))
"""Engines that answer every query."""
_PAIRS = sorted((name, dtype) for name in _COMPLETE for dtype in DTYPES)


def _param(pair: tuple[str, str]) -> Any:
    return pytest.param(pair, id="-".join(pair), marks=[pytest.mark.gpu] if pair[0] == "gpu" else [])


@pytest.fixture(params=map(_param, _PAIRS))
def engine_dtype(request: pytest.FixtureRequest) -> tuple[str, str]:
    """(engine, dtype) for every pair that the support table declares, of engines that answer everything."""
    return request.param


@pytest.fixture
def make_dynamics(engine_dtype: tuple[str, str]) -> Callable[..., rd.Dynamics]:
    """Dynamics of a model on the engine and dtype under test."""

    def make(model: rd.Model, **options: Any) -> rd.Dynamics:
        return rd.Dynamics(model, engine=engine_dtype[0], dtype=engine_dtype[1], **options)

    return make


@pytest.fixture
def tolerance(engine_dtype: tuple[str, str]) -> float:
    """Tolerance relative to the largest entry."""
    return TOLERANCE[engine_dtype[1]]


def random_states(model: rd.Model, shape: tuple[int, ...] = (), seed: int = 0) -> tuple[np.ndarray, ...]:
    """q, qd, qdd away from zero; the seed is printed so that a failure can be repeated."""
    print(f"states of {model.name}: seed {seed}")
    rng = np.random.default_rng(seed)
    q = model.random_configuration(rng, shape)
    qd, qdd = rng.uniform(0.2, 1.5, (2, *shape, model.nv)) * rng.choice([-1.0, 1.0], (2, *shape, model.nv))
    return q, qd, qdd


def relative(got: np.ndarray, wanted: np.ndarray) -> float:
    """Largest difference over the largest entry wanted (or 1 where that is tiny); NaN counts as infinite."""
    if np.size(wanted) == 0:
        assert np.shape(got) == np.shape(wanted)
        return 0.0
    error = np.abs(np.asarray(got, dtype=np.float64) - wanted).max() / max(np.abs(wanted).max(), 1e-3)
    return float(np.inf if np.isnan(error) else error)


def nothing_compiles() -> None:
    """Wait until no thread compiles: it would be measured with what is measured, or meet what a test replaces."""
    end = time.monotonic() + 300.0
    while working := [name for thread in threading.enumerate() if (name := thread.name).startswith("robodyn: ")]:
        assert time.monotonic() < end, working
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def _alone_with_what_it_replaces(request: pytest.FixtureRequest) -> None:
    """Better code that earlier tests asked for is no longer wanted: it takes longer than many of them. What is
    compiled just now must not meet what this test replaces."""
    tiered_compilation._WAITING.clear()
    if "monkeypatch" in request.fixturenames:
        nothing_compiles()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A fake device: that of every GPU engine made in a test."""
    from gpu_host.arrays import DeviceArray
    from gpu_host.device import HostDevice

    from robodyn.engines.gpu import engine

    found = HostDevice()
    monkeypatch.setattr(engine, "default_device", lambda: found)
    DeviceArray.looks = 0
    return found


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder of this user that all others can enter."""
    made = Path(tempfile.mkdtemp(prefix="robodyn-", dir="/tmp"))
    made.chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def passed_on(monkeypatch):
    """Names of methods that answered a call, in order."""
    seen = []

    def listed(name, method):
        @functools.wraps(method)
        def answer(*args, **options):
            seen.append(name)
            return method(*args, **options)

        return answer

    for name in QUERIES:
        (owner,) = (each for each in rd.Dynamics.__mro__ if name in vars(each))
        monkeypatch.setattr(owner, name, declared(listed(name, getattr(rd.Dynamics, name))))
    return seen


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client of Dask with two threads of this process."""
    distributed = pytest.importorskip("distributed", reason="no Dask")
    with distributed.Client(
        processes=False,
        n_workers=1,
        threads_per_worker=2,
        memory_limit=0,
        dashboard_address="127.0.0.1:0",
        set_as_default=False,
    ) as found:
        yield found

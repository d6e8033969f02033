"""The GPU benchmarks on a fake device: what they count, compare, choose and print, not how long it takes."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gpu_host import missing
from gpu_host.device import HostDevice
from robots import own

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import robodyn as rd
from robodyn.compile.cache import FOLDER_VARIABLE, ObjectCache
from robodyn.engines.gpu import choice, compiler, engine
from robodyn.engines.gpu.choice import SECTION
from robodyn.engines.tuning_store import Row, Table, forget, keep, table
from robodyn.internals.errors import UnavailableError
from robodyn.tools.benchmark.compare import Settings
from robodyn.tools.benchmark.timing import seconds_of
from tests.bench import __main__ as runner
from tests.bench import points, published, records
from tests.bench.cold import First
from tests.bench.gpu import contacts, kernels, machine, peers, queries, suite
from tests.bench.gpu.kernels import Partition, Trial
from tests.bench.gpu.machine import Ceilings
from tests.bench.gpu.queries import Case, Point
from tests.bench.runner import Run
from tests.bench.shared import NOT_MEASURED

ROOT = Path(__file__).resolve().parents[2]
on_host = pytest.mark.skipif(bool(missing()), reason=f"kernels do not run on the host: {missing()}")

# The kernels of this robot are those of other tests, so g++ compiles them once.
SMALL = {"small": lambda: rd.random_tree(3, seed=1, joints=("revolute",))}
BALL = """<robot name="ball"><link name="ball"><inertial><mass value="0.3"/>
<inertia ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/></inertial></link></robot>"""
ONE = ("inverse_dynamics",)
QUERIES = "inverse_dynamics", "forward_dynamics_gradient"
RUN = Run((), Settings(dtypes=("float64",), batches=(1, 70), seconds=0.0), announce=lambda text: None)


def asked(patch, batches=(1, 70), **constants):
    """What is measured, and in how large batches: little of a small robot."""
    usual = {"ASKED": QUERIES, "PARTITIONS": (2,), "ROLLED": (3,), "FITTED": (1, 70), "HELD_OUT": (8,)}
    for name, value in {"ROBOTS": SMALL, **usual, **constants}.items():
        patch.setattr(queries, name, value)
    patch.setattr(suite, "FIRST", ONE)
    return replace(RUN, settings=replace(RUN.settings, batches=batches))


CEILINGS = Ceilings(1e12, {"float32": 4e13, "float64": 2e13})


def host_machine(device):
    return machine.Machine(device, seconds_of, {"GPU": device.name})


@pytest.fixture
def device(monkeypatch):
    """The device of every engine made in a test, for which nothing was measured."""
    found = HostDevice()
    monkeypatch.setattr(engine, "default_device", lambda: found)
    monkeypatch.setattr(choice, "table", lambda section, name, otherwise: Table(section, ()))
    return found


# All of it.


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A run with everything, which keeps what it measured in a cache of its own."""
    host = HostDevice()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(tmp_path_factory.mktemp("cache") / "objects"))
        patch.setattr(engine, "default_device", lambda: host)
        patch.setattr(kernels, "DTYPE", "float64")
        patch.setattr(machine, "COPIED_BYTES", 1 << 20)
        forget()
        with pytest.MonkeyPatch.context() as little:
            found = suite.measure_on(host_machine(host), replace(asked(little), fit=True), engine="reference")
        yield found, table(SECTION, host.name).rows
    forget()


@on_host
@pytest.mark.kernels
def test_all_of_the_suite_is_measured(measured):
    found, _ = measured
    assert [(p.query, p.batch) for p in found.points] == [(q, b) for q in QUERIES for b in (1, 70)]
    for point in found.points:
        assert point.problem == "" and point.off_by < 1e-9
        assert min(point.kernel_s, point.call_s, point.numpy_s, point.cpu_s) > 0.0
        assert point.over_roofline(found.ceilings) > 0.0
        assert NOT_MEASURED not in point.cells(found.ceilings)
    for each in found.partitions:
        assert len(each.seconds) == 11 and not each.problems and each.cpu_s > 0.0
        assert NOT_MEASURED not in each.shown.values() and each.ratio > 0.0
    assert [(run.integrator, run.batch) for run in found.rolled] == [("semi_implicit_euler", 3), ("rk4", 3)]
    for run in found.rolled:
        assert run.problem == "" and run.off_by < 1e-9 and min(run.seconds, run.cpu_s) > 0.0
        assert run.ratio > 0.0
    assert [each.cold_s > 0.0 for each in found.first] == [True]
    assert suite.remarks(found) == []
    json.dumps(records._plain(found), allow_nan=False)
    assert found.ceilings.bytes_per_s > 0.0
    page = suite.PAGE.markdown(found, {"commit": "x"}, {})
    assert "How long that took: ceilings " in page and list(found.took_s)[-1] == "first answers"
    assert "Measured on: commit x." in page and "GPU: not measured" not in page
    for section in ("Goals", "Queries", "Rollouts", "Partitions of a gradient", "Which kernel is the fastest"):
        assert f"## {section}" in page


@on_host
@pytest.mark.kernels
def test_what_was_fitted_is_what_the_engine_chooses_by(measured):
    found, kept = measured
    assert found.kept and set(kept) == set(kernels.table(found.trials).rows)
    assert len(found.trials) == 2 * 3 and {each.batch for each in kept} == {1, 70}
    for trial in found.trials:
        assert not trial.problems
        assert len(trial.seconds) == (4 if trial.query == "inverse_dynamics" else 11)
        assert trial.chosen in trial.seconds and trial.ruled in trial.seconds
        assert trial.held_out == (trial.batch == 8)
        if not trial.held_out:
            assert trial.chosen == trial.best and trial.over(trial.chosen) == 1.0
    for point in found.points:
        (trial,) = (t for t in found.trials if (t.query, t.batch) == (point.query, point.batch))
        assert point.kernel == trial.chosen
    assert kernels.worst(found.trials) >= 1.0
    page = suite.PAGE.markdown(found, {"commit": "x"}, {})
    assert "| query | dtype | batch | unrolled, split | thread, split |" in page and "| float64 | 8 * |" in page


# Without a GPU.


def no_gpu():
    raise UnavailableError("engine 'gpu': no device")


def test_without_a_gpu_nothing_is_stored(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(machine, "cuda_machine", no_gpu)
    runner.run(["gpu"], write=True, folder=tmp_path)
    assert "gpu: not measured. engine 'gpu': no device" in " ".join(capsys.readouterr().out.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="there may be a GPU")
def test_the_command_ends_well_without_a_gpu(capsys):
    runner.run(["gpu: arm7"], batch="1,16", seconds=0.0)
    out = capsys.readouterr().out
    assert "gpu: not measured. engine 'gpu': CuPy is not installed" in " ".join(out.split())
    assert "humanoid, mass_matrix" not in out


def test_no_batch_is_larger_than_what_is_asked_for():
    run = Run((), Settings(batches=(1, 64)))
    assert (queries.upto(run, queries.PARTITIONS), queries.upto(run, queries.ROLLED)) == ([16, 32, 64], [])
    assert (queries.upto(run, queries.FITTED), queries.upto(run, queries.HELD_OUT)) == ([1, 8, 64], [3])
    assert queries.unlike() == ["arm7", "quadruped, floating", "humanoid, floating"]


@on_host
@pytest.mark.kernels
def test_the_command_measures_where_there_is_a_gpu(tmp_path, monkeypatch, capsys):
    host = HostDevice()
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(engine, "default_device", lambda: host)
    monkeypatch.setattr(queries, "ROBOTS", SMALL)
    monkeypatch.setattr(machine, "cuda_machine", lambda: host_machine(host))
    forget()
    known = Row("kernels", "rnea_q_qd_qdd", "float64", 5, 5, 1, "thread", 1.0)
    dtypes = ("float32", "float64")
    for number, dtype in enumerate(dtypes, 1):
        assert keep(Table(SECTION, [known]), host.name)
        options = {"batch": "1,3", "dtype": dtype, "seconds": 0.0, "fit": True, "write": True}
        runner.run(["gpu: fit, small, inverse_dynamics"], folder=tmp_path, **options)
        about, found = records.load(tmp_path / "gpu.json", suite.Measured)
        assert about["GPU"] == "host" and found.kept and not found.problems
        assert {each.dtype for each in found.trials} == {dtype} and not found.points
        kept = table(SECTION, host.name).rows
        assert known in kept and {row.dtype for row in kept if row != known} == set(dtypes[:number])
    forget()
    out = capsys.readouterr().out
    assert "Which kernel" not in out and "The chosen kernel takes at most" in out and "not measured." not in out


def test_what_was_not_asked_now_stays_as_stored(tmp_path):
    found = suite.Measured(
        [Point("small", query, "float64", batch) for query in QUERIES for batch in (1, 70)],
        [Partition("small", 2, {"thread": 1e-3})],
        [queries.Rolled("small", "rk4", "float64", 3)],
        [peers.Rival("small", "inverse_dynamics", 3, "JAX")],
        [First("small", "inverse_dynamics", "gpu", 1.0)],
        [trial({"thread": 1.0, "warp": 2.0}, "thread")],
        CEILINGS,
        {"GPU": "host"},
        kept=True,
        took_s={"ceilings": 0.0, **dict.fromkeys(suite._PARTS, 2.0)},
    )
    before, now = ({"commit": commit, **found.machine} for commit in ("before", "now"))
    again = replace(found, points=found.points[:1], trials=[], rolled=[], took_s={"queries": 1.0, "rollouts": 0.0})
    whole = suite.merge(again, found, now, before)
    assert whole.points == found.points[:1] and whole.trials == found.trials and whole.rolled == found.rolled
    assert whole.commits == {"fit": "before", "rollouts": "before"}
    assert whole.took_s["rollouts"] == 2.0 and again.took_s["rollouts"] == 0.0
    page = suite.PAGE.markdown(whole, {"commit": "now"}, {})
    assert "commit now" in page and "rollouts 2 s (before, at before)" in page
    later = suite.merge(replace(found, points=[]), whole, now, now)
    assert later.commits == {"queries": "now"} and later.points == found.points[:1]
    assert suite.merge(again, found, now, {**before, "GPU": "another"}) is again
    failed = suite.merge(replace(again, problems={"fit": "no memory"}), found, now, before)
    assert not failed.trials and failed.problems == {"fit": "no memory"}
    records.save(tmp_path / "gpu.json", before, found)
    assert records.load(tmp_path / "gpu.json", suite.Measured) == (before, found)


# What is counted.


def test_bytes_and_operations_are_those_of_the_robot():
    model = rd.load_urdf(own("quadruped"), base="floating")
    nq, nv = model.nq, model.nv
    gradient = Case(model, "forward_dynamics_gradient")
    assert gradient.row_bytes("float32") == 4 * (nq + 2 * nv + 3 * nv * nv)
    assert gradient.row_bytes("float64") == 2 * gradient.row_bytes("float32")
    inverse = Case(model, "inverse_dynamics")
    assert inverse.row_bytes("float64") == 8 * (nq + 3 * nv)
    program = rd.Dynamics(model, engine="cpu").program("inverse_dynamics")
    assert inverse.operations() == program.operations


def test_the_roofline_is_what_takes_longer():
    assert CEILINGS.seconds(2e9, 1e9, "float32") == pytest.approx(2e-3)
    assert CEILINGS.seconds(1.0, 1e11, "float32") == pytest.approx(2.5e-3)
    point = Point("r", "q", "float32", 1000, "warp", 1e-6, 2e-6, 3e-6, 4e-6, moved=500, operations=400)
    assert point.states_per_s == pytest.approx(1e9)
    assert point.over_roofline(CEILINGS) == pytest.approx(2.0)
    times = ("1 us", "2 us", "3 us", "4 us")
    rates = ("1,000,000,000", "500 (50%)", "400 (1%)", "2 x")
    assert point.cells(CEILINGS) == ("q", "float32", "1,000", "warp", *times, *rates)
    assert point.cells(None)[-4:] == (NOT_MEASURED,) * 4


@on_host
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_kernel_of_the_ceiling_multiplies_and_adds(device, dtype, monkeypatch):
    monkeypatch.setattr(machine, "COPIED_BYTES", 1 << 16)
    found = machine.ceilings(host_machine(device), (dtype,), 0.0)
    assert found.bytes_per_s > 0.0 and found.flops[dtype] > 0.0
    source = machine.fma_kernel(dtype)
    assert source.text.count(" * x + x;") * 2 * machine._ROUNDS == machine.FLOPS_OF_A_ROW


@pytest.mark.parametrize("batch", [1, 5, 64, 65, 200, 777])
def test_batches_repeat_states_whose_answers_are_known(batch):
    rows = np.arange(64.0 * 2).reshape(64, 2)
    array = queries.repeated(np, rows, batch)
    np.testing.assert_array_equal(array, np.resize(rows, (batch, 2)))
    question = Case(SMALL["small"](), "inverse_dynamics")
    right = queries.repeated(np, question.truth[0], batch)
    assert points.off_by([right], question.truth) == 0.0
    for row in {0, batch - 1}:
        wrong = right.copy()
        wrong[row, 0] += 1.0
        assert points.off_by([wrong], question.truth) > 0.01
        wrong[row, 0] = np.nan
        assert points.off_by([wrong], question.truth) == np.inf
    assert queries.wrong(np.inf, "float64") == "WRONG: differs by inf"


# What goes wrong is said, and is not timed.


@on_host
def test_wrong_answers_are_not_timed(device, monkeypatch):
    run = asked(monkeypatch, batches=(3,), ASKED=("inverse_dynamics",), FITTED=(3,), HELD_OUT=())
    made = Case(SMALL["small"](), "inverse_dynamics")
    made.truth = (made.truth[0] + 1.0,)
    point = Point("small", "inverse_dynamics", "float64", 3)
    queries.measure_query(host_machine(device), made, [point], 0.0)
    assert point.problem.startswith("WRONG") and point.kernel_s is None
    (trial,) = kernels.trials(run, "small", made)
    kernels.try_kernels(host_machine(device), made, "float64", [trial], 0.0)
    assert all(each.startswith("WRONG") for each in trial.problems.values()) and not trial.seconds
    found = suite.Measured([point], [], [], [], [], [trial])
    assert len(trial.problems) == 4 and len(suite.remarks(found)) == 1
    assert "small, inverse_dynamics, float64, batch 3" in suite.remarks(found)[0]


@on_host
def test_what_does_not_fit_is_left_out_and_named(device, monkeypatch):
    run = asked(monkeypatch, batches=(1, 3000), ASKED=("inverse_dynamics",))
    device.memory = 20_000
    small, large = found = queries.points(run)
    queries.measure(host_machine(device), run, found)
    assert small.problem == "" and small.cpu_s > 0.0
    assert large.problem == "left out: arrays of 0.000288 GB" and large.kernel_s is None
    device.memory = 1 << 34
    monkeypatch.setattr(queries, "HOST_BYTES", 20_000)
    _, large = found = queries.points(run)
    queries.measure(host_machine(device), run, found)
    assert large.problem.startswith("NumPy and the CPU engine left out") and large.numpy_s is None
    assert large.kernel_s > 0.0 and large.call_s > 0.0


@on_host
def test_kernels_that_fail_are_named_and_others_measured(device, monkeypatch):
    device.refused = (32,)
    loads, load = [], device.load
    monkeypatch.setattr(device, "load", lambda source: (loads.append(source), load(source))[1])
    run = asked(monkeypatch, ASKED=("inverse_dynamics",), FITTED=(3, 4), HELD_OUT=())
    kernels.measure(host_machine(device), run, found := [])
    for trial in found:
        assert set(trial.seconds) == {"unrolled", "thread"}  # a block of this robot is a warp
        assert all("cannot compile" in trial.problems[name] for name in ("warp", "block"))
    assert len(loads) == 4  # nobody tries again


@on_host
def test_a_part_that_fails_leaves_the_others(device, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("the GPU is lost")

    monkeypatch.setattr(machine, "ceilings", fail)
    monkeypatch.setattr(kernels, "keep", fail)
    run, stored = asked(monkeypatch, batches=(3,), ASKED=("inverse_dynamics",), FITTED=(3,), HELD_OUT=()), []
    monkeypatch.setattr(suite, "FIRST", ())
    found = suite.measure_on(host_machine(device), replace(run, fit=True, keep=stored.append))
    assert stored == [found] * 8 and found.points[0].kernel_s > 0.0 and found.trials[0].seconds
    assert suite.remarks(found) == ["ceilings; fit: RuntimeError: the GPU is lost"]
    assert "ceilings; fit: RuntimeError" in suite.PAGE.markdown(found, {"commit": "x"}, {})


@on_host
@pytest.mark.kernels
def test_steps_with_contacts_are_compared_and_counted(device, monkeypatch):
    model = rd.load_urdf(BALL, base="floating").with_contacts([rd.Contact(rd.Sphere("ball", radius=0.1), rd.Plane())])
    monkeypatch.setattr(contacts.contacts, "CASES", {contacts.ROBOT: (lambda: model, {})})
    q = np.tile(model.neutral(), (2, 1))
    q[:, 2] = 0.0995, 0.101
    monkeypatch.setattr(contacts, "_standing", lambda model: (q, np.full((2, 6), 0.1)))
    monkeypatch.setattr(contacts, "BATCHES", (3,))
    (each,) = found = contacts.touched(replace(RUN, settings=replace(RUN.settings, batches=(3,))))
    contacts.measure(host_machine(device), RUN, found)
    assert each.problem == "" and each.off_by < 1e-9 and min(each.seconds, each.cpu_s) > 0.0
    assert each.steps_per_s == pytest.approx(3 * contacts.STEPS / each.seconds) and contacts.fastest(found) is None
    assert contacts.fastest([replace(each, dtype="float32")]) == each.steps_per_s
    page = suite.PAGE.markdown(suite.Measured([], [], [], [], [], touched=found), {"commit": "x"}, {})
    assert "## Contacts" in page and "| float64 | 3 |" in page


# Choosing.


def trial(seconds, chosen, batch=16, ruled="thread", held_out=False):
    return Trial("arm", 7, 7, "rnea", "inverse_dynamics", "float32", batch, held_out, seconds, {}, chosen, ruled)


def test_the_choice_is_judged_by_the_fastest():
    good = trial({"thread": 1.0, "warp": 1.2}, "warp")
    bad = trial({"thread": 4.0, "warp, split": 2.0}, "thread", batch=64, held_out=True)
    assert (good.best, bad.best) == ("thread", "warp, split")
    assert good.over("warp") == pytest.approx(1.2) and good.over("block") is None
    assert kernels.worst([good]) == pytest.approx(1.2) and kernels.worst([good, bad]) == pytest.approx(2.0)
    assert kernels.verdict([good])[0].endswith("(allowed 1.5): good enough.")
    first, second, _ = kernels.verdict([good, bad])
    assert first.endswith("TOO SLOW.") and "batch 64: thread was chosen, warp, split is the fastest" in second
    assert kernels.table([good, bad]).rows == (
        Row("kernels", "rnea", "float32", 7, 7, 16, "thread", 1.0),
        Row("kernels", "rnea", "float32", 7, 7, 16, "warp", 1.2),
    )
    assert kernels.worst([]) is None and kernels.worst([trial({"thread": 1.0}, "block")]) is None


def test_what_is_measured_holds_for_calls_with_forces_too():
    rows = kernels.table([trial({"thread": 2.0, "warp": 1.0}, "")]).rows
    for task, found in (("rnea", True), ("rnea_f_ext", True), ("aba", False), ("rne", False)):
        assert Table(SECTION, rows).near(task, "float32", 7, 7, 16) == (list(rows) if found else [])
    own = Row("kernels", "rnea_f_ext", "float32", 7, 7, 4096, "thread", 5.0)
    assert Table(SECTION, (*rows, own)).near("rnea_f_ext", "float32", 7, 7, 16) == [own]


def test_partitions_show_the_fastest_kernel_of_each():
    seconds = {"thread, split": 4e-6, "warp, split": 2e-6, "warp, fused": 3e-6, "warp": 1e-6}
    seconds |= {"unrolled, split": 4e-6, "unrolled": 5e-6}
    each = Partition("arm", 1024, seconds, cpu_s=7e-6)
    found = suite.Measured([], [each, Partition("arm", 16)], [], [], [])
    page = suite.PAGE.markdown(found, {"commit": "x"}, {})
    assert "| 1,024 | 2 us (warp) | 3 us (warp) | 1 us (warp) | 2 x | 4 us | 5 us | 7 us |" in page
    assert f"| 16 |{7 * f' {NOT_MEASURED} |'}" in page


def test_goals_are_compared_with_what_was_found():
    def point(robot, kernel_s):
        return Point(robot, "forward_dynamics", "float32", 65_536, "warp", kernel_s, moved=100, operations=1000)

    theirs = {each.ours: each.kernel_us for each in published.GRID if each.query == "forward_dynamics"}
    fast = point("arm7", 64 * theirs["arm7"] * 1e-6 / 5.1)
    slow = point("humanoid, floating", 64 * theirs["humanoid, floating"] * 1e-6 / 2.9)
    first = [First("arm7", "inverse_dynamics", "gpu", 1.0), First("arm7", "forward_dynamics", "gpu", 4.0)]
    chosen = trial({"thread": 1.0}, "thread")
    found = suite.goals(suite.Measured([fast, slow], [], [], [], first, [chosen], CEILINGS))
    assert [each[-1] for each in found] == ["yes", "NO", "NO", "NO", NOT_MEASURED, "yes"]
    assert [each[2] for each in found[:2]] == ["5.1 x", "2.9 x"] and found[3][2] == "4 s"
    assert "humanoid, floating" in found[2][2]
    assert [each[-1] for each in suite.goals(suite.Measured([], [], [], [], []))] == [NOT_MEASURED] * 6
    table = suite.beside_published([replace(fast, batch=1024, call_s=1e-6)])
    assert table.rows[1][:4] == ("forward_dynamics", "iiwa14", "27 us", "39 us") and table.rows[1][-1] == "1 us"


# The machine.


class Events:
    """`cupy.cuda`, with events that know the time."""

    @staticmethod
    def Event():
        made = SimpleNamespace(at=None, synchronize=lambda: None)
        made.record = lambda: setattr(made, "at", time.perf_counter())
        return made

    @staticmethod
    def get_elapsed_time(begin, end):
        return 1e3 * (end.at - begin.at)


def test_events_are_a_clock():
    calls = []
    assert 0.02 <= machine.by_events(Events)(lambda: calls.append(time.sleep(0.01)), 2) < 5.0
    assert len(calls) == 2


def test_a_cuda_machine_says_what_it_is(monkeypatch):
    runtime = SimpleNamespace(runtimeGetVersion=lambda: 13000, driverGetVersion=lambda: 13010)
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime), __version__="14.2.0")
    host = HostDevice()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(machine, "default_device", lambda: host)
    monkeypatch.setattr(machine, "nvrtc", lambda: SimpleNamespace(version=lambda: (13, 0)))
    monkeypatch.setattr(machine, "_driver", lambda: "")
    found, why = machine.find_machine()
    assert why == "" and found.device is host
    facts = {"GPU": "host (sm_90, 2 multiprocessors)", "driver": "for CUDA 13.1", "CUDA": "13.0"}
    assert found.facts == {**facts, "NVRTC": "13.0", "CuPy": "14.2.0"}


def test_kernels_are_compiled_ahead_for_whoever_loads_them(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "objects"))
    try:
        compiler.nvrtc()
    except UnavailableError as error:
        pytest.skip(str(error))
    good = machine.fma_kernel("float32")
    machine.compile_ahead([], "sm_90")
    machine.compile_ahead([good, replace(good, text="nonsense")], "sm_90")
    cache = ObjectCache.from_environment()
    assert cache.get(compiler.cubin_key(good, "sm_90")) is not None


@on_host
def test_a_long_call_is_recorded_alone(device):
    found = host_machine(device)
    calls = []
    found.kernels(lambda: calls.append(1), 0.0)
    recorded = len(calls)
    found.kernels(lambda: calls.append(time.sleep(0.002)), 0.0)
    assert recorded >= machine._RECORDED and len(calls) - recorded == 3


# Peers.


@pytest.mark.extras
@pytest.mark.parametrize(("peer", "module"), [("JAX", "jax"), ("MJX", "mujoco.mjx")])
@pytest.mark.parametrize("query", ["inverse_dynamics", "forward_dynamics"])
@pytest.mark.parametrize("robot", ["arm7", "quadruped, floating"])
def test_peers_are_asked_what_we_are_asked(robot, query, peer, module, monkeypatch):
    pytest.importorskip(module)
    asked(monkeypatch, ROBOTS={robot: queries.ROBOTS[robot]}, ASKED=(query,))
    run = Run((f" {peer}, ",), Settings(dtypes=("float32",), batches=(1, 3, 1 << 20), seconds=0.0))
    ours = [Point(robot, query, "float32", 3, call_s=1e-6)]
    (rival,) = found = peers.rivals(run)
    peers.measure(run, found, ours, platform="cpu")
    assert (rival.problem, rival.batch, rival.ours_s) == ("", 3, 1e-6)
    assert rival.seconds > 0.0 and rival.ratio > 0.0
    (refused,) = found = peers.rivals(run)
    peers.measure(run, found, ours, platform="no such platform")
    assert "finds no GPU" in refused.problem and refused.seconds is None
    assert refused.ratio is None

"""Queries in blocks, on a cluster of threads of this process: the same bits as one call, kept, reduced and resumed."""

from __future__ import annotations

import enum
import functools
import json
import math
import signal
import sys
import threading
import time

import numpy as np
import pytest
from robots import own

import robodyn as rd
from robodyn.distributed import Histogram, Reduction, Statistics, random_inputs
from robodyn.distributed import map as map_states
from robodyn.engines.query_table import CONSTRAINED, QUERIES

dask = pytest.importorskip("dask", reason="no Dask")
distributed = pytest.importorskip("distributed", reason="no Dask")
zarr = pytest.importorskip("zarr", reason="no zarr")

N, CHUNK = 1003, 100
SEED = 31


def robot(name):
    return rd.load_urdf(own(name))


@pytest.fixture(scope="module")
def dyn():
    return rd.Dynamics(robot("arm7"))


@pytest.fixture(scope="module")
def states(dyn):
    rng = np.random.default_rng(SEED)
    q = dyn.model.random_configuration(rng, (N,))
    return q, *rng.normal(size=(2, N, dyn.model.nv))


def same(got, wanted):
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    return bool((np.asarray(got[...]) == wanted).all())


# Results.


@pytest.mark.parametrize("chunk", (1, 70, CHUNK, N, 10 * N), ids=str)
def test_blocks_have_the_bits_of_one_call(dyn, states, client, chunk):
    some = tuple(array[:50] for array in states) if chunk == 1 else states
    wanted = dyn.forward_dynamics(*some)
    if chunk == 1:
        wanted = np.array([dyn.forward_dynamics(*row) for row in zip(*some, strict=True)])
    assert same(map_states(dyn, "forward_dynamics", *some, chunk=chunk, client=client), wanted)


def test_results_that_are_several_come_as_a_tuple(dyn, states, client):
    got = map_states(dyn, "inverse_dynamics_gradient", *states, chunk=CHUNK, client=client)
    wanted = dyn.inverse_dynamics_gradient(*states)
    assert type(got) is tuple and all(map(same, got, wanted))


def test_arrays_of_every_kind(dyn, states, client, tmp_path):
    import dask.array as da

    q, qd, tau = states
    f_ext = np.random.default_rng(1).normal(size=(N, dyn.model.n_bodies, 6))
    wanted = dyn.forward_dynamics(q, qd[0], tau, f_ext=f_ext)
    stored = zarr.create_array(str(tmp_path / "q.zarr"), data=q, chunks=(64, 7))
    for given in (q, stored, da.from_array(q, chunks=(300, 7)), q.tolist()):
        for each in (qd[0], qd[:1]):
            got = map_states(dyn, "forward_dynamics", given, each, tau, f_ext=f_ext, chunk=CHUNK, client=client)
            assert same(got, wanted)
    single = dyn.variant(dtype="float32")
    got = map_states(single, "forward_dynamics", *states, chunk=CHUNK, client=client)
    assert same(got, single.forward_dynamics(*states))


def test_parameters_of_contacts_are_cut_with_the_states(client):
    model = robot("double_pendulum")
    foot = rd.Contact(rd.Sphere(model.link_names[-1], radius=0.5), rd.Plane(offset=-0.5))
    bouncing = rd.Dynamics(model.with_contacts([foot]), joint_forces=())
    rng = np.random.default_rng(SEED)
    states, grip = rng.normal(size=(3, 20, model.nv)), rng.uniform(0.1, 1.0, (20, 1))
    given = {"contact_friction": grip, "gravity": rng.normal(size=(20, 3))}
    got = map_states(bouncing, "contact_forward_dynamics", *states, chunk=8, client=client, **given)
    assert all(map(same, got, bouncing.contact_forward_dynamics(*states, **given)))


def test_links_frames_methods_and_vectors(dyn, states, client):
    q, qd, qdd = states
    options = {"chunk": CHUNK, "client": client}
    wanted = dyn.jacobian(q, "link_3", frame="body")
    for by in (("link_3",), (2,)):
        if by == (2,):
            by = (dyn.model.link_index("link_3"),)
        assert same(map_states(dyn, "jacobian", q, *by, frame="body", **options), wanted)
    names = ["link_3", "tool0"]
    assert same(map_states(dyn, "link_pose", q, links=names, **options), dyn.link_pose(q, links=names))
    got = map_states(dyn, "forward_dynamics", *states, method="crba", **options)
    assert same(got, dyn.forward_dynamics(*states, method="crba"))
    got = map_states(dyn, "inverse_dynamics_vjp", q, qd, qdd, vector=qd, **options)
    assert all(map(same, got, dyn.inverse_dynamics_vjp(q, qd, qdd, vector=qd)))
    rows = tuple(array[:20] for array in states)
    got = map_states(dyn, "inverse_dynamics_hessian", *rows, chunk=10, client=client)
    assert all(map(same, got, dyn.inverse_dynamics_hessian(*rows)))


@pytest.mark.parametrize("query", CONSTRAINED)
def test_constraints(query, client, tmp_path):
    """A quadruped whose feet move: with places and what holds for each state, from arrays, storage and seeds."""
    model = rd.load_urdf(own("quadruped"), base="floating")
    feet = [rd.Point(name) for name in model.link_names if name.endswith("_foot")]
    dyn, question, n = rd.Dynamics(model, constraints=feet), CONSTRAINED[query], 30
    rng = np.random.default_rng(SEED)
    states = random_inputs(dyn.model, query, rng, n)
    assert tuple(states) == question.inputs and set(question.arrays).isdisjoint(question.results)
    others = {"targets": dyn.constraint_targets(states["q"]), "active": rng.integers(0, 2, (n, 4)), "V0": np.ones(6)}
    others |= {"restitution": rng.uniform(size=n)}
    others |= {name: rng.uniform(size=(n, 12)) for name in ("row_velocity", "row_acceleration")}
    others = {name: array for name, array in others.items() if name in question.optional}
    options = {"chunk": 8, "client": client}
    wanted = several(getattr(dyn, query)(*states.values(), **others))
    got = several(map_states(dyn, query, *states.values(), **others, **options))
    assert len(got) == len(question.results) and all(map(same, got, wanted))
    q = zarr.create_array(str(tmp_path / "q.zarr"), data=states["q"])
    got = map_states(dyn, query, q, *list(states.values())[1:], **others, **options, out=tmp_path / "out")
    assert all(map(same, several(got), wanted))
    one = {name: array[3] if len(array) == n else array for name, array in others.items()}
    drawn = random_inputs(dyn.model, query, np.random.default_rng(5), 8)
    got = several(map_states(dyn, query, 5, **one, **options))
    assert all(map(same, got, several(getattr(dyn, query)(*drawn.values(), **one))))
    with pytest.raises(rd.ArgumentError, match=f"query: got '{query}'; allowed: 'inverse_dynamics'"):
        map_states(dyn.variant(constraints=()), query, *states.values(), **options)
    if "active" in others:
        for flags in (others["active"] > 0, zarr.create_array(str(tmp_path / "f"), data=others["active"] > 0)):
            got = several(map_states(dyn, query, *states.values(), **{**others, "active": flags}, **options))
            assert all(map(same, got, wanted))
        got = several(map_states(dyn, query, *states.values(), **{**others, "active": True}, **options))
        wanted = several(getattr(dyn, query)(*states.values(), **{**others, "active": True}))
        assert all(map(same, got, wanted))
    name = next(iter(question.results))
    count = map_states(dyn, query, *states.values(), **others, **options, reduce=Statistics(of=lambda a: a[name]))
    assert (count["count"] == n).all()


def several(found):
    return found if isinstance(found, tuple) else (found,)


def test_other_robots(client):
    for name in ("humanoid", "hand"):
        dyn = rd.Dynamics(robot(name), joint_forces=("damping",))
        drawn = random_inputs(dyn.model, "forward_dynamics", np.random.default_rng(3), 50)
        got = map_states(dyn, "forward_dynamics", *drawn.values(), chunk=20, client=client)
        assert same(got, dyn.forward_dynamics(*drawn.values()))


def test_without_a_client_threads_of_this_process_compute(dyn, states):
    assert same(map_states(dyn, "inverse_dynamics", *states, chunk=CHUNK), dyn.inverse_dynamics(*states))
    with pytest.raises(ValueError, match="client"):
        distributed.default_client()


def test_the_bar_shows_states(dyn, states, client, capsys):
    map_states(dyn, "gravity_force", states[0], chunk=CHUNK, client=client, progress=True)
    assert "map" in (shown := capsys.readouterr().out) and "100%" in shown


# Storage.


def test_storage_has_a_chunk_for_each_block_and_says_which_are_there(dyn, states, client, tmp_path):
    out = tmp_path / "results.zarr"
    got = map_states(dyn, "forward_dynamics", *states, chunk=CHUNK, client=client, out=out)
    assert same(got, dyn.forward_dynamics(*states))
    group = zarr.open_group(str(out), mode="r")
    assert got.chunks == (CHUNK, dyn.model.nv) and math.isnan(got.fill_value)
    assert (group["done"][:] == 1).all() and group["done"].shape == (11,)
    dH, dC = map_states(dyn, "inverse_dynamics_gradient", *states, chunk=500, client=client, out=str(tmp_path / "two"))
    assert all(map(same, (dH, dC), dyn.inverse_dynamics_gradient(*states)))


def test_resume_computes_what_is_missing_alone(dyn, states, client, tmp_path, monkeypatch):
    from robodyn.distributed.store import Output

    wrote, write = [], Output.write
    monkeypatch.setattr(
        Output, "write", lambda self, block, found: (wrote.append(block.number), write(self, block, found))
    )

    def ask(**options):
        wrote.clear()
        return map_states(dyn, "forward_dynamics", *states, chunk=CHUNK, client=client, out=tmp_path / "r", **options)

    wanted = dyn.forward_dynamics(*states)
    ask()
    group = zarr.open_group(str(tmp_path / "r"), mode="r+")
    group["qdd"][:500] = 0.0
    group["done"][[1, 7]] = 0
    assert same(ask(), wanted) and sorted(wrote) == [0, 1, 2, 3, 4, 7]
    assert same(ask(), wanted) and not wrote
    (tmp_path / "r" / "notes.txt").write_text("mine")
    assert same(ask(resume=False), wanted) and len(wrote) == 11
    assert (tmp_path / "r" / "notes.txt").read_text() == "mine"


def test_results_of_another_map_are_refused(dyn, states, client, tmp_path):
    q, qd, tau = states
    out = tmp_path / "r"
    map_states(dyn, "forward_dynamics", q, qd, tau, chunk=CHUNK, client=client, out=out)
    wanted = dyn.forward_dynamics(q, qd, tau)
    heavier = rd.Dynamics(robot("arm6"))
    cases = {
        "query": lambda: map_states(dyn, "inverse_dynamics", q, qd, tau, chunk=CHUNK, client=client, out=out),
        "robot": lambda: map_states(
            heavier, "forward_dynamics", q[:, :6], qd[:, :6], tau[:, :6], chunk=CHUNK, client=client, out=out
        ),
        "dynamics": lambda: map_states(
            dyn.variant(dtype="float32"), "forward_dynamics", q, qd, tau, chunk=CHUNK, client=client, out=out
        ),
        "chunk": lambda: map_states(dyn, "forward_dynamics", q, qd, tau, chunk=99, client=client, out=out),
        "states": lambda: map_states(
            dyn, "forward_dynamics", q[1:], qd[1:], tau[1:], chunk=CHUNK, client=client, out=out
        ),
        "inputs": lambda: map_states(dyn, "forward_dynamics", q, qd, -tau, chunk=CHUNK, client=client, out=out),
        "arguments": lambda: map_states(
            dyn, "forward_dynamics", q, qd, tau, chunk=CHUNK, client=client, out=out, method="crba"
        ),
        "reduce": lambda: map_states(
            dyn, "forward_dynamics", q, qd, tau, chunk=CHUNK, client=client, out=out, reduce=Statistics()
        ),
    }
    for name, ask in cases.items():
        with pytest.raises(
            rd.ArgumentError, match=f"out: .* holds results of another map: {name} was .*, now .*resume=False"
        ):
            ask()
    assert same(zarr.open_group(str(out), mode="r")["qdd"], wanted)


def test_functions_are_known_by_their_code(dyn, client, tmp_path):
    def asked(reduce, draw=None):
        return map_states(
            dyn, "gravity_force", range(3), chunk=9, client=client, out=tmp_path / "r", reduce=reduce, draw=draw
        )

    def largest(factor):
        return lambda gravity: factor * np.abs(gravity).max(axis=0)

    first = asked(largest(1.0))
    assert np.array_equal(asked(largest(1.0)), first)
    for other in (largest(2.0), lambda gravity: gravity.max(axis=0)):
        with pytest.raises(rd.ArgumentError, match="reduce was"):
            asked(other)
    with pytest.raises(rd.ArgumentError, match="draw was"):
        asked(largest(1.0), draw=lambda rng, n: {"q": rng.normal(size=(n, 7))})


def test_what_is_not_ours_is_left_alone(dyn, states, client, tmp_path):
    folder, file, foreign, broken = (tmp_path / name for name in ("folder", "file", "foreign", "broken"))
    folder.mkdir()
    (folder / "diary.txt").write_text("dear diary")
    file.write_text("a file")
    strangers = zarr.create_group(str(foreign), attributes={"robodyn": {"identity": 3}})
    strangers.create_array("x", shape=(3,), dtype=np.int64)[:] = np.arange(3)
    broken.mkdir()
    (broken / "zarr.json").write_text("{")
    for out in (folder, file, foreign, broken, zarr.storage.LocalStore(str(folder))):
        for resume in (True, False):
            with pytest.raises(rd.ArgumentError, match=r"^out: "):
                map_states(dyn, "gravity_force", states[0], chunk=CHUNK, client=client, out=out, resume=resume)
    assert (folder / "diary.txt").read_text() == "dear diary" and file.read_text() == "a file"
    assert (zarr.open_group(str(foreign), mode="r")["x"][:] == np.arange(3)).all()


def test_damage_in_storage_is_found(dyn, states, client, tmp_path):
    out = tmp_path / "r"
    got = map_states(dyn, "gravity_force", states[0], chunk=CHUNK, client=client, out=out)
    chunk = next(path for path in (out / "gravity").rglob("*") if path.is_file() and path.name != "zarr.json")
    data = bytearray(chunk.read_bytes())
    data[17] ^= 1
    chunk.write_bytes(data)
    with pytest.raises(ValueError, match=r"(?i)checksum"):
        got[:]
    path = out / "gravity" / "zarr.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "shape": [N, 6]}))
    with pytest.raises(rd.ArgumentError, match="out: its array 'gravity' is not what map has made"):
        map_states(dyn, "gravity_force", states[0], chunk=CHUNK, client=client, out=out)


# Seeds.


def test_seeds_draw_states_where_they_are_used(dyn, client):
    seeds = [5, 3, 8]
    drawn = [random_inputs(dyn.model, "forward_dynamics", np.random.default_rng(seed), 40) for seed in seeds]
    q, qd, tau = (np.concatenate([each[name] for each in drawn]) for name in ("q", "qd", "tau"))
    options = {"chunk": 40, "client": client}
    for given in (seeds, tuple(seeds), np.array(seeds)):
        assert same(map_states(dyn, "forward_dynamics", given, **options), dyn.forward_dynamics(q, qd, tau))
    assert same(map_states(dyn, "link_pose", seeds, "tool0", **options), dyn.link_pose(q, "tool0"))
    assert same(map_states(dyn, "link_pose", seeds, link="tool0", **options), dyn.link_pose(q, "tool0"))
    assert same(map_states(dyn, "mass_matrix", 5, **options), dyn.mass_matrix(q[:40]))
    still = np.zeros(dyn.model.nv)
    assert same(map_states(dyn, "forward_dynamics", seeds, qd=still, **options), dyn.forward_dynamics(q, still, tau))


def test_drawn_states_are_within_limits():
    model = robot("arm7")
    drawn = random_inputs(model, "forward_dynamics", np.random.default_rng(SEED), 2000)
    for name, limit in (("qd", model.velocity_limit), ("tau", model.effort_limit)):
        reach = np.where(np.isfinite(limit), limit, 1.0)
        assert (np.abs(drawn[name]) <= reach).all() and (np.abs(drawn[name]).max(axis=0) > 0.98 * reach).all()
    for name, question in QUERIES.items():
        drawn = random_inputs(model, name, np.random.default_rng(SEED), 2)
        assert tuple(drawn) == question.inputs
        assert set(question.arrays).isdisjoint(question.results), "a reduction gets both by name"


def test_own_draws(dyn, client):
    def draw(rng, n):
        return {"q": rng.normal(size=(n, 7)), "qd": np.zeros(7), "qdd": rng.normal(size=(n, 7)), "V0": np.ones(6)}

    # As many states as joints: an array for all of them is told from one for each by its axes.
    rngs = [np.random.default_rng(seed) for seed in range(3)]
    drawn = [draw(rng, 7) for rng in rngs]
    q, qdd = (np.concatenate([each[name] for each in drawn]) for name in ("q", "qdd"))
    got = map_states(dyn, "inverse_dynamics", range(3), chunk=7, client=client, draw=draw)
    assert same(got, dyn.inverse_dynamics(q, np.zeros(7), qdd, V0=np.ones(6)))
    for wrong, match in (
        (lambda rng, n: {"q": rng.normal(size=(n, 7))}, r"block \d .*: draw: gave no qd"),
        (lambda rng, n: {"x": 1}, r"block \d .*: draw: gave .*; wanted a dictionary of arrays"),
        (lambda rng, n: [1], r"block \d .*: draw: gave .*; wanted a dictionary of arrays"),
        (lambda rng, n: {**draw(rng, n), "q": rng.normal(size=(n + 1, 7))}, r"block \d .*: leading axes"),
        (lambda rng, n: {**draw(rng, 2 * n), "qd": rng.normal(size=(2 * n, 7))}, r"block \d .*: draw: gives a result"),
    ):
        with pytest.raises(rd.ArgumentError, match=match):
            map_states(dyn, "inverse_dynamics", range(3), chunk=7, client=client, draw=wrong)


# Reductions.


def test_statistics_are_those_of_all_states(dyn, client):
    seeds, chunk = range(7), 300
    tau = map_states(dyn, "inverse_dynamics", seeds, chunk=chunk, client=client)
    found = map_states(dyn, "inverse_dynamics", seeds, chunk=chunk, client=client, reduce=Statistics())
    assert (found["count"] == 2100).all() and not found["not_finite"].any()
    assert (found["minimum"] == tau.min(axis=0)).all() and (found["maximum"] == tau.max(axis=0)).all()
    np.testing.assert_allclose(found["mean"], tau.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found["std"], tau.std(axis=0), rtol=1e-12)


def test_statistics_do_not_cancel_and_leave_out_what_is_not_finite():
    rng = np.random.default_rng(SEED)
    x = 1e9 + rng.normal(size=(6000, 3))
    x[::7, 1] = np.nan
    x[5, 2] = -np.inf
    x[:, 0] = np.inf
    reducing = Statistics()
    cuts = np.sort(rng.choice(6000, 9, replace=False))
    blocks = [reducing.block({"x": part}) for part in np.split(x, cuts)]
    value = blocks[0]
    for block in blocks[1:]:
        value = reducing.combine(value, block)
    found = reducing.finish(value)
    for column in (1, 2):
        good = x[np.isfinite(x[:, column]), column]
        assert found["count"][column] == good.size and found["not_finite"][column] == 6000 - good.size
        # Entries near 1e9 are 1e-7 apart; the square of a sum would be off by 100.
        assert found["std"][column] == pytest.approx(good.std(), rel=1e-6)
        assert found["mean"][column] == pytest.approx(good.mean(), rel=1e-15)
        assert (found["minimum"][column], found["maximum"][column]) == (good.min(), good.max())
    assert found["count"][0] == 0 and all(np.isnan(found[name][0]) for name in ("mean", "std", "minimum", "maximum"))


def test_histograms_and_several_reductions_of_the_same_blocks(dyn, client):
    edges = [np.linspace(-1, 1, 9), np.linspace(-1, 1, 5), np.linspace(0, 1, 3)]
    found = map_states(
        dyn,
        "link_pose",
        range(4),
        "tool0",
        chunk=250,
        client=client,
        reduce={
            "places": Histogram(lambda arrays: arrays["T"][:, :3, 3], edges),
            "height": Statistics(of=lambda arrays: arrays["T"][:, 2, 3]),
            "first joint": Histogram(lambda arrays: arrays["q"][:, 0], [np.linspace(-9, 9, 4)]),
        },
    )
    T = map_states(dyn, "link_pose", range(4), "tool0", chunk=250, client=client)
    wanted, _ = np.histogramdd(T[:, :3, 3], bins=edges)
    assert (found["places"]["counts"] == wanted).all() and found["places"]["counts"].dtype == np.int64
    assert found["places"]["outside"] == 1000 - wanted.sum() > 0
    assert found["height"]["maximum"] == T[:, 2, 3].max() and found["first joint"]["counts"].sum() == 1000


def test_functions_give_a_value_for_each_block_in_order(dyn, client):
    got = map_states(dyn, "gravity_force", range(40), chunk=11, client=client, reduce=lambda gravity: gravity.sum())
    wanted = [
        dyn.gravity_force(random_inputs(dyn.model, "gravity_force", np.random.default_rng(seed), 11)["q"]).sum()
        for seed in range(40)
    ]
    assert got == wanted


def test_values_in_storage_are_resumed_with_the_same_bits(dyn, client, tmp_path):
    class Own(Reduction):
        def block(self, arrays):
            return {"n": np.int64(len(arrays["q"])), "parts": (arrays["tau"].sum(axis=0), [True, arrays["tau"].std()])}

        def combine(self, one, other):
            joined = (one["parts"][0] + other["parts"][0], [True, one["parts"][1][1] / 3 + other["parts"][1][1]])
            return {"n": one["n"] + other["n"], "parts": joined}

    for number, reducing in enumerate((Own(), Statistics(), lambda tau: tau.sum(axis=0))):
        out = tmp_path / str(number)

        def ask(reduce=reducing, **options):
            options |= {"chunk": 20, "client": client, "reduce": reduce, "key": "the same"}
            return map_states(dyn, "inverse_dynamics", range(9), **options)

        wanted, first = ask(), ask(out=out)
        zarr.open_group(str(out), mode="r+")["done"][[0, 4]] = 0
        for got in (first, ask(out=out)):
            assert repr(got) == repr(wanted)
    with pytest.raises(rd.ArgumentError, match=r"block \d .*: reduce: gave 'text'; out= stores"):
        ask(reduce=lambda tau: "text", out=tmp_path / "text")
    assert ask(reduce=lambda tau: "text") == 9 * ["text"]
    words = r"block \d .*reduce: gave an array float64 of shape \(\d+,\), and float64 of shape \(\d+,\) for the blocks"
    with pytest.raises(rd.ArgumentError, match=words):
        ask(reduce=lambda tau: np.zeros(int(abs(tau[0, 0]) * 1e6)), out=tmp_path / "growing")
    with pytest.raises(rd.ArgumentError, match=r"block \d .*reduce: gave a value of another form"):
        ask(reduce=lambda tau: [0.0] * (int(abs(tau[0, 0]) * 1e6) % 97), out=tmp_path / "form")


# What goes wrong.


def test_errors_of_a_block_name_the_block(dyn, states, client):
    q, qd, tau = (array.copy() for array in states)
    tau[250] = np.nan
    with pytest.raises(rd.NumericalError, match=r"^block 2 \(states 200 to 299\): tau: NaN .* in 1 of 100 rows: 50"):
        map_states(dyn.variant(check=True), "forward_dynamics", q, qd, tau, chunk=CHUNK, client=client)
    assert np.isnan(map_states(dyn, "forward_dynamics", q, qd, tau, chunk=CHUNK, client=client)[250]).all()

    def fails(gravity):
        raise KeyError("nothing\nthere")

    with pytest.raises(rd.RobodynError, match=r"^block \d+ \(states \d+ to \d+, seed \d+\): KeyError: ") as caught:
        map_states(dyn, "gravity_force", range(30, 60), chunk=CHUNK, client=client, reduce=fails)
    assert isinstance(caught.value.__cause__, KeyError) and "\n" not in str(caught.value)
    assert not client.futures, "blocks that nobody waits for are cancelled"


def test_an_interrupt_leaves_what_is_done_and_nothing_behind(dyn, client, tmp_path):
    def draw(rng, n):
        try:
            first.touch(exist_ok=False)
        except FileExistsError:  # the interrupt comes in the middle, once one block is done, and finds the others slow
            while not sent.exists():
                time.sleep(0.01)
            time.sleep(0.2)
        return {"q": rng.normal(size=(n, 7))}

    def interrupt():
        while not (out / "done" / "c").exists() and not over.wait(0.01):
            pass
        sent.touch()
        while not over.is_set():  # once, unless the system hands it to a thread that does not hear it
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            over.wait(5.0)

    out, first, sent, over = tmp_path / "r", tmp_path / "first", tmp_path / "sent", threading.Event()
    options = {"chunk": 9, "client": client, "draw": draw, "key": "interrupted"}
    thread = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        try:
            map_states(dyn, "gravity_force", range(60), out=out, **options)
        finally:
            over.set()
    thread.join()
    count = int(zarr.open_group(str(out), mode="r")["done"][:].sum())
    assert 0 < count < 60 and not client.futures
    got = map_states(dyn, "gravity_force", range(60), out=out, **options)
    assert same(got, map_states(dyn, "gravity_force", range(60), **options))


def test_robots_that_cannot_travel_are_named(dyn, states, client):
    class Tied(rd.Dynamics):
        def __reduce__(self):
            return threading.Lock, ()

    class Bound(rd.Dynamics):
        def __reduce__(self):
            raise TypeError("cannot pickle 'socket' object")

    class Changed(rd.Dynamics):
        def __reduce__(self):
            return rd.Dynamics, (robot("arm6"),)

    for kind, reason in ((Tied, "is another one"), (Bound, "cannot be pickled.*socket"), (Changed, "is another one")):
        with pytest.raises(rd.ArgumentError, match=f'^dyn: the robot "arm7" .*{reason}'):
            map_states(kind(dyn.model), "gravity_force", states[0], client=client)
    lock = threading.Lock()
    for name in ("reduce", "draw"):
        with pytest.raises(rd.ArgumentError, match=f"^{name}: .* cannot be pickled"):
            map_states(dyn, "gravity_force", range(2), client=client, **{name: lambda *given: lock})


def test_arrays_of_dask_without_known_lengths_are_refused(dyn, states, client):
    import dask.array as da

    array = da.from_array(states[0], chunks=(300, 7))
    with pytest.raises(rd.ArgumentError, match=r"^q: got shape \(nan, 7\); wanted"):
        map_states(dyn, "gravity_force", array[array[:, 0] > 0], client=client)


def test_vectors_that_are_drawn_have_a_part_in_shapes(dyn, client):
    def draw(rng, n):
        return dict(zip(("q", "qd", "qdd", "vector"), rng.normal(size=(4, n, 7)), strict=True))

    wanted = [np.concatenate(each) for each in zip(*(hessians(dyn, draw, seed) for seed in range(2)), strict=True)]
    got = map_states(dyn, "inverse_dynamics_hessian", range(2), chunk=6, client=client, draw=draw)
    assert all(map(same, got, wanted))
    with pytest.raises(rd.ArgumentError, match=r"^draw: raised ZeroDivisionError"):
        map_states(dyn, "inverse_dynamics_hessian", range(2), chunk=6, client=client, draw=lambda rng, n: 1 / 0)


def hessians(dyn, draw, seed):
    drawn = draw(np.random.default_rng(seed), 6)
    return dyn.inverse_dynamics_hessian(drawn["q"], drawn["qd"], drawn["qdd"], vector=drawn["vector"])


HOSTILE = {
    "query": {"query": "no_such"},
    "q": {"given": (np.zeros((5, 6)),)},
    "chunk": {"chunk": 0},
    "client": {"client": "tcp://nowhere:1"},
    "reduce": {"reduce": "mean"},
    "reduce ": {"reduce": {}},
    "reduce  ": {"reduce": {"a": len}},
    "resume": {"resume": 1},
    "progress": {"progress": "yes"},
    "draw": {"draw": print},
    "draw ": {"draw": 7, "given": (range(2),)},
    "out": {"out": 7},
    "out ": {"out": ""},
    "out  ": {"out": "a\0b"},
    "dyn": {"dyn": None},
    "arrays": {"given": (np.zeros(7),)},
    "arrays ": {"given": (np.zeros((0, 7)),)},
    "q ": {"given": ()},
    "q  ": {"given": (np.zeros((2, 3, 7)),)},
    "q   ": {"given": (np.full((3, 7), "x"),)},
    "seeds": {"given": ([1, 2, 1],)},
    "seeds ": {"given": (range(0),)},
    "seeds  ": {"given": ([-1],)},
    "seeds   ": {"given": ([2**70],)},
    "seeds    ": {"given": (range(10**30),)},
    "gravity_force": {"given": (np.zeros((5, 7)), np.zeros((5, 7)))},
    "q    ": {"given": (range(2),), "q": np.zeros((5, 7))},
    "q     ": {"given": (np.zeros((5, 7)),), "q": np.zeros((5, 7))},
    "inertia": {"given": (range(2),), "inertia": np.zeros((3, 7, 10))},
    "arrays  ": {"given": (np.zeros((5, 7)),), "inertia": np.zeros((4, 7, 10))},
    "speed": {"speed": 1},
    "frame": {"query": "jacobian", "link": "tool0", "frame": "x"},
    "classical": {"query": "link_acceleration", "given": (np.zeros((5, 7)),) * 3, "link": "tool0", "classical": 1},
    "method": {"query": "mass_matrix", "method": "x"},
    "sparse": {"query": "mass_matrix", "sparse": "x"},
    "sparse ": {"query": "mass_matrix", "sparse": True},
    "link": {"query": "jacobian", "link": "tool7"},
    "out   ": {"given": (range(10**6),)},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_arguments_are_looked_at_before_anything_runs(dyn, client, name):
    options = {"dyn": dyn, "query": "gravity_force", "given": (np.zeros((5, 7)),), "client": client, **HOSTILE[name]}
    with pytest.raises(rd.ArgumentError, match=f"^{name.strip()}: "):
        map_states(options.pop("dyn"), options.pop("query"), *options.pop("given"), **options)


def test_statistics_want_to_know_of_which_result(dyn, states, client):
    for reduce, name in ((Statistics(), "reduce"), ({"a": Statistics()}, r"reduce\['a'\]")):
        with pytest.raises(rd.ArgumentError, match=f"^{name}: .* dtau_dq, dtau_dqd; wanted of="):
            map_states(dyn, "inverse_dynamics_gradient", *states, client=client, reduce=reduce)
    with pytest.raises(rd.ArgumentError, match=r"^block .*: of: gave float64 of shape \(7,\)"):
        map_states(dyn, "gravity_force", 1, chunk=9, client=client, reduce=Statistics(lambda a: a["gravity"][0]))
    for of, edges in ((None, [[0, 1]]), (7, [[0, 1]]), (len, []), (len, [[1, 0]]), (len, [[0, np.nan]]), (len, 3)):
        with pytest.raises(rd.ArgumentError):
            Histogram(of, edges)
    with pytest.raises(rd.ArgumentError, match="of: gave 7 numbers for a state; wanted 1"):
        Histogram(lambda a: a["x"], [[0, 1]]).block({"x": np.zeros((3, 7))})


def test_closed_and_asynchronous_clients_are_refused(dyn, states):
    closed = distributed.Client(
        processes=False, n_workers=1, memory_limit=0, dashboard_address="127.0.0.1:0", set_as_default=False
    )
    closed.close()
    with pytest.raises(rd.UnavailableError, match="client: it is closed"):
        map_states(dyn, "gravity_force", states[0], client=closed)


def test_other_versions_on_workers_are_named(dyn, states, client, monkeypatch):
    from robodyn.distributed import mapping

    monkeypatch.setattr(mapping, "__version__", "0.0.0")
    with pytest.raises(
        rd.UnavailableError, match=r"^block \d+ .*: robodyn .* is on this worker, 0.0.0 where map was called"
    ):
        map_states(dyn, "gravity_force", states[0], client=client)


@pytest.mark.parametrize("module", ("dask", "distributed", "zarr"))
def test_without_the_extra_it_is_named(dyn, states, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(rd.UnavailableError, match=rf'{module}.*pip install "\.\[dask\]"'):
        map_states(dyn, "gravity_force", states[0])
    assert rd.distributed.map is map_states


def test_blocks_share_the_processors(dyn, client):
    from dask.system import CPU_COUNT
    from distributed.comm import get_address_host

    from robodyn.distributed.block import _threads

    (address,) = client.nthreads()
    host = get_address_host(address)
    for slots in range(1, 3 * CPU_COUNT):
        for asked in (None, 1, 3):
            threads = client.submit(_threads, asked, {host: slots}, pure=False).result()
            assert 1 <= threads <= max(1, CPU_COUNT // slots) and threads <= (asked or CPU_COUNT)
    assert client.submit(_threads, None, {"elsewhere": 1}, pure=False).result() == 1


FACTOR = 1.0


def by_global(arrays):
    return FACTOR


def test_globals_of_modules_count(dyn, states, client, tmp_path, monkeypatch):
    ask = functools.partial(
        map_states, dyn, "gravity_force", states[0], chunk=CHUNK, client=client, out=tmp_path / "o", reduce=by_global
    )
    assert ask() == ask()
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 2.0)
    with pytest.raises(rd.ArgumentError, match="reduce was"):
        ask()


def test_other_links_of_numpys_integers_are_others(dyn, states, client, tmp_path):
    map_states(dyn, "jacobian", states[0], link=np.int64(1), chunk=CHUNK, client=client, out=tmp_path / "o")
    with pytest.raises(rd.ArgumentError, match="holds results of another map"):
        map_states(dyn, "jacobian", states[0], link=np.int64(2), chunk=CHUNK, client=client, out=tmp_path / "o")


def test_links_by_names_and_numbers_of_every_kind_are_resumed(dyn, states, client, tmp_path):
    class Links(enum.IntEnum):
        SECOND = 2

    for k, links in enumerate((Links.SECOND, np.int64(2), np.str_("tool0"), ["tool0", np.int64(2)], ("tool0",))):
        by = "links" if isinstance(links, list | tuple) else "link"
        first, again = (
            map_states(dyn, "jacobian", states[0], **{by: links}, chunk=CHUNK, client=client, out=tmp_path / str(k))
            for _ in range(2)
        )
        assert same(again, first[:])

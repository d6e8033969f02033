"""The table of queries: a query that is added to it is everywhere, without touching anything else."""

from __future__ import annotations

import importlib.util
import json
import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cli_runner import refused, run
from conftest import relative
from robots import own

import robodyn as rd
from robodyn.algorithms.kinematics import base_velocity, velocity
from robodyn.api.queries.fast_path import query
from robodyn.engines.query_table import CONSTRAINED, OF_CONTACTS, OF_SHAPES, QUERIES, QuerySpec, Result
from robodyn.sweeps import FORCE, MOTION, TRANSFORM, Algorithm, Inward, Outward, World, WorldOutput
from robodyn.tools.benchmark.compare import Settings, compare


def of_body(body, own, parent):
    """h_i = I_i v_i."""
    moved = velocity(body, own, parent)
    return {**moved, "h": body.inertia.times(moved["v"])}


def total(body, own):
    """h_p += X_i' h_i."""
    return {}, {"h": own.X.force_back(own.h)}


MOMENTUM = Algorithm(
    name="momentum",
    inputs=("q", "qd"),
    fields={"X": TRANSFORM, "v": MOTION, "h": FORCE},
    sweeps=(
        World(base_velocity, writes=("v",)),
        Outward(of_body, carries=("v",), writes=("X", "v", "h")),
        Inward(total, reads=("X", "h"), gives=("h",)),
    ),
    outputs={"h": WorldOutput("h", (6,))},
)
ROW = QuerySpec(
    "momentum",
    ("q", "qd"),
    {"h": Result((6,), "kg m^2/s, kg m/s")},
    lambda asked: MOMENTUM,
    "Momentum of everything that can move, in world axes about the world's origin.",
    optional=("inertia", "V0"),
    short="mom",
)


@query
def momentum(self, q, qd, *, inertia=None, V0=None, out=None):
    """Momentum (..., 6)."""
    return self._ask("momentum", locals())


@pytest.fixture
def added(monkeypatch):
    """One algorithm, one row, one method; and a robot with states and the right answers."""
    monkeypatch.setitem(QUERIES, "momentum", ROW)
    monkeypatch.setattr(rd.Dynamics, "momentum", momentum, raising=False)
    model = rd.load_urdf(own("arm6"), base="floating")
    q, qd = model.random_configuration(0, (5,)), np.linspace(-1.0, 1.0, 5 * model.nv).reshape(5, -1)
    reference = rd.Dynamics(model, engine="reference")
    h, com = reference.centroidal_momentum(q, qd)[0], reference.center_of_mass(q)
    h[:, :3] += np.cross(com, h[:, 3:])
    return SimpleNamespace(model=model, q=q, qd=qd, h=h)


def test_an_added_query_is_answered(added, make_dynamics, tolerance):
    """By every engine, in batches and singly, on other inertias, and by machine code from the second call on."""
    dyn = make_dynamics(added.model)
    for _ in range(2):
        assert relative(dyn.momentum(added.q, added.qd), added.h) <= tolerance
        assert relative(dyn.momentum(added.q[1], added.qd[1]), added.h[1]) <= tolerance
    assert relative(dyn.momentum(added.q, added.qd, inertia=2.0 * added.model.inertia), 2.0 * added.h) <= tolerance
    out = np.full((5, 6), np.nan, dyn.dtype)
    assert dyn.momentum(added.q, added.qd, out=out) is out and relative(out, added.h) <= tolerance
    assert ("built-in" in repr(dyn.momentum)) == dyn.engine.native
    assert dyn.explain("momentum").method == "momentum"
    with pytest.raises(rd.ArgumentError, match=r"^qd: got None"):
        dyn.momentum(added.q, None)
    with pytest.raises(rd.UnavailableError, match="engine: 'scan' does not answer 'momentum'; engines that do"):
        rd.Dynamics(added.model, engine="scan").explain("momentum")
    with pytest.raises(rd.UnavailableError, match="'scan' does not answer this query"):
        rd.Dynamics(added.model, engine="scan").momentum(added.q, added.qd)


def test_an_added_query_is_on_the_command_line(added, tmp_path):
    status, shown, _ = run("queries")
    assert status == 0 and "momentum" in shown and ROW.about.split(",")[0].split()[-1] in shown
    listed = {row["query"]: row for row in json.loads(run("queries", "--json")[1])}
    assert set(listed) == {*QUERIES, *CONSTRAINED, *OF_SHAPES, *OF_CONTACTS}
    assert listed["momentum"]["results"] == {"h": {"axes": [6], "unit": "kg m^2/s, kg m/s"}}
    for name in ("momentum", "mom"):
        command = ["ask", own("arm6"), name, "--random", 3, "--seed", 1, "--base", "floating", "--json"]
        document = json.loads(run(*command)[1])
        values = {key: np.array(entry["values"]) for key, entry in document["inputs"].items()}
        wanted = rd.Dynamics(added.model).momentum(values["q"], values["qd"])
        np.testing.assert_allclose(document["results"]["h"]["values"], wanted, rtol=1e-12)
        assert document["results"]["h"]["units"] == "kg m^2/s, kg m/s"
    source = tmp_path / "arm.c"
    assert run("export", own("arm6"), "--query", "mom", "--inputs", "inertia,V0", "--out", source)[0] == 0
    assert "void arm6_mom(" in source.read_text() and ROW.about.split(",")[0] in source.read_text()
    status, shown, _ = run("bench", own("arm6"), "--query", "momentum", "--seconds", 0.001, "--batch", 2, "--no-peers")
    assert status == 0 and "momentum" in shown


def test_a_query_that_is_taken_away_is_nowhere(added):
    QUERIES.pop("momentum")
    refused(["ask", own("arm6"), "momentum"], 'QUERY: got "momentum"', "robodyn queries")
    refused(["export", own("arm6"), "--query", "mom"], "--query: got 'mom'")
    with pytest.raises(rd.ArgumentError, match=r"^query: got 'momentum'"):
        rd.Dynamics(added.model).explain("momentum")


def test_an_added_query_is_measured_and_in_the_table_of_support(added, monkeypatch):
    report = compare(added.model, Settings(queries=("momentum",), engine="cpu", batches=(1, 4), seconds=0.001))
    assert [(each.query, each.problem, each.batch) for each in report.results] == [("momentum", "", b) for b in (1, 4)]
    if importlib.util.find_spec("sphinx") is not None:
        monkeypatch.syspath_prepend(str(own("arm6").parent.parent / "docs" / "_ext"))
        generated = __import__("generated_tables")
        assert any(row[0] == "`momentum`" and row[-1] == ROW.about for row in generated.support())


def _moved(model, q, k, step):
    changed = q.copy()
    changed[..., k] += step
    return model.normalize(changed)


@pytest.mark.extras
def test_an_added_query_is_in_torch_with_derivatives(added):
    torch = pytest.importorskip("torch")
    from robodyn.torch import wrap

    rt = wrap(rd.Dynamics(added.model))
    q, qd = (torch.tensor(each, requires_grad=True) for each in (added.q, added.qd))
    V0 = torch.tensor(np.arange(6.0), requires_grad=True)
    np.testing.assert_allclose(rt.momentum(q, qd).detach(), added.h, rtol=1e-10, atol=1e-10)
    for state in ((q[0], qd[0]), (q[:2], qd[:2])):
        assert torch.autograd.gradcheck(lambda *x: rt.momentum(*x[:2], V0=x[2]), (*state, V0), atol=1e-6)
        assert torch.autograd.gradgradcheck(rt.momentum, state, atol=1e-5)


@pytest.mark.extras
def test_an_added_query_is_in_jax_with_derivatives(added):
    jax = pytest.importorskip("jax")
    from robodyn.jax import wrap

    jax.config.update("jax_enable_x64", True)
    rj = wrap(rd.Dynamics(added.model))
    np.testing.assert_allclose(rj.momentum(added.q, added.qd), added.h, rtol=1e-10, atol=1e-10)
    q, qd = added.q[0], added.qd[0]
    forwards, backwards = (way(rj.momentum, argnums=(0, 1))(q, qd) for way in (jax.jacfwd, jax.jacrev))
    for one, two in zip(forwards, backwards, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)
    plain, step = rd.Dynamics(added.model), 1e-6
    for k in range(added.model.nq):
        ends = [plain.momentum(_moved(added.model, q, k, s), qd) for s in (-step, step)]
        np.testing.assert_allclose(forwards[0][:, k], (ends[1] - ends[0]) / (2 * step), atol=1e-6)
    assert jax.hessian(lambda v: (rj.momentum(q, v) ** 2).sum())(qd).shape == (added.model.nv,) * 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inputs": ("qd", "q")}, "inputs: got .* in this order"),
        ({"inputs": ("q", "speed")}, "inputs: got .*'speed'"),
        ({"optional": ("q",)}, "optional: got"),
        ({"needs": ("inverted",)}, "needs: got .*wanted of 'inverse', 'held', 'mass'"),
        ({"results": {"h": Result(("n",), "")}}, "results: got .*nv, n_rows, n_links"),
        ({"results": {}}, "results: got"),
        ({"joint_forces": {"h": "forse"}}, "joint_forces: got .*'forse'"),
        ({"joint_forces": {"b": "force"}}, "joint_forces: got .*'b'"),
        ({"inputs": ("q",), "joint_forces": {"h": "force"}}, "joint_forces: got .*none for a query without qd"),
    ],
)
def test_wrong_rows_are_refused_as_they_are_made(change, words):
    with pytest.raises(rd.ArgumentError, match=rf"^question 'momentum': {words}"):
        replace(ROW, **change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"results": {"h": Result((6,), ""), "more": Result((6,), "")}}, "results: got .* each output of its task, h"),
        ({"of_link": True}, "of_link: got True; wanted False, as its task 'momentum' has it"),
    ],
)
def test_rows_that_say_other_things_than_their_tasks_are_refused(change, words, added, monkeypatch):
    monkeypatch.setitem(QUERIES, "momentum", replace(ROW, **change))
    with pytest.raises(rd.ArgumentError, match=f"^question 'momentum': {words}"):
        rd.Dynamics(added.model)._ask("momentum", {"q": added.q, "qd": added.qd, "link": 0})


def test_a_row_without_its_method_is_named(added, monkeypatch):
    monkeypatch.delattr(rd.Dynamics, "momentum")
    refused(["ask", own("arm6"), "momentum"], "momentum is in the table of queries, and Dynamics has no method")


class Extended(rd.Dynamics):
    """A query of its own, and one made its own."""

    momentum = momentum

    def gravity_force(self, q, *, inertia=None, out=None):
        return 2.0 * super().gravity_force(q, inertia=inertia, out=out)


def test_subclasses_survive_variants(added, monkeypatch):
    monkeypatch.delattr(rd.Dynamics, "momentum")
    dyn = Extended(added.model)
    for each in (dyn.variant(), dyn.variant(check=True), pickle.loads(pickle.dumps(dyn))):
        assert type(each) is Extended and relative(each.momentum(added.q, added.qd), added.h) < 1e-10
    twice = rd.Dynamics(added.model).gravity_force(added.q) * 2.0
    for _ in range(3):
        assert relative(dyn.gravity_force(added.q), twice) < 1e-12


def test_what_a_user_puts_in_place_of_a_query_stays(added):
    dyn = rd.Dynamics(added.model)
    dyn.momentum(added.q, added.qd)
    dyn.momentum = lambda *_: "mine"
    assert dyn.momentum(added.q, added.qd) == "mine"
    dyn.check = True  # lets go of quick functions
    assert "momentum" not in vars(dyn) and relative(dyn.momentum(added.q, added.qd), added.h) < 1e-10
    with pytest.raises(rd.ArgumentError, match=r"^engine: got 'cpu'; wanted a robodyn\.engines\.protocol\.Engine"):
        dyn.engine = "cpu"


@pytest.mark.extras
def test_values_are_checked_with_joint_forces_too(added):
    torch = pytest.importorskip("torch")
    from robodyn.torch import wrap

    q, qd = (torch.tensor(each[0]) for each in (added.q, added.qd))
    bad = qd * float("nan")
    for forces in ((), ("damping",)):
        rt = wrap(rd.Dynamics(added.model, joint_forces=forces))
        for each in (rt.inverse_dynamics_gradient, rt.forward_dynamics_gradient):
            with pytest.raises(rd.NumericalError, match=r"^qd: NaN"):
                each(q, bad, qd)
        with pytest.raises(TypeError, match=r"^inverse_dynamics_gradient\(\): missing a required argument"):
            rt.inverse_dynamics_gradient(q)


@pytest.mark.extras
def test_derivatives_of_third_order(added):
    jax = pytest.importorskip("jax")
    from robodyn.jax import wrap

    jax.config.update("jax_enable_x64", True)
    model = rd.load_urdf(own("double_pendulum"))
    rj, q = wrap(rd.Dynamics(model, engine="reference")), np.array([0.3, -0.7])
    for function in (lambda q: rj.link_pose(q, 2)[0, 3], lambda q: rj.gravity_force_gradient(q).sum()):
        orders = [jax.jacfwd(jax.jacfwd(function)), jax.jacrev(jax.jacrev(function)), jax.jacrev(jax.jacfwd(function))]
        second = [np.asarray(order(q)) for order in orders]
        for each in second[1:]:
            np.testing.assert_allclose(each, second[0], atol=1e-10)
        third, step = np.asarray(jax.jacrev(jax.hessian(function))(q)), 1e-5
        for k in range(2):
            ends = [np.asarray(orders[0](q + sign * step * np.eye(2)[k])) for sign in (-1.0, 1.0)]
            np.testing.assert_allclose(third[..., k], (ends[1] - ends[0]) / (2.0 * step), atol=1e-6)

"""What messages say of rollouts that diverge: inputs that are no numbers, starts that are off the constraints."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import robots

import robodyn as rd

ENGINES = ["cpu", "reference"]


@pytest.fixture(scope="module")
def model():
    return rd.load_urdf(robots.own("quadruped"), base="floating")


def said(model, engine="reference", n=4, steps=6, **changed):
    """What a rollout of n states warns of."""
    given = {"q0": np.tile(model.neutral(), (n, 1)), "qd0": np.zeros((n, model.nv)), "dt": 1e-3, "steps": steps}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run = rd.Dynamics(model, engine=engine).rollout(**given | changed)
    return run, " ".join(str(each.message) for each in found)


@pytest.mark.parametrize("engine", ENGINES)
def test_forces_that_are_no_numbers(model, engine):
    tau = np.zeros((6, 4, model.nv))
    tau[3, 2, 7] = np.nan
    tau[1, 1, 8] = np.inf
    run, text = said(model, engine, tau=tau)
    assert run.diverged.tolist() == [-1, 2, 4, -1]
    assert f'Row 1: tau for step 2 (index 1) is infinite at "{model.velocity_names[8]}"' in text
    assert f'Row 2: tau for step 4 (index 3) is NaN at "{model.velocity_names[7]}"' in text
    assert "smaller dt" not in text
    _, text = said(model, engine, tau=tau[3])
    assert f'Row 2: tau is NaN at "{model.velocity_names[7]}"' in text


@pytest.mark.parametrize("engine", ENGINES)
def test_quaternions_without_length(model, engine):
    q = np.tile(model.neutral(), (4, 1))
    q[3, 3:7] = 0.0
    run, text = said(model, engine, q0=q)
    assert run.diverged.tolist() == [-1, -1, -1, 0]
    assert 'Row 3: the quaternion of q0 that starts at "root_joint.qx" has zero length' in text
    _, text = said(model, engine, q_des=q, kp=np.ones(model.nv))
    assert 'Row 3: the quaternion of q_des that starts at "root_joint.qx" has zero length' in text


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("qd0", lambda m: np.where(np.arange(4)[:, None] == 1, np.nan, np.zeros(m.nv)), 'Row 1: qd0 is NaN at "root_'),
        ("gravity", lambda m: (0.0, 0.0, np.inf), "gravity is infinite at index 2"),
        ("f_ext", lambda m: np.full((m.n_bodies, 6), np.nan), 'f_ext is NaN at "'),
        ("V0", lambda m: np.full(6, np.nan), "V0 is NaN at index 0"),
    ],
)
def test_other_inputs(model, name, value, match):
    assert match in said(model, **{name: value(model)})[1]


@pytest.mark.parametrize("name", ["kp", "kd", "damping", "friction", "armature"])
def test_gains_that_are_no_numbers_are_refused(model, name):
    gains = np.ones((4, model.nv))
    gains[2, 3] = np.nan
    more = {"q_des": np.tile(model.neutral(), (4, 1))} if name == "kp" else {}
    with pytest.raises(rd.NumericalError, match=f"^{name}: NaN or infinite in 1 of 4 rows: 2; wanted finite numbers"):
        said(model, **{name: gains}, **more)


def test_policies_whose_answer_is_no_number(model):
    def policy(t, q, qd):
        tau = np.zeros_like(qd)
        tau[2] = np.nan if t > 2.5e-3 else 0.0
        return tau

    run, text = said(model, policy=policy)
    assert run.diverged.tolist() == [-1, -1, 4, -1] and "Row 2: the policy returned a tau that is not finite" in text


def test_several_causes_and_none(model):
    """A row that nothing speaks against keeps the advice."""
    tau, qd = np.zeros((4, model.nv)), np.zeros((4, model.nv))
    tau[1, 2], qd[0] = np.nan, 1e200
    _, text = said(model, tau=tau, qd0=qd)
    assert "2 of 4 rows" in text and "Row 1: tau is NaN" in text and text.endswith("A smaller dt may help the others")
    assert said(model, qd0=qd)[1].endswith("they keep their last finite state. A smaller dt may help")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_starts_off_the_constraints(engine, batch):
    """By 0.05 m: the constraint, by how much, and what finds a start on it."""
    chain = rd.random_tree(12, seed=3, shape="chain", joints=("revolute",))
    q, name = chain.random_configuration(3), chain.link_names[-1]
    tip = rd.Dynamics(chain, engine="reference").link_pose(q, name)[:3, 3]
    model = rd.Dynamics(chain, constraints=[rd.Point(name, to_at=np.add(tip, (0.0, 0.05, 0.0)), name="held")]).model
    q0 = np.broadcast_to(q, (*batch, model.nq))
    run, text = said(model, engine, q0=q0, qd0=np.full(q0.shape, 1e160), steps=3)
    assert (run.diverged >= 0).all()
    assert "he start is off the constraints, 'held.y' is off by 0.05 m: model.assemble(q0)" in text


@pytest.mark.extras
def test_rows_that_diverged_are_not_written(model, tmp_path):
    pytest.importorskip("viser")
    qd = np.zeros((4, model.nv))
    qd[2] = 1e200
    run, _ = said(model, qd0=qd)
    message = (
        "row: row 2 diverged in step .*, and keeps its last finite state .*; wanted one that did not, such as row=0"
    )
    with pytest.raises(rd.NumericalError, match=message):
        run.save_html(tmp_path / "page.html", row=2)
    run.save(tmp_path / "run.npz")
    with rd.show(rd.Rollout.load(tmp_path / "run.npz"), model=model) as view:
        view.go(0.0, row=2)
        with pytest.raises(rd.NumericalError, match=message):
            view.save_html(tmp_path / "page.html")
        assert not (tmp_path / "page.html").exists()
        view.save_html(tmp_path / "page.html", row=1)


def test_gradients_say_the_same(model):
    tau = np.zeros((4, model.nv))
    tau[1, 2] = np.nan
    with pytest.warns(RuntimeWarning, match="1 of 4 rows diverged; their gradients are NaN. Row 1: tau is NaN at "):
        rd.Dynamics(model, engine="reference").rollout_vjp(
            np.tile(model.neutral(), (4, 1)), np.zeros((4, model.nv)), tau, 1e-3, 2, q_weight=np.ones((3, 4, model.nv))
        )

"""Figures hold the numbers that they are of, under the names and units that these have."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from robots import ROOT, own

import robodyn as rd

GONE = r"pip install \"\.\[plot\]"


def test_without_matplotlib(monkeypatch):
    model = rd.load_urdf(own("arm6"))
    run = rd.Dynamics(model, engine="reference").rollout(np.zeros(6), np.zeros(6), steps=2)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    for draw in (run.plot, model.plot_tree):
        with pytest.raises(rd.UnavailableError, match=GONE):
            draw()


def test_importing_draws_in_no_matplotlib():
    """The package's names are there without it, and cost nothing."""
    import subprocess

    text = "import sys, robodyn as rd; rd.plots.STYLE, rd.Rollout.plot; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0


def test_there_is_one_style():
    """Whatever draws takes its colours and settings from there."""
    drawing = [path for folder in ("docs", "examples", "robodyn", "tests") for path in (ROOT / folder).rglob("*.py")]
    of_its_own = [
        path.relative_to(ROOT)
        for path in drawing
        if re.search(
            r"rcParams\.update\((?!\S*STYLE\))|rcParams\[.*\] =|#4477aa|#ee6677", path.read_text(), re.IGNORECASE
        )
    ]
    assert sorted(map(str, of_its_own)) == ["robodyn/tools/plots/style.py", "tests/plots/test_plots.py"]


@pytest.fixture
def plt():
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="the extra 'plot' is not installed")
    pyplot.switch_backend("Agg")
    yield pyplot
    pyplot.close("all")


def followed(model, batch=(), steps=40, seed=3, **options):
    """A rollout under random forces, and these."""
    print(f"rollout of {model.name}: seed {seed}")
    rng = np.random.default_rng(seed)
    q0 = model.random_configuration(rng, batch)
    qd0, tau = rng.normal(size=(*batch, model.nv)), rng.normal(size=(steps, *batch, model.nv))
    dyn = rd.Dynamics(model, engine="reference")
    return dyn.rollout(q0, qd0, tau, dt=1e-3, steps=steps, **options), tau


def curves(figure):
    """Panel by panel: label of its axis, and (times, values) by name in its legend."""
    found = {}
    for panel in figure.axes:
        legend = panel.get_legend()
        names = [text.get_text() for text in legend.get_texts()]
        drawn = [line for line in panel.get_lines() if len(line.get_xdata())]
        each = len(drawn) // len(names)
        found[panel.get_ylabel()] = {
            name: np.array([line.get_ydata() for line in drawn[k * each : (k + 1) * each]]).T
            for k, name in enumerate(names)
        }
    return found


@pytest.mark.extras
@pytest.mark.parametrize("robot", ["humanoid", "cartpole", "ball_joint_arm", "hand", "planar_rover", "screw_press"])
def test_every_number_is_drawn_under_its_name(plt, robot):
    model = rd.load_urdf(own(robot), base="floating" if robot == "humanoid" else "fixed")
    run, tau = followed(model)
    found = curves(run.plot())
    for which, names, values in (
        ("position", model.coordinate_names, run.q),
        ("velocity", model.velocity_names, run.qd),
    ):
        panels = {k: v for k, v in found.items() if k.startswith(which) or (which == "position" and "quat" in k)}
        assert sorted(name for panel in panels.values() for name in panel) == sorted(names)
        for panel in panels.values():
            for name, drawn in panel.items():
                np.testing.assert_array_equal(drawn[:, 0], values[:, names.index(name)])
    drawn = {name: each for k, v in found.items() if k in ("torque, N m", "force, N") for name, each in v.items()}
    assert sorted(drawn) == sorted(model.velocity_names)
    # The motion of the default integrator takes the forces that it was given, and the last one holds until the end.
    got = np.stack([drawn[name][:, 0] for name in model.velocity_names], axis=1)
    np.testing.assert_allclose(got[:-1], tau, atol=1e-7 * max(1.0, np.abs(run.qd).max()))
    np.testing.assert_array_equal(got[-1], got[-2])
    dyn, energy = rd.Dynamics(model, engine="reference"), found["energy, J"]
    np.testing.assert_allclose(energy["kinetic"][:, 0], dyn.kinetic_energy(run.q, run.qd), rtol=1e-12)
    np.testing.assert_allclose(energy["potential"][:, 0], dyn.potential_energy(run.q), rtol=1e-12)
    np.testing.assert_allclose(energy["total"], energy["kinetic"] + energy["potential"], rtol=1e-12)


@pytest.mark.extras
def test_units_go_by_what_coordinates_are(plt):
    floating = curves(followed(rd.load_urdf(own("quadruped"), base="floating"))[0].plot())
    assert list(floating["position, m"]) == ["root_joint.x", "root_joint.y", "root_joint.z"]
    assert list(floating["unit quaternion"]) == [f"root_joint.q{axis}" for axis in "xyzw"]
    assert list(floating["velocity, m/s"]) == [f"root_joint.v{axis}" for axis in "xyz"] == list(floating["force, N"])
    cart = curves(followed(rd.load_urdf(own("cartpole")))[0].plot(what="velocities"))
    assert {unit: len(names) for unit, names in cart.items()} == {"velocity, m/s": 1, "velocity, rad/s": 1}


@pytest.mark.extras
def test_joints_and_rows_are_chosen(plt):
    model = rd.load_urdf(own("arm7"))
    run, tau = followed(model, (2, 3))
    name = model.joint_names[4]
    found = curves(run.plot(what=["torques", "positions"], joints=name, rows=[1, -1], tau=tau))
    assert list(found) == ["position, rad", "torque, N m"]
    np.testing.assert_array_equal(found["position, rad"][name], run.q.reshape(41, 6, 7)[:, [1, 5], 4])
    np.testing.assert_array_equal(found["torque, N m"][name][:-1], tau.reshape(40, 6, 7)[:, [1, 5], 4])
    # A batch of six is drawn row by row; one of two hundred as its median in a band.
    assert curves(run.plot(what="velocities"))["velocity, rad/s"][name].shape == (41, 6)
    many, _ = followed(model, (200,), steps=5)
    figure = many.plot(what="positions", joints=[4])
    median = curves(figure)["position, rad"][name][:, 0]
    assert (
        np.abs(median - np.median(many.q[..., 4], axis=1)) < np.ptp(np.sort(many.q[..., 4], axis=1)[:, 98:102])
    ).all()
    (band,) = figure.axes[0].collections
    low, high = np.sort(many.q[0, :, 4])[[10, 189]]
    edge = band.get_paths()[0].vertices
    at_start = edge[edge[:, 0] == 0.0, 1]
    assert at_start.min() == low and at_start.max() == high
    assert "median" in figure.axes[0].get_title()


@pytest.mark.extras
def test_forces_may_be_given_in_each_shape(plt):
    model = rd.load_urdf(own("arm6"))
    run, tau = followed(model, (3,))
    name = model.joint_names[0]
    for given, wanted in (
        (np.ones(6), np.ones((41, 3))),
        (tau[0], np.broadcast_to(tau[0, :, 0], (41, 3))),
        (tau, np.vstack([tau[..., 0], tau[-1:, :, 0]])),
        (tau[:, :1], np.repeat(np.vstack([tau[:, :1, 0], tau[-1:, :1, 0]]), 3, axis=1)),
        (run.qd, run.qd[..., 0]),
    ):
        drawn = curves(run.plot(what="torques", tau=given))["torque, N m"][name]
        np.testing.assert_array_equal(drawn, wanted)


@pytest.mark.extras
def test_rows_that_diverge_end_there(plt):
    model = rd.load_urdf(own("arm6"))
    dyn = rd.Dynamics(model, engine="reference")
    tau = np.zeros((20, 2, 6))
    tau[7, 1] = np.nan
    with pytest.warns(RuntimeWarning, match="diverged"):
        run = dyn.rollout(np.zeros((2, 6)), np.zeros((2, 6)), tau, dt=1e-3, steps=20, save_every=3)
    assert run.diverged.tolist() == [-1, 8]
    for values in curves(run.plot(what=("positions", "velocities", "energies"))).values():
        for name, drawn in values.items():
            assert np.isfinite(drawn[:, 0]).all(), name
            # Kept are the states after 0, 3, 6, 9, ... steps; the eighth is the first that is not finite.
            assert np.isfinite(drawn[:3, 1]).all() and np.isnan(drawn[3:, 1]).all(), name


@pytest.mark.extras
def test_what_was_read_needs_the_robot(plt, tmp_path):
    model = rd.load_urdf(own("arm6"))
    run, _ = followed(model)
    run.save(tmp_path / "run.npz")
    read = rd.Rollout.load(tmp_path / "run.npz")
    with pytest.raises(rd.ArgumentError, match="model"):
        read.plot()
    for robot in (model, rd.Dynamics(model)):
        assert curves(read.plot(model=robot)).keys() == curves(run.plot()).keys()


@pytest.mark.extras
def test_a_simulation_is_a_trajectory(plt):
    model = rd.load_urdf(own("double_pendulum"))
    found = rd.simulate(model, np.full(model.nq, 0.3), np.zeros(model.nv), 1.0)
    energy = curves(rd.plots.trajectory(model, found.t, found.q, found.qd, what="energies"))["energy, J"]
    assert np.ptp(energy["total"]) < 1e-6 < np.ptp(energy["kinetic"])


@pytest.mark.extras
@pytest.mark.parametrize(
    "options, wanted",
    [
        ({"what": "forces"}, "'torques'"),
        ({"what": ()}, "what"),
        ({"what": 3}, "what"),
        ({"joints": "elbo"}, "elbow"),
        ({"joints": 99}, "joint"),
        ({"joints": []}, "joints"),
        ({"rows": 4}, "below 4"),
        ({"rows": [0, "x"]}, "'x'"),
        ({"rows": []}, "rows"),
        ({"rows": True}, "rows"),
        ({"tau": np.ones(5)}, "tau"),
        ({"tau": np.ones((7, 4, 6))}, r"\(40, 4, 6\)"),
        ({"tau": "much"}, "tau"),
        ({"model": "arm6"}, "model"),
        ({"model": rd.auto_tree(3)}, "q: got shape"),
    ],
)
def test_mistakes_are_named(plt, options, wanted):
    run, _ = followed(rd.load_urdf(own("arm6")), (4,))
    with pytest.raises(rd.ArgumentError, match=wanted):
        run.plot(**options)
    assert not plt.get_fignums(), "what is refused leaves no figure behind"


@pytest.mark.extras
def test_odd_trajectories(plt):
    model = rd.load_urdf(own("hand"))
    q = np.zeros((3, model.nq))
    qd = np.zeros((3, model.nv))
    follower = int(np.flatnonzero(model.mimics >= 0)[0])
    for t, states, options, wanted in (
        ([0.0, 1.0, 1.0], (q, qd), {}, "ascending"),
        ([0.0, 1.0], (q, qd), {}, r"wanted \(2, "),
        ([0.0, np.nan, 2.0], (q, qd), {}, "finite"),
        (range(3), (q, qd[:, None]), {}, "batch"),
        (range(3), (q[:, None][:, :0], qd[:, None][:, :0]), {}, "at least one row"),
        (range(3), (q[:, 1:], qd), {}, "q: got shape"),
        ([0.0], (q[:1], qd[:1]), {"what": "torques"}, "two times"),
        (range(3), (q, qd), {"joints": follower}, "follows"),
    ):
        with pytest.raises(rd.ArgumentError, match=wanted):
            rd.plots.trajectory(model, t, *states, **options)
    big = rd.auto_tree(100)
    with pytest.raises(rd.ArgumentError, match="100 coordinates"):
        rd.plots.trajectory(big, range(2), np.zeros((2, 100)), np.zeros((2, 100)), what="positions")
    # One state is a dot, and a robot without joints has energies alone.
    assert curves(rd.plots.trajectory(model, [0.0], q[:1], qd[:1], what="positions"))
    still = rd.auto_tree(2).lock({0: 0.1, 1: 0.2})
    nothing = np.zeros((2, 0))
    assert list(curves(rd.plots.trajectory(still, [0, 1], nothing, nothing))) == ["energy, J"]
    with pytest.raises(rd.ArgumentError, match="has none"):
        rd.plots.trajectory(still, [0, 1], nothing, nothing, what="positions")


@pytest.mark.extras
def test_motions_that_have_left_all_bounds(plt):
    model = rd.load_urdf(own("arm6"))
    zero, t = np.zeros((4, 6)), range(4)
    for q, qd in (
        (zero + 1e308, zero),
        (zero, zero + np.array([0.0, 1e200, -1e308, 1e308])[:, None]),
        (zero * np.nan, zero),
        (zero + np.inf, zero),
    ):
        figure = rd.plots.trajectory(model, t, q, qd)
        figure.canvas.draw()
        assert all(
            np.nanmax(np.abs(each), initial=0.0) < 1e100 for panel in curves(figure).values() for each in panel.values()
        )
    with pytest.raises(rd.ArgumentError, match="at most"):
        rd.plots.trajectory(model, t, zero, zero, rows=range(10**12))


@pytest.mark.extras
def test_names_that_would_be_formulas_or_hidden(plt, tmp_path):
    model = rd.load_urdf(own("arm6"))
    names = [r"_el$\frac{bow$" if name == "elbow" else name for name in model.joint_names]
    model = replace(model, joint_names=tuple(names))
    run, _ = followed(model)
    for figure in (run.plot(what="positions"), model.plot_tree()):
        figure.savefig(tmp_path / "names.svg")
        assert r"_el$\frac{bow$" in (tmp_path / "names.svg").read_text()


@pytest.mark.extras
def test_figures_are_the_users(plt):
    """Settings stay as they were, the figure is pyplot's, and nothing was shown."""
    before = dict(plt.rcParams)
    run, _ = followed(rd.load_urdf(own("arm6")))
    figure = run.plot(what="positions")
    assert dict(plt.rcParams) == before
    assert plt.figure(figure.number) is figure
    first, second = (figure.canvas.print_to_buffer()[0] for _ in range(2))
    assert first == second


@pytest.mark.extras
@pytest.mark.parametrize("robot", ["humanoid", "hand", "massless_chain", "loops/four_bar"])
def test_trees_have_every_link_below_the_one_that_carries_it(plt, robot):
    model = rd.load_urdf(own(robot))
    figure = model.plot_tree()
    panel = figure.axes[0]
    at = {text.get_text().split("  ")[0].strip(): text.get_position() for text in panel.texts}
    assert set(at) == set(model.link_names) and len({y for _, y in at.values()}) == len(at)
    for parent, child, data in model.graph().edges(data=True):
        (left, top), (right, below) = at[parent], at[child]
        assert left < right and top > below
        beside = next(text.get_text() for text in panel.texts if text.get_text().split("  ")[0] == child)
        assert data["joint"] in beside and (data["mimic"] is None or data["mimic"].joint in beside)
    mass = {link: model.graph().nodes[link]["mass"] for link in at}
    areas = [float(dot.get_sizes()[0]) for dot in panel.collections]
    heaviest = max(mass, key=mass.get)
    places = [tuple(dot.get_offsets()[0]) for dot in panel.collections]
    assert places[int(np.argmax(areas))][1] == at[heaviest][1]
    dotted = [line for line in panel.get_lines() if line.get_linestyle() == ":"]
    assert len(dotted) == sum(getattr(each, "to", None) is not None for each in model.constraints)
    assert bool(dotted) == (robot == "loops/four_bar")


@pytest.mark.extras
def test_large_trees(plt):
    assert len(rd.auto_tree(499).plot_tree().axes[0].texts) == 500
    with pytest.raises(rd.ArgumentError, match="at most 500"):
        rd.auto_tree(10_000).plot_tree()

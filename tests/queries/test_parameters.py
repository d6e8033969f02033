"""The regressor, derivatives by parameters, forces and gravity, and inertias that are given state by state."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace

import numpy as np
import pytest
import robots
from conftest import random_states, relative
from robots import own

import robodyn as rd
from robodyn.description import Inertial, Joint, Link, Pose, RobotDescription
from robodyn.engines.query_table import QUERIES
from robodyn.inertial_parameters import frame_matrix, from_pseudo_inertia, in_frame, pseudo_inertia

# Pinocchio's regressor is made in world coordinates and by its own reading of the file.
PINOCCHIO = 1e-9
# Central differences with a step of 1e-5 of the parameters: truncation of its square, roundings of 1e-16 / 1e-5 on
# accelerations that carry the conditioning of H.
DIFFERENCE, STEP = 1e-7, 1e-5


def tree(mimic=0.0, base="fixed"):
    """Every joint kind (the floating one at the base) on several branches, with armature on all but that."""
    kinds = ("helical", "spherical", "revolute", "planar", "prismatic")
    return rd.random_tree(5, seed=11, joints=kinds, mimic=mimic, base=base, armature=True)


TREES = {"floating": (0.0, "floating"), "following": (0.6, "floating")}


@pytest.fixture(scope="module", params=TREES)
def model(request):
    made = tree(*TREES[request.param])
    assert made.has_mimic == (request.param == "following")
    return made


def changed(model, shape=(), seed=5):
    """Inertias of bodies that are heavier and lighter, larger and smaller than the model's: (*shape, n_bodies, 10)."""
    rng = np.random.default_rng(seed)
    L = np.linalg.cholesky(pseudo_inertia(model.inertia) + 1e-9 * np.eye(4))
    W = np.eye(4) + 0.2 * rng.standard_normal((*shape, model.n_bodies, 4, 4))
    return from_pseudo_inertia(L @ W @ np.swapaxes(W, -1, -2) @ np.swapaxes(L, -1, -2))


def exact(model, **options):
    """The reference engine."""
    return rd.Dynamics(model, engine="reference", **options)


# The regressor and what else inverse dynamics is linear in.


def test_torques_are_linear_in_the_parameters(model, make_dynamics, tolerance):
    q, qd, qdd = random_states(model, (2, 1))
    V0, dV0 = np.random.default_rng(1).standard_normal((2, 3, 6))
    dyn = make_dynamics(model)
    Y = dyn.regressor(q, qd[0], qdd, V0=V0, dV0=dV0)
    assert Y.shape == (2, 3, model.nv, 10 * model.n_bodies)
    for pi in (model.inertia, changed(model), np.random.default_rng(2).standard_normal((model.n_bodies, 10))):
        tau = exact(replace(model, inertia=pi)).inverse_dynamics(q, qd[0], qdd, V0=V0, dV0=dV0)
        assert relative(Y @ pi.ravel() + model.armature * qdd, tau) < tolerance


def test_torques_are_linear_in_external_forces_and_gravity(model, make_dynamics, tolerance):
    q, qd, qdd = random_states(model, (3,))
    rng = np.random.default_rng(3)
    f_ext, gravity, pi = rng.standard_normal((3, model.n_bodies, 6)), rng.standard_normal(3), changed(model, (3,))
    dyn, reference = make_dynamics(model), exact(model)
    by_force = dyn.inverse_dynamics_external_force_gradient(q)
    wanted = reference.inverse_dynamics(q, qd, qdd, f_ext=f_ext) - reference.inverse_dynamics(q, qd, qdd)
    assert relative(np.einsum("bvnk,bnk->bv", by_force, f_ext), wanted) < 10 * tolerance
    by_gravity = dyn.inverse_dynamics_gravity_gradient(q, inertia=pi)
    elsewhere = exact(replace(model, gravity=gravity)).gravity_force(q, inertia=pi)
    assert relative(by_gravity @ gravity, elsewhere) < 10 * tolerance
    assert relative(dyn.inverse_dynamics_gravity_gradient(q) @ model.gravity, reference.gravity_force(q)) < tolerance


@pytest.mark.some(of=3, rest="matrix")
def test_accelerations_are_linear_in_external_forces_and_gravity(model, make_dynamics, tolerance):
    q, qd, tau = random_states(model, (3,))
    rng = np.random.default_rng(4)
    f_ext, gravity, pi = rng.standard_normal((3, model.n_bodies, 6)), rng.standard_normal(3), changed(model, (3,))
    dyn, reference = make_dynamics(model), exact(model)
    # Judged by the forces that the accelerations take: those themselves carry the conditioning of H.
    H = reference.mass_matrix(q, inertia=pi)
    by_force = dyn.forward_dynamics_external_force_gradient(q, inertia=pi)
    wanted = -reference.inverse_dynamics_external_force_gradient(q)
    assert relative(np.einsum("bvw,bwnk->bvnk", H, by_force), wanted) < 10 * tolerance
    by_gravity = dyn.forward_dynamics_gravity_gradient(q, inertia=pi)
    assert relative(H @ by_gravity, -reference.inverse_dynamics_gravity_gradient(q, inertia=pi)) < 10 * tolerance
    # And, far from the last digit, by accelerations.
    loose = 1e4 * tolerance if dyn.dtype == np.float64 else 0.05
    still = reference.forward_dynamics(q, qd, tau, inertia=pi)
    pushed = reference.forward_dynamics(q, qd, tau, f_ext=f_ext, inertia=pi) - still
    assert relative(np.einsum("bvnk,bnk->bv", by_force, f_ext), pushed) < loose
    moved = exact(replace(model, gravity=model.gravity + gravity)).forward_dynamics(q, qd, tau, inertia=pi) - still
    assert relative(by_gravity @ gravity, moved) < loose


@pytest.mark.some(of=3, rest="matrix")
def test_gradient_of_forward_dynamics_by_parameters(model, make_dynamics, tolerance):
    q, qd, tau = random_states(model, (3,))
    rng = np.random.default_rng(6)
    f_ext, base = rng.standard_normal((3, model.n_bodies, 6)), rng.standard_normal((2, 3, 6))
    pi = changed(model, (3,))
    given = {"V0": base[0], "dV0": base[1]}
    options = {"joint_forces": ("damping", "friction")}
    reference, dyn = exact(model, **options), make_dynamics(model, **options)
    by_pi = dyn.forward_dynamics_parameter_gradient(q, qd, tau, f_ext=f_ext, inertia=pi, **given)
    qdd = reference.forward_dynamics(q, qd, tau, f_ext=f_ext, inertia=pi, **given)
    H, Y = reference.mass_matrix(q, inertia=pi), reference.regressor(q, qd, qdd, **given)
    assert relative(H @ by_pi, -Y) < 50 * tolerance
    step = STEP * rng.choice([-1.0, 1.0], pi.shape) * pi
    ahead, behind = (
        reference.forward_dynamics(q, qd, tau, f_ext=f_ext, inertia=p, **given) for p in (pi + step, pi - step)
    )
    along = (by_pi @ step.reshape(3, -1, 1))[..., 0]
    assert relative(along, (ahead - behind) / 2.0) < max(DIFFERENCE, 1e3 * tolerance)


# Pinocchio.


OWN = [(path.stem, "own", base) for path in robots.OWN for base in ("fixed", "floating")]
SHARED = [(name, "shared", base) for name in robots.EVERY_RUN for base in ("fixed", "floating")]


def from_link_frames(model, oracle):
    """The bodies that have links, and for each of them the transform (12) from our frame to Pinocchio's, which is that
    of the joint as the file has it. (Between the joints of a universal one there is a body without.)"""
    transforms = {}
    for body, X, frame in zip(model.link_body.tolist(), model.link_X, oracle.frames, strict=True):
        if body >= 0 and body not in transforms:
            in_body, in_joint = np.eye(4), oracle.pin.frames[frame].placement.homogeneous
            in_body[:3, :3], in_body[:3, 3] = X[:9].reshape(3, 3).T, X[9:]
            pose = in_body @ np.linalg.inv(in_joint)
            transforms[body] = np.r_[pose[:3, :3].T.ravel(), pose[:3, 3]]
    return list(transforms), np.array(list(transforms.values()))


@pytest.mark.parametrize(("name", "where", "base"), OWN + SHARED)
@pytest.mark.some(of=3, rest="matrix")
def test_regressor_and_parameters_are_pinocchios(name, where, base):
    pin = pytest.importorskip("pinocchio", reason="Pinocchio has no wheel for this platform")
    from oracles.cases import urdf_case

    case = urdf_case(robots.own(name) if where == "own" else robots.shared(name), base)
    model, oracle, s = case.model, case.oracle, case.states
    (bodies, X), order = from_link_frames(model, oracle), rd.conventions.pinocchio_parameters()
    joints = [oracle.joints[body] for body in bodies]
    theirs = np.array([oracle.pin.inertias[j].toDynamicParameters() for j in joints])
    assert relative(in_frame(model.inertia[bodies], X)[:, order], theirs) < PINOCCHIO
    engines = [exact(model)] + ([rd.Dynamics(model)] if where == "own" and base == "fixed" else [])
    answers = [dyn.regressor(s.q, s.qd, s.qdd).reshape(-1, model.nv, model.n_bodies, 10) for dyn in engines]
    q, v, a = oracle.coordinates(s.q), oracle._rates(s.qd), oracle._rates(s.qdd)
    for row in range(len(q)):
        Y = pin.computeJointTorqueRegressor(oracle.pin, oracle.data, q[row], v[row], a[row])
        blocks = Y[oracle.velocities].reshape(model.nv, -1, 10)[:, [j - 1 for j in joints]][..., order]
        for ours in answers:
            assert relative(ours[row][:, bodies], np.einsum("vni,nij->vnj", blocks, frame_matrix(X))) < PINOCCHIO


# Inertias that are given.


ON_INERTIA = [name for name in QUERIES if "inertia" in inspect.signature(getattr(rd.Dynamics, name)).parameters]
LONG_TO_COMPILE = [name for name in ON_INERTIA if "hessian" in name]
SOLVING = ("forward_dynamics", "mass_matrix_inverse")


def call(dyn, name, arrays, **options):
    """A query by name, as a tuple of its results."""
    method = getattr(dyn, name)
    parameters = inspect.signature(getattr(rd.Dynamics, name)).parameters
    result = method(**{key: value for key, value in arrays.items() if key in parameters}, **options)
    return result if isinstance(result, tuple) else (result,)


def arrays_of(model, shape=(), seed=7):
    q, qd, qdd = random_states(model, shape, seed)
    rng = np.random.default_rng(seed)
    f_ext, base = rng.standard_normal((*shape, model.n_bodies, 6)), rng.standard_normal((2, *shape, 6))
    return {"q": q, "qd": qd, "qdd": qdd, "tau": qdd, "vector": qdd, "f_ext": f_ext, "V0": base[0], "dV0": base[1]}


@pytest.mark.parametrize("name", ON_INERTIA)
@pytest.mark.some(of=20, rest="matrix")
def test_given_inertias_are_those_of_another_model(name, model, make_dynamics, engine_dtype, tolerance):
    """Row by row, of every query that takes them."""
    if name in LONG_TO_COMPILE and engine_dtype[0] != "reference":
        pytest.skip("takes long to compile, and its inertias come the way of all others'")
    arrays, pi = arrays_of(model, (3,)), changed(model, (3,))
    got = call(make_dynamics(model), name, arrays, inertia=pi)
    for row in range(3):
        other = exact(replace(model, inertia=pi[row]))
        single = {key: array[row] for key, array in arrays.items()}
        for ours, wanted in zip(got, call(other, name, single), strict=True):
            # What is solved carries the conditioning of H.
            allowed = tolerance if not name.startswith(SOLVING) else 1e3 * tolerance
            assert relative(ours[row], wanted) < allowed, row


def test_the_list_of_queries_on_inertias():
    wanted = {
        *("inverse_dynamics", "forward_dynamics", "bias_force", "gravity_force", "mass_matrix", "mass_matrix_inverse"),
        *("kinetic_energy", "potential_energy", "inverse_dynamics_gradient", "forward_dynamics_gradient"),
    }
    assert wanted <= set(ON_INERTIA)


@pytest.mark.parametrize("options", [{"method": "crba"}, {"method": "auto"}])
def test_both_methods_of_forward_dynamics_take_inertias(options, make_dynamics, tolerance):
    model = tree()
    arrays, pi = arrays_of(model, (4,)), changed(model, (4,))
    qdd = call(make_dynamics(model), "forward_dynamics", arrays, inertia=pi, **options)[0]
    back = call(exact(model), "inverse_dynamics", {**arrays, "qdd": qdd}, inertia=pi)[0]
    assert relative(back, arrays["tau"]) < 10 * tolerance


def test_inertias_broadcast_like_other_arguments(make_dynamics):
    model = tree(base="floating")
    dyn, q, pi = make_dynamics(model), random_states(model, (4, 1))[0], changed(model, (3,))
    H = dyn.mass_matrix(q, inertia=pi)
    assert H.shape == (4, 3, model.nv, model.nv)
    assert (dyn.mass_matrix(q[2, 0], inertia=pi) == H[2]).all()
    assert (dyn.mass_matrix(q[:, 0], inertia=pi[1]) == H[:, 1]).all()
    out = np.full((4, 3, model.nv, model.nv), np.nan, dyn.dtype)
    assert dyn.mass_matrix(q, inertia=pi, out=out) is out and (out == H).all()
    assert dyn.mass_matrix(q[:0], inertia=pi).shape == (0, 3, model.nv, model.nv)
    assert dyn.mass_matrix_inverse(q[:0, 0], inertia=pi[:0, None][:, 0]).shape == (0, model.nv, model.nv)
    with pytest.raises(rd.ArgumentError, match=r"leading axes do not broadcast: got q \(4,\), inertia \(3,\)"):
        dyn.mass_matrix(q[:, 0], inertia=pi)


def test_quick_calls_pass_inertias_on(make_dynamics, tolerance):
    """After the first answers, when machine code has taken the place of the methods."""
    model = tree()
    dyn = make_dynamics(model)
    arrays, pi = {key: array.astype(dyn.dtype) for key, array in arrays_of(model, (2,)).items()}, changed(model)
    plain = arrays["q"], arrays["qd"], arrays["tau"]
    for _ in range(3):
        dyn.forward_dynamics(*plain), dyn.regressor(*plain)
    heavier = exact(replace(model, inertia=pi))
    got = heavier.inverse_dynamics(*plain[:2], dyn.forward_dynamics(*plain, inertia=pi))
    assert relative(got, plain[2]) < 10 * tolerance
    assert relative(dyn.regressor(*plain), exact(model).regressor(*plain)) < tolerance


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.ones(10), r"^inertia: got shape \(10,\); wanted a real array of shape \(\.\.\., 6, 10\): \(n_bodies, 10\)"),
        (np.ones((5, 10)), r"^inertia: got shape \(5, 10\)"),
        (np.ones((6, 10)) > 0, "^inertia: got .* of dtype bool"),
        ("heavy", "^inertia: got"),
        (np.full((6, 10), np.nan), "^inertia: NaN or infinite at index 0, 0;"),
    ],
)
def test_wrong_inertias_are_named(given, words):
    model = rd.load_urdf(own("arm6"))
    for query in (rd.Dynamics(model).gravity_force, exact(model).mass_matrix_inverse):
        with pytest.raises(rd.RobodynError, match=words):
            query(model.neutral(), inertia=given)


def test_inertias_are_keywords_alone():
    with_them = [inspect.signature(getattr(rd.Dynamics, name)).parameters["inertia"] for name in ON_INERTIA]
    assert {parameter.kind for parameter in with_them} == {inspect.Parameter.KEYWORD_ONLY}
    assert {parameter.default for parameter in with_them} == {None}


@pytest.mark.some(of=6, rest="matrix")
def test_rows_of_inertias_that_are_not_finite_spoil_nothing_else(model, make_dynamics):
    arrays, pi = arrays_of(model, (4,)), changed(model, (4,))
    dyn = make_dynamics(model)
    for name in set(ON_INERTIA) - set(LONG_TO_COMPILE):
        clean = call(dyn, name, arrays, inertia=pi)
        spoilt = pi.copy()
        spoilt[1], spoilt[2, -1, 0] = np.nan, np.inf
        for got, wanted in zip(call(dyn, name, arrays, inertia=spoilt), clean, strict=True):
            assert (got[[0, 3]] == wanted[[0, 3]]).all(), name
            assert np.isnan(got[1]).any(), name


# Singular robots.


POINT = Inertial(1.3, Pose((0.2, -0.1, 0.4)), (0.0,) * 6)
BODY = Inertial(1.0, Pose((0.1, 0.05, 0.2)), (0.02, 0.0, 0.0, 0.03, 0.0, 0.04))


def robot(*parts):
    """A serial robot of (joint type, inertial of its child)."""
    links, joints = [Link("link0")], []
    for i, (kind, inertial) in enumerate(parts):
        joints.append(Joint(f"joint{i}", kind, f"link{i}", f"link{i + 1}", Pose((0.0, 0.1, 0.3)), (0.6, 0.0, 0.8)))
        links.append(Link(f"link{i + 1}", inertial))
    return rd.build_model(RobotDescription("chain", tuple(links), tuple(joints)))


SINGULAR = {
    # A pivot that is exactly zero, and one that rounding leaves.
    "no mass": (("revolute", BODY), ("revolute", None)),
    "a point in a ball joint": (("revolute", BODY), ("spherical", POINT)),
}


@pytest.mark.parametrize("case", SINGULAR)
def test_a_robot_that_is_singular_by_itself_is_not_with_other_inertias(case, make_dynamics, tolerance):
    model = robot(*SINGULAR[case])
    dyn = make_dynamics(model)
    q, qd, tau = random_states(model, (3,))
    with pytest.raises(rd.SingularError, match="body 'link2' has no inertia"):
        dyn.forward_dynamics(q, qd, tau)
    solid = robot(("revolute", BODY), (SINGULAR[case][1][0], BODY)).inertia
    for qdd in (dyn.forward_dynamics(q, qd, tau, inertia=solid), dyn.forward_dynamics(q, qd, tau, inertia=[solid] * 3)):
        assert relative(exact(model).inverse_dynamics(q, qd, qdd, inertia=solid), tau) < 10 * tolerance
    assert np.isfinite(dyn.forward_dynamics_gradient(q, qd, tau, inertia=solid)[0]).all()
    assert np.isfinite(dyn.forward_dynamics(q[0], qd[0], tau[0], inertia=solid)).all()


def queries_that_solve(dyn, q, qd, tau):
    return {
        "forward_dynamics": lambda **o: dyn.forward_dynamics(q, qd, tau, **o),
        "crba": lambda **o: dyn.forward_dynamics(q, qd, tau, method="crba", **o),
        "mass_matrix_inverse": lambda **o: dyn.mass_matrix_inverse(q, **o),
        "forward_dynamics_gradient": lambda **o: dyn.forward_dynamics_gradient(q, qd, tau, **o)[0],
        "by parameters": lambda **o: dyn.forward_dynamics_parameter_gradient(q, qd, tau, **o),
        "by external forces": lambda **o: dyn.forward_dynamics_external_force_gradient(q, **o),
        "by gravity": lambda **o: dyn.forward_dynamics_gravity_gradient(q, **o),
    }


@pytest.mark.parametrize("case", SINGULAR)
@pytest.mark.some(of=3, rest="matrix")
def test_inertias_that_make_a_robot_singular(case, make_dynamics):
    model = robot(*((kind, BODY) for kind, _ in SINGULAR[case]))
    lacking = robot(*SINGULAR[case]).inertia
    q, qd, tau = random_states(model, (4,))
    pi = np.stack([model.inertia] * 4)
    pi[2] = lacking
    dyn, checked = make_dynamics(model), make_dynamics(model, check=True)
    clean = {name: query() for name, query in queries_that_solve(dyn, q, qd, tau).items()}
    for name, query in queries_that_solve(dyn, q, qd, tau).items():
        got = query(inertia=pi)
        assert np.isnan(got[2]).all(), name
        assert relative(got[[0, 1, 3]], clean[name][[0, 1, 3]]) < (1e-3 if dyn.dtype == np.float32 else 1e-9), name
        assert np.isnan(query(inertia=lacking)).all(), name

    def named(row):
        body = re.escape(re.search(r"body ('.*?') has no inertia", by_itself).group(1))
        return rf"body {body} {row}has no inertia that its joint .* could move; wanted"

    by_itself = rd.Dynamics(robot(*SINGULAR[case])).singularity()
    for query in queries_that_solve(checked, q, qd, tau).values():
        with pytest.raises(
            rd.SingularError, match=rf"^inertia: .* singular at every state in 1 of 4 rows: 2; {named('of row 2 ')}"
        ):
            query(inertia=pi)
    for query in queries_that_solve(dyn, q[0], qd[0], tau[0]).values():
        with pytest.raises(rd.SingularError, match=rf"^inertia: .* is singular at every state; {named('')}"):
            query(inertia=lacking)


def test_singular_inertias_of_joints_that_follow_others(make_dynamics):
    model = rd.load_urdf(own("hand"))
    q, qd, tau = random_states(model, (3,))
    pi = np.stack([model.inertia] * 3)
    pi[1, model.mimics >= 0] = 0.0  # a finger's tips without mass move with what does have it
    pi[2] = 0.0
    got = make_dynamics(model).forward_dynamics(q, qd, tau, inertia=pi)
    assert np.isfinite(got[:2]).all() and np.isnan(got[2]).all()
    assert relative(got[0], got[1]) > 1e-3


def test_inertias_changed_in_place_are_judged_again(make_dynamics):
    model = tree(base="floating")
    dyn, arrays, pi = make_dynamics(model), arrays_of(model, (2,)), changed(model, (2,))
    assert np.isfinite(call(dyn, "forward_dynamics", arrays, inertia=pi)[0]).all()
    pi[1] = 0.0
    got = call(dyn, "forward_dynamics", arrays, inertia=pi)[0]
    assert np.isfinite(got[0]).all() and np.isnan(got[1]).all()


def test_a_robot_that_cannot_move(make_dynamics):
    model = rd.random_tree(3, seed=0, joints=["fixed"])
    dyn, nothing, none = make_dynamics(model), np.empty((5, 0)), np.empty((5, 0, 10))
    assert dyn.regressor(nothing, nothing, nothing).shape == (5, 0, 0)
    assert dyn.inverse_dynamics_external_force_gradient(nothing).shape == (5, 0, 0, 6)
    assert dyn.inverse_dynamics_gravity_gradient(nothing, inertia=none).shape == (5, 0, 3)
    assert dyn.forward_dynamics_parameter_gradient(nothing, nothing, nothing, inertia=none).shape == (5, 0, 0)
    assert dyn.forward_dynamics_gravity_gradient(nothing, inertia=none[0]).shape == (5, 0, 3)
    assert dyn.mass_matrix_inverse(nothing, inertia=none).shape == (5, 0, 0)

"""The edge that users touch: shapes, batches, out=, values that are not numbers, options, singular robots."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import multiprocessing
import pickle
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from conftest import BATCHES, random_states, relative
from robots import own

import robodyn as rd
from robodyn.algorithms.tasks import COEFFICIENTS
from robodyn.api.autodiff.functions import WITH_RULES, DifferentiableDynamics
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.description import JOINT_TYPES
from robodyn.engines.query_table import (
    BASE,
    CONSTRAINED,
    EVERYWHERE,
    OF_CONTACTS,
    OF_SHAPES,
    QUERIES,
    QueryVariant,
    short_names,
)
from robodyn.joints import KINDS
from robodyn.sweeps import INPUTS

EVERY_KIND = [kind for kind in JOINT_TYPES if kind != "fixed"]


@pytest.fixture(scope="module")
def model():
    """Every joint kind, a floating base, several children of the root."""
    return rd.random_tree(8, seed=1, joints=JOINT_TYPES, base="floating", armature=True)


def queries(dyn, q, qd, qdd, f_ext=None):
    """Every query of the table: name -> (call taking out=, trailing result shapes)."""
    model, link = dyn.model, dyn.model.link_names[-1]
    f_ext = np.ones((model.n_bodies, 6)) if f_ext is None else f_ext
    values = {"q": q, "qd": qd, "qdd": qdd, "tau": qdd, "vector": qdd, "f_ext": f_ext}
    found = {}
    for name, question in QUERIES.items():
        # One of the second derivatives is taken at a vector, the other as a tensor.
        optional = ("f_ext", "vector") if name == "forward_dynamics_hessian" else ("f_ext",)
        given = {each: values[each] for each in (*question.inputs, *(o for o in optional if o in question.optional))}
        by_place, by_name = question.arguments(given, link)
        call = partial(getattr(dyn, name), *by_place, **by_name)
        found[name] = call, list(question.shapes(model, given).values())
    return found


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("leading", BATCHES, ids=str)
@pytest.mark.some(of=24, rest="matrix")
def test_batches_and_out(name, leading, model, make_dynamics, engine_dtype):
    dyn = make_dynamics(model)
    q, qd, qdd = random_states(model, leading, seed=3)
    call, shapes = queries(dyn, q, qd, qdd)[name]
    results = as_tuple(call())
    assert [np.shape(r) for r in results] == [(*leading, *shape) for shape in shapes]
    assert all(np.asarray(r).dtype == engine_dtype[1] for r in results)
    # Row by row the same, to the bit: the batch is not allowed to change the arithmetic.
    for row in np.ndindex(*leading):
        single, _ = queries(dyn, q[row], qd[row], qdd[row])[name]
        for whole, part in zip(results, as_tuple(single()), strict=True):
            assert (np.asarray(whole)[row] == part).all()
    # Into arrays that hold NaN and are not contiguous.
    wide = tuple(np.full((*leading, *shape, 2), np.nan, engine_dtype[1]) for shape in shapes)
    out = tuple(array[..., 0] for array in wide)
    returned = call(out=out if len(out) > 1 else out[0])
    for target, given, wanted in zip(out, as_tuple(returned), results, strict=True):
        assert given is target and (target == wanted).all()
    assert all(np.isnan(array[..., 1]).all() for array in wide)


def test_every_query_has_a_row_and_every_row_a_query():
    """Rows say what signatures say, and what algorithms return. Steps in time and operators are no queries."""
    methods = dict(inspect.getmembers(rd.Dynamics, inspect.isfunction))
    asked = {
        n for n, method in methods.items() if not n.startswith("_") and "q" in inspect.signature(method).parameters
    }
    no_queries = {"step", "step_gradient", "contact_forward_dynamics_gradient", "mass_matrix_operator", "is_free"}
    assert asked - no_queries == {*QUERIES, *CONSTRAINED, *OF_SHAPES, *OF_CONTACTS, *MADE_OF_OTHERS}
    spheres = [rd.Sphere(link, radius=0.05) for link in rd.load_urdf(own("arm6")).link_names]
    model = dataclasses.replace(
        rd.load_urdf(own("arm6")).with_shapes(spheres), constraints=[rd.Point("tool0", to_at=(0.3, 0.1, 0.4))]
    )
    model = model.with_contacts([rd.Contact(spheres[-1], rd.Plane())])
    short = list(short_names())
    every = QUERIES | CONSTRAINED | OF_SHAPES | OF_CONTACTS
    assert len(short) == len(set(short)) == len(every) + sum(len(each.variants) for each in every.values())
    for name, question in every.items():
        parameters = inspect.signature(methods[name]).parameters
        beside = COEFFICIENTS if name in OF_CONTACTS else ()  # parameters of the method alone
        arrays = [each for each in parameters if each in (*INPUTS, *BASE) and each not in beside]
        required = [each for each in arrays if parameters[each].default is inspect.Parameter.empty]
        assert set(arrays) == {*question.inputs, *question.optional} and tuple(required) == question.inputs, name
        assert set(question.arrays) == set(arrays), name
        assert question.of_link == ("link" in parameters) and question.in_frame == ("frame" in parameters), name
        assert bool(question.methods) == ("method" in parameters), name
        assert question.about.endswith(".") and question.name == name
        for given in {question.plain, question.inputs}:
            task = question.made(QueryVariant(model, given))
            shapes = [output_shape(model, output) for output in task.outputs.values()]
            assert shapes == list(question.shapes(model, given).values()), name
            assert question.made(QueryVariant(model, given)) is task, name
        for engine in EVERYWHERE:
            for method in question.methods_on(engine) if engine != "scan" else ():
                assert question.task(QueryVariant(model, question.plain, method)).outputs, (name, method)
        assert set(question.engines) <= set(EVERYWHERE) and set(question.needs) <= {"inverse", "held", "mass"}
        assert set(question.joint_forces) <= {*question.results, "tau"}


def test_leading_axes_of_all_arguments_broadcast(model, make_dynamics, tolerance):
    dyn = make_dynamics(model)
    q, qd, qdd = random_states(model, (4, 1))
    f_ext, V0 = np.ones((3, model.n_bodies, 6)), np.arange(6.0)
    tau = dyn.inverse_dynamics(q, qd[0], qdd, f_ext=f_ext, V0=V0)
    assert tau.shape == (4, 3, model.nv)
    assert relative(dyn.inverse_dynamics(q[2, 0], qd[0, 0], qdd[2, 0], f_ext=f_ext[1], V0=V0), tau[2, 1]) <= tolerance
    with pytest.raises(rd.ArgumentError, match=r"leading axes do not broadcast: got q \(4,\), qd \(5,\)"):
        dyn.inverse_dynamics(q[:, 0], np.ones((5, model.nv)), qdd)


def test_large_batches_are_cut_into_pieces(make_dynamics, tolerance):
    model = rd.load_urdf(own("hand"))
    q, qd, qdd = random_states(model, (5000,))
    dyn = make_dynamics(model)
    whole = dyn.inverse_dynamics(q, qd, qdd)
    assert np.isfinite(whole).all()
    for row in (0, 2519, 2520, 2521, 4999):
        assert relative(dyn.inverse_dynamics(q[row], qd[row], qdd[row]), whole[row]) <= tolerance


MADE_OF_OTHERS = {"constrained_inverse_dynamics", "constraint_targets", "constraint_wrenches"}
"""Queries of constraints that ask others and have no task of their own."""
ARGUMENTS = {
    "q": set(QUERIES),
    "quaternion": set(QUERIES),
    **{each: {name for name, question in QUERIES.items() if each in question.inputs} for each in ("qd", "qdd", "tau")},
    "vector": {"mass_matrix_product_gradient"},
    "f_ext": {name for name, question in QUERIES.items() if "f_ext" in question.optional},
}
"""Argument -> the queries (as `queries` makes them) that read it."""


@pytest.mark.parametrize("mimic", [0.0, 0.6])
@pytest.mark.some(of=10, rest="matrix")
def test_values_that_are_not_finite_stay_in_their_rows(mimic, make_dynamics):
    """Rows beside spoilt ones do not change by a bit, and nothing warns (warnings are errors here)."""
    joints = ("revolute", "prismatic", "spherical")
    model = rd.random_tree(3, seed=0, joints=joints, mimic=mimic, base="floating", armature=True)
    assert model.has_mimic == (mimic > 0.0) and model.quaternion_starts.size > 1
    options = {"joint_forces": ("damping", "friction")}
    dyn, checked = make_dynamics(model, **options), make_dynamics(model, check=True, **options)
    q, qd, qdd = random_states(model, (4,), seed=5)
    f_ext = np.ones((4, model.n_bodies, 6))
    clean = {name: as_tuple(call()) for name, (call, _) in queries(dyn, q, qd, qdd, f_ext).items()}
    places = {"q": (1,), "quaternion": (int(model.quaternion_starts[-1]) + 2,), "f_ext": (model.n_bodies - 1, 4)}
    for what, readers in ARGUMENTS.items():
        values = {"q": q.copy(), "qd": qd.copy(), "qdd": qdd.copy(), "f_ext": f_ext.copy()}
        spoilt = values[{"quaternion": "q", "tau": "qdd", "vector": "qdd"}.get(what, what)]
        spoilt[(1, *places.get(what, (model.nv - 1,)))] = np.nan
        spoilt[(2, *places.get(what, (model.nv - 1,)))] = np.inf
        label = "q" if what == "quaternion" else what
        for name in sorted(readers):
            for got, wanted in zip(as_tuple(queries(dyn, **values)[name][0]()), clean[name], strict=True):
                assert (got[[0, 3]] == wanted[[0, 3]]).all(), (what, name)
            with pytest.raises(rd.NumericalError, match=f"^{label}: NaN or infinite in 2 of 4 rows: 1, 2;"):
                queries(checked, **values)[name][0]()
            for row in (1, 2):
                single = queries(dyn, **{key: array[row] for key, array in values.items()})[name][0]
                with pytest.raises(rd.NumericalError, match=f"^{label}: NaN or infinite at index"):
                    single()


def test_only_single_states_are_checked_unless_asked(model, make_dynamics):
    """A batch of one is a batch."""
    q, qd, _ = random_states(model, (1,))
    qd[0, 3] = np.nan
    for check, batch_raises, single_raises in ((None, False, True), (True, True, True), (False, False, False)):
        dyn = make_dynamics(model, check=check)
        for raises, state in ((batch_raises, (q, qd)), (single_raises, (q[0], qd[0]))):
            if raises:
                with pytest.raises(rd.NumericalError, match=r"^qd: NaN"):
                    dyn.bias_force(*state)
            else:
                assert np.isnan(dyn.bias_force(*state)).any()


def test_external_forces_of_values_that_are_not_finite_warn_of_nothing(model):
    q = model.neutral()
    for bad in (np.nan, np.inf):
        for frame in ("world", "body", "world_aligned"):
            wrench = np.full((2, 6), [[bad], [1.0]])
            f_ext = rd.external_force(model, q, model.link_names[-1], wrench, frame=frame)
            assert not np.isfinite(f_ext[0]).all() and np.isfinite(f_ext[1]).all()


@pytest.mark.parametrize("name", QUERIES)
def test_none_is_no_array(name, model):
    """Only forces from outside, inertias, the motion of the base, and a vector to contract with may be left out."""
    dyn = rd.Dynamics(model, engine="reference")
    q, qd, qdd = random_states(model)
    method = getattr(dyn, name)
    values = {"q": q, "qd": qd, "qdd": qdd, "tau": qdd, "vector": qdd, "link": 0}
    parameters = inspect.signature(method).parameters
    defaults = {key: parameters[key].default for key in parameters}
    required = {key: value for key, value in values.items() if defaults.get(key, 0) is inspect.Parameter.empty}
    if QUERIES[name].of_link:  # or links
        required["link"] = values["link"]
    for missing in set(required) - {"link"}:
        with pytest.raises(rd.ArgumentError, match=f"^{missing}: got None of dtype object; wanted a real array"):
            method(**{**required, missing: None})
    optional = {key for key in ("vector", "f_ext", "inertia", "point", "V0", "dV0") if defaults.get(key, 0) is None}
    method(**required, **dict.fromkeys(optional))


def test_results_that_overflow_raise_where_checked(make_dynamics, engine_dtype):
    model = rd.load_urdf(own("arm6"))
    q = model.random_configuration(1)
    fast = np.full(6, 10 * np.sqrt(float(np.finfo(engine_dtype[1]).max)))
    with pytest.raises(rd.NumericalError, match="result tau: NaN or infinite"):
        make_dynamics(model).inverse_dynamics(q, fast, np.zeros(6))
    assert not np.isfinite(make_dynamics(model, check=False).inverse_dynamics(q, fast, np.zeros(6))).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda d, q, v: d.inverse_dynamics(q[:-1], v, v),
            r"^q: got shape .*; wanted a real array of shape \(\.\.\., 6\)",
        ),
        (lambda d, q, v: d.inverse_dynamics(q, v, v.astype(complex)), "^qdd: got .* of dtype complex128"),
        (lambda d, q, v: d.inverse_dynamics(q, v, [object()] * 6), "^qdd: got .* of dtype object"),
        (lambda d, q, v: d.inverse_dynamics(q, v, v > 0), "^qdd: got .* of dtype bool"),
        (lambda d, q, v: d.bias_force([True] * 6, v), "^q: got .* of dtype bool"),
        (lambda d, q, v: d.inverse_dynamics(q, v, [[1.0], [1.0, 2.0]]), "^qdd: got"),
        (lambda d, q, v: d.inverse_dynamics(q, "fast", v), "^qd: got"),
        (
            lambda d, q, v: d.inverse_dynamics(q, v, v, f_ext=np.zeros((6, 5))),
            r"^f_ext: got shape \(6, 5\).*\(\.\.\., 6, 6\)",
        ),
        (lambda d, q, v: d.inverse_dynamics(q, v, v, V0=[0.0]), r"^V0: got shape \(1,\)"),
        (lambda d, q, v: d.inverse_dynamics(q, v, v, method="magic"), "^method: got 'magic'; allowed: 'auto', 'rnea'"),
        (
            lambda d, q, v: d.forward_dynamics(q, v, v, method="cfa"),
            "^method: got 'cfa'; allowed: 'auto', 'aba', 'crba'",
        ),
        (lambda d, q, v: d.jacobian(q, "tool"), "^link: got 'tool'; wanted a link of 'arm6', such as tool0"),
        (lambda d, q, v: d.jacobian(q, 99), "^link: got 99; wanted a name or an index from 0 to"),
        (lambda d, q, v: d.jacobian(q, -1), "^link: got -1"),
        (lambda d, q, v: d.jacobian(q, True), "^link: got True"),
        (lambda d, q, v: d.jacobian(q, "tool0", frame="local"), "^frame: got 'local'; allowed: 'world', 'body'"),
        (lambda d, q, v: d.link_acceleration(q, v, v, "tool0", classical="no"), "^classical: got 'no'"),
        (lambda d, q, v: d.gravity_force(q, out=np.empty(5)), r"^out: got a writeable float64 array of shape \(5,\)"),
        (lambda d, q, v: d.gravity_force(q, out=np.empty(6, int)), "^out: got a writeable int64 array"),
        (lambda d, q, v: d.gravity_force(q, out=[0.0] * 6), "^out: got"),
        (lambda d, q, v: d.gravity_force(q, out=np.broadcast_to(0.0, 6)), "^out: got a read-only float64"),
        (
            lambda d, q, v: d.inverse_dynamics_gradient(q, v, v, out=np.empty((6, 6))),
            "^out: wanted a tuple of 2 arrays",
        ),
        (lambda d, q, v: rd.external_force(d.model, q, "tool0", np.zeros(5)), r"^wrench: got shape \(5,\)"),
        (lambda d, q, v: rd.external_force(d.model, q, "tool0", np.zeros(6), frame="x"), "^frame: got 'x'"),
        (lambda d, q, v: rd.external_force(d.model, None, "tool0", np.zeros(6)), "^q: got None"),
        (lambda d, q, v: rd.external_force(d.model, q, "tool0", None), "^wrench: got None"),
        (lambda d, q, v: rd.external_force("arm", q, "tool0", v), "^model: got str; wanted a robodyn.Model"),
        (lambda d, q, v: rd.Dynamics("arm"), "^model: got str; wanted a robodyn.Model"),
        (lambda d, q, v: rd.Dynamics(d.model, engine="tpu"), "^engine: got 'tpu'; allowed: 'auto'"),
        (lambda d, q, v: rd.Dynamics(d.model, dtype="float16"), "^dtype: got 'float16'; allowed: 'float64', 'float32'"),
        (lambda d, q, v: rd.Dynamics(d.model, threads=0), "^threads: got 0"),
        (lambda d, q, v: rd.Dynamics(d.model, compile="never"), "^compile: got 'never'"),
        (lambda d, q, v: rd.Dynamics(d.model, check="yes"), "^check: got 'yes'"),
        (lambda d, q, v: rd.Dynamics(d.model, joint_forces=5), "^joint_forces: got 5; allowed: 'damping', 'friction'"),
        (lambda d, q, v: rd.Dynamics(d.model, joint_forces=("drag",)), "^joint_forces: got 'drag'; allowed: 'damping'"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    model = rd.load_urdf(own("arm6"))
    with pytest.raises(rd.ArgumentError, match=words):
        call(rd.Dynamics(model), model.neutral(), np.ones(6))


def strided(shape, strides):
    """An array of float64 whose entries lie that many places apart."""
    places = sum((n - 1) * abs(stride) for n, stride in zip(shape, strides, strict=True)) + 1
    return np.lib.stride_tricks.as_strided(np.zeros(places), shape, [8 * stride for stride in strides])


def test_results_must_not_share_memory():
    model = rd.load_urdf(own("arm6"))
    dyn = rd.Dynamics(model)
    q, qd, qdd = random_states(model)
    twice, memory = np.empty((6, 6)), np.empty(48)
    for first, second in (
        (twice, twice),
        (twice, twice.T),
        (memory[:36].reshape(6, 6), memory[12:].reshape(6, 6)),
    ):
        with pytest.raises(rd.ArgumentError, match=r"^out: got arrays that share memory"):
            dyn.inverse_dynamics_gradient(q, qd, qdd, out=(first, second))
    for strides in ((0, 1), (1, 0), (3, 1), (1, 1), (5, -1), (2, 3)):
        with pytest.raises(rd.ArgumentError, match=r"^out: got an array of shape \(6, 6\) and strides"):
            dyn.mass_matrix(q, out=strided((6, 6), strides))


def test_results_may_interlock():
    """Memory that is shared by no two entries is fine in any order."""
    model = rd.load_urdf(own("arm6"))
    dyn = rd.Dynamics(model)
    q, qd, qdd = random_states(model)
    both, whole = np.full((6, 6, 2), np.nan), dyn.inverse_dynamics_gradient(q, qd, qdd)
    dyn.inverse_dynamics_gradient(q, qd, qdd, out=(both[..., 0], both[::-1, :, 1].T))
    assert (both[..., 0] == whole[0]).all() and (whole[1] == both[::-1, :, 1].T).all()
    # Steps of 6 and 7 places meet for the first time after 7 and 6 of them.
    interlocked = strided((6, 6), (6, 7))
    assert (dyn.mass_matrix(q, out=interlocked) == dyn.mass_matrix(q)).all()
    nothing = np.lib.stride_tricks.as_strided(np.zeros(1), (0, 6), (0, 0))
    assert dyn.gravity_force(np.empty((0, 6)), out=nothing) is nothing


def test_dtype_may_be_given_as_numpy_spells_it():
    model = rd.auto_tree(2)
    for spelled in ("float32", np.float32, np.dtype("float32")):
        assert rd.Dynamics(model, dtype=spelled).dtype == np.float32


def test_damping_and_friction_enter_when_asked(make_dynamics, tolerance):
    model = rd.random_tree(9, seed=2, joints=EVERY_KIND, armature=True, mimic=0.5)
    q, qd, qdd = random_states(model)
    assert model.damping.min() > 0 and model.friction.min() > 0
    plain = make_dynamics(model)
    for chosen, force in (
        ("damping", model.damping * qd),
        (("friction",), model.friction * np.sign(qd)),
        (("damping", "friction"), model.damping * qd + model.friction * np.sign(qd)),
    ):
        dyn = make_dynamics(model, joint_forces=chosen)
        tau = dyn.inverse_dynamics(q, qd, qdd)
        assert relative(tau - plain.inverse_dynamics(q, qd, qdd), force) < tolerance * 50
        assert relative(dyn.inverse_dynamics(q, qd, dyn.forward_dynamics(q, qd, tau)), tau) < tolerance * 10
        assert relative(dyn.bias_force(q, qd), dyn.inverse_dynamics(q, qd, 0 * qd)) <= tolerance
        assert relative(dyn.gravity_force(q), plain.gravity_force(q)) == 0
        extra = dyn.inverse_dynamics_gradient(q, qd, qdd)[1] - plain.inverse_dynamics_gradient(q, qd, qdd)[1]
        assert relative(extra, np.diag(model.damping) * ("damping" in chosen)) < tolerance * 50


def test_damping_of_followers_is_that_of_the_joints_themselves():
    model = rd.random_tree(9, seed=2, joints=["revolute"], armature=True, mimic=0.5)
    G = model.coupling()
    assert model.has_mimic
    assert np.allclose(model.damping, np.diag(G.T @ np.diag(model.tree_damping) @ G))
    assert np.allclose(model.armature, np.diag(G.T @ np.diag(model.tree_armature) @ G))
    qd = random_states(model)[1]
    assert np.allclose(model.friction * np.sign(qd), G.T @ (model.tree_friction * np.sign(G @ qd)))


@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.parametrize("given", [{}, {"frame": "world"}, {"frame": "body"}, {"frame": "world_aligned"}], ids=str)
@pytest.mark.some(of=3, rest="matrix")
def test_wrenches_velocities_and_jacobians_are_in_one_frame(given, base, make_dynamics, tolerance):
    """By default and where one is given: J' w is what a wrench does to the joints, and its power is the same there."""
    model = rd.random_tree(12, seed=6, joints=JOINT_TYPES, base=base)
    dyn = make_dynamics(model)
    q, qd, qdd = random_states(model, (3,))
    wrench = np.arange(1.0, 7.0) * [[1.0], [-2.0], [0.5]]
    for link in (model.link_names[-1], model.link_names[3]):
        f_ext = rd.external_force(model, q, link, wrench, **given)
        assert f_ext.shape == (3, model.n_bodies, 6)
        tau = dyn.inverse_dynamics(q, qd, qdd) - dyn.inverse_dynamics(q, qd, qdd, f_ext=f_ext)
        wanted = (np.swapaxes(dyn.jacobian(q, link, **given), -1, -2) @ wrench[..., None])[..., 0]
        assert np.abs(wanted).max() > 0.1
        assert relative(tau, wanted) < tolerance * 100
        power = (wrench * dyn.link_velocity(q, qd, link, **given)).sum(-1)
        assert relative((tau * qd).sum(-1), power) < tolerance * 100


def test_states_forces_and_links_are_given_in_order_and_all_else_by_name():
    in_order = ("q", "qd", "qdd", "tau", "link")
    for name in QUERIES:
        parameters = list(inspect.signature(getattr(rd.Dynamics, name)).parameters.values())[1:]
        found = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
        assert found == [each for each in in_order if each in found], name
    for name in WITH_RULES:
        parameters = inspect.signature(getattr(DifferentiableDynamics, name)).parameters.values()
        allowed = (*in_order, "obstacles", "self")
        assert all(each.kind is each.KEYWORD_ONLY for each in parameters if each.name not in allowed), name


def test_every_frame_is_the_same_by_default():
    asked = (*(getattr(rd.Dynamics, name) for name in QUERIES), rd.external_force)
    parameters = [inspect.signature(each).parameters for each in asked]
    assert [each["frame"].default for each in parameters if "frame" in each] == ["world_aligned"] * 8


def test_a_force_on_a_link_of_the_world_moves_nothing():
    model = rd.load_urdf(own("arm6"))
    assert not rd.external_force(model, model.neutral(), model.link_names[0], np.ones(6)).any()


def test_a_robot_that_cannot_move_answers_with_empty_arrays(make_dynamics):
    model = rd.random_tree(3, seed=0, joints=["fixed"])
    dyn = make_dynamics(model)
    assert (model.nq, model.nv, model.n_bodies) == (0, 0, 0)
    nothing = np.empty((5, 0))
    assert dyn.inverse_dynamics(nothing, nothing, nothing).shape == (5, 0)
    assert dyn.forward_dynamics(nothing, nothing, nothing).shape == (5, 0)
    assert dyn.mass_matrix(nothing).shape == dyn.mass_matrix_inverse(nothing).shape == (5, 0, 0)
    assert dyn.jacobian(nothing, 0).shape == (5, 6, 0)
    assert dyn.forward_kinematics(nothing).shape == (5, 4, 4, 4)
    assert dyn.forward_kinematics_gradient(nothing).shape == (5, 4, 6, 0)
    assert (dyn.kinetic_energy(nothing, nothing) == 0).all()
    assert [part.shape for part in dyn.kinetic_energy_gradient(nothing, nothing)] == [(5, 0), (5, 0)]
    assert dyn.jacobian_derivative(nothing, nothing, 0).shape == (5, 6, 0)
    assert dyn.pose_hessian(nothing, 0).shape == (5, 6, 0, 0)
    with pytest.raises(rd.NumericalError, match="nothing that moves has mass"):
        dyn.center_of_mass(nothing)
    with pytest.raises(rd.NumericalError, match="nothing that moves has mass"):
        dyn.centroidal_momentum(nothing, nothing)


def _answer(args):
    dyn, q, v = args
    return dyn.inverse_dynamics(q, v, v)


def test_a_dynamics_travels_to_other_processes(model):
    """After use too, when its engine has prepared what it needs."""
    dyn = rd.Dynamics(model)
    q, qd, _ = random_states(model)
    before = dyn.forward_dynamics(q, qd, qd), dyn.inverse_dynamics(q, qd, qd)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        # A pool waits for ever for a process that could not read what it was sent.
        assert (pool.map_async(_answer, [(dyn, q, qd)]).get(timeout=300)[0] == before[1]).all()


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda dyn: pickle.loads(pickle.dumps(dyn))])
def test_copies_have_the_same_options_and_answer_alike(again, model, make_dynamics, engine_dtype):
    dyn = make_dynamics(model, threads=2, compile="eager", check=False, joint_forces=("friction", "damping"))
    q, qd, _ = random_states(model)
    answers = dyn.inverse_dynamics(q, qd, qd), dyn.forward_dynamics(q, qd, qd)
    other = again(again(dyn))
    assert other is not dyn and other.model == model
    assert (other.engine.name, other.dtype.name) == (dyn.engine.name, engine_dtype[1])
    assert (other.threads, other.check, other.joint_forces) == (2, False, ("friction", "damping"))
    assert (other.inverse_dynamics(q, qd, qd) == answers[0]).all()
    assert (other.forward_dynamics(q, qd, qd) == answers[1]).all()
    for kind in KINDS:
        assert again(kind) is kind


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, robodyn; heavy = {'scipy', 'cupy', 'jax', 'torch', 'rich', 'typer', 'pinocchio', 'mujoco'};"
        "print(sorted(heavy & set(sys.modules)), robodyn.__version__)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("[] ")
    with pytest.raises(AttributeError, match="no attribute 'load_usd'"):
        rd.load_usd  # noqa: B018
    assert set(dir(rd)) == set(rd.__all__)
    assert all(getattr(rd, name) is not None for name in rd.__all__)

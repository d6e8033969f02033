"""The scan engine attacked: odd trees, odd arrays and extreme values, by seeds, against the reference engine."""

from __future__ import annotations

import random
import time
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest

import robodyn as rd
from robodyn.description import JOINT_TYPES
from robodyn.engines.query_table import QUERIES
from robodyn.engines.scan import KERNELS, LAYOUTS, ScanOptions
from robodyn.engines.scan.methods import ANSWERS, methods_of
from robodyn.engines.scan.options import BASES, BLOCK_SOLVERS
from robodyn.io.builders.random_tree import SHAPES, random_description

CASES = 12
"""Of each kind in an ordinary run."""
NIGHTLY = 110.0
"""Seconds of the nightly run."""
TOLERANCE = {"float64": 1e-9, "float32": 2e-3}
"""Relative to what is added up. Trees have up to 40 joints in a row; inertias and gradients lose some digits there."""
RESIDUAL = {"float64": 1e-8, "float32": 2e-2}
"""Of forward dynamics: which torques accelerations need, relative to the largest that they are added up from."""
LEADING = [(), (), (1,), (5,), (2, 3), (0,), (3, 0, 2), (1, 2, 1), (70,)]


@dataclass
class Case:
    """A robot and arrays for it, all drawn from one seed."""

    model: rd.Model
    scan: rd.Dynamics
    reference: rd.Dynamics
    query: str
    method: str
    given: dict[str, np.ndarray]
    leading: tuple[int, ...]
    rng: np.random.Generator

    @property
    def dtype(self):
        return self.scan.dtype

    def ask(self, dyn, given=None, **others):
        """Answer as a tuple of arrays; `given` in place of the case's own."""
        given = dict(self.given if given is None else given)
        if dyn is self.scan and QUERIES[self.query].methods:
            others["method"] = self.method
        arrays = [given.pop(name) for name in QUERIES[self.query].inputs]
        found = getattr(dyn, self.query)(*arrays, **given, **others)
        return found if isinstance(found, tuple) else (found,)


def robot(rng):
    """Any shape, any joints, mimicking or not, some links without mass."""
    n = int(rng.choice([0, 1, 2, 3, 5, 8, 13, 24, 40]))
    kinds = rng.choice(JOINT_TYPES, int(rng.integers(1, len(JOINT_TYPES) + 1)), replace=False).tolist()
    options = {
        "shape": str(rng.choice(list(SHAPES))),
        "mimic": float(rng.choice([0.0, 0.0, 0.4])),
        "armature": bool(rng.random() < 0.3),
    }
    description = random_description(n, seed=int(rng.integers(2**32)), joints=kinds, **options)
    if rng.random() < 0.3:
        inner = {joint.parent for joint in description.joints}
        some = inner if rng.random() < 0.8 else {link.name for link in description.links}
        light = {name for name in sorted(some) if rng.random() < 0.4}
        links = (replace(link, inertial=None) if link.name in light else link for link in description.links)
        description = replace(description, links=tuple(links))
    base = str(rng.choice(["fixed", "floating"]))
    gravity = rng.choice([0.0, 1.0]) * rng.standard_normal(3) * 10.0
    print(f"{n} joints, {sorted(kinds)}, {options}, base {base}")
    return rd.build_model(description, base=base, gravity=gravity)


def options_of(rng):
    return ScanOptions(
        layout=str(rng.choice(LAYOUTS)),
        kernel=str(rng.choice(KERNELS)),
        block=int(rng.choice([2, 3, 8, 64])),
        operators=str(rng.choice(["compiled", "library"], p=[0.7, 0.3])),
        constraint_basis=str(rng.choice(BASES)),
        constraint_solver=str(rng.choice(BLOCK_SOLVERS)),
    )


def case_of(seed, size=1.0):
    """The case of a seed; velocities, accelerations and forces have about that size."""
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    model = robot(rng)
    dtype = str(rng.choice(["float64", "float64", "float32"]))
    shared = {"joint_forces": ("damping", "friction") if rng.random() < 0.2 else (), "check": False}
    scan = rd.Dynamics(model, engine="scan", dtype=dtype, scan=options_of(rng), **shared)
    reference = rd.Dynamics(model, engine="reference", **shared)
    query = str(rng.choice(list(ANSWERS)))
    method = str(rng.choice(["auto", *(methods_of(query, model) if QUERIES[query].methods else ())]))
    leading = LEADING[int(rng.integers(len(LEADING)))]
    given = {}
    for name in QUERIES[query].inputs:
        shape = broadcast_part(leading, rng)
        if name == "q":
            given[name] = model.random_configuration(rng, shape)
            for start in model.quaternion_starts:
                given[name][..., start : start + 4] *= 10.0 ** rng.uniform(-30, 30)
        else:
            given[name] = rng.standard_normal((*shape, model.nv)) * size
    for name in QUERIES[query].optional:
        if rng.random() < 0.6:
            continue
        shape = broadcast_part(leading, rng)
        if name == "inertia":
            given[name] = model.inertia * rng.uniform(0.5, 2.0, (*shape, 1, 1))
        else:
            trailing = scan.argument_shapes[name]
            given[name] = rng.standard_normal((*shape, *trailing)) * size
    with np.errstate(over="ignore"):
        given = {name: array.astype(dtype) for name, array in given.items()}
    leading = np.broadcast_shapes(*(a.shape[: a.ndim - len(scan.argument_shapes[n])] for n, a in given.items()))
    print(f"{query}, {method}, {scan._options.scan}, {dtype}, {leading}, {sorted(given)}")
    return Case(model, scan, reference, query, method, given, leading, rng)


def broadcast_part(leading, rng):
    """A shape that broadcasts to `leading`."""
    if rng.random() < 0.6:
        return leading
    shape = tuple(1 if rng.random() < 0.3 else n for n in leading)
    return shape[int(rng.integers(len(shape) + 1)) :]


# Answers.


def forces_scale(case, given, qdd):
    """(..., 1) the largest of the forces that inverse dynamics adds up."""
    dyn, base = case.reference, {name: given[name] for name in ("V0", "dV0") if name in given}
    more = {"inertia": given["inertia"]} if "inertia" in given else {}
    q, still = given["q"], np.zeros(case.model.nv)
    qd = given.get("qd", still)
    parts = [dyn.gravity_force(q, **more), dyn.inverse_dynamics(q, qd, still, **base, **more)]
    if "f_ext" in given:
        pushed = {"f_ext": given["f_ext"], **base, **more}
        parts.append(dyn.inverse_dynamics(q, still, still, **pushed))
    H = dyn.mass_matrix(q, **more)
    parts.append((np.abs(H) * np.abs(qdd)[..., None, :]).sum(axis=-1))
    return sum(np.abs(part).max(axis=-1, initial=0.0) for part in parts)[..., None]


def error(case, given, found):
    """The largest error of results, relative to what they are added up from."""
    exact = {name: array.astype(np.float64) for name, array in given.items()}
    if case.query == "forward_dynamics":
        qdd = found[0].astype(np.float64)
        forces = {name: exact[name] for name in exact if name not in ("q", "qd", "tau")}
        missed = case.reference.inverse_dynamics(exact["q"], exact["qd"], qdd, **forces) - exact["tau"]
        scale = forces_scale(case, exact, qdd) + np.abs(exact["tau"]).max(axis=-1, initial=0.0)[..., None]
        return worst(missed, scale)
    wanted = case.ask(case.reference, exact)
    scale = forces_scale(case, exact, exact.get("qdd", np.zeros(case.model.nv)))
    if case.query == "mass_matrix":
        sizes = [np.abs(wanted[0]).max(axis=(-2, -1), keepdims=True, initial=0.0)]
    elif case.query == "inverse_dynamics_gradient":  # of forces that cancel, slopes may be smaller than their roundings
        sizes = [
            np.maximum(np.abs(each).max((-2, -1), keepdims=True, initial=0.0), scale[..., None]) for each in wanted
        ]
    else:
        sizes = [scale]
    return max(worst(one - two, size) for one, two, size in zip(found, wanted, sizes, strict=True))


def worst(difference, size):
    if not difference.size:
        return 0.0
    found = np.abs(difference) / np.maximum(size, 1e-9)
    return float(np.inf if np.isnan(found).any() else found.max())


def answered(case, given=None, **others):
    """What the scan engine answers, or None where it refuses with an error of ours; nothing is warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if case.method == "cfa":  # it says when it loses digits
            warnings.filterwarnings("ignore", "method 'cfa': in", RuntimeWarning)
        try:
            return case.ask(case.scan, given, **others)
        except rd.RobodynError as refusal:
            print(f"{type(refusal).__name__}: {refusal}")
            return None


def singular(case):
    """Whether no state has accelerations."""
    return case.query == "forward_dynamics" and case.reference.singularity() is not None


def check_answer(case):
    """As exact as the reference engine, which refuses the same robots."""
    found = answered(case)
    if found is None:
        assert case.method == "cfa" or singular(case)
    elif singular(case):  # inertias were given for each row
        assert np.isnan(found[0]).all()
    else:
        tolerance = (RESIDUAL if case.query == "forward_dynamics" else TOLERANCE)[case.dtype.name]
        if case.query == "forward_dynamics":
            found = (without_uncertain(case, found[0]),)
        got = error(case, case.given, found)
        assert got <= tolerance, got


def without_uncertain(case, qdd):
    """Accelerations, exact ones in place of NaN where the mass matrix has no certain inverse in this precision: there
    every engine refuses, in float32 long before float64."""
    refused = np.isnan(qdd).any(axis=-1)
    if not refused.any():
        return qdd
    exact = {name: array.astype(np.float64) for name, array in case.given.items()}
    more = {"inertia": exact["inertia"]} if "inertia" in exact else {}
    H = np.broadcast_to(case.reference.mass_matrix(exact["q"], **more), (*case.leading, *2 * (case.model.nv,)))
    assert np.linalg.cond(H[refused]).min() > 0.1 / np.finfo(case.dtype).eps
    return np.where(refused[..., None], case.ask(case.reference, exact)[0], qdd)


# Arrays of every kind, in and out.


def as_laid_out(array, rng):
    """The same numbers in memory of another kind."""
    kind = rng.choice(["plain", "reversed", "strided", "fortran", "read-only", "misaligned", "swapped", "list"])
    if kind == "reversed":
        return array[..., ::-1].copy()[..., ::-1]
    if kind == "strided":
        wide = np.full((*array.shape[:-1], 2 * array.shape[-1] + 1), np.nan, array.dtype)
        wide[..., 1::2] = array
        return wide[..., 1::2]
    if kind == "fortran":
        return np.asfortranarray(array)
    if kind == "read-only":
        array = array.copy()
        array.flags.writeable = False
    if kind == "misaligned":
        memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
        memory[:] = np.frombuffer(array.tobytes(), np.uint8)
        return memory.view(array.dtype).reshape(array.shape)
    if kind == "swapped":
        return array.astype(array.dtype.newbyteorder())
    return array.tolist() if kind == "list" and array.size and array.dtype == np.float64 else array


def laid_out_targets(case, found):
    """NaN where results are to be, in memory of some kind; now and then that of an argument."""
    targets = []
    for each in found:
        kind = case.rng.choice(["plain", "fortran", "strided", "argument"])
        target = np.full(each.shape, np.nan, each.dtype)
        if kind == "fortran":
            target = np.asfortranarray(target)
        elif kind == "strided":
            target = np.full((*each.shape[:-1], 2 * each.shape[-1]), np.nan, each.dtype)[..., ::2]
        elif kind == "argument" and not targets:
            same = [a for a in case.given.values() if a.shape == each.shape and a.dtype == each.dtype]
            target = same[0] if same else target
        targets.append(target)
    return targets


def same(one, two):
    """Equal, NaN included."""
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, two, strict=True))


def check_arrays(case):
    """Answers do not depend on how arrays lie in memory; `out` is filled and handed back, other arguments are kept."""
    wanted = answered(case)
    if wanted is None:
        return
    wanted = tuple(np.array(each) for each in wanted)
    given = {name: as_laid_out(array, case.rng) for name, array in case.given.items()}
    assert same(answered(case, given), wanted)
    if () in [np.shape(each) for each in wanted]:
        return
    targets = laid_out_targets(case, wanted)
    before = {name: array.copy() for name, array in case.given.items()}
    got = answered(case, out=targets[0] if len(targets) == 1 else tuple(targets))
    assert all(one is two for one, two in zip(got, targets, strict=True))
    assert same(got, wanted)
    for name, array in case.given.items():
        assert any(array is target for target in targets) or np.array_equal(array, before[name])


# Values that are not finite, and extreme ones.


def check_rows(case):
    """NaN and infinity stay in their rows."""
    if len(case.leading) == 0 or 0 in case.leading:
        return
    rows = int(np.prod(case.leading))
    given = {}
    for name, array in case.given.items():
        trailing = case.scan.argument_shapes[name]
        given[name] = np.broadcast_to(array, (*case.leading, *trailing)).reshape(rows, *trailing).copy()
    wanted = answered(case, given)
    if wanted is None or singular(case):
        return
    bad = case.rng.random(rows) < 0.4
    name = str(case.rng.choice([name for name in given if given[name].size] or ["q"]))
    spoilt = given[name].copy()
    for row in np.flatnonzero(bad):
        entries = spoilt[row].reshape(-1)
        if entries.size:
            entries[int(case.rng.integers(entries.size))] = case.rng.choice([np.nan, np.inf, -np.inf])
    found = answered(case, {**given, name: spoilt})
    assert found is not None
    tolerance = (RESIDUAL if case.query == "forward_dynamics" else TOLERANCE)[case.dtype.name]
    good = {key: array[~bad] for key, array in given.items()}
    assert error(case, good, tuple(each[~bad] for each in found)) <= tolerance
    exact = {key: array.astype(np.float64) for key, array in {**given, name: spoilt}.items()}
    for mine, theirs, sound in zip(found, case.ask(case.reference, exact), wanted, strict=True):
        lost = ~np.isfinite(theirs).reshape(rows, -1).all(axis=1)
        kept = lost & np.isfinite(mine).reshape(rows, -1).all(axis=1)
        # Where engines multiply it by zeros that the robot's structure makes, what is spoilt may not count at all.
        assert np.allclose(mine[kept], sound[kept], rtol=1e-3, atol=1e-3 * np.abs(sound).max(initial=0.0))


def check_extremes(case):
    """Of huge and tiny numbers nothing is warned, and what the reference engine answers is answered."""
    found = answered(case)
    if found is None or singular(case) or case.dtype != np.float64 or case.query == "forward_dynamics":
        return
    for mine, theirs in zip(found, case.ask(case.reference), strict=True):
        if np.isfinite(theirs).all() and np.abs(theirs).max(initial=0.0) < 1e290:
            assert np.isfinite(mine).all()


CHECKS = {
    "answers": (check_answer, (1.0,)),
    "arrays": (check_arrays, (1.0,)),
    "rows": (check_rows, (1.0,)),
    "extremes": (check_extremes, (1e-300, 1e-150, 1e75, 1e120)),
}
"""What is checked of a case, and how large its numbers are: whose squares overflow may be lost in a sum of others that
do, and then cancel in one engine and not in another."""


def run(kind, seed):
    check, sizes = CHECKS[kind]
    check(case_of([list(CHECKS).index(kind), seed], sizes[seed % len(sizes)]))


@pytest.mark.parametrize("seed", range(CASES))
@pytest.mark.parametrize("kind", CHECKS)
@pytest.mark.some(of=3, rest="matrix")
def test_the_scan_engine_stands(kind, seed):
    run(kind, seed)


@pytest.mark.nightly
def test_the_scan_engine_stands_for_minutes():
    """The same with new seeds until the time is up; the seed that failed is printed."""
    end, generator = time.monotonic() + NIGHTLY, random.SystemRandom()
    while time.monotonic() < end:
        for kind in CHECKS:
            run(kind, generator.randrange(2**32))

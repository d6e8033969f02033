"""What a call from Python costs for one state: `python -m tests.bench calls --write`.

Every public query of a `Dynamics` with every optional argument, alone and all together; functions of a model; lists and
arrays of another precision; steps, short rollouts and inverse kinematics of control loops. Calls that are no queries,
and Pinocchio's, are those of `calls.toml`.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.engines.query_table import FRAMES, QUERIES, QuerySpec
from robodyn.internals.errors import UnavailableError
from robodyn.io.builders.auto_tree import auto_tree
from robodyn.testing.mujoco_models import mujoco_model
from robodyn.testing.pinocchio_models import pinocchio_model
from tests.bench.runner import Page, Run
from tests.bench.shared import ROBOTS as BASES
from tests.bench.shared import geometric_mean, robot
from tests.bench.timing import Call, least

ROBOTS = ("arm7", "humanoid")
LOOPS = ("cartpole", *ROBOTS)
"""Robots of control loops."""
BATCH = 4096
LINKS = (-1, -3, 2, 4)
"""Several links, by their places among those of a robot."""
_TURNS = 9
_SHORT, _SHARE, _ALONE, _FORCE, _CHECKED = 0.6, 0.6, 1.5, 3.0, 10.0
"""Microseconds: Pinocchio's calls that take no longer we equal, of others we want a share; of an arm where it has none;
`external_force`; lists and other dtypes."""
_ARM = "arm7"
_STEPS, _DT, _SEVERAL = 50, 1e-3, 20
"""Of rollouts, and states of a call."""
_TOLD = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
Calls = dict[tuple[str, str], Call]
"""By query and what is given besides."""


def _written(texts: dict[str, str], **known: Any) -> Calls:
    """Functions without arguments of calls that are told as text."""
    found: Calls = {}
    for asked, text in texts.items():
        query, _, what = asked.partition(": ")
        found[query, what] = eval(f"lambda: ({text})", known)
    return found


@dataclass
class Timed:
    """Microseconds of a call, ours and Pinocchio's, and what was wanted of ours."""

    robot: str
    query: str
    what: str
    dtype: str
    us: float
    peer_us: float | None
    wanted_us: float | None
    batch_ns: float | None = None
    """A state of a batch, one thread, where Pinocchio has the call."""
    peer_ns: float | None = None
    """Pinocchio's call less that for a robot of one joint: what its C++ takes."""
    peer: str = "Pinocchio"
    """The other library."""

    @property
    def reached(self) -> bool:
        alone = self.wanted_us is None or self.us <= self.wanted_us
        return alone and (self.batch_ns is None or self.peer_ns is None or self.batch_ns <= self.peer_ns)

    @property
    def remark(self) -> str:
        return "" if self.reached else "more than wanted"


@dataclass
class Results:
    """What was measured."""

    calls: list[Timed]


def measure(run: Run) -> Results:
    found = [each for name in LOOPS for each in _of_loops(name, run)]
    return Results(found + [each for name in ROBOTS for each in _of_queries(name, run)])


def _of_loops(name: str, run: Run) -> Iterator[Timed]:
    model = robot(name, BASES.get(name, "fixed"))
    beside = _loops_of_others(model)
    for (query, what), call in _loops(model).items():
        if run.chosen(f"calls: {name}, {query}, {what}, loop"):
            library, theirs = beside.get((query, what), ("", None))
            us, peer_us = _times(call, theirs, run.seconds)
            yield Timed(name, query, what, "float64", us, peer_us, peer_us, peer=library)


def _of_queries(name: str, run: Run) -> Iterator[Timed]:
    model = robot(name)
    peer, smallest = _pinocchio(model), _pinocchio(auto_tree(1))
    plain: dict[str, float] = {}

    @cache
    def batched(query: str) -> dict[str, Call]:
        return dict(_calls_of(model, QUERIES[query], "float64", (BATCH,)))

    for query, what, dtype, call in _cases(model):
        if not run.chosen(f"calls: {name}, {query}, {what}, {dtype}"):
            continue
        theirs = peer.get((query, what)) if dtype == "float64" else None
        us, peer_us = _times(call, theirs, run.seconds)
        batch_ns = peer_ns = None
        if theirs is not None and query in QUERIES:
            batch_ns = 1e3 * _times(batched(query)[what], None, run.seconds)[0] / BATCH
            again, once = _times(theirs, smallest[query, what], run.seconds / 4)
            peer_ns = 1e3 * max(0.0, again - (once or 0.0))
        if peer_us is not None and not what:
            plain[query] = peer_us
        wanted = _wanted(name, query, what, peer_us, plain.get(query))
        yield Timed(name, query, what, dtype, us, peer_us, wanted, batch_ns, peer_ns)


def _times(call: Call, peer: Call | None, seconds: float) -> tuple[float, float | None]:
    """Microseconds of both, in turns."""
    best = least({name: each for name, each in (("ours", call), ("peer", peer)) if each is not None}, seconds, _TURNS)
    return 1e6 * best["ours"], 1e6 * best["peer"] if peer is not None else None


def _wanted(robot: str, query: str, what: str, peer: float | None, plain: float | None) -> float | None:
    """`plain`: Pinocchio's time for the query without what is given besides."""
    if "links" in what and peer is not None:  # a list is looked at in Python
        return peer
    if "list" in what or "links" in what or "other precision" in what:
        return _CHECKED if robot == _ARM else None
    if peer is not None:
        return peer if peer <= _SHORT else _SHARE * peer
    if robot != _ARM:
        return None
    if plain is not None:
        return max(_ALONE, _SHARE * plain)
    return _FORCE if query == "external_force" else _ALONE


def _cases(model: rd.Model) -> Iterator[tuple[str, str, str, Call]]:
    for dtype in ("float64", "float32"):
        for question in QUERIES.values():
            for what, call in _calls_of(model, question, dtype):
                yield question.name, what, dtype, call
    rng = np.random.default_rng(0)
    q, q1, qd = model.random_configuration(rng), model.random_configuration(rng), rng.uniform(-1, 1, model.nv)
    wrench = rng.uniform(-1, 1, 6)
    functions = _written(
        _TOLD["functions"], rd=rd, model=model, rng=rng, q=q, q1=q1, qd=qd, listed=q.tolist(), wrench=wrench,
        pose=rd.exp(wrench), other=rd.exp(wrench[::-1]), link=model.link_names[-1], H=np.eye(model.nv),
        way=rd.converter(model, "mujoco"),
    )  # fmt: skip
    for (name, what), call in functions.items():
        yield name, what, "float64", call


def _calls_of(
    model: rd.Model, question: QuerySpec, dtype: str, leading: tuple[int, ...] = ()
) -> Iterator[tuple[str, Call]]:
    """Calls of a query: the plain one, one for each optional argument, and one with all of them."""
    rng = np.random.default_rng(0)
    shapes = {"f_ext": (model.n_bodies, 6), "inertia": (model.n_bodies, 10), "V0": (6,), "dV0": (6,), "point": (3,)}
    arrays: dict[str, Any] = {
        name: rng.uniform(-1, 1, (*leading, *shapes.get(name, (model.nv,)))).astype(dtype) for name in question.arrays
    }
    arrays["q"] = model.random_configuration(rng, leading).astype(dtype)
    if "inertia" in arrays:
        arrays["inertia"] = np.array(np.broadcast_to(model.inertia, (*leading, *model.inertia.shape)), dtype)
    link, observer, links = model.link_names[-1], model.link_names[2], [model.link_names[k] for k in LINKS]
    placed, named = question.arguments({name: arrays[name] for name in question.inputs}, link)
    threads = 1 if leading else None
    dyn = rd.Dynamics(model, dtype=dtype, threads=threads)
    forced = rd.Dynamics(model, dtype=dtype, joint_forces=("damping", "friction"), threads=threads)

    def call(dyn: rd.Dynamics = dyn, *, given: list[Any] = placed, **options: Any) -> Call:
        function, others = getattr(dyn, question.name), {**named, **options}
        return lambda: function(*given, **others)

    optional = {name: arrays[name] for name in question.optional}
    yield "", call()
    results = call()()
    out = tuple(map(np.empty_like, results)) if isinstance(results, tuple) else np.empty_like(results)
    ways: dict[str, dict[str, Any]] = {name: {name: array} for name, array in optional.items()}
    ways |= {"out": {"out": out}} if "vector" not in optional else {}
    ways |= {"all arrays": optional} if len(optional) > 1 else {}
    ways |= {f"method={method}": {"method": method} for method in question.possible(model, dyn.engine.name)}
    ways |= {"relative_to": {"relative_to": observer}} if question.of_link and question.can_be_relative else {}
    ways |= {f"frame={frame}": {"frame": frame} for frame in FRAMES if question.in_frame}
    ways |= {"classical": {"classical": True}} if question.variants else {}
    for what, options in ways.items():
        yield what, call(**options)
    if question.of_link:
        by_number, same = question.arguments({name: arrays[name] for name in question.inputs}, model.link_index(link))
        yield "link by number", call(given=by_number, **same)
        yield f"{len(LINKS)} links", call(given=placed[:-1], links=links)
    if question.joint_forces:
        yield "damping and friction", call(forced)
    if "q" in question.inputs:
        yield "q as a list", call(given=[arrays["q"].tolist(), *placed[1:]])
        other = "float32" if dtype == "float64" else "float64"
        yield "q in the other precision", call(given=[arrays["q"].astype(other), *placed[1:]])


def _pinocchio(model: rd.Model) -> Calls:
    """Pinocchio's calls; nothing where it is not installed."""
    try:
        made = pinocchio_model(model)
    except UnavailableError:
        return {}
    import pinocchio

    pin: Any = pinocchio
    rng, names, forces = np.random.default_rng(0), model.link_names, pin.StdVec_Force()
    forces.extend(pin.Force.Random() for _ in range(made.njoints))
    ones, twist, frame = np.ones(made.nq), pin.Motion.Random(), made.nframes - 1
    q, q1 = (pin.randomConfiguration(made, -ones, ones) for _ in range(2))
    v, a = rng.uniform(-1, 1, (2, made.nv))
    texts = _TOLD["pinocchio"] | {
        f"{query}: {what}" if what else query: text.replace("axes", axes)
        for query, text in _TOLD["in_axes"].items()
        for what, axes in _TOLD["axes"].items()
    }
    return _written(
        texts, pin=pin, model=made, data=made.createData(), q=q, q1=q1, v=v, a=a, forces=forces, ones=ones,
        dt=_DT, twist=twist, placement=pin.exp6(twist), frame=frame, parent=made.frames[frame].parentJoint,
        observer=made.getBodyId(names[min(2, len(names) - 1)]),
        several=[made.getBodyId(names[k % len(names)]) for k in LINKS],
        tip=made.frames[frame].placement * pin.SE3(np.eye(3), np.array([0.1, 0.2, 0.3])),
    )  # fmt: skip


# Control loops.


def _loops(model: rd.Model) -> Calls:
    dyn, rng, nv = rd.Dynamics(model, threads=1), np.random.default_rng(0), model.nv
    q, qd, tau = model.random_configuration(rng), 0.1 * rng.standard_normal(nv), rng.standard_normal(nv)
    states, held = [np.repeat(each[None], _SEVERAL, 0) for each in (q, qd, tau)], np.zeros(nv)
    tool = model.link_names[-1]
    return _written(
        _TOLD["loops"], dyn=dyn, q=q, qd=qd, tau=tau, dt=_DT, states=states, held=held, policy=lambda *_: held,
        gradients=dyn.step_gradient(*states, _DT), weight=np.ones((_STEPS + 1, nv)),
        ik=rd.InverseKinematics(model, tool), target=dyn.link_pose(q, tool), near=model.integrate(q, np.full(nv, 0.05)),
    )  # fmt: skip


def _loops_of_others(model: rd.Model) -> dict[tuple[str, str], tuple[str, Call]]:
    """The library and its call, by name and what is given besides."""
    found = {asked: ("Pinocchio", call) for asked, call in _pinocchio(model).items()}
    for library, name, what, make in (
        ("MuJoCo", "step", "", _mujoco_step),
        ("JAX", "rollout_vjp", f"{_STEPS} steps", _jax_gradient),
    ):
        with suppress(UnavailableError, ImportError):
            found[name, what] = library, make(model)
    return found


def _mujoco_step(model: rd.Model) -> Call:
    made = mujoco_model(model)
    import mujoco

    made.opt.timestep = _DT
    return partial(mujoco.mj_step, made, mujoco.MjData(made))


def _jax_gradient(model: rd.Model) -> Call:
    if model.name != LOOPS[0]:
        raise UnavailableError("JAX takes minutes to compile rollouts of larger robots")
    import jax
    import jax.numpy as jnp

    from tests.bench.jax_rnea import aba

    accelerations = aba(model, "float64")

    def value(q: Any, qd: Any, tau: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            q, qd = state
            qd = qd + _DT * accelerations(q[None], qd[None], tau[None])[0]
            return (q + _DT * qd, qd), q

        _, states = jax.lax.scan(step, (q, qd), None, length=_STEPS)
        return jnp.sum(states)

    compiled = jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2)))
    state = np.zeros(model.nv), np.zeros(model.nv), np.ones(model.nv)
    return lambda: jax.block_until_ready(compiled(*state))


def notes(found: Results) -> list[str]:
    judged = [each for each in found.calls if each.wanted_us is not None]
    beside = [each for each in found.calls if each.peer_us and each.peer == "Pinocchio"]
    missed = Counter(f"{each.robot} {each.query}" for each in judged if not each.reached)
    lines = [
        f"{len(found.calls)} calls; of {len(judged)} something was wanted, and {len(judged) - missed.total()} reach it."
    ]
    ratios = [each.us / each.peer_us for each in beside if each.peer_us]
    if ratios:
        lines.append(
            f"{len(ratios)} beside Pinocchio's: {geometric_mean(ratios):.2f} of its time in the mean, "
            f"{min(ratios):.2f} to {max(ratios):.2f}."
        )
    ratios = [each.batch_ns / each.peer_ns for each in beside if each.batch_ns and each.peer_ns]
    if ratios:
        lines.append(
            f"A state of a batch of {BATCH} on one thread takes {geometric_mean(ratios):.3f} of what "
            f"Pinocchio's C++ does in the mean, {min(ratios):.3f} to {max(ratios):.3f}."
        )
    several = (f"{name} ({count})" for name, count in missed.items())
    return [*lines, f"Calls that take more than wanted: {', '.join(several) or 'none'}."]


PAGE = Page("calls", Results, measure, notes=notes, seconds=0.03)

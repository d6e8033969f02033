"""What the command `export` does: queries of a robot as source code."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robodyn._version import __version__
from robodyn.algorithms import energy, kinematics
from robodyn.algorithms.aba import INVERSE_MASS_MATRIX, aba
from robodyn.algorithms.coriolis import CORIOLIS_MATRIX
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.forward_gradient import forward_by_mass_matrix, forward_gradient, inverse_by_mass_matrix
from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.kinematics import Frame
from robodyn.algorithms.rnea import rnea
from robodyn.arguments import one_of
from robodyn.chains import Chain, Solve, Task
from robodyn.dynamics import Dynamics
from robodyn.engines.protocol import DTYPES
from robodyn.errors import ArgumentError, NumericalError, SingularError
from robodyn.files import require_writable_kind
from robodyn.messages import printable, quoted
from robodyn.model import Model
from robodyn.queries.kinematic import FRAMES
from robodyn.sweeps import Ancestors, Inward, Outward
from robodyn.tables import units
from robodyn.tracing.c_code import Function, c_header, c_source, identifier
from robodyn.tracing.unrolled import output_shape, trace

_MOST_VISITS = 10_000
_BASE = ("V0", "dV0")


@dataclass(frozen=True)
class Query:
    """A query that is one program.

    `algorithm` makes it from its inputs and the frame of `--frame`; `extras` are inputs it takes where `--inputs` names
    them; `results` the names of its outputs. `regular`: it needs an invertible mass matrix. `of_mimic`: what is taken
    instead for robots whose joints mimic others, if it differs.
    """

    about: str
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    algorithm: Callable[[tuple[str, ...], Frame], Task]
    extras: tuple[str, ...] = ()
    of_link: bool = False
    regular: bool = False
    needs_mass: bool = False
    of_mimic: Callable[[tuple[str, ...]], Task] | None = None


_FORCES = ("f_ext", *_BASE)
QUERIES = {
    "id": Query(
        "Inverse dynamics: the generalised forces tau that give accelerations qdd.",
        ("q", "qd", "qdd"),
        ("tau",),
        lambda inputs, _: rnea(inputs),
        _FORCES,
    ),
    "fd": Query(
        "Forward dynamics: the accelerations qdd under generalised forces tau.",
        ("q", "qd", "tau"),
        ("qdd",),
        lambda inputs, _: aba(inputs),
        _FORCES,
        regular=True,
        of_mimic=forward_by_mass_matrix,
    ),
    "mass_matrix": Query("The joint-space inertia matrix H, armature included.", ("q",), ("H",), lambda *_: CRBA),
    "mass_matrix_inverse": Query(
        "The inverse of the joint-space inertia matrix.",
        ("q",),
        ("Hinv",),
        lambda *_: INVERSE_MASS_MATRIX,
        regular=True,
        of_mimic=inverse_by_mass_matrix,
    ),
    "bias": Query(
        "Inverse dynamics at qdd = 0: Coriolis, centrifugal and gravity forces, minus external ones.",
        ("q", "qd"),
        ("bias",),
        lambda inputs, _: rnea(inputs),
        _FORCES,
    ),
    "gravity": Query(
        "Generalised forces that hold the robot still against gravity.",
        ("q",),
        ("gravity",),
        lambda inputs, _: rnea(inputs),
    ),
    "coriolis": Query(
        "The matrix C with C qd + gravity = bias, and dH/dt - 2 C skew-symmetric.",
        ("q", "qd"),
        ("C",),
        lambda *_: CORIOLIS_MATRIX,
        ("V0",),
    ),
    "id_gradient": Query(
        "Derivatives of inverse dynamics: row i, column j is that of tau[i] by q[j] (on the tangent space: a small "
        "velocity times time) and by qd[j].",
        ("q", "qd", "qdd"),
        ("dtau_dq", "dtau_dqd"),
        lambda inputs, _: idsva(inputs),
        _FORCES,
    ),
    "fd_gradient": Query(
        "Derivatives of forward dynamics: row i, column j is that of qdd[i] by q[j] (on the tangent space), by qd[j] "
        "and by tau[j].",
        ("q", "qd", "tau"),
        ("dqdd_dq", "dqdd_dqd", "dqdd_dtau"),
        lambda inputs, _: forward_gradient(inputs),
        _FORCES,
        regular=True,
    ),
    "fk": Query(
        "Poses of all links: homogeneous transforms from link to world coordinates.",
        ("q",),
        ("T",),
        lambda *_: kinematics.forward_kinematics(False),
    ),
    "link_pose": Query(
        "Pose of the link: the homogeneous transform from link to world coordinates.",
        ("q",),
        ("T",),
        lambda *_: kinematics.forward_kinematics(True),
        of_link=True,
    ),
    "jacobian": Query(
        "Geometric Jacobian of the link: its velocity is J qd.",
        ("q",),
        ("J",),
        lambda _, frame: kinematics.jacobian(frame),
        of_link=True,
    ),
    "link_velocity": Query(
        "Spatial velocity of the link.",
        ("q", "qd"),
        ("V",),
        lambda _, frame: kinematics.link_velocity(frame),
        ("V0",),
        of_link=True,
    ),
    "link_acceleration": Query(
        "Spatial acceleration of the link, without gravity.",
        ("q", "qd", "qdd"),
        ("A",),
        lambda _, frame: kinematics.link_acceleration(frame, False),
        _BASE,
        of_link=True,
    ),
    "classical_acceleration": Query(
        "Acceleration of the link, its linear part that of the link's origin, without gravity.",
        ("q", "qd", "qdd"),
        ("A",),
        lambda _, frame: kinematics.link_acceleration(frame, True),
        _BASE,
        of_link=True,
    ),
    "kinetic_energy": Query(
        "Kinetic energy, J, armature included.", ("q", "qd"), ("K",), lambda *_: energy.KINETIC_ENERGY, ("V0",)
    ),
    "potential_energy": Query(
        "Potential energy, J, zero at the height of the world's origin.",
        ("q",),
        ("U",),
        lambda *_: energy.POTENTIAL_ENERGY,
    ),
    "center_of_mass": Query(
        "Centre of mass in world coordinates, m.", ("q",), ("com",), lambda *_: energy.CENTER_OF_MASS, needs_mass=True
    ),
    "centroidal_momentum": Query(
        "Momentum h about the centre of mass in world axes, and the matrix A with h = A qd for a base at rest.",
        ("q", "qd"),
        ("h", "A"),
        lambda *_: energy.CENTROIDAL_MOMENTUM,
        ("V0",),
        needs_mass=True,
    ),
}


def _chosen(option: str, text: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """The words of an option's text, separated by commas, each once."""
    found = dict.fromkeys(word.strip() for word in text.split(",") if word.strip())
    return tuple(one_of(option, word, allowed) for word in found)


def export(load: Callable[[], Model], options: Mapping[str, Any]) -> None:
    """Print or write the code that the options of the command ask for, which are looked at before `load` is called.

    Raises:
        ArgumentError: options that are wrong, or not for this robot.
        SingularError: a query needs the inverse of a mass matrix that has none.
        OSError: a file cannot be written.
    """
    one_of("--lang", options["lang"], ("c",))
    names = _chosen("--query", options["query"], tuple(QUERIES))
    if not names:
        raise ArgumentError(f"--query: nothing given; allowed: {', '.join(map(repr, QUERIES))}")
    extras = _chosen("--inputs", options["inputs"], _FORCES)
    one_of("--frame", options["frame"], FRAMES)
    dtype = one_of("--dtype", options["dtype"], DTYPES)
    _check_extras(names, extras)
    _check_link(names, options)
    paths = {key: _path(f"--{key}", options[key]) for key in ("out", "header")}
    if paths["out"] is not None and paths["out"] == paths["header"]:
        raise ArgumentError("--out and --header name the same file")
    model = load()
    prefix = _prefix(model, options["name"])
    link = model.link_index(options["link"]) if options["link"] is not None else None
    functions = [_function(model, name, prefix, link, options["frame"], extras) for name in names]
    top = _about(model, dtype, names, extras)
    written: dict[str, Any] = {"prefix": prefix, "sizes": _sizes(model), "about": top, "dtype": dtype}
    texts = {"out": c_source(functions, **written), "header": c_header(functions, **written)}
    for key, path in paths.items():
        if path is not None:
            path.write_text(texts[key], encoding="ascii")
    if paths["out"] is None:
        print(texts["out"], end="")
    else:
        print(f"wrote {', '.join(function.name for function in functions)} to {printable(str(paths['out']))}")


def _path(option: str, text: str | None) -> Path | None:
    if text is None:
        return None
    path = Path(text)
    if not path.parent.is_dir():
        raise ArgumentError(f"{option}: {quoted(str(path.parent))} is not a folder")
    require_writable_kind(path)
    return path


def _check_extras(names: Sequence[str], extras: Sequence[str]) -> None:
    for extra in extras:
        if not any(extra in QUERIES[name].extras for name in names):
            raise ArgumentError(f"--inputs: {extra!r} has no part in {', '.join(names)}")


def _check_link(names: Sequence[str], options: Mapping[str, Any]) -> None:
    about_link = [name for name in names if QUERIES[name].of_link]
    if about_link and options["link"] is None:
        raise ArgumentError(f"--link: not given; {', '.join(about_link)} is about a link")
    if not about_link and options["link"] is not None:
        raise ArgumentError(f"--link: {', '.join(names)} is about no link")


def _prefix(model: Model, given: str | None) -> str:
    if given is None:
        return identifier(model.name)
    if identifier(given) != given:
        raise ArgumentError(f"--name: got {quoted(given)}; wanted a C identifier, such as {identifier(given)}")
    return given


def _function(model: Model, name: str, prefix: str, link: int | None, frame: Frame, extras: Sequence[str]) -> Function:
    """One query as a function, after a look at whether this model can be asked."""
    query = QUERIES[name]
    _require_possible(model, name)
    taken = [extra for extra in query.extras if extra in extras]
    inputs = (*query.inputs, *(extra for extra in taken if extra not in _BASE))
    if model.has_mimic and query.of_mimic is not None:
        algorithm = query.of_mimic(inputs)
    else:
        algorithm = query.algorithm(inputs, frame)
    _require_moderate(model, name, algorithm)
    base = [extra for extra in taken if extra in _BASE]
    program = trace(model, algorithm, link=link if query.of_link else None, base=base)
    outputs = tuple(
        dataclasses.replace(port, name=result) for port, result in zip(program.outputs, query.results, strict=True)
    )
    program = dataclasses.replace(program, name=name, outputs=outputs)
    lines = [query.about]
    if query.of_link:
        lines.append(f"Link {model.link_names[link or 0]!r}" + ("." if name == "link_pose" else f", frame {frame!r}."))
    return Function(f"{prefix}_{name}", program, [*lines, f"Program {program.digest}."])


def _require_possible(model: Model, name: str) -> None:
    query = QUERIES[name]
    singular = Dynamics(model, engine="reference").singularity() if query.regular else None
    if singular is not None:
        raise SingularError(singular)
    if query.needs_mass and model.total_mass == 0.0:
        raise NumericalError(f"model {quoted(model.name)}: nothing that moves has mass, so it has no centre of mass")


def _require_moderate(model: Model, name: str, algorithm: Task) -> None:
    """Straight-line code grows with the visits to bodies that an algorithm makes; nobody can compile millions."""
    lanes = any(isinstance(sweep, Outward | Inward) and sweep.lanes for sweep in algorithm.sweeps)
    pairs = any(isinstance(sweep, Ancestors) and not sweep.of_link for sweep in algorithm.sweeps)
    visits = model.n_bodies * (model.nv if lanes else 1)
    if pairs:
        visits = int((model.tree.depth + 1).sum())
    if isinstance(algorithm, Chain):  # a solve visits each pair again for each column
        visits *= 1 + sum(_columns(model, stage) for stage in algorithm.stages if isinstance(stage, Solve))
    if visits > _MOST_VISITS:
        raise ArgumentError(
            f"--query: {name!r} of {quoted(model.name)} visits its {model.n_bodies} bodies {visits} times, too often "
            f"for code without loops; wanted at most {_MOST_VISITS}"
        )


def _columns(model: Model, solve: Solve) -> int:
    return sum(math.prod(output_shape(model, solution)) for solution in solve.outputs.values()) // max(1, model.nv)


def _sizes(model: Model) -> dict[str, int]:
    return {"NQ": model.nq, "NV": model.nv, "N_BODIES": model.n_bodies, "N_LINKS": len(model.link_names)}


def _about(model: Model, dtype: str, names: Sequence[str], extras: Sequence[str]) -> list[str]:
    """What the top of a file says: the robot, its coordinates with their units, and how functions are called."""
    gravity = " ".join(f"{x:g}" for x in model.gravity)
    lines = [
        f"Rigid-body dynamics of {model.name!r}: {', '.join(names)}.",
        f"Made by robodyn {__version__} from the model {model.digest}, in {dtype}.",
        "",
        "Each function computes one state. Arrays are contiguous, matrices stored row by row, and arrays must not "
        "overlap. Functions allocate nothing, keep nothing and check nothing; any thread may call them.",
        "",
        f"SI units and radians. Gravity is {gravity} m/s^2. 6-vectors hold their angular part first. Joint limits, "
        "damping and friction have no part.",
        *_explained(model, names, extras),
        "",
        "q: coordinates",
    ]
    listed = zip(model.coordinate_names, units(model, "q"), strict=True)
    lines += [f"  [{k}] {name}, {unit}" for k, (name, unit) in enumerate(listed)]
    lines += ["", "qd, qdd, tau: velocities, accelerations, generalised forces"]
    columns = [units(model, quantity) for quantity in ("qd", "qdd", "tau")]
    rows = zip(model.velocity_names, *columns, strict=True)
    lines += [f"  [{k}] {name}, {', '.join(parts)}" for k, (name, *parts) in enumerate(rows)]
    if "f_ext" in extras:
        lines += ["", "f_ext: bodies", *_numbered(model.body_names)]
    if "fk" in names:
        lines += ["", "T: links", *_numbered(model.link_names)]
    return lines


def _explained(model: Model, names: Sequence[str], extras: Sequence[str]) -> Iterator[str]:
    """Conventions that matter to this robot and these queries."""
    if model.quaternion_starts.size:
        yield "Quaternions are x y z w, and scaled to unit length inside; one of zero length gives NaN."
        yield "Velocities of floating and spherical joints are in the moving body's axes, linear ones first."
    if any(QUERIES[name].of_link for name in names):
        yield (
            "Frame 'world': world axes, about the world's origin; 'body': the link's own; 'world_aligned': world axes, "
            "about the link's origin."
        )
    if "f_ext" in extras:
        yield "f_ext: for each body the moment about the world's origin, then the force, in world axes."
    if set(extras) & set(_BASE):
        yield "V0, dV0: velocity and acceleration of the base in world coordinates, without gravity."


def _numbered(names: Sequence[str]) -> list[str]:
    return [f"  [{k}] {name}" for k, name in enumerate(names)]

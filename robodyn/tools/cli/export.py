"""The command `export`: writes queries of a robot as source code."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from robodyn.algorithms.distances.tasks import OBSTACLES, Asked, task_of
from robodyn.algorithms.tasks import RESISTANCES, Solve, Task
from robodyn.api.dynamics import Dynamics
from robodyn.api.queries.obstacles import Obstacles
from robodyn.compile.c.code import Function, c_header, c_source, identifier, require_identifier
from robodyn.compile.tracing.joint_forces import JointForces
from robodyn.compile.tracing.unrolled import output_shape, trace
from robodyn.core.constraints.resolved import row_names
from robodyn.core.model import Model
from robodyn.core.sweeps import Ancestors, Inward, Outward
from robodyn.core.tables import units
from robodyn.engines.protocol import DTYPES
from robodyn.engines.query_table import (
    BASE,
    FRAMES,
    OF_CONSTRAINTS,
    LinkSelection,
    QuerySpec,
    QueryVariant,
    named,
    short_names,
)
from robodyn.internals.arguments import one_of
from robodyn.internals.errors import ArgumentError
from robodyn.internals.files import file_named, require_writable, whole_file
from robodyn.internals.messages import printable, quoted
from robodyn.internals.version import __version__
from robodyn.io.builders.values import whole_number
from robodyn.tools.cli import export_verilog
from robodyn.tools.cli.results import (
    linked,
    pair_names,
    require_constraints,
    say_of_constraints,
    slot_names,
    takes_obstacles,
)

_MOST_VISITS = 10_000
_EXTRAS = ("f_ext", "inertia", "point", *OF_CONSTRAINTS, *BASE)
"""Optional inputs of exported functions."""


Around: TypeAlias = tuple[tuple[tuple[str, int], ...], tuple[str, ...]]
"""Kinds and numbers of obstacles, and the names of links that ignore them."""
_NUMBERS = {
    "spheres": "centre x y z and radius, m, in the world",
    "capsules": "both ends of the axis, x y z each, and radius, m, in the world",
    "boxes": "the first three rows of its pose in the world, row by row (12), and its edges (3), m",
}
_MOST_OBSTACLES, _MOST_OPERATIONS = 10_000, 200_000


def _chosen(option: str, text: str, allowed: Container[str], listed: Sequence[str]) -> tuple[str, ...]:
    """Parse an option's comma-separated words without duplicates; an error lists some of the allowed ones."""
    words = dict.fromkeys(word.strip() for word in text.split(",") if word.strip())
    return tuple(word if word in allowed else one_of(option, word, listed) for word in words)


def export(load: Callable[[], Model], options: Mapping[str, Any]) -> None:
    """Print or write the code for the command's options. Options are checked before `load` is called.

    Raises:
        ArgumentError: wrong options, or options that this robot does not support.
        SingularError: a query needs the inverse of a mass matrix that is singular at every state.
        OSError: a file cannot be written.
    """
    if one_of("--lang", options["lang"], ("c", "verilog")) == "verilog":
        export_verilog.export(load, options)
        return
    export_verilog.refuse_options(options, verilog=False)
    known = named()
    query = "id" if options["query"] is None else options["query"]
    names = _chosen("--query", query, known, tuple(short_names()))
    if not names:
        raise ArgumentError(f"--query: nothing given; allowed: {', '.join(map(repr, short_names()))}")
    asked = {name: known[name][0] for name in names}
    extras = _chosen("--inputs", options["inputs"], _EXTRAS, _EXTRAS)
    counted = _chosen("--joint-forces", options["joint_forces"], RESISTANCES, RESISTANCES)
    one_of("--frame", options["frame"], FRAMES)
    dtype = one_of("--dtype", options["dtype"], DTYPES)
    _check_extras(asked, extras)
    _check_link(asked, options)
    _check_choices(asked, options["classical"], counted)
    paths = {key: _path(f"--{key}", options[key]) for key in ("out", "header")}
    places = [path.resolve() for path in paths.values() if path is not None]
    if len(set(places)) < len(places):
        raise ArgumentError("--out and --header name the same file")
    # The Dynamics adjusts the proximal term of constraints to the precision.
    model = Dynamics(load(), engine="reference", dtype=dtype).model
    around = _around(asked, options)
    require_constraints("--query", model, asked.values())
    say_of_constraints(model, asked.values())
    prefix = _prefix(model, options["name"])
    link, relative_to = (
        None if options[name] is None else model.link_index(linked(model, options[name]))
        for name in ("link", "relative_to")
    )
    functions = [
        _function(
            model,
            name,
            question,
            prefix,
            link,
            extras,
            relative_to=relative_to,
            around=around,
            frame=options["frame"],
            counted=counted,
            **({"classical": True} if options["classical"] and _can_be_classical(question) else known[name][1]),
        )
        for name, question in asked.items()
    ]
    top = _about(model, dtype, asked, extras, counted, around)
    written: dict[str, Any] = {"prefix": prefix, "sizes": _sizes(model), "about": top, "dtype": dtype}
    texts = {"out": c_source(functions, **written), "header": c_header(functions, **written)}
    for key, path in paths.items():
        if path is not None:
            with whole_file(path, f"--{key}") as file:
                file.write(texts[key].encode("ascii"))
    if paths["out"] is None:
        print(texts["out"], end="")
    else:
        print(f"wrote {', '.join(function.name for function in functions)} to {printable(str(paths['out']))}")


def _path(option: str, text: str | None) -> Path | None:
    if text is None:
        return None
    path = file_named(option, text)
    if not path.parent.is_dir():
        raise ArgumentError(f"{option}: {quoted(str(path.parent))} is not a folder")
    return require_writable(path, option)


def _check_extras(asked: Mapping[str, QuerySpec], extras: Sequence[str]) -> None:
    for extra in extras:
        if not any(extra in question.optional for question in asked.values()):
            raise ArgumentError(f"--inputs: {extra!r} has no part in {', '.join(asked)}")


def _check_link(asked: Mapping[str, QuerySpec], options: Mapping[str, Any]) -> None:
    about_link = [name for name, question in asked.items() if question.of_link]
    if about_link and options["link"] is None:
        raise ArgumentError(f"--link: not given; {', '.join(about_link)} is about a link")
    if not about_link and options["link"] is not None:
        raise ArgumentError(f"--link: {', '.join(asked)} is about no link")
    absolute = [name for name, question in asked.items() if not question.can_be_relative]
    if options["relative_to"] is not None and absolute:
        raise ArgumentError(f"--relative-to: {', '.join(absolute)} is relative to no link")


def _check_choices(asked: Mapping[str, QuerySpec], classical: bool, counted: Sequence[str]) -> None:
    if classical and not any(map(_can_be_classical, asked.values())):
        raise ArgumentError(f"--classical: {', '.join(asked)} is about no acceleration of a link")
    if counted and not any(question.joint_forces for question in asked.values()):
        raise ArgumentError(f"--joint-forces: damping and friction have no part in {', '.join(asked)}")


def _can_be_classical(question: QuerySpec) -> bool:
    return any("classical" in chosen for chosen in question.variants.values())


def _around(asked: Mapping[str, QuerySpec], options: Mapping[str, Any]) -> Around | None:
    """Numbers of obstacles, and the links that ignore them, from the command's options."""
    text, ignore = options["obstacles"], options["ignore"]
    if text is None:
        if ignore is not None:
            raise ArgumentError("--ignore goes with --obstacles, which is not given")
        return None
    without = [name for name, question in asked.items() if not takes_obstacles(question)]
    if without:
        raise ArgumentError(f"--obstacles: {', '.join(without)} takes none")
    counts: dict[str, int] = {}
    for word in text.split(","):
        kind, _, number = (part.strip() for part in word.partition("="))
        n = whole_number(number)
        if one_of("--obstacles", kind, tuple(OBSTACLES)) in counts or n is None or not 0 < n <= _MOST_OBSTACLES:
            wanted = f"each kind once, and 1 to {_MOST_OBSTACLES} of it"
            raise ArgumentError(f"--obstacles: got {quoted(word.strip())}; wanted {wanted}, as spheres=8")
        counts[kind] = n
    links = tuple(word.strip() for word in (ignore or "").split(",") if word.strip())
    return tuple((kind, counts[kind]) for kind in OBSTACLES if kind in counts), links


def _of_shapes(model: Model, name: str, question: QuerySpec, around: Around | None) -> Task:
    """The program of a query about distances, with obstacles or without them."""
    asked = Asked(model.pairs)
    if around is not None:
        (kind, count), *others = around[0]
        asked = Asked(model.pairs, Obstacles(ignore=around[1]).near(model), kind, count, tuple(others))
    if not asked.size:
        missing = "pairs of shapes" if model.collision_geometries else "shapes"
        raise ArgumentError(f"--query: {name} is about shapes, and {quoted(model.name)} has no {missing}")
    least = asked.least_operations(model)
    if least > _MOST_OPERATIONS:
        raise ArgumentError(
            f"--query: {name!r} of {quoted(model.name)} takes about {least:,} operations, too many for code without "
            f"loops; wanted at most {_MOST_OPERATIONS:,}: fewer pairs or obstacles, or spheres instead of boxes"
        )
    return cast(Task, task_of(question.name, model, asked))


def _prefix(model: Model, given: str | None) -> str:
    return identifier(model.name) if given is None else require_identifier("--name", given)


def _function(
    model: Model,
    name: str,
    question: QuerySpec,
    prefix: str,
    link: int | None,
    extras: Sequence[str],
    *,
    relative_to: int | None = None,
    around: Around | None = None,
    counted: Sequence[str] = (),
    **choices: Any,
) -> Function:
    """One query as a function; raises if the model cannot answer it."""
    dyn, taken = Dynamics(model, engine="reference"), [extra for extra in question.optional if extra in extras]
    dyn._require_possible(question)
    dyn._require_loads(question, taken)
    inputs = tuple(each for each in question.arrays if each in question.plain or each in taken)
    if relative_to is not None:
        choices["places"] = LinkSelection((link or 0,), False, relative_to)
    damped = "damping" in counted
    if question.of_shapes:
        algorithm = _of_shapes(model, name, question, around)
    else:
        algorithm = question.made(
            QueryVariant(model, tuple(each for each in inputs if each not in BASE), damping=damped, **choices)
        )
    _require_moderate(model, name, question, algorithm)
    base = [extra for extra in taken if extra in BASE]
    alone = question.of_link and relative_to is None
    forces = JointForces(model, question.joint_forces, tuple(question.results), counted)
    program = trace(model, algorithm, link=link if alone else None, base=base, joint_forces=forces)
    outputs = tuple(
        dataclasses.replace(port, name=result) for port, result in zip(program.outputs, question.results, strict=True)
    )
    program = dataclasses.replace(program, name=name, outputs=outputs)
    lines = [question.about]
    if question.of_link:
        seen = f", frame {choices['frame']!r}" if question.in_frame else ""
        observer = "" if relative_to is None else f", relative to {model.link_names[relative_to]!r}"
        lines.append(f"Link {model.link_names[link or 0]!r}{observer}{seen}.")
        lines += _seen_from(question, choices["frame"], bool(choices.get("classical")), "point" in taken)
    if question.joint_forces and counted:
        lines.append(f"Counted of the model's joint forces: {' and '.join(counted)}.")
    return Function(f"{prefix}_{name}", program, [*lines, f"Program {program.digest}."])


def _seen_from(question: QuerySpec, frame: str, classical: bool, at_point: bool) -> Iterator[str]:
    """Comments that explain a link's motion: axes, reference point, order, and kind of acceleration."""
    if not question.in_frame:
        return
    origin = "the point" if at_point else "the link's origin"
    axes, about = {
        "world": ("world axes", "the world's origin"),
        "body": ("the link's axes", origin),
        "world_aligned": ("world axes", origin),
    }[frame]
    if classical and frame == "world":
        about = origin
    yield f"In {axes}, about {about}; rows are angular x y z, then linear x y z."
    if classical:
        yield f"Classical: the linear part is the acceleration of {origin}, which moves with the link."
    elif question.name == "jacobian_derivative":
        kind = "classical" if frame == "world_aligned" else "spatial"
        yield f"Jdot qd + J qdd, with the Jacobian in the same frame, is the link's {kind} acceleration."
    elif _can_be_classical(question):
        yield (
            f"Spatial: the linear part is not the acceleration of {origin}, from which it differs by angular velocity "
            "times linear velocity; --classical gives that one."
        )


def _require_moderate(model: Model, name: str, question: QuerySpec, algorithm: Task) -> None:
    """Raise if straight-line code would be too large to compile. Its size grows with the algorithm's visits to
    bodies."""
    lanes = any(isinstance(sweep, Outward | Inward) and sweep.lanes for sweep in algorithm.sweeps)
    pairs = any(isinstance(sweep, Ancestors) and not sweep.of_link for sweep in algorithm.sweeps)
    visits = model.n_bodies * (model.nv if lanes else 1)
    if pairs or question.of_constraints:
        visits = int((model.tree.depth + 1).sum())
    if question.of_constraints:  # a right-hand side for each row
        visits += model.n_rows * model.n_bodies
    visits *= 1 + sum(_columns(model, solve) for solve in algorithm.solves)  # solves visit all pairs for each column
    if visits > _MOST_VISITS:
        raise ArgumentError(
            f"--query: {name!r} of {quoted(model.name)} visits its {model.n_bodies} bodies {visits} times, too often "
            f"for code without loops; wanted at most {_MOST_VISITS}"
        )


def _columns(model: Model, solve: Solve) -> int:
    return sum(math.prod(output_shape(model, solution)) for solution in solve.outputs.values()) // max(1, model.nv)


def _sizes(model: Model) -> dict[str, int]:
    sizes = {"NQ": model.nq, "NV": model.nv, "N_BODIES": model.n_bodies, "N_LINKS": len(model.link_names)}
    return sizes | ({"N_CONSTRAINTS": model.n_constraints, "N_ROWS": model.n_rows} if model.constraints else {})


def _about(
    model: Model,
    dtype: str,
    asked: Mapping[str, QuerySpec],
    extras: Sequence[str],
    counted: Sequence[str],
    around: Around | None,
) -> list[str]:
    """The comment at the top of a file: the robot, its coordinates with units, and how to call the functions."""
    gravity = " ".join(f"{x:g}" for x in model.gravity)
    lines = [
        f"Rigid-body dynamics of {model.name!r}: {', '.join(asked)}.",
        f"Made by robodyn {__version__} from the model {model.digest}, in {dtype}.",
        "",
        "Each function computes one state. Arrays are contiguous, matrices stored row by row, and arrays must not "
        "overlap. Functions allocate nothing, keep nothing and check nothing; any thread may call them.",
        "",
        f"SI units and radians. Gravity is {gravity} m/s^2. 6-vectors hold their angular part first. "
        + _left_out(counted),
        *_explained(model, asked, extras),
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
    if any("n_bodies" in result.axes for question in asked.values() for result in question.results.values()):
        lines += ["", "bodies", *_numbered(model.body_names)]
    if "inertia" in extras:
        lines += ["", "inertia: bodies; for each m, h = m c, and I xx xy xz yy yz zz about its frame's origin"]
        lines += _numbered(model.body_names)
    if any("n_links" in result.axes for question in asked.values() for result in question.results.values()):
        lines += ["", "links", *_numbered(model.link_names)]
    if any("n_pairs" in result.axes for question in asked.values() for result in question.results.values()):
        counts, ignore = around or ((), ())
        near = Obstacles(ignore=ignore).near(model) if counts else ()
        lines += ["", "pairs", *_numbered(pair_names(model, counts, near))]
    if any("n_slots" in result.axes for question in asked.values() for result in question.results.values()):
        lines += ["", "points of contact", *_numbered(slot_names(model))]
    for kind, count in () if around is None else around[0]:
        lines += ["", f"{kind}: {count}, of each {_NUMBERS[kind]}"]
    if any(question.of_constraints for question in asked.values()):
        lines += ["", "rows of constraints", *_numbered(row_names(model))]
    if set(extras) & {"targets", "active"}:
        lines += ["", "targets, active: constraints", *_numbered([each.name for each in model.constraints])]
    return lines


def _left_out(counted: Sequence[str]) -> str:
    """A sentence about the joint forces that are included and those that are not."""
    *first, last = ("Joint limits", *(name for name in RESISTANCES if name not in counted))
    rest = f"{', '.join(first)} and {last} have no part." if first else f"{last} have no part."
    if not counted:
        return rest
    forces = {"damping": "damping qd", "friction": "friction sign(qd)"}
    return (
        f"Joint forces count: tau = ID + {' + '.join(forces[name] for name in RESISTANCES if name in counted)}. {rest}"
    )


def _explained(model: Model, asked: Mapping[str, QuerySpec], extras: Sequence[str]) -> Iterator[str]:
    """Sentences about conventions that are relevant to this robot and these queries."""
    if model.quaternion_starts.size:
        yield "Quaternions are x y z w, and scaled to unit length inside; one of zero length gives NaN."
        yield "Velocities of floating and spherical joints are in the moving body's axes, linear ones first."
    if any(question.in_frame for question in asked.values()):
        yield (
            "Frame 'world': world axes, about the world's origin; 'body': the link's own; 'world_aligned': world axes, "
            "about the link's origin."
        )
    if "point" in extras:
        yield "point: in the link's axes from its origin, m; 'body' and 'world_aligned' have their origins there."
    if "targets" in extras:
        yield (
            "targets: for each constraint to the world the transform from the world to the frame that it holds, E row "
            "by row, then r; others do not look at theirs."
        )
    if "active" in extras:
        yield "active: greater than 0 for constraints that hold, 0 for others."
    if "f_ext" in extras:
        yield "f_ext: for each body the moment about the world's origin, then the force, in world axes."
    if set(extras) & set(BASE):
        yield "V0, dV0: velocity and acceleration of the base in world coordinates, without gravity."


def _numbered(names: Sequence[str]) -> list[str]:
    return [f"  [{k}] {name}" for k, name in enumerate(names)]

"""The `robodyn` command: look at a robot file, check it, and compute with it.

The library is imported inside the commands, so that `--help` and `--version` answer at once. This file holds the
signatures of the commands, which are their help; other modules implement the commands.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from robodyn.internals.errors import ArgumentError, RobodynError
from robodyn.internals.messages import printable, quoted, shortened
from robodyn.internals.version import __version__

if TYPE_CHECKING:
    from robodyn.core.model import Model

USER_ERROR, BUG, INTERRUPTED = 2, 70, 130

_TREE_ROWS = 40
_LABEL_WIDTH = 50
_LEAST_COLUMNS = 40

# Typer may bundle its own copy of click, so the base class of usage errors is taken from a subclass.
_UsageError: Any = typer.BadParameter.__mro__[1]

File = Annotated[
    str, typer.Argument(metavar="FILE", help="URDF, MJCF or SDF file, or - for standard input.", show_default=False)
]
Base = Annotated[
    str | None,
    typer.Option(
        metavar="fixed|floating",
        help="How the root link is held; if not given, as MJCF and SDF say, and fixed of URDF.",
    ),
]
Mimic = Annotated[
    str | None, typer.Option(metavar="follow|ignore", help="What joints that mimic others do; follow if not given.")
]
Lenient = Annotated[bool, typer.Option("--lenient", help="Use negative masses, moments and damping, and report them.")]
Gravity = Annotated[
    str | None,
    typer.Option(metavar="X,Y,Z", help="Acceleration of free fall, m/s^2: 0,0,-9.81, or the file's, if not given."),
]
Xacro = Annotated[
    bool, typer.Option("--xacro", help="FILE is xacro, which is run: it can read this machine. For files you trust.")
]
ModelDir = Annotated[
    list[str] | None,
    typer.Option(metavar="FOLDER", help="Where models are that SDF includes. May be given many times."),
]
Equality = Annotated[
    str | None, typer.Option(metavar="report|mimic|constraints", help="What becomes of equalities of joints, in MJCF.")
]
OutFile = Annotated[
    str, typer.Argument(metavar="OUT", help=".urdf, .xml, .mjcf or .npz, or - for URDF.", show_default=False)
]
PackageDir = Annotated[
    list[str] | None,
    typer.Option(metavar="FOLDER", help="Where packages are, for meshes. May be given many times."),
]
Meshes = Annotated[
    str, typer.Option(metavar="auto|named|paths", help="In URDF, name meshes as FILE does, or by where they are found.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
CollisionMeshes = Annotated[
    str | None,
    typer.Option(metavar="ignore|box|spheres", help="What meshes for collisions of URDF are in distances."),
]
_TYPED = "States: one on the command line"
Q = Annotated[str | None, typer.Option(metavar="NUMBERS", help="Coordinates, comma separated.", rich_help_panel=_TYPED)]
Qd = Annotated[str | None, typer.Option(metavar="NUMBERS", help="Velocities.", rich_help_panel=_TYPED)]
Qdd = Annotated[str | None, typer.Option(metavar="NUMBERS", help="Accelerations.", rich_help_panel=_TYPED)]
Tau = Annotated[str | None, typer.Option(metavar="NUMBERS", help="Generalised forces.", rich_help_panel=_TYPED)]
_MANY = "States: many"
States = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Read .npz (keys q, qd, qdd, tau), .npy (q, qd and the third side by side) or .csv (columns q:NAME, "
        "qd:NAME, ...). What is missing is zero.",
        rich_help_panel=_MANY,
        show_default=False,
    ),
]
Random = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Draw N: q within limits, the rest in -1 .. 1.", rich_help_panel=_MANY),
]
Seed = Annotated[
    int | None, typer.Option(min=0, metavar="S", help="Of --random; 0 if not given.", rich_help_panel=_MANY)
]
Dtype = Annotated[str, typer.Option(metavar="float64|float32", help="Precision.")]
Engine = Annotated[str, typer.Option(metavar="NAME", help="auto, reference, cpu, gpu or scan.")]
JointForces = Annotated[str, typer.Option(metavar="damping,friction", help="Which of the file's to include.")]
Out = Annotated[
    str | None, typer.Option(metavar="FILE", help="Write states and results: .npz, .json, or .csv for vectors.")
]

Options: TypeAlias = Mapping[str, Any]
"""Values by name of a group of options that one parameter of a command stands for."""
NONE: Options = MappingProxyType({})


def _group(**options: Any) -> dict[str, Parameter]:
    """A group of options, from (annotation, default) by name."""
    how = Parameter.POSITIONAL_OR_KEYWORD
    return {name: Parameter(name, how, default=usual, annotation=kind) for name, (kind, usual) in options.items()}


_ROBOT: dict[str, Any] = {"base": (Base, None), "mimic": (Mimic, None)}
_READING = _ROBOT | {"lenient": (Lenient, False), "xacro": (Xacro, False), "model_dir": (ModelDir, None)}
_GROUPS = {
    "reading": _group(**_READING),
    "editing": _group(
        **_ROBOT,
        equality=(Equality, None),
        lenient=(Lenient, False),
        model_dir=(ModelDir, None),
        meshes=(Meshes, "auto"),
        package_dir=(PackageDir, None),
    ),
    "answering": _group(
        states=(States, None),
        random=(Random, None),
        seed=(Seed, None),
        **_READING,
        gravity=(Gravity, None),
        dtype=(Dtype, "float64"),
        engine=(Engine, "auto"),
        joint_forces=(JointForces, ""),
        out=(Out, None),
        json=(Json, False),
    ),
}
"""Groups of options that several commands share, in order."""

app = typer.Typer(
    add_completion=False, rich_markup_mode="rich", context_settings={"help_option_names": ["-h", "--help"]}
)


def _declare(name: str | None = None, *, help: str | None = None) -> Callable[[Callable[..., None]], Any]:
    """Decorator that declares a command. A parameter named like a group stands for the group's options."""

    def declared(function: Callable[..., None]) -> Any:
        parameters = signature(function, eval_str=True).parameters
        groups = {name: _GROUPS[name] for name in parameters if name in _GROUPS}

        @functools.wraps(function)
        def command(**given: Any) -> None:
            grouped = {name: {each: given.pop(each) for each in group} for name, group in groups.items()}
            function(**given, **grouped)

        shown = [each for name, one in parameters.items() for each in groups.get(name, {name: one}).values()]
        command.__signature__ = Signature(shown)  # type: ignore[attr-defined]
        return app.command(name, help=help)(command)

    return declared


def _version(wanted: bool) -> None:
    if wanted:
        print(f"robodyn {__version__}")
        raise typer.Exit


@app.callback(
    epilog="Examples:\n\n"
    "robodyn info arm.urdf\n\n"
    "robodyn check arm.urdf --json\n\n"
    'robodyn id arm.urdf --q "0,0.5,-1,0,0.3,0" --qdd "1,0,0,0,0,0"\n\n'
    "robodyn fd arm.urdf --random 1000 --seed 7 --out fd.npz\n\n"
    "robodyn id arm.urdf --states fd.npz --out id.csv\n\n"
    "robodyn gradient arm.urdf --of fd\n\n"
    "robodyn ask arm.urdf jacobian --link tool0\n\n"
    "robodyn ask arm.urdf min_distance --random 1000 --obstacles table.json\n\n"
    "robodyn view arm.urdf\n\n"
    "robodyn simulate walker.xml --seconds 2 --html walker.html\n\n"
    "robodyn ik arm.urdf --link tool0 --position 0.4,0,0.3\n\n"
    "robodyn bench arm.urdf --batch 1,4096\n\n"
    "robodyn export arm.urdf --query id,fd --out arm.c\n\n"
    "robodyn info arm.urdf.xacro --xacro\n\n"
    "robodyn convert arm.urdf arm.xml\n\n"
    "robodyn attach arm.urdf gripper.urdf both.urdf --link tool0 --prefix g_\n\n"
    "Exit status: 0 fine, 1 check has findings or ik does not get there, 2 the input is at fault (one line on standard "
    "error says how)."
)
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Rigid-body dynamics of robots: inspect robot files, and compute inverse and forward dynamics and gradients.

    SI units and radians throughout. Each command explains itself: robodyn COMMAND --help.
    """


@_declare()
def info(
    file: File,
    reading: Options = NONE,
    gravity: Gravity = None,
    everything: Annotated[bool, typer.Option("--all", help="Draw all of a large robot; --json has all.")] = False,
    json: Json = False,
) -> None:
    """Show a robot: its size, its tree, its joints and masses."""
    from robodyn.core import tables
    from robodyn.tools.cli import info as cli_info

    model = _load(file, **reading, gravity=gravity)
    if json:
        cli_info.print_json(file, model)
        return
    screen = tables.console()
    rows = model.n_bodies if everything else _TREE_ROWS
    deepest = max(1, (screen.width - _LABEL_WIDTH) // 4)
    if everything:
        screen.width = sys.maxsize  # Do not truncate lines at the width of the screen.
    screen.print(tables.model_summary(model))
    screen.print()
    screen.print(tables.model_tree(model, rows, deepest))
    screen.print()
    joints = tables.model_table(model, rows)
    joints.title = None  # The summary already names the robot.
    screen.print(joints)
    if model.n_bodies > rows:
        screen.print("--all shows everything")


@_declare(
    help="List what is doubtful about a robot file.\n\n"
    "Exit status: 0 clean, 1 findings, 2 not usable. Warnings and errors are findings; a file with lines of severity "
    "info alone is clean. Errors are what only --lenient accepts. A mass matrix that is singular whatever the state "
    "is a warning: forward dynamics will not work."
)
def check(
    file: File,
    reading: Options = NONE,
    json: Json = False,
) -> None:
    """List what is doubtful about a robot file."""
    from robodyn.api.dynamics import Dynamics
    from robodyn.core import tables
    from robodyn.core.findings import Notes

    model = _load(file, **reading)
    notes = Notes()
    singular = Dynamics(model, constraints=()).singularity()
    if singular is not None:
        notes.add("singular-mass-matrix", f"robot {quoted(model.name)}", singular)
    report = [*model.report, *notes.findings()]
    clean = all(finding.severity == "info" for finding in report)
    if json:
        _print_report_json(file, model, report, clean)
    else:
        screen = tables.console()
        if report:
            screen.print(tables.report_table(report))
        verdict = "is clean" if clean else "has findings"
        screen.print(f"{printable(model.name)} {verdict}: {tables.severity_counts(report)}")
    raise typer.Exit(0 if clean else 1)


def _print_report_json(file: str, model: Model, report: list[Any], clean: bool) -> None:
    import dataclasses
    import json

    findings = [dataclasses.asdict(finding) for finding in report]
    counts = {each: sum(finding.severity == each for finding in report) for each in ("error", "warning", "info")}
    document = {"file": file, "model": model.name, "clean": clean, "counts": counts, "findings": findings}
    print(json.dumps(document, indent=2))


@_declare("id")
def inverse_dynamics(
    context: typer.Context,
    file: File,
    q: Q = None,
    qd: Qd = None,
    qdd: Qdd = None,
    answering: Options = NONE,
) -> None:
    """Inverse dynamics: the generalised forces tau that give accelerations qdd."""
    _answer("id", context.params)


@_declare("fd")
def forward_dynamics(
    context: typer.Context,
    file: File,
    q: Q = None,
    qd: Qd = None,
    tau: Tau = None,
    answering: Options = NONE,
) -> None:
    """Forward dynamics: the accelerations qdd under generalised forces tau."""
    _answer("fd", context.params)


@_declare()
def gradient(
    context: typer.Context,
    file: File,
    of: Annotated[str, typer.Option(metavar="id|fd", help="Of inverse or of forward dynamics.")] = "id",
    q: Q = None,
    qd: Qd = None,
    qdd: Qdd = None,
    tau: Tau = None,
    answering: Options = NONE,
) -> None:
    """Gradients of inverse dynamics (with respect to q, qd) or of forward dynamics (q, qd, tau)."""
    if of not in ("id", "fd"):
        raise ArgumentError(f"--of: got {of!r}; allowed: 'id', 'fd'")
    _answer(f"{of}_gradient", context.params)


@_declare()
def ask(
    context: typer.Context,
    file: File,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="See robodyn queries.", show_default=False)],
    link: Annotated[str | None, typer.Option(metavar="NAME", help="The query's link, or its index.")] = None,
    frame: Annotated[
        str | None,
        typer.Option(metavar="world|body|world_aligned", help="Where it is seen from; the last by default."),
    ] = None,
    relative_to: Annotated[
        str | None, typer.Option(metavar="NAME", help="The link that the motion is relative to, or its index.")
    ] = None,
    point: Annotated[
        str | None, typer.Option(metavar="X,Y,Z", help="A point on the link, in its axes, m, instead of its origin.")
    ] = None,
    obstacles: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Of distances: .json or .npz with spheres (k, 4), capsules (k, 7), box_poses (k, 4, 4) and box_edges "
            "(k, 3), and names of links to ignore.",
        ),
    ] = None,
    collision_meshes: CollisionMeshes = None,
    q: Q = None,
    qd: Qd = None,
    qdd: Qdd = None,
    tau: Tau = None,
    vector: Annotated[
        str | None,
        typer.Option(metavar="NUMBERS", help="What results are contracted with.", rich_help_panel=_TYPED),
    ] = None,
    answering: Options = NONE,
) -> None:
    """Any query: mass matrices, Jacobians, energies, derivatives, ..."""
    _answer(query, context.params)


@_declare(
    help="Find a configuration that puts a link somewhere, within joint limits.\n\n"
    "Without --rpy any rotation will do, without --position any place. Exit status 1 if it cannot be reached: then the "
    "nearest that was found is printed."
)
def ik(
    context: typer.Context,
    file: File,
    link: Annotated[str, typer.Option(metavar="NAME", help="The link, or its index.", show_default=False)],
    position: Annotated[str | None, typer.Option(metavar="X,Y,Z", help="Where, m, in the world.")] = None,
    rpy: Annotated[str | None, typer.Option(metavar="R,P,Y", help="How turned, rad: about x, then y, then z.")] = None,
    point: Annotated[
        str | None, typer.Option(metavar="X,Y,Z", help="This point of the link, in its axes, and not its origin.")
    ] = None,
    q: Q = None,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="How many starts to try, --q the first.")] = 64,
    posture: Annotated[
        str | None,
        typer.Option(
            metavar="q0|middle", help="Stay near --q, or the middle of the limits, where the link lets joints."
        ),
    ] = None,
    manipulability: Annotated[
        bool,
        typer.Option("--manipulability", help="Stay away from singular configurations, where the link lets joints."),
    ] = False,
    clearance: Annotated[
        float | None, typer.Option(metavar="M", help="Shapes are farther apart than this, m; 0 with --obstacles.")
    ] = None,
    obstacles: Annotated[
        str | None, typer.Option(metavar="FILE", help="Things to keep away from: a file as for ask, .json or .npz.")
    ] = None,
    collision_meshes: CollisionMeshes = None,
    without_limits: Annotated[bool, typer.Option("--without-limits", help="Leave joint limits out.")] = False,
    reading: Options = NONE,
    json: Json = False,
) -> None:
    """Find a configuration that puts a link somewhere."""
    from robodyn.tools.cli import inverse_kinematics as cli_ik

    if not cli_ik.solve(_load(file, **reading, meshes=collision_meshes), context.params):
        raise typer.Exit(1)


@_declare(
    help="Identify a robot: masses, centres of mass, inertias, armature and friction from a log of motions and torques."
    "\n\nLOG is .npz (keys q, tau, and qd and qdd or --rate), .npy or .csv, as for states. OUT is as for convert."
)
def identify(
    context: typer.Context,
    file: File,
    log: Annotated[str, typer.Argument(metavar="LOG", help="Samples of q and tau.", show_default=False)],
    reading: Options = NONE,
    rate: Annotated[
        float | None, typer.Option(min=1e-9, metavar="HZ", help="Samples a second: q is differentiated.")
    ] = None,
    cutoff: Annotated[
        float | None, typer.Option(min=1e-9, metavar="HZ", help="With --rate: what is faster counts as noise.")
    ] = None,
    armature: Annotated[bool, typer.Option(help="Look for armature.")] = True,
    friction: Annotated[bool, typer.Option(help="Look for damping and dry friction.")] = True,
    stribeck: Annotated[bool, typer.Option("--stribeck", help="Dry friction may be larger at low speed.")] = False,
    consistent: Annotated[bool, typer.Option(help="Only parameters that bodies can have.")] = True,
    out: Annotated[str | None, typer.Option(metavar="OUT", help="Write the robot: .urdf, .xml, .mjcf or .npz.")] = None,
    json: Json = False,
) -> None:
    """Identify the parameters of a robot."""
    from robodyn.tools.cli import identify as cli_identify

    cli_identify.run(_load(file, **reading), context.params)


@_declare()
def queries(json: Json = False) -> None:
    """List all queries."""
    from robodyn.tools.cli import results as cli_results

    cli_results.list_queries(json)


@_declare(
    help="Write a robot in another format: URDF, MJCF, or a file that loads bit for bit.\n\n"
    "What the format has no words for is listed. OUT is .urdf, .xml or .mjcf (MJCF), .npz (robodyn), or - for URDF on "
    "standard output."
)
def convert(
    file: File,
    out: OutFile,
    editing: Options = NONE,
) -> None:
    """Write a robot in another format."""
    from robodyn.tools.cli import edits

    edits.write(edits.read(file, editing), out, editing)


@_declare(
    help="Write a robot whose joints are locked where you say: what they carry is merged into the body before them.\n\n"
    "OUT as for convert. Joints that follow a locked one are locked too."
)
def lock(
    file: File,
    out: OutFile,
    joint: Annotated[
        list[str],
        typer.Option(
            metavar="NAME[=NUMBERS]", help="A joint, and where; at zero if not said. May be given many times."
        ),
    ],
    editing: Options = NONE,
) -> None:
    """Write a robot whose joints are locked."""
    from robodyn.tools.cli import edits

    model = edits.read(file, editing)
    edits.write(model.lock(edits.locked(model, joint)), out, editing)


@_declare(
    help="Write a robot with another one fixed to one of its links, such as a gripper to an arm.\n\n"
    "OUT as for convert. The options for reading are those of FILE; OTHER is read with a fixed base."
)
def attach(
    file: File,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The robot to attach.", show_default=False)],
    out: OutFile,
    link: Annotated[str, typer.Option(metavar="NAME", help="The link of FILE that carries OTHER.")],
    xyz: Annotated[str, typer.Option(metavar="X,Y,Z", help="Where on that link, m.")] = "0,0,0",
    rpy: Annotated[str, typer.Option(metavar="R,P,Y", help="How it is turned there, as in URDF, rad.")] = "0,0,0",
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Put before all names of OTHER.")] = "",
    editing: Options = NONE,
) -> None:
    """Write a robot with another one fixed to one of its links."""
    from robodyn.tools.cli import edits

    pose = edits.pose(xyz, rpy)
    model = edits.read(file, {**editing, **edits.of_sdf(file, editing)})
    carried = edits.read(other, {"lenient": editing["lenient"], **edits.of_sdf(other, editing)})
    edits.write(model.attach(carried, link, pose, prefix), out, editing)


@_declare(
    help="Show a robot in a browser: sliders for its joints, frames, ellipsoids of inertia, meshes that are found.\n\n"
    "It is served on 127.0.0.1 until it is interrupted; --out writes a page instead. It needs viser: the extra viewer."
)
def view(
    file: File,
    q: Annotated[str | None, typer.Option(metavar="NUMBERS", help="Coordinates, comma separated.")] = None,
    reading: Options = NONE,
    package_dir: PackageDir = None,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Where to listen; 0 is any port.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
    out: Annotated[str | None, typer.Option(metavar="FILE.html", help="Write a page that shows it.")] = None,
) -> None:
    """Show a robot in a browser."""
    from robodyn.tools.cli import view as cli_view

    cli_view.view(_load(file, **reading), q, package_dir or [], port, browser, out)


@_declare(
    help="Simulate a robot without forces of motors, and print where it goes.\n\n"
    "MJCF is read with its contacts, limits and dry friction. Exit status: 0 fine, 1 the state diverged."
)
def simulate(
    context: typer.Context,
    file: File,
    q: Q = None,
    qd: Qd = None,
    keyframe: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of MJCF, to begin with; else where MuJoCo begins.")
    ] = None,
    reading: Options = NONE,
    seconds: Annotated[float, typer.Option(min=0.0, metavar="S", help="Simulated time.")] = 1.0,
    dt: Annotated[float, typer.Option(min=1e-9, metavar="S", help="Time step.")] = 0.002,
    integrator: Annotated[str, typer.Option(metavar="NAME", help="mujoco, semi_implicit_euler, rk4 and others.")] = (
        "mujoco"
    ),
    contacts: Annotated[
        bool | None, typer.Option("--contacts/--no-contacts", help="Read contacts; of MJCF alone, if not given.")
    ] = None,
    max_contacts: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Contact points that can act at once.")
    ] = None,
    ignore_unsupported: Annotated[
        bool, typer.Option("--ignore-unsupported", help="Leave out what contacts cannot do yet.")
    ] = False,
    joint_forces: JointForces = "damping",
    out: Annotated[str | None, typer.Option(metavar="FILE.npz", help="Write times and states.")] = None,
    html: Annotated[str | None, typer.Option(metavar="FILE.html", help="Write a page that plays it.")] = None,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE.svg", help="Draw it over time; .png and .pdf, too. Needs Matplotlib.")
    ] = None,
) -> None:
    """Simulate a robot."""
    from robodyn.tools.cli import simulate as cli_simulate

    options = cli_simulate.contacts_of(file, context.params)
    raise typer.Exit(0 if cli_simulate.simulate(lambda: _load(file, **reading, **options), context.params) else 1)


@_declare()
def bench(
    context: typer.Context,
    file: File,
    reading: Options = NONE,
    engine: Engine = "auto",
    query: Annotated[str, typer.Option(metavar="NAMES", help="See robodyn queries; the usual ones if not given.")] = "",
    batch: Annotated[str, typer.Option(metavar="NUMBERS", help="States in a call.")] = "1,128,4096",
    dtype: Annotated[str, typer.Option(metavar="float64,float32", help="Precisions.")] = "float64",
    threads: Annotated[
        str, typer.Option(metavar="NUMBERS", help="Numbers of threads; all for every processor.")
    ] = "1,all",
    seconds: Annotated[float, typer.Option(metavar="S", help="Time for each case.")] = 0.2,
    peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Measure Pinocchio and MuJoCo too, if installed.")
    ] = True,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say instead which engines and methods answer, and what scans cost here.")
    ] = False,
    fit: Annotated[bool, typer.Option("--fit", help="With --explain: measure what scans cost, and keep it.")] = False,
    json: Json = False,
) -> None:
    """Measure how fast queries are on a robot, beside Pinocchio and MuJoCo where they are installed."""
    from robodyn.tools.cli import bench as cli_bench

    if explain or fit:
        cli_bench.explain(_load(file, **reading), context.params)
        return
    chosen = cli_bench.settings(context.params)
    cli_bench.bench(_load(file, **reading), chosen, peers, json)


@_declare()
def tune(
    seconds: Annotated[float, typer.Option(metavar="S", help="Time for each case.")] = 0.01,
    quick: Annotated[bool, typer.Option("--quick", help="A few cases alone.")] = False,
    json: Json = False,
) -> None:
    """Measure this machine for some minutes. engine="auto", scans and the GPU engine then choose by the results."""
    from robodyn.tools.cli import tune as cli_tune

    cli_tune.tune(seconds, quick, json)


@_declare(
    help="Show the compiled code that is kept on disk, or remove it.\n\n"
    "The environment variable ROBODYN_CACHE_DIR names another folder, or is off for no cache; ROBODYN_CACHE_MAX_MB "
    "limits the size (512 if not given): what was not used for longest is removed."
)
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all of it.")] = False,
) -> None:
    """Show the compiled code that is kept on disk, or remove it."""
    from robodyn.tools.cli import cache as cli_cache

    if clear:
        cli_cache.clear()
    else:
        cli_cache.show()


@_declare(
    help="Write queries as a C99 file that needs nothing but <math.h>, one function for each.\n\n"
    "robodyn queries lists them. A function computes one state: void ROBOT_QUERY(q, ..., result). "
    "--language verilog writes a gradient as a fixed-point circuit; --out is a folder then."
)
def export(
    context: typer.Context,
    file: File,
    query: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="What to compute, comma separated; id if not given, as Verilog fd_gradient."
        ),
    ] = None,
    lang: Annotated[str, typer.Option("--lang", "--language", metavar="c|verilog", help="Language.")] = "c",
    link: Annotated[str | None, typer.Option(metavar="NAME", help="The queries' link, or its index.")] = None,
    relative_to: Annotated[
        str | None, typer.Option(metavar="NAME", help="The link that motions are relative to, or its index.")
    ] = None,
    frame: Annotated[
        str, typer.Option(metavar="world|body|world_aligned", help="Where a link's motion is seen from.")
    ] = "world_aligned",
    classical: Annotated[
        bool, typer.Option("--classical", help="Accelerations of the link's origin, instead of spatial ones.")
    ] = False,
    joint_forces: JointForces = "",
    inputs: Annotated[
        str,
        typer.Option(
            metavar="f_ext,inertia,point,V0,dV0",
            help="Also take external forces, inertias, a point on the link, or the base's motion.",
        ),
    ] = "",
    obstacles: Annotated[
        str | None,
        typer.Option(metavar="spheres=N,capsules=N,boxes=N", help="Distances also take obstacles: how many."),
    ] = None,
    ignore: Annotated[
        str | None, typer.Option(metavar="LINKS", help="Links that are not measured to obstacles, comma separated.")
    ] = None,
    reading: Options = NONE,
    gravity: Gravity = None,
    dtype: Dtype = "float64",
    name: Annotated[
        str | None, typer.Option(metavar="ROBOT", help="What names in the file begin with; the robot's if not given.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "--output", metavar="FILE", help="Write this file, or as Verilog this folder, instead of printing."
        ),
    ] = None,
    header: Annotated[str | None, typer.Option(metavar="FILE", help="Write a header too.")] = None,
    width: Annotated[int, typer.Option(metavar="BITS", help="Verilog: of a word.")] = 18,
    multipliers: Annotated[
        int | None, typer.Option(metavar="N", help="Verilog: how many; as many as the interval needs if not given.")
    ] = None,
    interval: Annotated[int | None, typer.Option(metavar="CYCLES", help="Verilog: from one state to the next.")] = None,
    box: Annotated[
        str | None, typer.Option(metavar="FILE", help="Verilog: JSON with the largest qd, qdd and Minv.")
    ] = None,
    formulation: Annotated[str, typer.Option(metavar="NAME", help='Verilog: "idsva" or "algorithm 2".')] = "idsva",
    fraction: Annotated[
        int | None, typer.Option(metavar="BITS", help="Verilog: behind the binary point, of all words.")
    ] = None,
    ranges: Annotated[
        str, typer.Option(metavar="sampled|intervals", help="Verilog: how large values are taken to be.")
    ] = "sampled",
) -> None:
    """Write queries as a C99 file that needs nothing but <math.h>, or a gradient as Verilog."""
    from robodyn.tools.cli import export as cli_export

    cli_export.export(lambda: _load(file, **reading, gravity=gravity), context.params)


def _load(
    file: str,
    base: str | None,
    mimic: str | None,
    lenient: bool,
    xacro: bool,
    model_dir: list[str] | None,
    gravity: str | None = None,
    meshes: str | None = None,
    **contacts: Any,
) -> Model:
    """Load the robot of a file. Options that are not given have the format's defaults."""
    from robodyn.io.builders.load_any import load
    from robodyn.io.builders.xacro import load_xacro
    from robodyn.tools.cli.states import numbers

    options: dict[str, Any] = {"base": base, "mimic": mimic, "strict": False if lenient else None, **contacts}
    options["gravity"] = None if gravity is None else numbers("--gravity", gravity, ("x", "y", "z"))
    options["model_dirs"] = model_dir or None
    options["meshes"] = meshes
    options = {name: value for name, value in options.items() if value is not None}
    if file == "-" and sys.stdin is None:
        raise ArgumentError("FILE is - but there is no standard input")
    if not file.strip():
        raise ArgumentError(f"FILE is {quoted(file)}; wanted the path of a robot file, or - for standard input")
    if xacro:
        if file == "-":
            raise ArgumentError("--xacro wants a file, beside which others may be, and not standard input")
        return load_xacro(Path(file), **options)
    # A Path, because a str may also be the text of a robot.
    return load(sys.stdin.buffer if file == "-" else Path(file), **options)


def _answer(name: str, options: dict[str, Any]) -> None:
    """Answer the query of a command. `options`: the command's parameters by name."""
    from robodyn.api.dynamics import Dynamics
    from robodyn.tools.cli import results as cli_results
    from robodyn.tools.cli.states import read_states

    asked = cli_results.asking(name, options)
    if options["json"] and options["out"] is not None:
        raise ArgumentError("--json prints results and --out writes them; give one")
    path = None if options["out"] is None else cli_results.output_path(options["out"], asked)
    reading = {key: options[key] for key in ("file", "base", "mimic", "lenient", "xacro", "model_dir", "gravity")}
    model = _load(**reading, meshes=options.get("collision_meshes"))
    # check=False: states and results are checked as a whole instead, so that messages number rows over all chunks.
    forces = [word.strip() for word in options["joint_forces"].split(",") if word.strip()]
    dyn = Dynamics(model, engine=options["engine"], dtype=options["dtype"], check=False, joint_forces=forces)
    states = read_states(model, asked.inputs, options)
    cli_results.say_of_constraints(model, (asked.question,))
    results = cli_results.compute(dyn, asked, states)
    if path is not None:
        cli_results.write(path, dyn, asked, states, results)
        print(f"wrote {', '.join(results)} of {len(states['q'])} states to {printable(str(path))}")
    elif options["json"]:
        print(cli_results.as_json(dyn, asked, states, results))
    else:
        cli_results.show(dyn, asked, results)


# Entry points.


def main() -> None:
    """Run the `robodyn` command with the arguments of the process, and end the process."""
    if hasattr(signal, "SIGPIPE"):
        # A closed pipe, as in `robodyn info x | head`, ends this process quietly.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    with contextlib.suppress(ValueError):
        # Some parent processes set COLUMNS to 0, which would hide all output.
        os.environ["COLUMNS"] = str(max(_LEAST_COLUMNS, int(os.environ.get("COLUMNS", ""))))
    for stream in (sys.stdout, sys.stderr):
        # Names of robots may contain characters that the terminal's encoding lacks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command and return its exit status. Errors do not propagate; each is printed as one line on stderr."""
    try:
        return _invoke(arguments or ["--help"])
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except _UsageError as error:
        where = f" (see {error.ctx.command_path} --help)" if error.ctx is not None else ""
        return _fail(f"{shortened(error.format_message(), 1000)}{where}")
    except RobodynError as error:
        return _fail(str(error))
    except MemoryError as error:
        return _fail(f"not enough memory. {error}")
    except OSError as error:
        if error.filename is None:
            _abandon_stdout()
        where = "cannot write the output" if error.filename is None else f"cannot open or write {error.filename!r}"
        return _fail(f"{where}: {error.strerror or error}")
    except Exception as error:
        if os.environ.get("ROBODYN_DEBUG"):
            traceback.print_exc()
        what = f"{type(error).__name__}: {error}"
        return _fail(f"{what}. This is a bug in robodyn; set ROBODYN_DEBUG=1 to see where it happened", BUG)


@functools.cache
def _command() -> Any:
    """The command, cached: Typer takes about 50 ms to make it from the functions above."""
    return typer.main.get_command(app)


def _invoke(arguments: list[str]) -> int:
    try:
        with _command().make_context("robodyn", arguments) as context:
            context.command.invoke(context)
        status = 0
    except typer.Exit as finished:
        status = finished.exit_code
    if sys.stdout is not None:
        sys.stdout.flush()
    return status


def _fail(message: str, status: int = USER_ERROR) -> int:
    print("robodyn: error:", printable(" ".join(message.split())), file=sys.stderr)
    return status


def _abandon_stdout() -> None:
    """Redirect stdout to the null device, so that Python does not fail again when it flushes stdout at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

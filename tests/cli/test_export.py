"""Robots as C: files compile without a warning as C99 and as C++, and compute what the reference engine computes."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from cli_runner import chain, refused, run
from conftest import random_states, relative
from hypothesis import given, settings
from hypothesis import strategies as st
from robots import own

import robodyn as rd
from robodyn.algorithms.rnea import rnea
from robodyn.compile.c.code import Function, c_source, comment, identifier
from robodyn.compile.tracing.unrolled import trace
from robodyn.engines.query_table import CONSTRAINED, QueryVariant, asked_of, short_names
from robodyn.tools.cli import export as cli_export

# float32: some hundred roundings of 6e-8, and what quotients by small pivots make of them. Accelerations and inverses
# are judged by the forces that they need.
TOLERANCE = {"float64": 1e-11, "float32": 5e-4}

WARNINGS = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-Wmissing-declarations", "-Wconversion", "-Wshadow"]
LANGUAGES = {"c99": ("cc", ["-std=c99"]), "c++": ("c++", ["-x", "c++", "-std=c++11"])}
GUARD = 8


def compiler(language="c99"):
    """The host's compiler with its language's flags, or a skip."""
    name, flags = LANGUAGES[language]
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name}: there is no compiler of that name on this machine")
    return [found, *flags, *WARNINGS]


def compile_library(source, folder, *flags, language="c99"):
    """Compile a file as a library and load it."""
    library = folder / f"{source.stem}.so"
    command = [*compiler(language), *(flags or ("-O1",)), "-shared", "-fPIC", "-o", library, source, "-lm"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return ctypes.CDLL(str(library))


def check_syntax(source, language, *flags):
    """The file has no error and no warning in that language."""
    command = [*compiler(language), *flags, "-fsyntax-only", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def call(function, inputs, shapes, dtype):
    """Call a function on copies of arrays; outputs start as NaN, and what lies behind any array stays as it was."""

    def guarded(values):
        return np.concatenate([np.ravel(values).astype(dtype), np.full(GUARD, np.nan, dtype)])

    arrays = [guarded(value) for value in inputs] + [guarded(np.full(shape, np.nan)) for shape in shapes]
    before = [array.copy() for array in arrays]
    pointer = ctypes.POINTER(ctypes.c_double if dtype == "float64" else ctypes.c_float)
    function.restype = None
    function(*(array.ctypes.data_as(pointer) for array in arrays))
    for k, (array, first) in enumerate(zip(arrays, before, strict=True)):
        kept = len(array) if k < len(inputs) else len(array) - GUARD
        kept = slice(None) if k < len(inputs) else slice(kept, None)
        np.testing.assert_array_equal(array[kept], first[kept])
    return [array[:-GUARD].reshape(shape) for array, shape in zip(arrays[len(inputs) :], shapes, strict=True)]


def expected(name, dyn, s, link, frame, extras):
    """What the library says of a query, as a tuple of its results."""
    question, chosen = short_names()[name]
    names = [each for each in question.arrays if each in question.plain or each in extras]
    by_place, by_name = question.arguments({each: getattr(s, each) for each in names}, link)
    seen = {"frame": frame} if question.in_frame else {}
    results = getattr(dyn, question.name)(*by_place, **by_name, **chosen, **seen)
    return names, results if isinstance(results, tuple) else (results,)


def state(model, dtype, seed=3):
    """A state and its surroundings in a precision; quaternions are not of unit length."""
    q, qd, qdd = random_states(model, seed=seed)
    for start in model.quaternion_starts:
        q[start : start + 4] *= 1.7
    rng = np.random.default_rng(seed)
    values = {
        "q": q,
        "qd": qd,
        "qdd": qdd,
        "tau": 5.0 * qdd,
        "vector": qd - qdd,
        "f_ext": rng.standard_normal((model.n_bodies, 6)),
    }
    values |= {"V0": rng.standard_normal(6), "dV0": rng.standard_normal(6)}
    return SimpleNamespace(**{name: value.astype(dtype).astype(float) for name, value in values.items()})


def check_functions(library, prefix, model, names, dtype, link=None, frame="world_aligned", extras=()):
    """Functions of a library against the reference engine."""
    dyn, s = rd.Dynamics(model, engine="reference"), state(model, dtype)
    H = dyn.mass_matrix(s.q)
    for name in names:
        given, wanted = expected(name, dyn, s, link, frame, extras)
        inputs = [getattr(s, each) for each in given]
        got = call(getattr(library, f"{prefix}_{name}"), inputs, [np.shape(w) for w in wanted], dtype)
        for value, result in zip(got, wanted, strict=True):
            if name in ("fd", "mass_matrix_inverse", "fd_gradient"):
                value, result = H @ value, H @ result
            assert relative(value, result) < TOLERANCE[dtype], name


# name of the robot, base, a link that moves, a frame, inputs beside the usual
ROBOTS = [
    ("arm6", "fixed", "tool0", "world", ()),
    ("arm6", "floating", "tool0", "body", ("f_ext", "V0", "dV0")),
    ("quadruped", "floating", None, "world_aligned", ("f_ext",)),
    ("hand", "floating", None, "world_aligned", ("V0",)),
    ("hand", "fixed", None, "world", ("f_ext", "dV0")),
    ("gripper", "fixed", None, "body", ()),
    ("satellite", "fixed", None, "world", ("V0", "dV0")),
    ("ball_joint_arm", "fixed", None, "body", ("f_ext",)),
    ("screw_press", "fixed", None, "world", ()),
    ("planar_rover", "fixed", None, "world_aligned", ()),
    ("cartpole", "fixed", None, "world", ()),
    ("massless_tip", "fixed", None, "world", ()),
    ("oblique", "fixed", None, "world", ()),
]
LARGE = ("quadruped", "hand")
NIGHTLY = ("hand", "floating")


def possible(model, name):
    """Whether a query of a robot is one program."""
    if short_names()[name][0].name not in asked_of(model):
        return False
    return "inverse" not in short_names()[name][0].needs or rd.Dynamics(model).singularity() is None


SMALL = ("gripper", "screw_press", "cartpole", "massless_tip")
"""C compilers take long for the others, which they do not optimise here."""


def cases():
    """Small robots in double precision in every run, and one in single, which differs in names and numbers alone: of
    the others that is asked at night."""
    for robot, base, *others in ROBOTS:
        for dtype in ("float64", "float32"):
            often = robot in SMALL if dtype == "float64" else robot == "gripper"
            rare = pytest.mark.matrix if dtype == "float64" and (robot, base) != NIGHTLY else pytest.mark.nightly
            yield pytest.param(robot, base, *others, dtype, marks=[] if often else [rare])


@pytest.mark.parametrize(("robot", "base", "link", "frame", "extras", "dtype"), tuple(cases()), ids=str)
def test_every_query_computes_what_the_library_computes(robot, base, link, frame, extras, dtype, tmp_path):
    model = rd.load_urdf(own(robot), base=base)
    link = link or model.link_names[-1]
    names = [name for name in short_names() if possible(model, name)]
    if robot in LARGE:
        names = [name for name in names if name not in ("id_gradient", "fd_gradient")]
    source = tmp_path / f"{robot}.c"
    options = ["--base", base, "--query", ",".join(names), "--link", link, "--frame", frame, "--dtype", dtype]
    status, out, err = run("export", own(robot), *options, "--inputs", ",".join(extras), "--out", source)
    assert (status, err) == (0, "")
    assert out == f"wrote {', '.join(f'{robot}_{name}' for name in names)} to {source}\n"
    library = compile_library(source, tmp_path, "-O1" if robot in SMALL else "-O0")
    check_functions(library, robot, model, names, dtype, link, frame, extras)
    check_syntax(source, "c++")


@pytest.mark.matrix
def test_a_long_program_becomes_several_functions(tmp_path):
    model = rd.load_urdf(own("humanoid"), base="floating")
    source = tmp_path / "humanoid.c"
    assert run("export", own("humanoid"), "--base", "floating", "--query", "id,fd", "--out", source)[0] == 0
    text = source.read_text()
    assert text.count("APART void humanoid_fd_part") > 2
    library = compile_library(source, tmp_path)
    check_functions(library, "humanoid", model, ["id", "fd"], "float64")
    check_syntax(source, "c++")


@pytest.mark.parametrize("part_operations", [1, 7, 100])
def test_the_length_of_parts_changes_nothing(part_operations, tmp_path):
    model = rd.load_urdf(own("ball_joint_arm"))
    program = trace(model, rnea())
    texts = {
        size: c_source([Function("arm_id", program)], prefix="arm", sizes={}, part_operations=size)
        for size in (part_operations, 10**9)
    }
    assert "frame" not in texts[10**9]
    s, results = state(model, "float64"), []
    for size, text in texts.items():
        source = tmp_path / f"of_{size}.c"
        source.write_text(text)
        function = compile_library(source, tmp_path, "-O0").arm_id
        results.append(call(function, [s.q, s.qd, s.qdd], [(model.nv,)], "float64")[0])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.some(of=2, rest="matrix")
def test_with_fused_multiply_add(dtype, tmp_path):
    """The branch for processors that have it; others call the library's function."""
    model = rd.load_urdf(own("arm6"))
    source = tmp_path / "arm6.c"
    assert run("export", own("arm6"), "--query", "id,fd", "--dtype", dtype, "--out", source)[0] == 0
    check_functions(compile_library(source, tmp_path, "-O1"), "arm6", model, ["id", "fd"], dtype)
    # After <math.h>, which may define it too.
    name = "FP_FAST_FMA" if dtype == "float64" else "FP_FAST_FMAF"
    text = source.read_text().replace("#include <math.h>\n", f"#include <math.h>\n#undef {name}\n#define {name} 1\n")
    fused = tmp_path / "fused.c"
    fused.write_text(text)
    check_functions(compile_library(fused, tmp_path, "-O1"), "arm6", model, ["id", "fd"], dtype)


def test_functions_keep_nothing(tmp_path):
    if shutil.which("nm") is None:
        pytest.skip("nm, which lists what an object file holds, is not on this machine")
    source, compiled = tmp_path / "humanoid.c", tmp_path / "humanoid.o"
    assert run("export", own("humanoid"), "--query", "fd", "--out", source)[0] == 0
    subprocess.run([*compiler(), "-c", "-o", str(compiled), str(source)], check=True)
    listed = subprocess.run(["nm", str(compiled)], capture_output=True, text=True, check=True).stdout
    symbols = [line.split()[-2:] for line in listed.splitlines()]
    assert {kind for kind, _ in symbols} <= {"T", "t", "U", "r", "N"}
    assert [name for kind, name in symbols if kind == "T"] == ["humanoid_fd"]
    assert {name for kind, name in symbols if kind == "U"} <= {"sin", "cos", "sqrt", "sincos", "_GLOBAL_OFFSET_TABLE_"}


MAIN = """
#include <stdio.h>
#include "arm6.h"
int main(void)
{
    double q[ARM6_NQ] = {0}, qd[ARM6_NV] = {0}, qdd[ARM6_NV] = {0}, tau[ARM6_NV], again[ARM6_NV];
    int i;
    arm6_id(q, qd, qdd, tau);
    arm6_gravity(q, again);
    for (i = 0; i < ARM6_NV; i++)
        printf("%.17g %.17g\\n", tau[i], again[i]);
    return 0;
}
"""


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_header_serves_c_and_cpp(language, tmp_path):
    source, header, program = tmp_path / "arm6.c", tmp_path / "arm6.h", tmp_path / "main.c"
    assert run("export", own("arm6"), "--query", "id,gravity", "--out", source, "--header", header)[0] == 0
    program.write_text(MAIN.replace('#include "arm6.h"', '#include "arm6.h"\n#include "arm6.h"'))
    compiled = tmp_path / "arm6.o"
    # The file itself is C in both cases: C++ links to it.
    subprocess.run([*compiler(), "-c", "-o", str(compiled), str(source)], check=True)
    main = tmp_path / "main.o"
    subprocess.run([*compiler(language), "-c", "-o", str(main), str(program)], check=True)
    linker = [compiler(language)[0], "-o", str(tmp_path / "main"), str(main), str(compiled), "-lm"]
    subprocess.run(linker, check=True)
    printed = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True).stdout
    wanted = rd.Dynamics(rd.load_urdf(own("arm6"))).gravity_force(np.zeros(6))
    got = np.array([line.split() for line in printed.splitlines()], dtype=float).T
    assert relative(got, np.array([wanted, wanted])) < TOLERANCE["float64"]


def test_the_file_as_cpp_and_the_file_as_c_link_alike(tmp_path):
    source = tmp_path / "arm6.c"
    assert run("export", own("arm6"), "--out", source)[0] == 0
    library = compile_library(source, tmp_path, "-O1", language="c++")
    check_functions(library, "arm6", rd.load_urdf(own("arm6")), ["id"], "float64")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.some(of=2, rest="matrix")
def test_constraints_of_a_loop(dtype, tmp_path):
    """With places, what holds and bounces; of constraints that are off, too."""
    model, source = rd.load_urdf(own("loops/four_bar")), tmp_path / "four_bar.c"
    extras = ("targets", "active", "row_restitution", "row_velocity", "row_acceleration", "f_ext", "V0", "dV0")
    options = ["--query", ",".join(CONSTRAINED), "--inputs", ",".join(extras), "--dtype", dtype, "--out", source]
    assert run("export", own("loops/four_bar"), *options)[::2] == (0, "")
    library, s = compile_library(source, tmp_path), state(model, dtype)
    s.targets, s.row_restitution = np.zeros((1, 12)), np.full(3, 0.5)
    s.row_velocity, s.row_acceleration = np.arange(3.0), np.arange(3.0, 6.0)
    dyn = rd.Dynamics(rd.Dynamics(model, dtype=dtype).model, engine="reference")
    for s.active in (np.ones(1), np.zeros(1)):
        for name in CONSTRAINED:
            given, wanted = expected(name, dyn, s, None, None, extras)
            inputs = [getattr(s, each) for each in given]
            got = call(getattr(library, f"four_bar_{name}"), inputs, [np.shape(w) for w in wanted], dtype)
            for value, result in zip(got, wanted, strict=True):
                assert relative(value, result) < 100 * TOLERANCE[dtype], name
    words = '--query: delassus is about constraints, and "arm6" has none'
    refused(["export", own("arm6"), "--query", "delassus"], words)


def test_a_robot_that_cannot_move(tmp_path):
    rock = tmp_path / "rock.urdf"
    rock.write_text('<robot name="rock"><link name="rock"/></robot>')
    model = rd.load_urdf(rock)
    names = [name for name in short_names() if possible(model, name) and "mass" not in short_names()[name][0].needs]
    source = tmp_path / "rock.c"
    assert run("export", rock, "--query", ",".join(names), "--link", "rock", "--out", source)[0] == 0
    check_functions(compile_library(source, tmp_path), "rock", model, names, "float64", "rock")


# Text.


@pytest.mark.parametrize("robot", ["gripper", "cartpole"])
@pytest.mark.parametrize("counted", ["damping", "friction", "damping,friction"])
@pytest.mark.some(of=3, rest="matrix")
def test_joint_forces_that_count(robot, counted, tmp_path):
    """In every query that they have a part in, of joints that mimic others, too."""
    names = [name for name, (question, _) in short_names().items() if question.joint_forces]
    model, source = rd.load_urdf(own(robot)), tmp_path / "robot.c"
    names = [name for name in names if possible(model, name)]
    assert len(names) > 7 and (model.friction > 0.0).any() and (model.damping > 0.0).any()
    run("export", own(robot), "--query", ",".join(names), "--joint-forces", counted, "--out", source)
    library, s = compile_library(source, tmp_path, "-O0"), state(model, "float64")
    s.qd[-1] = 0.0  # friction is none at rest
    dyn = rd.Dynamics(model, engine="reference", joint_forces=counted.split(","))
    plain = rd.Dynamics(model, engine="reference")
    differ = 0
    for name in names:
        given, wanted = expected(name, dyn, s, None, "world", ())
        shapes = [np.shape(each) for each in wanted]
        found = call(getattr(library, f"{robot}_{name}"), [getattr(s, each) for each in given], shapes, "float64")
        assert all(relative(a, b) < 1e-9 for a, b in zip(found, wanted, strict=True)), name
        others = expected(name, plain, s, None, "world", ())[1]
        differ += any(relative(a, b) > 1e-9 for a, b in zip(others, wanted, strict=True))
    assert differ > 3


@pytest.mark.parametrize("frame", ["world", "body", "world_aligned"])
def test_classical_accelerations_and_what_comments_say(frame, tmp_path):
    asked = ["export", own("cartpole"), "--link", "pole", "--frame", frame, "--query"]
    source, header = tmp_path / "robot.c", tmp_path / "robot.h"
    names = "link_acceleration,link_acceleration_gradient,jacobian"
    run(*asked, names, "--classical", "--out", source, "--header", header)
    model = rd.load_urdf(own("cartpole"))
    s, dyn = state(model, "float64"), rd.Dynamics(model, engine="reference")
    found = call(
        compile_library(source, tmp_path, "-O0").cartpole_link_acceleration, [s.q, s.qd, s.qdd], [(6,)], "float64"
    )
    classical, spatial = (
        dyn.link_acceleration(s.q, s.qd, s.qdd, "pole", frame=frame, classical=each) for each in (True, False)
    )
    assert relative(found[0], classical) < 1e-11 and relative(classical, spatial) > 1e-3
    text = header.read_text()
    axes = {"body": "In the link's axes", "world": "In world axes", "world_aligned": "In world axes"}[frame]
    assert text.count(axes) == 3 and text.count("Classical: ") == 2 and "rows are angular x y z, then linear" in text
    run(*asked, names, "--out", source, "--header", header)
    assert header.read_text().count("Spatial: ") == 2 and "--classical gives that one" in header.read_text()
    assert ("about the world's origin; rows" in header.read_text()) == (frame == "world")


def test_the_same_options_give_the_same_file():
    first, second = (run("export", own("arm7"), "--query", "id,fd")[1] for _ in range(2))
    assert first == second
    assert trace(rd.load_urdf(own("arm7")), rnea()).operations == int(re.search(r"(\d+) operations", first)[1])


def test_the_comment_names_everything():
    model = rd.load_urdf(own("satellite"))
    out = run("export", own("satellite"), "--query", "id,fk,jacobian", "--link", "panel", "--inputs", "f_ext")[1]
    top = out[: out.index("*/")]
    for k, name in enumerate(model.coordinate_names):
        assert f"[{k}] {name}, " in top
    for name in (*model.velocity_names, *model.body_names, *model.link_names, model.digest, rd.__version__):
        assert name in top
    for words in ("x y z w", "scaled to unit length", "0 0 -9.81 m/s^2", "rad/s^2", "float64", "angular part first"):
        assert words in top
    assert "T[6][4][4]" in out
    assert "f_ext[5][6]" in out
    assert "Link 'panel', frame 'world_aligned'." in out
    assert "#define SATELLITE_NQ 11\n#define SATELLITE_NV 10\n" in out


NASTY = [
    "int",
    "3 lives",
    "*/ int x; /*",
    "??/",
    "日本",
    "a\\",
    "FP_FAST",
    "__x__",
    "tab\there",
    "‮right",
    "r" * 300,
    "-",
]


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.some(of=3, rest="matrix")
def test_any_name_is_a_name_in_c(name, tmp_path):
    path, source = tmp_path / "robot.urdf", tmp_path / "robot.c"
    escaped = name.replace("&", "&amp;").replace("<", "&lt;")
    text = chain(2).replace('name="chain"', f'name="{escaped}"').replace("joint0", f"{escaped}0")
    path.write_text(text, encoding="utf-8")
    status, _, err = run("export", path, "--query", "id,fk", "--out", source, "--header", tmp_path / "robot.h")
    assert (status, err) == (0, "")
    library = compile_library(source, tmp_path)
    check_functions(library, identifier(name), rd.load_urdf(path), ["id", "fk"], "float64")
    check_syntax(source, "c++")


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text() | st.text("0aA_ -", min_size=30))
@pytest.mark.matrix
def test_identifiers(text):
    assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9]|_(?!_))*", identifier(text))
    assert len(identifier(text)) <= 40
    assert identifier(identifier(text)) == identifier(text)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.text() | st.text("*/?\\ \n", max_size=300)))
def test_comments_hold_anything(lines):
    text = comment(lines)
    if not lines:
        assert text == ""
        return
    assert text.isascii()
    assert text.startswith("/*\n *")
    assert text.endswith("\n */\n")
    inside = text[3:-4]
    assert "*/" not in inside
    assert "/*" not in inside
    assert "??" not in inside
    assert all(part.startswith(" *") for part in inside.splitlines())


def test_numbers_come_back_exactly(tmp_path):
    """Constants are printed so that the compiler reads the same bits."""
    path = tmp_path / "robot.urdf"
    path.write_text(chain(1).replace('ixx="0.1"', 'ixx="0.12345678901234567"').replace('"1"', '"0.3333333333333333"'))
    model = rd.load_urdf(path)
    for dtype in ("float64", "float32"):
        source = tmp_path / f"{dtype}.c"
        assert run("export", path, "--query", "mass_matrix", "--dtype", dtype, "--out", source)[0] == 0
        function = compile_library(source, tmp_path, "-O0").chain_mass_matrix
        program = trace(model, short_names()["mass_matrix"][0].task(QueryVariant(model, ("q",))))
        wanted = program.evaluate({"q": np.zeros((1,), dtype)})["H"]
        np.testing.assert_array_equal(call(function, [np.zeros(1)], [(1, 1)], dtype)[0], wanted)


# Errors: one line each.


REFUSED = [
    (["--query", "ID"], "--query", "'ID'", "'id'"),
    (["--query", ""], "--query", "nothing given"),
    (["--query", "id,fd_hessian"], "--query", "'fd_hessian'", "allowed"),
    (["--lang", "cuda"], "--lang", "'cuda'", "'c'"),
    (["--dtype", "float16"], "--dtype", "'float16'", "'float32'"),
    (["--frame", "tool"], "--frame", "'tool'", "'world_aligned'"),
    (["--query", "jacobian"], "--link", "not given"),
    (["--link", "tool0"], "--link", "id is about no link"),
    (["--query", "jacobian", "--link", "tol0"], "'tol0'", "tool0"),
    (["--inputs", "wind"], "--inputs", "'wind'", "'f_ext'"),
    (["--query", "gravity", "--inputs", "f_ext"], "--inputs", "'f_ext'", "no part in gravity"),
    (["--name", "6arm"], "--name", '"6arm"', "robot_6arm"),
    (["--name", "a b"], "--name", "a_b"),
    (["--name", ""], "--name", "identifier"),
    (["--out", "nowhere/arm.c"], "--out", '"nowhere"', "not a folder"),
    (["--header", "nowhere/arm.h"], "--header", "not a folder"),
    (["--out", "arm.c", "--header", "arm.c"], "same file"),
    (["--base", "flying"], "base", "'flying'"),
    (["--gravity", "1,2"], "--gravity"),
    (["--classical"], "--classical", "id is about no acceleration of a link"),
    (["--joint-forces", "springs"], "--joint-forces", "'springs'", "'damping'"),
    (["--query", "mass_matrix", "--joint-forces", "damping"], "--joint-forces", "no part in mass_matrix"),
    (["--lang", "verilog", "--joint-forces", "damping"], "--joint-forces", "only --language c has it"),
    (["--lang", "verilog", "--classical"], "--classical", "only --language c has it"),
    (["--nonsense"], "--nonsense"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: " ".join(case[0]))
def test_wrong_options(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options, *parts = case
    refused(["export", own("arm6"), *options], *parts)
    assert list(tmp_path.iterdir()) == []


def test_what_no_program_can_say():
    assert run("export", own("hand"), "--query", "fd", "--mimic", "ignore")[0] == 0
    refused(["export", own("massless_tip"), "--query", "fd"], "singular", "'pointer'")
    assert run("export", own("massless_tip"), "--query", "id")[0] == 0


def test_nothing_with_mass(tmp_path):
    path = tmp_path / "empty.urdf"
    path.write_text(re.sub(r"<inertial>.*?</inertial>", "", chain(1)))
    refused(["export", path, "--query", "center_of_mass"], "has no centre of mass")


def test_a_robot_too_large_for_code_without_loops(tmp_path, monkeypatch):
    monkeypatch.setattr(cli_export, "_MOST_VISITS", 20)
    path = tmp_path / "chain.urdf"
    path.write_text(chain(6))
    for query, visits in (("mass_matrix", 21), ("mass_matrix_inverse", 36), ("id_gradient", 21), ("fd_gradient", 420)):
        refused(["export", path, "--query", query], f"'{query}'", "6 bodies", f"{visits} times", "at most 20")
    assert run("export", path, "--query", "id,fk")[0] == 0


def test_a_number_beyond_single_precision(tmp_path):
    path = tmp_path / "heavy.urdf"
    path.write_text(chain(1).replace('mass value="1"', 'mass value="1e39"'))
    assert run("export", path, "--query", "mass_matrix,gravity")[0] == 0
    options = ["--query", "potential_energy", "--dtype", "float32"]
    path.write_text(path.read_text().replace("<mass", '<origin xyz="1 0 0"/><mass'))
    refused(["export", path, *options, "--gravity", "1,0,-9.81"], "dtype", "does not fit float")


def test_files_that_cannot_be_written_or_read(tmp_path):
    refused(["export", own("arm6"), "--out", tmp_path], tmp_path.name, "it is a directory", "regular file")
    refused(["export", own("arm6"), "--header", tmp_path], tmp_path.name, "it is a directory", "regular file")
    refused(["export", tmp_path / "none.urdf"], "none.urdf")
    (tmp_path / "a").mkdir()
    same = ["--out", tmp_path / "x.c", "--header", tmp_path / "a" / ".." / "x.c"]
    refused(["export", own("arm6"), *same], "--out and --header name the same file")
    assert not (tmp_path / "x.c").exists()

"""Exported C under sanitizers, as a program on buffers of exactly the documented sizes, and hostile names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import chain, refused, run
from conftest import relative
from robots import own
from test_export import TOLERANCE, check_functions, compile_library, compiler, expected, possible, state

import robodyn as rd
from robodyn.compile.c.code import identifier
from robodyn.engines.query_table import short_names

WATCH = ["-fsanitize=address,undefined,float-cast-overflow,bounds-strict", "-fno-sanitize-recover=all", "-ftrapv"]
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O0"]

# Reads the arrays of a call from standard input, each into memory of exactly its own size; prints the results' bytes.
MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "robot.h"
static {scalar} *taken(size_t n, int filled)
{{
    {scalar} *p = ({scalar} *)malloc(n * sizeof({scalar}));
    size_t k;
    if (!p && n)
        exit(3);
    for (k = 0; k < n; k++)
        if (filled && fread(p + k, sizeof({scalar}), 1, stdin) != 1)
            exit(4);
    return p;
}}
int main(void)
{{
{calls}
    return 0;
}}
"""


@cache
def unable(*flags: str) -> str:
    """Why nothing can be watched here; empty if a planted mistake is found."""
    if shutil.which("gcc") is None:
        return "gcc is not on this machine"
    program = "#include <stdlib.h>\nint main(int n, char **v){double *p=malloc(8);p[n]=1;free(p);return v==0;}\n"
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"robodyn-planted-{os.getpid()}"
    command = ["gcc", *flags, "-x", "c", "-", "-o", str(folder)]
    done = subprocess.run(command, input=program, text=True, capture_output=True, check=False)
    if done.returncode:
        return f"gcc has no sanitizers here: {done.stderr[:200]}"
    found = subprocess.run([str(folder)], capture_output=True, text=True, check=False)
    folder.unlink()
    return "" if "heap-buffer-overflow" in found.stderr else "the sanitizer does not find a planted mistake here"


def program_of(calls: list[tuple[str, list[int], list[int]]], dtype: str) -> str:
    """A main that makes calls: names of functions, with the sizes of their inputs and outputs."""
    lines = []
    for name, inputs, outputs in calls:
        arrays = [f"a{k}" for k in range(len(inputs) + len(outputs))]
        lines.append("    {")
        for k, size in enumerate((*inputs, *outputs)):
            lines.append(f"        {_SCALARS[dtype]} *{arrays[k]} = taken({size}, {int(k < len(inputs))});")
        lines.append(f"        {name}({', '.join(arrays)});")
        for k, size in enumerate(outputs, start=len(inputs)):
            lines.append(f"        fwrite({arrays[k]}, sizeof({_SCALARS[dtype]}), {size}, stdout);")
        lines += [f"        free({array});" for array in arrays] + ["    }"]
    return MAIN.format(scalar=_SCALARS[dtype], calls="\n".join(lines))


_SCALARS = {"float64": "double", "float32": "float"}


def run_watched(
    folder: Path, model: rd.Model, options: list[str], names: list[str], dtype: str, link: Any, extras: tuple[str, ...]
) -> None:
    """Export, compile with sanitizers, run on a state, and compare with the library."""
    source, header = folder / "robot.c", folder / "robot.h"
    words = ["--query", ",".join(names), "--dtype", dtype, "--inputs", ",".join(extras), "--name", "robot", *options]
    if link is not None:
        words += ["--link", link]
    status, _, err = run("export", *words, "--out", source, "--header", header)
    assert (status, err) == (0, "")
    dyn, s = rd.Dynamics(model, engine="reference"), state(model, dtype)
    s.inertia = model.inertia.astype(dtype).astype(float)
    calls, given, wanted = [], [], []
    for name in names:
        inputs, results = expected(name, dyn, s, link, "world_aligned", extras)
        arrays = [getattr(s, each) for each in inputs]
        calls.append((f"robot_{name}", [np.size(a) for a in arrays], [np.size(r) for r in results]))
        given += arrays
        wanted += [(name, r) for r in results]
    (folder / "main.c").write_text(program_of(calls, dtype))
    command = ["gcc", "-std=c99", *STRICT, *WATCH, "-o", folder / "robot", folder / "main.c", source, "-lm"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]
    data = b"".join(np.ravel(each).astype(dtype).tobytes() for each in given)
    done = subprocess.run([str(folder / "robot")], input=data, capture_output=True, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr.decode()[:3000]
    values, H = np.frombuffer(done.stdout, dtype), dyn.mass_matrix(s.q)
    for name, result in wanted:
        got, values = values[: np.size(result)].reshape(np.shape(result)), values[np.size(result) :]
        if "fd" in name or "forward_dynamics" in name or name == "mass_matrix_inverse":
            got, result = np.tensordot(H, got, 1), np.tensordot(H, result, 1)
        assert relative(got, result) < 20 * TOLERANCE[dtype], name
    assert values.size == 0


def watched_names(model: rd.Model, *, moderate: bool) -> list[str]:
    """Queries that a robot can be asked; without long programs where it is not small."""
    names = [name for name in short_names() if possible(model, name)]
    long = ("hessian", "parameter", "fd_gradient", "id_gradient", "vjp")
    return [name for name in names if not (moderate and any(part in name for part in long))]


@pytest.mark.parametrize("dtype", _SCALARS)
@pytest.mark.matrix
def test_exported_code_is_clean_under_sanitizers(dtype: str, tmp_path: Path) -> None:
    if reason := unable(*WATCH):
        pytest.skip(reason)
    model = rd.load_urdf(own("cartpole"))
    names = watched_names(model, moderate=False)
    run_watched(tmp_path, model, [str(own("cartpole"))], names, dtype, model.link_names[-1], ("f_ext", "V0"))


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", _SCALARS)
@pytest.mark.parametrize(
    ("robot", "base"),
    [
        ("satellite", "fixed"),
        ("ball_joint_arm", "floating"),
        ("screw_press", "fixed"),
        ("planar_rover", "fixed"),
        ("gripper", "floating"),
        ("oblique", "fixed"),
    ],
)
def test_every_query_is_clean_under_sanitizers(robot: str, base: str, dtype: str, tmp_path: Path) -> None:
    if reason := unable(*WATCH):
        pytest.skip(reason)
    model = rd.load_urdf(own(robot), base=base)
    names, link = watched_names(model, moderate=model.nv > 3), model.link_names[-1]
    extras = ("f_ext", "inertia", "V0", "dV0")
    run_watched(tmp_path, model, [str(own(robot)), "--base", base], names, dtype, link, extras)


# Names.


NAMES = [
    *("main", "sin", "I", "NULL", "_X", "errno", "restrict", "class", "fma", "M_PI", "FP_NAN", "HUGE_VAL", "complex"),
    *(
        "__FILE__",
        "*/ evil(); /*",
        "*/\n#error x\n/*",
        "\\",
        "a\\\n*/",
        "??/\n*/",
        "%:define x",
        '"',
        "'",
        "\u2028",
        "é",
    ),
    *("a" * 10_000, "*" * 500 + "/", "/" * 300, "?" * 300, "-" * 90 + "*/", "\x7f", " lead", "tail ", "<::>", "//"),
    *("0" * 60, "x" * 39 + "_y", "q", "tau", "frame", "t1", "id", "RESTRICT", "H", "\U0001f916"),
]


def text_with(name: str) -> str:
    """A robot that is called so, and its links and joints too."""
    escaped = name.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    for c in ("\n", "\t", "\r"):
        escaped = escaped.replace(c, f"&#{ord(c)};")
    text = chain(2).replace('name="chain"', f'name="{escaped}"')
    return text.replace("joint0", f"{escaped}j").replace("link1", f"{escaped}l")


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:12]))
@pytest.mark.some(of=4, rest="matrix")
def test_hostile_names_stay_in_their_comments(name: str, tmp_path: Path) -> None:
    path, source, header = tmp_path / "robot.urdf", tmp_path / "robot.c", tmp_path / "robot.h"
    path.write_text(text_with(name), encoding="utf-8")
    options = ["--query", "id,link_pose", "--link", "1", "--out", source, "--header", header]
    assert run("export", path, *options)[::2] == (0, "")
    text = source.read_text(encoding="ascii")
    assert all(line.isprintable() for line in text.splitlines())
    prefix = identifier(name)
    both = tmp_path / "both.c"
    both.write_text(f'#include "robot.h"\n#include "robot.c"\nint main(void) {{ return {prefix.upper()}_NV != 2; }}\n')
    for language in ("c99", "c++"):
        program = tmp_path / f"main_{language}"
        command = [*compiler(language), "-Wcomment", "-Wtrigraphs", "-o", program, both, "-lm"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr[:2000]
        assert subprocess.run([str(program)], check=False).returncode == 0


@pytest.mark.parametrize(
    "given", ["int ", "a-b", "_X", "x_", "a__b", "1", "*/", "é", "a\nb", "", " ", "a" * 41, "a" * 10_000]
)
def test_names_that_are_none_are_refused(given: str) -> None:
    refused(["export", own("cartpole"), "--name", given], "--name: got", "wanted a C identifier, such as")


@pytest.mark.parametrize("given", ["int", "main", "sin", "NULL", "a" * 40, "FP"])
def test_any_identifier_is_a_name(given: str, tmp_path: Path) -> None:
    source = tmp_path / "robot.c"
    assert run("export", own("cartpole"), "--name", given, "--out", source)[::2] == (0, "")
    check_functions(compile_library(source, tmp_path), given, rd.load_urdf(own("cartpole")), ["id"], "float64")


def test_names_of_arguments_are_no_macros_of_the_standard_library(tmp_path: Path) -> None:
    """A header may stand behind any other."""
    model = rd.load_urdf(own("cartpole"))
    names = ",".join(name for name in short_names() if possible(model, name))
    source, header = tmp_path / "cartpole.c", tmp_path / "cartpole.h"
    options = ["--query", names, "--link", model.link_names[-1], "--inputs", "f_ext,inertia,V0,dV0"]
    assert run("export", own("cartpole"), *options, "--out", source, "--header", header)[0] == 0
    heads = (
        "assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdarg stdbool stddef"
    )
    first = "".join(f"#include <{name}.h>\n" for name in f"{heads} stdint stdio stdlib string tgmath time".split())
    for standard in ("-std=c99", "-std=gnu17"):
        both = tmp_path / "both.c"
        both.write_text(f'{first}#include "cartpole.h"\n#include "cartpole.c"\n')
        command = [compiler()[0], standard, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", str(both)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:2000]


# Numbers.


@pytest.mark.parametrize("dtype", _SCALARS)
@pytest.mark.parametrize("mass", ["1e-300", "1e-45", "1e-39", "3e38", "4.9e-324", "0.1", "16777217"])
def test_extreme_numbers_compile_and_compute(mass: str, dtype: str, tmp_path: Path) -> None:
    """Numbers at the ends of the precision: without a warning, or refused."""
    path, source = tmp_path / "robot.urdf", tmp_path / "robot.c"
    path.write_text(
        chain(1).replace('mass value="1"', f'mass value="{mass}"').replace("<mass", '<origin xyz="1 0 0"/><mass')
    )
    status, _, err = run("export", path, "--query", "id,potential_energy", "--dtype", dtype, "--out", source)
    if status:
        assert dtype == "float32" and "does not fit float" in err
        return
    library = compile_library(source, tmp_path)
    if dtype == "float64":
        check_functions(library, "chain", rd.load_urdf(path), ["id", "potential_energy"], dtype)


# Paths, locales, sizes.


@pytest.mark.parametrize(
    "name", ["a b.c", "日本.c", "-x.c", "--out", "a'b\".c", "$(x).c", "no ending", "." + "x" * 200]
)
def test_files_of_any_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run("export", own("cartpole"), f"--out={name}", f"--header={name}.h")
    assert (status, err) == (0, "") and out.startswith("wrote cartpole_id to ")
    printed = run("export", own("cartpole"))[1]
    assert (tmp_path / name).read_text() == printed
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([name, f"{name}.h"])


@pytest.mark.matrix
def test_any_locale_gives_the_same_bytes() -> None:
    command = [sys.executable, "-m", "robodyn", "export", str(own("cartpole"))]
    texts = set()
    for more in ({"LC_ALL": "C"}, {"LC_ALL": "C.utf8"}, {"LC_ALL": "de_DE.UTF-8"}, {"PYTHONIOENCODING": "utf-16"}):
        done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, **more})
        assert not done.stderr
        texts.add(done.stdout.decode(more.get("PYTHONIOENCODING", "ascii")))
    assert len(texts) == 1


@pytest.mark.matrix
def test_a_robot_too_large_is_refused_with_its_sizes(tmp_path: Path) -> None:
    path = tmp_path / "chain.urdf"
    path.write_text(chain(10_001))
    refused(["export", path], "'id'", "10001 bodies 10001 times", "at most 10000")
    path.write_text(chain(142))
    refused(["export", path, "--query", "mass_matrix"], "142 bodies 10153 times")


@pytest.mark.nightly
def test_a_robot_nearly_too_large_compiles_and_computes(tmp_path: Path) -> None:
    path, source = tmp_path / "chain.urdf", tmp_path / "chain.c"
    path.write_text(chain(2000))
    assert run("export", path, "--query", "id", "--out", source)[0] == 0
    check_functions(compile_library(source, tmp_path, "-O0"), "chain", rd.load_urdf(path), ["id"], "float64")

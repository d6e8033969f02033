"""The command under generated arguments: documented statuses, one line for an error, JSON that parses, no traceback."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cli_runner import refused, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from robots import own

from robodyn.engines.query_table import named

HUGE = "9" * 5000
FILES = {
    "robot.urdf": own("cartpole").read_bytes(),
    "empty.urdf": b"",
    "text.urdf": b"not a robot",
    "cut.urdf": own("cartpole").read_bytes()[:700],
    "zeros.npy": b"\0" * 100,
    "states.csv": b"q:slide,q:swing\n0,1\n2,3\n",
    "wrong.csv": b"q:nothing\n0\n",
    "nan.csv": b"q:slide\nnan\n",
    "states.npz": b"PK\x03\x04 and no more",
    "robot.png": b"\x89PNG\r\n\x1a\n",
}
FOLDER = Path(tempfile.mkdtemp(prefix="robodyn-fuzz-"))


@pytest.fixture(scope="module", autouse=True)
def files() -> Iterator[None]:
    """A folder of files good and bad, which is where the command runs."""
    for name, data in FILES.items():
        (FOLDER / name).write_bytes(data)
    np.save(FOLDER / "good.npy", np.zeros((3, 6)))
    np.savez(FOLDER / "good.npz", q=np.zeros((3, 2)))
    before = Path.cwd()
    os.chdir(FOLDER)
    yield
    os.chdir(before)
    shutil.rmtree(FOLDER)


ODD = (
    *("", " ", ",", ",,", "nan", "inf", "-inf", "1e400", "-1", "0", "1", "2", "1.5", "1,2", "0,0,-9.81", "1 2", "0x10"),
    *("1_0", "٣", "é", "\u202e", "\ud800", "\0", "\n", "a" * 3000, "[red]x[/red]", "[/]", "%s%n", "{0}", "$(x)", "--"),
    *("-", "--q", "-h=1", "null", "true", HUGE, f"-{HUGE}", "1" * 400, "9" * 19, ".", "..", "/", "//", "/dev/null"),
    *("/dev/full", "/proc/self/mem", "nowhere/x", "link.of.none", "cart", "base", "\\", "'", '"', "*", "?", "~", "#"),
)
# Numbers of states that nobody has memory for are refused; those between would be computed.
COUNTS = ("0", "1", "3", "-1", "1e3", "", "nan", "9" * 18, "9" * 30, HUGE, "0x2", "+2", " 2", "٢")
VALUES: dict[str, tuple[str, ...]] = {
    "--q": ("0,1", "0 1", "1e308,1e308", "0,1,2"),
    "--qd": ("0,1", "1e300,1e300"),
    "--qdd": ("0,1",),
    "--tau": ("0,1",),
    "--vector": ("0,1",),
    "--states": (*FILES, "good.npy", "good.npz", "none.npz"),
    "--base": ("fixed", "floating"),
    "--mimic": ("follow", "ignore"),
    "--gravity": ("0,0,-9.81", "0,0", "nan,0,0"),
    "--dtype": ("float64", "float32"),
    "--engine": ("auto", "reference", "cpu", "scan", "gpu"),
    "--joint-forces": ("damping", "friction", "damping,friction", "drag"),
    "--out": ("out.npz", "out.json", "out.csv", "out.txt", "out", "robot.urdf/x.json"),
    "--of": ("id", "fd"),
    "--link": ("cart", "0", "99", "pole", HUGE),
    "--frame": ("world", "body", "world_aligned"),
    "--query": ("id", "id,fd", "fk,jacobian", "id,id"),
    "--lang": ("c", "C"),
    "--inputs": ("f_ext", "f_ext,V0", "wind"),
    "--name": ("robot", "int", "1x"),
    "--header": ("out.h", "out.c"),
    "--batch": ("1", "0", "1,2", "9" * 30, HUGE),
    "--threads": ("1", "all", "0", HUGE),
    "--seconds": ("nan", "-1", "inf", "1e9"),
    "--position": ("0,0,1", "0,0", "1e308,0,0", "nan,0,0"),
    "--rpy": ("0,0,1", "0", "1e308,0,0"),
    "--point": ("0,0,1", "0,0"),
    "--seeds": ("1", "0", "3", HUGE),
    "--random": (),
    "--seed": (),
}
FLAGS = ("--json", "--lenient", "--all", "--help", "-h", "--version", "--nonsense", "--explain", "--no-peers", "-x")
_STATES = ("--q", "--qd", "--states", "--random", "--seed", "--base", "--mimic", "--gravity", "--dtype", "--engine")
COMMANDS: dict[str, tuple[str, ...]] = {
    "info": ("--base", "--mimic", "--gravity"),
    "check": ("--base", "--mimic"),
    "id": (*_STATES, "--qdd", "--joint-forces", "--out"),
    "fd": (*_STATES, "--tau", "--joint-forces", "--out"),
    "gradient": (*_STATES, "--tau", "--qdd", "--of", "--out"),
    "ask": (*_STATES, "--tau", "--qdd", "--vector", "--link", "--frame", "--out"),
    "ik": ("--link", "--position", "--rpy", "--point", "--q", "--seeds", "--base", "--mimic"),
    "export": (
        "--query",
        "--lang",
        "--link",
        "--frame",
        "--inputs",
        "--base",
        "--dtype",
        "--name",
        "--out",
        "--header",
    ),
    "queries": (),
    "bench": ("--query", "--engine", "--batch", "--dtype", "--threads"),
    "nothing": (),
    "": (),
}


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command with options: mostly those it has, in any order, some repeated, some with values that fit."""
    name = draw(st.sampled_from(list(COMMANDS)))
    words: list[str] = []
    known = COMMANDS[name] or tuple(VALUES)
    for option in draw(st.lists(st.sampled_from(known) | st.sampled_from(list(VALUES)), max_size=4)):
        right = COUNTS if option in ("--random", "--seed") else VALUES[option]
        anything = st.sampled_from(right)
        if option not in ("--random", "--seed"):
            anything = anything | st.sampled_from(right) | st.sampled_from(ODD) | st.text(max_size=8)
        value = draw(anything)
        words += [f"{option}={value}"] if draw(st.booleans()) else [option, value]
    words += draw(st.lists(st.sampled_from(FLAGS), max_size=2))
    file = draw(st.sampled_from(("robot.urdf",) * 6 + (*FILES, "none.urdf", ".", *ODD)))
    places = [] if name == "queries" else [file if file != "-" else "robot.urdf"]
    if name == "ask":
        places.append(draw(st.sampled_from([*named(), *named(), *ODD])))
    if name == "bench":  # nothing is measured here: that takes time
        words.append("--seconds=nan")
    cut = draw(st.integers(0, len(words)))
    return [name, *words[:cut], *places, *words[cut:]] if name else [*words[:cut], *places]


STATUSES: Counter[int] = Counter()


def check(arguments: list[str]) -> None:
    """Run it, and look at what came out."""
    status, out, err = run(*arguments)
    STATUSES[status] += 1
    assert status in (0, 1, 2), err
    assert status != 1 or arguments[0] == "check"
    if status == 2:
        assert re.fullmatch(r"robodyn: error: [^\n]+\n", err), err
        assert out == ""
        assert len(err) < 4000
        return
    asked_help = {"--help", "-h", "--version"} & set(arguments) or not arguments
    if "--json" in arguments and not asked_help and arguments[0] != "bench":
        json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(command_lines())
def _any_arguments(arguments: list[str]) -> None:
    check(arguments)


@pytest.mark.matrix
def test_any_arguments() -> None:
    """They reach what the commands do, and are not only refused."""
    STATUSES.clear()
    _any_arguments()
    print(dict(STATUSES))
    assert STATUSES[0] > 10 and STATUSES[2] > 50


@pytest.mark.nightly
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(command_lines())
def test_very_many_arguments(arguments: list[str]) -> None:
    check(arguments)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["ask", "robot.urdf", "jacobian", "--link", HUGE], ["link"]),
        (["export", "robot.urdf", "--query", "jacobian", "--link", HUGE], ["link"]),
        (["bench", "robot.urdf", "--batch", HUGE], ["--batch"]),
        (["bench", "robot.urdf", "--threads", HUGE], ["threads"]),
        (["bench", "robot.urdf", "--batch", "9" * 30], ["batch"]),
    ],
    ids=lambda value: value[0][:8] if isinstance(value, list) else "",
)
def test_numbers_of_thousands_of_digits(arguments: list[str], parts: list[str]) -> None:
    """Python reads no integer of more than 4,300 digits."""
    refused(arguments, *parts)


@pytest.mark.parametrize("option", sorted(set(VALUES) - {"--header", "--name"}))
def test_errors_name_the_option(option: str) -> None:
    """A value that no option takes."""
    name = next(name for name, options in COMMANDS.items() if option in options or name == "queries")
    if name == "queries":
        name = "bench"
    query = ["mass_matrix_product_gradient" if option == "--vector" else "jacobian"] if name == "ask" else []
    value = "nowhere/none.json" if option == "--out" else "\u202enonsense"
    status, out, err = run(
        name, "robot.urdf", *query, *(["--link", "cart"] if "jacobian" in query or name == "ik" else []), option, value
    )
    assert (status, out) == (2, "")
    assert option.lstrip("-").replace("-", "_") in err.replace("-", "_"), err


def raw(*arguments: bytes, **options: str) -> subprocess.CompletedProcess[bytes]:
    command = [os.fsencode(sys.executable), b"-m", b"robodyn", *arguments]
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": root, **options}
    return subprocess.run(command, capture_output=True, env=environment, timeout=120, check=False)


@pytest.mark.skipif(os.name != "posix", reason="arguments are bytes on POSIX alone")
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "utf-16"])
@pytest.mark.matrix
def test_arguments_that_are_no_text(encoding: str) -> None:
    """Bytes that are not UTF-8 reach Python as surrogates, which no encoding prints."""
    (FOLDER / "h\udcff.urdf").write_bytes(FILES["robot.urdf"])
    for words, status in (
        ([b"check", b"\xff\xfe.urdf"], 2),
        ([b"check", b"h\xff.urdf", b"--json"], 0),
        ([b"export", b"h\xff.urdf", b"--out", b"h\xff.c"], 0),
        ([b"id", b"h\xff.urdf", b"--q", b"\xff,1"], 2),
        ([b"ask", b"h\xff.urdf", b"\xff"], 2),
        ([b"\xff"], 2),
    ):
        done = raw(*words, PYTHONIOENCODING=encoding)
        assert done.returncode == status, done.stderr
        assert b"Traceback" not in done.stderr.replace(b"\0", b"")
        done.stdout.decode(encoding)
    assert (FOLDER / "h\udcff.c").read_text().startswith("/*")

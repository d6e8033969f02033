"""Files that we write for users: whole or not at all, at regular files alone, whatever else is there or happens."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import run
from robots import ROOT, own

import robodyn as rd

ARM = own("arm6")
PATIENCE_S = 120.0
"""Far more than a process takes that waits for nothing."""


def names(folder: str | Path = ".") -> list[str]:
    """What lies in a folder."""
    return sorted(each.name for each in Path(folder).iterdir())


def rollout(value: float = 0.0, leading: tuple[int, ...] = (2,), dtype: Any = np.float64, sizes: Any = (7, 6)) -> Any:
    """Three states of a rollout whose numbers are all `value`."""
    q, qd = (np.full((3, *leading, size), value, dtype) for size in sizes)
    return rd.Rollout(np.array([0.0, 0.1, 0.2]), q, qd, np.full(leading, -1)[()], 2)


def checkpoint(path: Path) -> None:
    model = rd.load_urdf(ARM)
    rd.Dynamics(model, engine="reference").rollout(np.zeros(6), np.zeros(6), steps=1, checkpoint=path)


def command(*arguments: Any) -> None:
    """The command, whose errors are raised."""
    status, _, err = run(*arguments)
    if status:
        raise rd.ArgumentError(err)


WAYS = {
    "save": (".npz", lambda path: rollout().save(path)),
    "checkpoint": (".npz", checkpoint),
    "out npz": (".npz", lambda path: command("id", ARM, "--engine", "reference", "--out", path)),
    "out json": (".json", lambda path: command("id", ARM, "--engine", "reference", "--out", path)),
    "out csv": (".csv", lambda path: command("id", ARM, "--engine", "reference", "--out", path)),
    "export": (".c", lambda path: command("export", ARM, "--query", "gravity", "--out", path)),
    "header": (".h", lambda path: command("export", ARM, "--query", "gravity", "--header", path)),
}
"""Everything that writes a file that users name: its ending, and what writes it."""


@pytest.fixture(params=WAYS)
def way(request, tmp_path, monkeypatch) -> tuple[Path, Any]:
    """A path and what writes there; no temporary file is ever left beside it."""
    monkeypatch.chdir(tmp_path)
    ending, write = WAYS[request.param]
    return Path(f"x{ending}"), write


def made(kind: str, path: Path) -> None:
    """What is there, and no regular file."""
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    elif kind == "link to nothing":
        path.symlink_to("nothing")
    else:
        Path("victim").write_text("mine")
        path.symlink_to("victim")


needs_posix = pytest.mark.skipif(os.name != "posix", reason="pipes, sockets and links as POSIX has them")


@needs_posix
@pytest.mark.parametrize("kind", ["directory", "socket", "link to nothing", "link to a file", "pipe"])
def test_what_is_no_regular_file_is_refused_and_stays(way, kind):
    path, write = way
    made(kind, path)
    before, listing = os.lstat(path), names()
    what = "symbolic link" if "link" in kind else kind
    with pytest.raises(rd.ArgumentError, match=f"{path}.*: it is a {what}; give the name of a regular file"):
        write(path)
    assert os.lstat(path)[:8] == before[:8] and names() == listing
    if kind == "link to a file":
        assert Path("victim").read_text() == "mine"


@needs_posix
@pytest.mark.parametrize("name", ["full", "null"])
def test_devices_are_refused(way, name):
    """Devices of our own: whoever may make one could replace the machine's, should this ever fail."""
    path, write = way
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, {"full": 7, "null": 3}[name]))
    except PermissionError:
        pytest.skip("only root may make a device")
    before = os.lstat(path)
    with pytest.raises(rd.ArgumentError, match=f"{path}.*: it is a device; give the name of a regular file"):
        write(path)
    assert os.lstat(path)[:8] == before[:8] and names() == [path.name]


def python(text: str, *arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """A process that runs this, and must end by itself."""
    told = [sys.executable, "-c", text, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        told, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **options
    )
    assert done.returncode == 0, done.stderr
    return done


PIPES = """
import numpy as np, sys, robodyn as rd
q = np.zeros((1, 6))
run = rd.Rollout(np.zeros(1), q, q, np.array(-1), 0)
dyn = rd.Dynamics(rd.load_urdf(sys.argv[2]), engine="reference")
for act in (
    lambda path: run.save(path),
    lambda path: rd.Rollout.load(path),
    lambda path: dyn.rollout(q[0], q[0], steps=1, checkpoint=path),
):
    try:
        act(sys.argv[1])
        print("done")
    except rd.ArgumentError as error:
        print(error)
"""


@needs_posix
def test_nobody_waits_for_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "x")
    said = python(PIPES, tmp_path / "x", ARM).stdout.splitlines()
    assert len(said) == 3 and all("it is a pipe; give the name of a regular file" in line for line in said), said
    assert (tmp_path / "x").is_fifo()


@needs_posix
def test_only_the_temporary_file_is_touched(way):
    """What lies under a name that looks like ours is the user's, and is no way to make us write elsewhere."""
    path, write = way
    part = Path(f"{path}.part")
    Path("victim").write_text("mine")
    part.symlink_to("victim")
    write(path)
    assert path.is_file() and not path.is_symlink() and part.is_symlink()
    part.unlink()
    part.write_text("my own")
    write(path)
    assert part.read_text() == "my own" and Path("victim").read_text() == "mine"
    assert names() == sorted(["victim", part.name, path.name])


@needs_posix
def test_links_on_the_way_are_followed(way):
    path, write = way
    Path("real").mkdir()
    Path("linked").symlink_to("real")
    write("linked" / path)
    assert ("real" / path).is_file() and [each.name for each in Path("real").iterdir()] == [path.name]


def test_a_rollout_is_read_through_a_link(tmp_path):
    rollout(3.0).save(tmp_path / "x")
    (tmp_path / "link").symlink_to("x")
    assert rd.Rollout.load(tmp_path / "link").q[0, 0, 0] == 3.0


@needs_posix
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_permissions(way, umask):
    path, write = way
    before = os.umask(umask)
    try:
        write(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
        for mode in (0o600, 0o664, 0o646):
            path.chmod(mode)
            write(path)
            assert stat.S_IMODE(path.stat().st_mode) == mode
    finally:
        os.umask(before)


@needs_posix
def test_nobody_reads_a_private_file_while_it_is_written(tmp_path):
    from robodyn.internals.files import whole_file

    path = tmp_path / "x"
    path.touch(0o600)
    with whole_file(path) as file:
        (part,) = tmp_path.glob(".robodyn-*.part")
        assert stat.S_IMODE(part.stat().st_mode) == 0o600
        file.write(b"secret")
        assert path.read_bytes() == b""
    assert path.read_bytes() == b"secret" and stat.S_IMODE(path.stat().st_mode) == 0o600


READ_ONLY = """
import os, sys, numpy as np, robodyn as rd
q = np.zeros((1, 6))
run = rd.Rollout(np.zeros(1), q, q, np.array(-1), 0)
os.chdir(sys.argv[1])
if os.geteuid() == 0:
    os.setuid(65534)
try:
    run.save("x")
except PermissionError as error:
    print(error.filename, error.strerror)
"""


@needs_posix
def test_a_read_only_file_is_not_replaced():
    with tempfile.TemporaryDirectory() as folder:  # where others may write, too
        Path(folder).chmod(0o777)
        path = Path(folder, "x")
        path.write_text("mine")
        path.chmod(0o444)
        assert python(READ_ONLY, folder).stdout == "x it is read-only\n"
        assert path.read_text() == "mine" and names(folder) == ["x"]


FULL = """
import resource, signal, sys, numpy as np, robodyn as rd
q = np.zeros((1, 50_000))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    rd.Rollout(np.zeros(1), q, q, np.array(-1), 0).save(sys.argv[1])
except OSError as error:
    print(error.filename, error.strerror)
"""


@needs_posix
@pytest.mark.parametrize("old", ["", "what was there"])
def test_where_there_is_no_room_what_was_there_stays(tmp_path, old):
    path = tmp_path / "x"
    if old:
        path.write_text(old)
    assert python(FULL, path).stdout == f"{path} File too large\n"
    assert names(tmp_path) == (["x"] if old else []) and (not old or path.read_text() == old)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_failure_leaves_nothing(tmp_path, error):
    from robodyn.internals.files import whole_file

    (tmp_path / "x").write_text("mine")
    with pytest.raises(error), whole_file(tmp_path / "x") as file:
        file.write(b"half")
        raise error
    assert names(tmp_path) == ["x"] and (tmp_path / "x").read_text() == "mine"


def test_a_folder_that_is_not_there_is_named_by_the_path_that_was_given(tmp_path):
    path = tmp_path / "no" / "x"
    with pytest.raises(FileNotFoundError) as caught:
        rollout().save(path)
    assert caught.value.filename == str(path)


class Named:
    """A path of somebody's own."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __fspath__(self) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def test_paths_of_every_kind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for k, path in enumerate(["text", Path("path"), Named("named"), Named(b"bytes"), "n" * 255, "\u00e4\U0001f916"]):
        rollout(float(k)).save(path)
        assert rd.Rollout.load(path).q[0, 0, 0] == k
    for path in (
        "",
        Named(""),
        Named(3),
        Named(ZeroDivisionError()),
        b"bytes",
        3,
        None,
        "a\0b",
        ["x"],
        Path("a\0b"),
        "text/",
    ):
        for act in (rollout().save, rd.Rollout.load):
            with pytest.raises(rd.ArgumentError, match=r"path: got .*; wanted the name of a file"):
                act(path)
    # The last one the system's encoding lacks.
    for path in ("n" * 256, "n" * 10_000, "n/" * 10_000 + "n", "\ud800"):
        for act in (rollout().save, rd.Rollout.load, checkpoint):
            with pytest.raises(rd.ArgumentError, match="give the name of a regular file") as caught:
                act(path)
            assert len(str(caught.value)) < 500
    assert names() == sorted(["text", "path", "named", "bytes", "n" * 255, "\u00e4\U0001f916"])


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python's, of forks beside threads
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX's, where other tests have imported it
@pytest.mark.parametrize("user", [0, 1234])
def test_a_file_that_is_replaced_stays_that_of_its_group(user):
    """What a group may read, another one may not: neither root's, nor that of a user who may not give files to it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        path = Path(folder) / "x.npz"
        rollout().save(path)
        path.chmod(0o660)
        os.chown(path, 1234, 4321)
        child = os.fork()
        if not child:
            try:
                if user:
                    os.setgroups([])
                    os.setgid(1234)
                    os.setuid(1234)
                rollout().save(path)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        found = path.stat()
    expected = (1234, 4321, 0o660) if not user else (1234, 1234, 0o600)
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == expected


def test_a_read_only_file_is_not_replaced_by_root_either(tmp_path):
    rollout().save(tmp_path / "x.npz")
    (tmp_path / "x.npz").chmod(0o444)
    with pytest.raises(PermissionError, match="it is read-only"):
        rollout().save(tmp_path / "x.npz")


@pytest.mark.parametrize("field", ["t", "q", "qd", "diverged", "steps"])
def test_arrays_that_are_none_are_refused(field, tmp_path):
    class Raises:
        def get(self):
            raise RuntimeError("not here")

        def __array__(self, *_, **__):
            raise KeyError("not here")

    for given in ({}, [[1], [1, 2]], Raises(), "x", None):
        with pytest.raises(rd.ArgumentError, match="rollout: "):
            dataclasses.replace(rollout(), **{field: given}).save(tmp_path / "x.npz")
    assert names(tmp_path) == []


@pytest.mark.filterwarnings("always")
def test_a_checkpoint_that_fails_later_costs_no_result(tmp_path, monkeypatch):
    """It stays where it was named, too, whatever folder the process goes to."""
    model = rd.load_urdf(own("arm6"))
    folder = tmp_path / "there"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def policy(t, q, qd):
        if t > 4e-3:
            monkeypatch.chdir(tmp_path)
            shutil.rmtree(folder, ignore_errors=True)
        return np.zeros(6)

    with pytest.warns(RuntimeWarning, match="rollout: the checkpoint is not written: .*No such file"):
        run = rd.Dynamics(model).rollout(np.zeros(6), np.zeros(6), None, 1e-3, 9, policy=policy, checkpoint="run.npz")
    assert run.steps == 9 and list(tmp_path.iterdir()) == []


SAVES = """
import sys, numpy as np, robodyn as rd
for k in range(int(sys.argv[3])):
    q = np.full((3, 2000), float(sys.argv[2]))
    rd.Rollout(np.arange(3.0), q, q, np.array(-1), 2).save(sys.argv[1])
"""


def test_many_writers_and_readers_of_one_path(tmp_path):
    """Threads and processes: nobody sees an error, or a file of which a part is another's."""
    path, saves = tmp_path / "x", 12
    errors: list[BaseException] = []
    q = np.zeros((3, 2000))
    rd.Rollout(np.arange(3.0), q, q, np.array(-1), 2).save(path)
    done = threading.Event()
    seen: list[set[float]] = [set(), set()]

    @contextlib.contextmanager
    def watched() -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            errors.append(error)

    def write(value: float) -> None:
        mine = np.full((3, 2000), value)
        with watched():
            for _ in range(saves):
                rd.Rollout(np.arange(3.0), mine, mine, np.array(-1), 2).save(path)

    def read(values: set[float]) -> None:
        with watched():
            while not done.is_set():
                found = rd.Rollout.load(path)
                (value,) = set(np.unique(found.q)) | set(np.unique(found.qd))
                values.add(float(value))

    readers = [threading.Thread(target=read, args=(each,)) for each in seen]
    writers = [threading.Thread(target=write, args=(float(k),)) for k in range(1, 9)]
    writers += [threading.Thread(target=lambda k=k: python(SAVES, path, k, saves)) for k in range(9, 12)]
    for each in (*readers, *writers):
        each.start()
    for each in writers:
        each.join()
    done.set()
    for each in readers:
        each.join()
    assert not errors, errors
    assert all(values <= set(map(float, range(12))) and values for values in seen)
    assert names(tmp_path) == ["x"]


class OnDevice:
    """An array as CuPy has them, of which a copy is asked for."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def get(self) -> np.ndarray:
        return self._array.copy()


def same(run: Any, again: Any) -> None:
    """Two rollouts are equal in every bit, and in their types."""
    for name in ("t", "q", "qd", "diverged"):
        left, right = (getattr(each, name) for each in (run, again))
        assert type(left) is type(right) and left.dtype == right.dtype and left.shape == right.shape
        assert left.tobytes() == right.tobytes()
    assert type(again.steps) is int and again.steps == run.steps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("leading", [(), (0,), (1,), (3, 1, 2), (1,) * 32, (2, 0)])
@pytest.mark.parametrize("sizes", [(7, 6), (0, 0)])
def test_every_shape_goes_round(tmp_path, dtype, leading, sizes):
    run = rollout(0.1, leading, dtype, sizes)
    run.q[...] = np.random.default_rng(0).standard_normal(run.q.shape)
    run.save(tmp_path / "x")
    same(run, rd.Rollout.load(tmp_path / "x"))
    there = rd.Rollout(run.t, OnDevice(run.q), OnDevice(run.qd), run.diverged, run.steps)
    there.save(tmp_path / "y")
    same(run, rd.Rollout.load(tmp_path / "y"))


def test_rows_that_were_never_finite_go_round(tmp_path):
    dyn = rd.Dynamics(rd.load_urdf(ARM), engine="reference", check=False)
    q = np.zeros((3, 6))
    q[0, 2], q[2, 1] = np.nan, np.inf
    path = tmp_path / "x"
    with pytest.warns(RuntimeWarning, match="2 of 3 rows diverged"):
        run = dyn.rollout(q, np.zeros((3, 6)), steps=4, save_every=3, checkpoint=path)
    assert run.diverged.tolist() == [0, -1, 0]
    same(run, rd.Rollout.load(path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": np.full((3, 2, 7), None)}, "q: got object"),
        ({"t": np.array([0.0, np.nan, 1.0])}, "t: wanted finite times"),
        ({"t": [0.0, 2.0, 1.0]}, "t: wanted finite times"),
        ({"qd": np.full((3, 2, 6), np.nan)}, "q, qd: got NaN or infinity in a row"),
        ({"steps": -1}, "steps: got array.-1.; wanted an integer from 0"),
        ({"steps": 1.5}, "steps: got"),
        ({"diverged": np.array([3, -1])}, "diverged: wanted integers from -1 to 2"),
    ],
)
def test_what_load_would_refuse_is_not_saved(tmp_path, change, message):
    run = rollout()
    arrays = {name: getattr(run, name) for name in ("t", "q", "qd", "diverged", "steps")}
    with pytest.raises(rd.ArgumentError, match=re.compile(f"rollout: {message}")):
        rd.Rollout(**{**arrays, **change}).save(tmp_path / "x")
    assert not names(tmp_path)

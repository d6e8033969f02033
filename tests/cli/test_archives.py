"""Files that others have damaged, or made to do harm: what is read is sound, or an error of ours, in little memory."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import npz_attacks as attack
import numpy as np
import pytest
from npz_attacks import DEFLATED, STORED, archive, header, member, npy, with_header
from robots import own

import robodyn as rd
from robodyn.tools.cli import state_files as cli_state_files
from robodyn.tools.cli.state_files import read_state_file

MODEL = rd.load_urdf(own("arm6"))
INPUTS = ("q", "qd", "tau")
MEGABYTE = 1 << 20

GOOD: dict[str, Any] = {
    "t": np.array([0.0, 0.1, 0.2]),
    "q": np.random.default_rng(0).standard_normal((3, 2, 7)),
    "qd": np.random.default_rng(1).standard_normal((3, 2, 6)),
    "diverged": np.array([-1, 2]),
    "steps": np.array(2),
}


def members(**changed: bytes) -> list[dict[str, Any]]:
    """The members of a rollout, some of them these bytes instead."""
    return [member(f"{name}.npy", changed.get(name, npy(array))) for name, array in GOOD.items()]


def with_q(method: int = STORED, data: bytes | None = None, **fields: Any) -> bytes:
    """A rollout whose q is written so."""
    q = member("q.npy", npy(GOOD["q"]) if data is None else data, method, **fields)
    return archive([q if each["name"] == b"q.npy" else each for each in members()])


@contextlib.contextmanager
def memory(most: int) -> Iterator[None]:
    """Asserts that what is done takes no more bytes than that at any time."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most, f"{peak} bytes"


def load(path: Path, data: bytes) -> rd.Rollout:
    path.write_bytes(data)
    return rd.Rollout.load(path)


# What is read.


@pytest.mark.parametrize(
    "data",
    [
        archive(members()),
        with_q(DEFLATED),
        with_q(data=npy(np.asfortranarray(GOOD["q"]))),
        with_q(data=npy(GOOD["q"].astype(">f8"))),
        with_q(data=with_header(header("<f8", (3, 2, 7)) + 70 * " ", GOOD["q"].tobytes(), b"\x02\x00")),
        with_q(
            data=with_header(
                "{'shape':(3,2,7),'fortran_order' :False, 'descr': '<f8'}", GOOD["q"].tobytes(), b"\x01\x00"
            )
        ),
        with_q(flags=0x8, gap=bytes(16), local={"crc": 0, "packed": 0, "size": 0}),
        archive([*members(), member("more.npy", b"whatever")]),
    ],
    ids=["stored", "deflated", "by columns", "big-endian", "version 2", "another order", "streamed", "more"],
)
def test_archives_that_others_write_are_read(tmp_path, data):
    found = load(tmp_path / "x", data)
    for name, array in GOOD.items():
        assert np.array_equal(getattr(found, name), array) and np.asarray(getattr(found, name)).dtype == array.dtype


def test_zip64_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)  # so that the archive gets the records of large ones
    np.savez(tmp_path / "x.npz", **GOOD)
    data = (tmp_path / "x.npz").read_bytes()
    assert b"PK\x06\x06" in data
    assert np.array_equal(rd.Rollout.load(tmp_path / "x.npz").q, GOOD["q"])
    for mark, place in ((b"PK\x06\x06", 40), (b"PK\x06\x06", 0), (b"PK\x06\x07", 8), (b"PK\x06\x07", 4)):
        bad = bytearray(data)
        bad[data.index(mark) + place] ^= 1
        with pytest.raises(rd.ArgumentError, match="holds no rollout"):
            load(tmp_path / "bad", bytes(bad))


def test_numpy_compresses_it_too(tmp_path):
    with (tmp_path / "x").open("wb") as file:
        np.savez_compressed(file, **GOOD)
    assert np.array_equal(rd.Rollout.load(tmp_path / "x").qd, GOOD["qd"])


# What is refused.

Q = npy(GOOD["q"])
HUGE = with_header(header("<f8", (6_000_000_000,)))
RECORD64 = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 5, 5, 1 << 40, 0)


def renamed(old: bytes, new: bytes) -> list[dict[str, Any]]:
    return [{**each, "name": new if each["name"] == old else each["name"]} for each in members()]


ARCHIVES = {
    "nothing": (b"", "no .npz file"),
    "a header that claims 48 GB": (with_q(data=HUGE), "not as long as its shape"),
    "sizes that claim 48 GB": (with_q(data=HUGE, size=48_000_000_000 + len(HUGE)), "sizes of .* contradict"),
    "a deflated array that claims 48 GB": (
        with_q(DEFLATED, HUGE, size=48_000_000_000 + len(HUGE)),
        "sizes of .* contradict",
    ),
    "bzip2": (with_q(method=zipfile.ZIP_BZIP2), "compressed or encrypted"),
    "LZMA": (with_q(method=zipfile.ZIP_LZMA), "compressed or encrypted"),
    "a method that nobody knows": (with_q(method=77), "compressed or encrypted"),
    "encrypted": (with_q(flags=1), "compressed or encrypted"),
    "a patch": (with_q(flags=32), "compressed or encrypted"),
    "strongly encrypted": (with_q(flags=64), "compressed or encrypted"),
    "another checksum": (with_q(crc=1), "cannot be read"),
    "another checksum in one place": (with_q(local={"crc": 1}), "sizes of .* contradict"),
    "another size in one place": (with_q(local={"size": 1}), "sizes of .* contradict"),
    "another method in one place": (with_q(local={"method": DEFLATED}), "sizes of .* contradict"),
    "other flags in one place": (with_q(local={"flags": 0x800}), "sizes of .* contradict"),
    "another name in one place": (with_q(local={"name": b"Q.npy"}), "differ"),
    "deflated data that end early": (
        with_q(DEFLATED, Q[:-8], size=len(Q)),
        "it was cut|CRC",
    ),
    "a deflated array of another length": (with_q(DEFLATED, packed=len(Q)), "overlaps"),
    "deflated rubbish": (archive([{**each, "method": DEFLATED} for each in members()]), "cannot be read"),
    "the same place twice": (archive([{**each, "start": 0} for each in members()]), "overlaps"),
    "a name twice": (archive([*members(), member("q.npy", Q)]), '"q" twice'),
    "two names for one array": (archive([*members(), member("q", Q)]), '"q" twice'),
    "a gap": (with_q(gap=b"12345678"), "lies apart"),
    "something before": (archive(members(), before=b"#!/bin/sh\n"), "overlaps|lies apart"),
    "something behind": (archive(members(), behind=b"\n"), "something was added"),
    "something between": (archive(members(), between=b"12345678"), "before or behind"),
    "a disk more": (archive(members(), disk=1), "in parts"),
    "another length of the directory": (archive(members(), length=3), "before or behind"),
    "a start behind the end": (archive(members(), start=attack.LARGE), "before or behind"),
    "a large directory": (archive([member(100 * str(k), b"") for k in range(700)]), "its directory takes"),
    "many arrays": (archive([*members(), *(member(str(k), b"") for k in range(60))]), "65 arrays; at most 64"),
    "a large directory in the large record": (
        archive(members(), between=RECORD64 + struct.pack("<4sIQI", b"PK\x06\x07", 0, 0, 1)),
        "contradict each other|before or behind",
    ),
    "an array less": (archive(members()[:2]), "it lacks qd, diverged, steps"),
    "other names": (archive(renamed(b"q.npy", b"Q.npy")), "it lacks q"),
    "a name that is no text": (archive([*members(), member(b"\xff\xfe", b"", flags=0x800)]), "cannot be"),
    "cut": (archive(members())[:-9], "it was cut"),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_archives_that_are_refused(tmp_path, case):
    data, message = ARCHIVES[case]
    (tmp_path / "x").write_bytes(data)
    with memory(2 * MEGABYTE), pytest.raises(rd.ArgumentError, match=f"path: .*holds no rollout .*({message})"):
        rd.Rollout.load(tmp_path / "x")


def shaped(shape: str, data: bytes = b"") -> bytes:
    return with_header("{'descr': '<f8', 'fortran_order': False, 'shape': " + shape + ", }\n", data)


HEADERS = {
    "no array": b"\x93NUMPX\x01\x00",
    "empty": b"",
    "version 3": with_header(header("<f8", (3, 2, 7)), GOOD["q"].tobytes(), b"\x03\x00"),
    "longer than the file": b"\x93NUMPY\x01\x00\xff\xff{}",
    "4 GB long": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}",
    "60,000 brackets": with_header(60_000 * "("),
    "5,000 brackets": with_header(5_000 * "["),
    "5,000 signs": shaped(5_000 * "-" + "1"),
    "9,000 blanks": with_header("{'descr': '<f8'" + 9_000 * " " + "x"),
    "a million axes": with_header(header("<f8", (1,) * 1_000_000), version=b"\x02\x00"),
    "65 axes": shaped(str((1,) * 65), bytes(8)),
    "negative": shaped("(-3, -2, 7)", GOOD["q"].tobytes()),
    "more than 64 bits": shaped("(18446744073709551659, 2, 7)", GOOD["q"].tobytes()),
    "as many as there are addresses": shaped("(4611686018427387904, 4, 0)"),
    "of digits without end": shaped(f"({9_000 * '9'},)"),
    "no tuple": shaped("[3, 2, 7]", GOOD["q"].tobytes()),
    "true": shaped("(True,)", bytes(8)),
    "of Python 2": shaped("(3L, 2L, 7L)", GOOD["q"].tobytes()),
    "an escape": with_header("{'descr': '\\d', 'fortran_order': False, 'shape': (), }"),
    "a null character": with_header("{'descr': '<f8\0', 'fortran_order': False, 'shape': (), }", bytes(8)),
    "twice": with_header("{'descr': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': (), }", bytes(8)),
    "a call": with_header("__import__('os').abort()"),
    "objects": npy(np.array([None, 3])),
    "objects that claim to be short": with_header(header("|O", (1,)), b"cos\nabort\n(tR."),
    "structures": npy(np.zeros(3, [("a", "f8"), ("b", "i4")])),
    "texts": npy(np.array(["a", "b"])),
    "texts of no length": with_header(header("<U0", (10**18,))),
    "texts of 2 GB": with_header(header("<U536870911", (0,))),
    "times": npy(np.zeros(3, "M8[ns]")),
    "complex": npy(np.zeros((3, 2, 7), complex)),
    "whole numbers": npy(np.zeros((3, 2, 7), int)),
    "half precision": npy(np.zeros((3, 2, 7), np.float16)),
    "a type that is none": with_header(header("<f3", (2,)), bytes(6)),
    "longer than its shape": npy(GOOD["q"]) + b"\0",
    "shorter than its shape": npy(GOOD["q"])[:-1],
}


@pytest.mark.parametrize("method", [STORED, DEFLATED], ids=["stored", "deflated"])
@pytest.mark.parametrize("case", HEADERS)
def test_headers_that_are_refused(tmp_path, case, method):
    """No warning of Python's parser either: tests make errors of them."""
    (tmp_path / "x").write_bytes(with_q(method, HEADERS[case]))
    with memory(2 * MEGABYTE), pytest.raises(rd.ArgumentError, match=r"path: .*holds no rollout"):
        rd.Rollout.load(tmp_path / "x")
    path = tmp_path / "x.npy"
    if case not in ("whole numbers", "half precision"):  # which states may be
        path.write_bytes(HEADERS[case])
        with memory(2 * MEGABYTE), pytest.raises(rd.ArgumentError):
            read_state_file(MODEL, INPUTS, path)


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": np.array(-1)},
        {"steps": np.array(1)},
        {"steps": np.array(2.0)},
        {"steps": np.array([2])},
        {"diverged": np.array([-2, 0])},
        {"diverged": np.array([3, 0])},
        {"diverged": np.array([0.0, 0.0])},
        {"diverged": np.array([0, 0], np.uint8)},
        {"diverged": np.array(-1)},
        {"t": np.array([0.0, 0.2, 0.1])},
        {"t": np.array([-0.1, 0.1, 0.2])},
        {"t": np.array([0.0, 0.1, np.inf])},
        {"t": np.full(3, np.nan)},
        {"t": np.array([0, 1, 2])},
        {"t": np.zeros((0,)), "q": np.zeros((0, 2, 7)), "qd": np.zeros((0, 2, 6))},
        {"t": np.zeros((3, 1))},
        {"q": np.full((3, 2, 7), np.nan)},
        {"qd": np.where(np.arange(36) == 17, np.inf, 0.0).reshape(3, 2, 6)},
        {"q": np.zeros((3, 2, 7), np.float32)},
        {"q": np.zeros((3, 1, 7))},
        {"q": np.zeros((3, 2, 7), np.longdouble)},
        {"qd": np.zeros((2, 2, 6))},
        {"t": np.zeros(1), "q": np.zeros(1), "qd": np.zeros(1), "diverged": np.array(-1)},
    ],
    ids=range(23),
)
def test_what_no_rollout_can_be_is_refused(tmp_path, changes):
    np.savez(tmp_path / "x.npz", **{**GOOD, **changes})
    with pytest.raises(rd.ArgumentError, match="holds no rollout"):
        rd.Rollout.load(tmp_path / "x.npz")


@pytest.fixture(scope="module")
def bomb() -> dict[str, Any]:
    """The member of 2 GB of zeros in 2 MB, all of it true: an array (..., 6)."""
    block, count = bytes(10**7), 2 * 10**9 // 48
    start, left = with_header(header("<f8", (count, 6))), 48 * count
    packer, crc = zlib.compressobj(9, zlib.DEFLATED, -15), zlib.crc32(start)
    packed = [packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)]
    zeros = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)  # which may be repeated
    while left >= len(block):
        packed.append(zeros)
        crc, left = zlib.crc32(block, crc), left - len(block)
    packed.append(packer.compress(bytes(left)) + packer.flush())
    data, size = b"".join(packed), len(start) + 48 * count
    assert len(data) < 3e6
    crc = zlib.crc32(bytes(left), crc)
    return {**member("q.npy", b""), "method": DEFLATED, "data": data, "packed": len(data), "crc": crc, "size": size}


def test_what_is_compressed_unpacks_to_a_bounded_size(tmp_path, bomb):
    path = tmp_path / "x.npz"
    for whole in (archive([bomb, *(each for each in members() if each["name"] != b"q.npy")]), archive([bomb])):
        path.write_bytes(whole)
        read = rd.Rollout.load if whole.count(b"steps") else lambda path: read_state_file(MODEL, INPUTS, path)
        with (
            memory(4 * MEGABYTE),
            pytest.raises(rd.ArgumentError, match=r"more than 268435456 bytes|got shapes"),
        ):
            read(path)


def test_rows_that_take_next_to_nothing_are_counted(tmp_path):
    """Of a robot that does not move: no coordinates, and any number of rows in a file of some kilobytes."""
    rows = (1 << 25) + 1
    still = {name: np.zeros((1, rows, 0)) for name in ("q", "qd")}
    np.savez_compressed(tmp_path / "x.npz", t=np.zeros(1), steps=0, diverged=np.zeros(rows, np.int8), **still)
    with memory(4 * MEGABYTE), pytest.raises(rd.ArgumentError, match="more than 268435456 bytes unpacked"):
        rd.Rollout.load(tmp_path / "x.npz")


def test_where_there_is_no_memory_that_is_said(tmp_path, monkeypatch):
    def none(*_: Any) -> None:
        raise MemoryError

    (tmp_path / "x").write_bytes(archive(members()))
    monkeypatch.setattr(np, "empty", none)
    with pytest.raises(rd.UnavailableError, match=r"path: .*x\" holds no rollout .*there is no memory"):
        rd.Rollout.load(tmp_path / "x")


# Files of states.


def states(path: Path, **arrays: Any) -> Any:
    np.savez(path, **arrays)
    return read_state_file(MODEL, INPUTS, path)


def test_only_what_is_needed_of_a_file_of_states_is_loaded(tmp_path):
    """What a command has written beside the states may be large."""
    found = states(tmp_path / "x.npz", q=np.ones((2, 6)), H=np.zeros((MEGABYTE, 2)))
    assert found.keys() == {"q"}
    with memory(2 * MEGABYTE):
        read_state_file(MODEL, INPUTS, tmp_path / "x.npz")


def test_states_without_numbers_are_counted(tmp_path):
    """Of a robot that does not move a file can hold any number; each would be computed."""
    rock = rd.load_urdf('<robot name="rock"><link name="rock"/></robot>')
    np.savez(tmp_path / "x.npz", q=np.zeros((3, 0)))
    assert read_state_file(rock, INPUTS, tmp_path / "x.npz")["q"].shape == (3, 0)
    np.savez(tmp_path / "x.npz", q=np.zeros((10**12, 0)))
    with pytest.raises(rd.ArgumentError, match="it takes 8000000000000 bytes"):
        read_state_file(rock, INPUTS, tmp_path / "x.npz")


@pytest.mark.parametrize("header", ["q:elbow\n", ""], ids=["numbers", "header"])
@pytest.mark.parametrize("line", [10**7 * "1", 10**6 * "1,", 10**6 * '"\n",'], ids=["value", "values", "breaks"])
def test_lines_of_csv_files_are_bounded(tmp_path, monkeypatch, header, line):
    assert cli_state_files.LONGEST_LINE <= 4 * MEGABYTE
    monkeypatch.setattr(cli_state_files, "LONGEST_LINE", 100_000)
    path = tmp_path / "x.csv"
    path.write_text(header + line)
    with memory(4 * MEGABYTE), pytest.raises(rd.ArgumentError, match=r"line \d+ is longer than 100000 characters"):
        read_state_file(MODEL, INPUTS, path)


def test_numbers_of_csv_files_are_bounded(tmp_path, monkeypatch):
    """Also where one column makes states of many coordinates."""
    monkeypatch.setattr(cli_state_files, "MAX_BYTES", 4800)
    path = tmp_path / "x.csv"
    path.write_text("q:elbow\n" + 100 * "1\n")
    assert read_state_file(MODEL, INPUTS, path)["q"].shape == (100, 6)
    path.write_text("q:elbow\n" + 101 * "1\n")
    with pytest.raises(rd.ArgumentError, match="line 102: its numbers take more than 4800 bytes"):
        read_state_file(MODEL, INPUTS, path)


# Damage of every kind.

STATES = {"q": np.ones((3, 6)), "qd": np.ones((1, 6)), "velocity_names": np.array(MODEL.velocity_names)}
CSV = b"q:elbow,qd:elbow,tau:wrist_1\n" + b"1,2.5,-3e-2\n" * 4


def sound(run: rd.Rollout) -> None:
    """Asserts that a rollout can be one."""
    shape, steps = run.q.shape[:-1], run.steps
    assert run.q.dtype == run.qd.dtype and run.q.dtype in (np.float32, np.float64)
    assert run.qd.shape[:-1] == shape == (len(run.t), *np.shape(run.diverged))
    assert 1 <= len(run.t) <= steps + 1 and np.isfinite(run.t).all() and (run.t[1:] >= run.t[:-1]).all()
    assert np.min(run.diverged, initial=-1) >= -1 and np.max(run.diverged, initial=-1) <= steps
    ran = np.asarray(run.diverged) != 0
    assert np.isfinite(run.q[:, ran]).all() and np.isfinite(run.qd[:, ran]).all()


def attacked(folder: Path, seed: int, count: int, most: int) -> dict[str, int]:
    """How often damaged files were read and refused; anything else fails, also what takes more than `most` bytes."""
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    runs = {name: npy(array) for name, array in GOOD.items()}
    given = {name: npy(array) for name, array in STATES.items()}
    rows = npy(np.ones((4, 18)))
    counts = {"read": 0, "refused": 0}
    for _ in range(count):
        which = int(rng.integers(8))
        if which < 4:
            path, data = folder / "run", attack.damaged(runs, rng)
        elif which < 6:
            path, data = folder / "x.npz", attack.damaged(given, rng)
        elif which == 6:
            path = folder / "x.npy"
            data = attack.digits_changed(rows, rng) if rng.random() < 0.5 else attack.struck(rows, rng)
        else:
            path, data = folder / "x.csv", attack.struck(CSV, rng)
        path.write_bytes(data)
        with memory(most):
            counts[_outcome(path)] += 1
    return counts


def _outcome(path: Path) -> str:
    try:
        if path.name == "run":
            sound(rd.Rollout.load(path))
        else:
            found: Mapping[str, Any] = read_state_file(MODEL, INPUTS, path)
            assert all(array.shape[-1] == 6 and array.dtype.kind in "fiu" for array in found.values())
    except rd.RobodynError:
        return "refused"
    return "read"


def test_damaged_files_are_sound_or_refused(tmp_path):
    counts = attacked(tmp_path, 20, 500, 2 * MEGABYTE)
    assert counts["read"] > 20 and counts["refused"] > 200, counts


@pytest.mark.nightly
def test_many_damaged_files_are_sound_or_refused(tmp_path):
    """With another seed each time, which is printed."""
    counts = attacked(tmp_path, int(np.random.default_rng().integers(1 << 32)), 20_000, 2 * MEGABYTE)
    print(counts)
    assert counts["read"] > 1000 and counts["refused"] > 8000, counts

"""The command's files and its errors: what goes round, and one clear line for everything that is wrong."""

from __future__ import annotations

import io
import json
import os
import warnings
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from cli_runner import answer, chain, library, refused, run, same, values
from robots import own

import robodyn as rd
from robodyn.engines.query_table import CONSTRAINED, QUERIES
from robodyn.internals import archives
from robodyn.tools.cli import state_files as cli_state_files

ARM = own("arm6")


# Files.


def test_npz_goes_round(tmp_path):
    model = rd.load_urdf(own("satellite"))
    path = tmp_path / "fd.npz"
    status, out, _ = run("fd", own("satellite"), "--random", 6, "--seed", 1, "--out", path)
    assert (status, out) == (0, f"wrote qdd of 6 states to {path}\n")
    with np.load(path, allow_pickle=False) as file:
        first = dict(file)
    same(first["qdd"], library("fd", model, first)["qdd"])
    assert first["velocity_names"].tolist() == list(model.velocity_names)
    assert run("id", own("satellite"), "--states", path, "--out", tmp_path / "id.npz")[0] == 0
    with np.load(tmp_path / "id.npz", allow_pickle=False) as file:
        np.testing.assert_allclose(file["tau"], first["tau"], atol=1e-9)


def test_csv_goes_round(tmp_path):
    satellite = own("satellite")
    for out in ("fd.csv", "fd.json"):
        assert run("fd", satellite, "--random", 6, "--seed", 1, "--out", tmp_path / out)[0] == 0
    document = json.loads((tmp_path / "fd.json").read_text())
    lines = (tmp_path / "fd.csv").read_text().splitlines()
    assert lines[0].startswith("q:orbit.x,q:orbit.y,")
    assert len(lines) == 7
    assert run("id", satellite, "--states", tmp_path / "fd.csv", "--out", tmp_path / "id.json")[0] == 0
    again = json.loads((tmp_path / "id.json").read_text())
    np.testing.assert_allclose(again["results"]["tau"]["values"], document["inputs"]["tau"]["values"], atol=1e-9)


def test_gradients_go_into_npz_and_json(tmp_path):
    states = rd.load_urdf(ARM).random_configuration(np.random.default_rng(0), (2,))
    for out in ("g.npz", "g.json"):
        assert run("gradient", ARM, "--random", 2, "--out", tmp_path / out)[0] == 0
    document = json.loads((tmp_path / "g.json").read_text())
    with np.load(tmp_path / "g.npz", allow_pickle=False) as file:
        assert np.array_equal(file["q"], states)
        for key in ("dtau_dq", "dtau_dqd"):
            assert np.array_equal(file[key], values(document["results"])[key])


def test_npy_holds_states_side_by_side(tmp_path):
    model = rd.load_urdf(own("satellite"))
    rows = np.random.default_rng(3).uniform(0.1, 1.0, (4, model.nq + 2 * model.nv))
    np.save(tmp_path / "s.npy", rows)
    q, qd, third = np.split(rows, [11, 21], axis=1)
    document = answer("fd", own("satellite"), "--states", tmp_path / "s.npy")
    same(document["inputs"]["q"]["values"], model.normalize(q))
    same(document["results"]["qdd"]["values"], rd.Dynamics(model).forward_dynamics(q, qd, third))
    np.save(tmp_path / "one.npy", rows[0])
    document = answer("id", own("satellite"), "--states", tmp_path / "one.npy")
    same(document["results"]["tau"]["values"], rd.Dynamics(model).inverse_dynamics(q[0], qd[0], third[0])[None])


def test_csv_columns_in_any_order_and_the_rest_neutral(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("\ufeff tau:panel , q:mast, qd:orbit.vx ,q:orbit.qx\r\n1, 0.1,-2,1e0\r\n\r\n2,0.2,3,0\r\n", "utf-8")
    document = answer("id", own("satellite"), "--states", path)
    q, qd = (np.array(document["inputs"][name]["values"]) for name in ("q", "qd"))
    half = 0.5**0.5
    same(q, [[0, 0, 0, half, 0, 0, half, 0, 0, 0.1, 0], [0, 0, 0, 0, 0, 0, 1, 0, 0, 0.2, 0]])
    same(qd, np.outer([-2, 3], np.eye(10)[0]))
    same(document["inputs"]["qdd"]["values"], np.zeros((2, 10)))


def test_states_of_an_npz_broadcast(tmp_path):
    np.savez(tmp_path / "s.npz", q=np.ones((3, 6), np.float32), qd=np.arange(6), tau=np.ones(6))
    document = answer("id", ARM, "--states", tmp_path / "s.npz")
    same(document["inputs"]["qd"]["values"], np.tile(np.arange(6.0), (3, 1)))
    assert document["results"]["tau"]["shape"] == [3, 6]


def test_no_states_at_all(tmp_path):
    np.savez(tmp_path / "s.npz", q=np.ones((0, 6)))
    assert answer("id", ARM, "--states", tmp_path / "s.npz")["results"]["tau"]["values"] == []
    assert run("fd", ARM, "--random", 0) == (0, "nothing to show: 0 states, 6 degrees of freedom\n", "")
    assert run("id", ARM, "--random", 0, "--out", tmp_path / "o.csv")[0] == 0
    assert answer("fd", ARM, "--states", tmp_path / "o.csv")["results"]["qdd"]["shape"] == [0, 6]


# Errors.


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["fly"], ["fly", "see robodyn --help"]),
        (["id"], ["FILE", "see robodyn id --help"]),
        (["id", ARM, "--tau", "1"], ["--tau"]),
        (["info", "no-such.urdf"], ["no-such.urdf", "No such file"]),
        (["info", "<robot/>"], ["<robot/>", "No such file"]),
        (["info", "two\nlines.urdf"], ["two"]),
        (["info", ""], ["FILE", '""', "path of a robot file"]),
        (["check", "  "], ["FILE", "path of a robot file"]),
        (["info", "a\x9bb.urdf"], [r"a\x9bb.urdf"]),
        (["check", ARM.parent], ["directory"]),
        (["info", ARM, "--base", "flying"], ["flying", "'fixed'", "'floating'"]),
        (["info", ARM, "--mimic", "x"], ["'follow'"]),
        (["info", ARM, "--gravity", "1,2"], ["--gravity", "2 given", "wanted 3", "x, y, z"]),
        (["info", ARM, "--gravity", "1,2,inf"], ["--gravity", "entry 3", '"inf"', "finite"]),
        (["info", ARM, "--gravity", "0,0,1_0"], ["--gravity", "entry 3", '"1_0"', "plain decimals"]),
        (["id", ARM, "--q", "1,2"], ["--q", "2 given", "wanted 6", "shoulder_pan, shoulder_lift", "wrist_3"]),
        (["id", ARM, "--qdd", "1,2,3,4,5,6,7"], ["--qdd", "7 given", "wanted 6"]),
        (["id", ARM, "--q", ""], ["0 given"]),
        (["id", ARM, "--q", "1,2,x,4,5,6"], ["entry 3", '"x"']),
        (["id", ARM, "--q", "1,2,,4,5,6"], ["entry 3", '""']),
        (["id", ARM, "--q", "1,2,nan,4,5,6"], ["--q", "entry 3", '"nan"', "finite"]),
        (["id", ARM, "--q", "1_0,0,0,0,0,0"], ["--q", "entry 1", '"1_0"']),
        (["id", ARM, "--qd", "\u0661,0,0,0,0,0"], ["--qd", "entry 1"]),
        (["fd", ARM, "--tau", "1e999,0,0,0,0,0"], ["--tau", "entry 1", '"1e999"', "finite"]),
        (["id", ARM, "--qd", "1e200,1e200,0,0,0,0"], ["tau", "overflows"]),
        (["id", own("satellite"), "--q", ",".join("0" * 11)], ["quaternion", "zero length"]),
        (["id", ARM, "--dtype", "float16"], ["float16", "'float32'"]),
        (["id", ARM, "--engine", "magic"], ["magic", "'reference'"]),
        (["id", ARM, "--random", "-1"], ["--random"]),
        (["id", ARM, "--random", "many"], ["--random", "integer"]),
        (["id", ARM, "--random", "3", "--q", "1"], ["--random", "--q"]),
        (["id", ARM, "--random", "3", "--states", "x.npz"], ["--random", "--states"]),
        (["id", ARM, "--random", str(10**15)], ["memory"]),
        (["id", ARM, "--random", "99999999999999999999"], ["--random", "99999999999999999999", "from 0 to"]),
        (["gradient", ARM, "--random", str(10**60)], ["--random", "from 0 to"]),
        (["id", ARM, "--seed", "3"], ["--seed", "--random"]),
        (["id", ARM, "--json", "--out", "x.npz"], ["--json", "--out"]),
        (["gradient", ARM, "--of", "both"], ["both", "'id'"]),
        (["gradient", ARM, "--tau", "1,2,3,4,5,6"], ["--tau", "--qdd"]),
        (["gradient", ARM, "--out", "x.csv"], [".csv", ".npz", ".json"]),
        (["id", ARM, "--out", "x.txt"], [".txt", ".npz", ".json", ".csv"]),
        (["id", ARM, "--out", "no-such-folder/x.npz"], ["no-such-folder"]),
        (["id", ARM, "--states", "no-such.npz"], ["no-such.npz", "No such file"]),
        (["id", ARM, "--states", "x.mat"], [".mat", ".npz", ".npy", ".csv"]),
        (["fd", own("massless_tip")], ["singular", "'pointer'"]),
    ],
    ids=lambda value: " ".join(Path(each).name for each in value)[:40],
)
@pytest.mark.some(of=3, rest="matrix")
def test_errors(arguments, parts):
    refused(arguments, *parts)


NPZ = {"q": np.zeros((2, 6))}


@pytest.mark.parametrize(
    ("arrays", "parts"),
    [
        ({**NPZ, "qqd": np.zeros(6), "a": 1}, ['"a"', '"qqd"', "q, qd, qdd, tau"]),
        ({"coordinate_names": np.array(["x"])}, ["none", "q, qd, qdd, tau"]),
        ({**NPZ, "velocity_names": np.array(["x"])}, ["velocity_names", "arm6"]),
        ({"q": np.zeros((2, 5))}, ["q", "(2, 5)", "6"]),
        ({"q": np.zeros((2, 2, 6))}, ["q", "(2, 2, 6)"]),
        ({**NPZ, "qd": np.zeros((3, 6))}, ["broadcast", "(3,)"]),
        ({**NPZ, "tau": np.zeros(5)}, ["tau", "(5,)"]),
        ({"q": np.array([[0, 0, 0, 0, 0, 0], [0, np.nan, 0, 0, 0, 0.0]])}, ["q", "1 of 2 rows: 1"]),
        ({"q": np.zeros(6, complex)}, ["complex"]),
        ({"q": np.array(["a"] * 6)}, ["<U1"]),
        ({"q": np.array([None] * 6)}, ["cannot be read", "pickle"]),
    ],
)
def test_errors_of_npz(tmp_path, arrays, parts):
    path = tmp_path / "states.npz"
    np.savez(path, **arrays)
    refused(["id", ARM, "--states", path], "--states", "states.npz", *parts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["empty"]),
        ("q:elbow,q:elbow\n1,2\n", ["q:elbow", "two columns"]),
        ("q:elbow,elbow\n1,2\n", ['"elbow"', "q:elbow"]),
        ("q:elbow,qd:elbow\n1,2\n1,2,3\n", ["line 3", "3 values", "wanted 2"]),
        ("q:elbow,qd:elbow\n1\n", ["line 2", "1 values"]),
        ("q:elbow,qd:elbow\n1,two\n", ["line 2", "qd:elbow", '"two"']),
        ("q:elbow,qd:elbow\n1,\n", ["line 2", "qd:elbow"]),
        ("q:elbow\n1\ninf\n", ["line 3", "q:elbow", '"inf"', "finite"]),
        ("q:elbow\n1_0\n", ["line 2", "q:elbow", '"1_0"', "plain decimals"]),
        ("q:elbow\n\udcff\n", ["cannot be read"]),
    ],
)
def test_errors_of_csv(tmp_path, text, parts):
    path = tmp_path / "states.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(["id", ARM, "--states", path], "states.csv", *parts)


def test_csv_needs_names_that_differ(tmp_path):
    robot = tmp_path / "twins.urdf"
    robot.write_text(chain(2).replace("continuous", "planar", 1).replace("joint1", "joint0.x"))
    path = tmp_path / "states.csv"
    path.write_text("q:joint0.x\n1\n")
    refused(["id", robot, "--states", path], "share a name")


def test_csv_goes_round_with_blanks_in_names(tmp_path):
    robot, path = tmp_path / "r.urdf", tmp_path / "s.csv"
    robot.write_text(
        chain(4).replace("joint0", " a").replace("joint1", "a").replace("joint2", "b ").replace("3", ",\t")
    )
    assert run("fd", robot, "--random", 3, "--out", path)[0] == 0
    document = answer("id", robot, "--states", path)
    wanted = rd.load_urdf(robot).random_configuration(np.random.default_rng(0), (3,))
    assert np.array_equal(document["inputs"]["q"]["values"], wanted)
    path.write_text("q:b ,  q:a,q: a\n1,2,3\n")
    assert answer("id", robot, "--states", path)["inputs"]["q"]["values"] == [[3.0, 2.0, 1.0, 0.0]]
    path.write_text("q:a,q:a \n1,2\n")
    refused(["id", robot, "--states", path], "two columns", "q:a")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names on this system")
@pytest.mark.parametrize("ending", [".npz", ".npy", ".csv", ".json"])
def test_pipes_are_refused_without_waiting(tmp_path, ending):
    path = tmp_path / f"x{ending}"
    os.mkfifo(path)
    for option in ("--states", "--out") if ending != ".json" else ("--out",):
        if (option, ending) != ("--out", ".npy"):
            refused(["id", ARM, option, path], path.name, "pipe", "regular file")
    (tmp_path / f"link{ending}").symlink_to(os.devnull)
    if ending != ".npy":
        refused(["id", ARM, "--out", tmp_path / f"link{ending}"], "link", "symbolic link", "regular file")
    assert path.is_fifo()


def test_output_may_replace_a_file_but_no_folder(tmp_path):
    path = tmp_path / "x.csv"
    for _ in range(2):
        assert run("id", ARM, "--out", path)[0] == 0
    (tmp_path / "y.csv").mkdir()
    refused(["id", ARM, "--out", tmp_path / "y.csv"], "y.csv", "directory")


BIG = 1 << 20


@pytest.fixture
def loads(monkeypatch):
    """The calls that load numbers, so that a test can see that there were none; a small bound on sizes."""
    monkeypatch.setattr(cli_state_files, "MAX_BYTES", BIG)
    with mock.patch.object(archives, "_numbers", wraps=archives._numbers) as load:
        yield load


@pytest.mark.parametrize(
    ("arrays", "parts"),
    [
        ({"q": np.zeros((1, 6)), "bomb": np.zeros(BIG)}, ["wrong keys", '"bomb"']),
        ({"q": np.zeros((BIG, 1))}, ["q: got shape (1048576, 1)", "(..., 6)"]),
        ({"q": np.zeros((BIG, 6))}, ["takes 50331648 bytes", "at most 1048576"]),
        ({"q": np.zeros((BIG // 12, 6), np.int8)}, ["takes 4194288 bytes"]),
        ({"q": np.zeros((9, 6)), "velocity_names": np.full(100, "n" * 10_000)}, ["bytes", "at most"]),
        ({"q": np.full((2, 6), None)}, ["cannot be read", "q holds object", "pickle"]),
        ({"q": np.zeros((2, 6), "S2")}, ["cannot be read", "S2"]),
    ],
    ids=range(7),
)
def test_an_npz_is_judged_before_its_numbers_are_loaded(tmp_path, loads, arrays, parts):
    np.savez_compressed(tmp_path / "s.npz", **arrays)
    refused(["id", ARM, "--states", tmp_path / "s.npz"], "s.npz", *parts)
    assert not loads.called


def test_a_compressed_npz_is_read(tmp_path, loads):
    names = np.array(rd.load_urdf(ARM).velocity_names)
    np.savez_compressed(tmp_path / "s.npz", q=np.ones((3, 6)), velocity_names=names)
    assert answer("id", ARM, "--states", tmp_path / "s.npz")["inputs"]["q"]["shape"] == [3, 6]
    assert loads.called


def test_archives_that_numpy_does_not_write(tmp_path):
    path, array = tmp_path / "s.npz", io.BytesIO()
    np.save(array, np.zeros((2, 6)))
    whole = array.getvalue()
    header = whole.index(b"}")
    cases = {
        "twice": [("q.npy", whole), ("q.npy", whole)],
        "as its shape (2, 6) demands": [("q.npy", whole[:-8])],
        "version": [("q.npy", b"\x93NUMPY\x09\x00" + whole[8:])],
        "cannot be read": [("q.npy", whole[: header - 9])],
    }
    for part, members in cases.items():
        with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
            warnings.simplefilter("ignore")  # the standard library knows that a name comes twice
            for member in members:
                archive.writestr(*member)
        refused(["id", ARM, "--states", path], "cannot be read", part)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("q.npy", whole)
    refused(["id", ARM, "--states", path], "cannot be read", "compressed")


@pytest.mark.parametrize("ending", [".npy", ".csv"])
def test_large_files_of_other_kinds_are_refused(tmp_path, loads, ending):
    path = tmp_path / f"s{ending}"
    np.save(tmp_path / "s.npy", np.zeros((8192, 18)))
    (tmp_path / "s.csv").write_text("q:elbow\n" + "1\n" * BIG)
    refused(["id", ARM, "--states", path], path.name, "bytes", "at most 1048576")
    np.save(tmp_path / "s.npy", np.zeros((8192, 18), np.int8))
    if ending == ".npy":
        refused(["id", ARM, "--states", path], path.name, "takes 1179648 bytes")
    assert not loads.called


@pytest.mark.parametrize("ending", [".npz", ".npy", ".csv"])
def test_damaged_and_foreign_files(tmp_path, ending):
    path = tmp_path / f"states{ending}"
    path.write_bytes(b"\x80\x04rubbish\x00\xff")
    refused(["id", ARM, "--states", path], "states")
    path.unlink()
    path.mkdir()
    refused(["id", ARM, "--states", path], "directory")


def test_cut_files(tmp_path):
    np.save(tmp_path / "whole.npy", np.zeros((9, 18)))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:400])
    refused(["id", ARM, "--states", tmp_path / "cut.npy"], "cut.npy", "cannot be read")
    np.save(tmp_path / "narrow.npy", np.zeros((9, 17)))
    refused(["id", ARM, "--states", tmp_path / "narrow.npy"], "narrow.npy", "(9, 17)", "18")
    np.savez(tmp_path / "whole.npz", q=np.zeros((99, 6)))
    data = bytearray((tmp_path / "whole.npz").read_bytes())
    data[300:310] = b"0123456789"
    (tmp_path / "bad.npz").write_bytes(data)
    refused(["id", ARM, "--states", tmp_path / "bad.npz"], "bad.npz", "cannot be read")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody can write to")
def test_an_output_that_cannot_be_written():
    refused(["id", ARM, "--out", "/proc/x.npz"], "/proc/x.npz")


# Every query.


@pytest.mark.parametrize("query", CONSTRAINED)
@pytest.mark.some(of=3, rest="matrix")
def test_every_query_about_constraints_is_asked_and_written(query, tmp_path):
    robot, question = own("loops/four_bar"), CONSTRAINED[query]
    first = ["ask", robot, query, "--random", 2, "--seed", 3]
    found = answer(*first)
    dyn, inputs = rd.Dynamics(rd.load_urdf(robot)), values(found["inputs"])
    wanted = getattr(dyn, query)(*(inputs[name] for name in question.inputs))
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for got, result in zip(values(found["results"]).values(), wanted, strict=True):
        same(got, result)
    assert run(*first)[0] == 0
    for ending in ("npz", "json", *(("csv",) if all(len(r.axes) == 1 for r in question.results.values()) else ())):
        assert run(*first, "--out", tmp_path / f"o.{ending}")[::2] == (0, "")
        if ending != "json":
            again = answer("ask", robot, query, "--states", tmp_path / f"o.{ending}")
            for got, result in zip(values(again["results"]).values(), wanted, strict=True):
                same(got, result)
    refused(["ask", ARM, query], f'QUERY: {query} is about constraints, and "arm6" has none')
    assert query in run("queries", "--json")[1]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.some(of=8, rest="matrix")
def test_every_query_is_written_and_its_states_are_read_again(query, tmp_path):
    """Whatever it returns, also of a robot in which nothing moves."""
    rock = tmp_path / "rock.urdf"
    rock.write_text('<robot name="rock"><link name="rock"/></robot>')
    question = QUERIES[query]
    for robot, link in ((ARM, "tool0"), (rock, "rock")):
        about = ["--link", link] if question.of_link else []
        if robot == rock and "mass" in question.needs:
            refused(["ask", rock, query], "nothing that moves has mass")
            continue
        first = ["ask", robot, query, *about, "--random", 2, "--seed", 3]
        wanted = values(json.loads(run(*first, "--json")[1])["results"])
        assert run(*first)[0] == 0
        for ending in ("npz", "csv", "json"):
            file = tmp_path / f"o.{ending}"
            status, out, err = run(*first, "--out", file)
            if ending == "csv" and any(len(result.axes) > 1 for result in question.results.values()):
                assert status == 2 and ".csv" in err
                continue
            assert (status, err) == (0, "") and str(file) in out
            if ending != "json" and (robot == ARM or ending == "npz"):
                again = values(json.loads(run("ask", robot, query, *about, "--states", file, "--json")[1])["results"])
                for name, value in wanted.items():
                    same(again[name], value)


def test_what_a_query_takes_is_said(tmp_path):
    by_name = answer("ask", ARM, "jacobian", "--link", "tool0", "--frame", "world")["results"]["J"]["values"]
    index = rd.load_urdf(ARM).link_index("tool0")
    assert answer("ask", ARM, "jacobian", "--link", index, "--frame", "world")["results"]["J"]["values"] == by_name
    refused(["ask", ARM, "jacobian", "--link", 99], "link: got 99; wanted a name or an index from 0 to")
    refused(["ask", ARM, "jacobian"], "--link: not given; jacobian is about a link")
    refused(["ask", ARM, "mass_matrix", "--link", "tool0"], "--link: mass_matrix is about no link")
    refused(["ask", ARM, "mass_matrix", "--frame", "body"], "--frame: mass_matrix is not seen from a frame")
    refused(["ask", ARM, "link_pose", "--link", "tool0", "--frame", "body"], "--frame: link_pose is not seen")
    refused(["ask", ARM, "jacobian", "--link", "tool0", "--frame", "own"], "--frame: got 'own'; allowed: 'world'")
    refused(["ask", ARM, "mass_matrix", "--qd", "0,0,0,0,0,0"], "--qd has no part")
    source = tmp_path / "arm.c"
    assert run("export", ARM, "--query", "inverse_dynamics,id", "--out", source)[0] == 0
    assert "void arm6_inverse_dynamics(" in source.read_text() and "void arm6_id(" in source.read_text()
    assert run("export", ARM, "--query", "jacobian", "--link", index, "--out", source)[0] == 0

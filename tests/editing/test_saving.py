"""Models in files: bit for bit, and nothing that a file says is believed before it is checked."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile

import numpy as np
import pytest
from edited import EVERY, loaded, name, tree
from robots import own

import robodyn as rd
from robodyn.core.model_fields import OPTIONAL


def require_bits(model, again):
    for each in dataclasses.fields(model):
        a, b = getattr(model, each.name), getattr(again, each.name)
        if each.name == "source":  # where files lie on this machine is not saved
            assert b is None
            continue
        if each.name == "geometries":
            a = tuple(dataclasses.replace(shape, folder="") for shape in a)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), each.name
        else:
            assert type(a) is type(b) and a == b, each.name
    assert again == model and again.digest == model.digest


def through(model, path):
    model.save(path)
    return rd.Model.load(path)


@pytest.mark.some(of=8, rest="matrix")
@pytest.mark.parametrize("path", EVERY, ids=name)
def test_every_robot(path, tmp_path):
    model = loaded(path, "floating")
    require_bits(model, through(model, tmp_path / "robot.npz"))


@pytest.mark.parametrize("seed", range(5))
def test_random_trees(seed, tmp_path):
    require_bits(tree(seed), through(tree(seed), str(tmp_path / "robot.npz")))


def test_odd_models(tmp_path):
    """Names that are made when asked for, that XML could not hold, none at all; signs of zeros, and infinities."""
    arm = rd.load_urdf(own("arm6"))
    odd = dataclasses.replace(arm, link_names=["\0", "\ud800", "größe", "", "a\0", " ", "\n", "x" * 100_000])
    still = rd.load_urdf("<robot name='r'><link name='a'/></robot>")
    signed = dataclasses.replace(arm, gravity=(-0.0, 0.0, -9.81), tree_upper=np.full(6, np.inf))
    for k, model in enumerate((rd.auto_tree(1000, branching=3.0), odd, still, signed)):
        require_bits(model, through(model, tmp_path / f"{k}.npz"))
    large = rd.auto_tree(200_000)
    assert through(large, tmp_path / "large.npz") == large


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "robot.npz"
    first = through(rd.load_urdf(own("arm6")), path)
    second = through(rd.load_urdf(own("hand")), path)
    assert first != second and rd.Model.load(path) == second
    assert [each.name for each in tmp_path.iterdir()] == ["robot.npz"]
    with pytest.raises(rd.ArgumentError, match="directory"):
        first.save(tmp_path)
    with pytest.raises(rd.ArgumentError, match="path: got 3"):
        first.save(3)
    with pytest.raises(OSError):
        first.save(tmp_path / "nowhere" / "robot.npz")


@pytest.fixture(scope="module")
def arm():
    return rd.load_urdf(own("arm6"))


@pytest.fixture(scope="module")
def data(arm, tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "robot.npz"
    arm.save(path)
    return path.read_bytes()


def parts(data):
    """The arrays of a file, and its texts."""
    with np.load(io.BytesIO(data)) as file:
        arrays = {key: file[key] for key in file.files}
    return arrays, json.loads(arrays.pop("texts").tobytes())


def written(path, arrays, texts):
    raw = texts if isinstance(texts, bytes) else json.dumps(texts).encode()
    np.savez(path, texts=np.frombuffer(raw, np.uint8), **arrays)
    return path


CHANGES = {
    "a later version": (lambda a, t: t.update(version=2), "version 2"),
    "another format": (lambda a, t: t.update(format="rollout"), "holds no model"),
    "a field of later": (lambda a, t: a.update(wings=np.ones(3)), 'fields "wings", which this version'),
    "a text of later": (lambda a, t: t.update(wings=3), '"wings"'),
    "no parent": (lambda a, t: a.pop("parent"), "lacks parent"),
    "another shape": (lambda a, t: a.update(inertia=np.ones((3, 10))), "inertia: got shape"),
    "not finite": (lambda a, t: a.update(Xtree=a["Xtree"] * np.nan), "Xtree"),
    "a circle": (lambda a, t: a.update(parent=a["parent"][::-1]), "parent"),
    "a circle of links": (lambda a, t: a.update(link_parent=np.roll(np.arange(8), 1)), "link_parent.*circle"),
    "floats for indices": (lambda a, t: a.update(parent=a["parent"] + 0.5), "parent: got"),
    "names that are numbers": (lambda a, t: t.update(link_names=[1] * 8), "link_names"),
    "too few names": (lambda a, t: t.update(joint_names=["a"]), "joint_names: got 1 names"),
    "names without end": (lambda a, t: t.update(joint_names={"prefix": "j", "n": 10**30}), "number of names"),
    "a wrong number of names": (lambda a, t: t.update(link_names={"prefix": "j", "n": 10**12}), "link_body: got shape"),
    "a finding of nothing": (lambda a, t: t.update(report=[{}]), "cannot be read"),
    "a finding of later": (
        lambda a, t: t.update(report=[{**t["report"][0], "code": "strange"}]),
        'a finding "strange"',
    ),
    "a list": (lambda a, t: t.update(name=["x"]), "name: got"),
    "nothing for a name": (lambda a, t: t.update(joint_names=None), "joint_names"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_refused(change, data, tmp_path):
    arrays, texts = parts(data)
    edit, match = CHANGES[change]
    edit(arrays, texts)
    with pytest.raises(rd.LoadError, match=match):
        rd.Model.load(written(tmp_path / "robot.npz", arrays, texts))


def test_what_an_older_version_did_not_write_may_be_missing(data, arm, tmp_path):
    arrays, texts = parts(data)
    for field in OPTIONAL:
        arrays.pop(field, None)
        texts.pop(field, None)
    texts.pop("report")
    old = rd.Model.load(written(tmp_path / "robot.npz", arrays, texts))
    assert old.link_inertia is None and old.report == ()
    np.testing.assert_allclose(old.lock({"elbow": 0.3}).inertia, arm.lock({"elbow": 0.3}).inertia, atol=1e-14)


@pytest.mark.parametrize("texts", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"[]", b"9" * 10_000, b"null"])
def test_texts_that_are_none(texts, data, tmp_path):
    arrays, _ = parts(data)
    with pytest.raises(rd.LoadError):
        rd.Model.load(written(tmp_path / "robot.npz", arrays, texts))


def test_other_files(data, tmp_path):
    path = tmp_path / "robot.npz"
    for wrong in (b"", b"PK", data[:-1], data[: len(data) // 2], data + b"x", b"<robot/>"):
        path.write_bytes(wrong)
        with pytest.raises(rd.LoadError, match=r"the file .*robot\.npz"):
            rd.Model.load(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("texts.npy", b"\x93NUMPY\x01\x00")
    with pytest.raises(rd.LoadError):
        rd.Model.load(path)
    np.savez(path, texts=np.array([{"a": 1}], dtype=object))
    with pytest.raises(rd.LoadError, match="pickles are refused"):
        rd.Model.load(path)
    np.savez_compressed(path, texts=np.zeros(1 << 29, np.uint8)[:: 1 << 9])
    with pytest.raises(rd.LoadError):
        rd.Model.load(path)
    with pytest.raises(rd.LoadError, match="cannot read"):
        rd.Model.load(tmp_path / "nowhere.npz")
    with pytest.raises(rd.LoadError, match="directory"):
        rd.Model.load(tmp_path)
    for wrong in (None, 3, "", "a\0b"):
        with pytest.raises(rd.ArgumentError, match="path: got"):
            rd.Model.load(wrong)


def test_damaged_bytes_are_refused_or_do_no_harm(data, arm, tmp_path):
    """Bits of numbers may change a number; nothing else may happen than a LoadError."""
    path, rng = tmp_path / "robot.npz", np.random.default_rng(11)
    refused = 0
    for _ in range(300):
        broken = bytearray(data)
        for at in rng.integers(0, len(broken), rng.integers(1, 4)):
            broken[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(broken)
        try:
            assert isinstance(rd.Model.load(path), rd.Model)
        except rd.LoadError:
            refused += 1
    assert refused > 250  # archives have sums

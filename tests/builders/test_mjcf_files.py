"""Files that a MJCF names: found where MuJoCo finds them, read here, and nothing else opened."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robodyn as rd
from robodyn.core.findings import Notes
from robodyn.io.builders import mjcf_files
from robodyn.io.builders.mjcf_files import contents, self_contained

mujoco = pytest.importorskip("mujoco")

BODY = '<worldbody><body><joint/><geom size="1"/></body></worldbody>'


def stl(size: float = 1.0) -> bytes:
    """A tetrahedron."""
    points, faces = size * np.eye(4, 3, -1), ((0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3))
    rows = (struct.pack("<12fH", 0, 0, 0, *points[list(face)].ravel(), 0) for face in faces)
    return bytes(80) + struct.pack("<I", 4) + b"".join(rows)


def png(value: int = 7) -> bytes:
    """A picture of one colour, 4 x 4."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes([value] * 12)) * 4
    header = struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


HEIGHTS = struct.pack("<ii4f", 2, 2, 0.0, 0.1, 0.2, 0.3)
SUBMODEL = b'<mujoco model="s"><worldbody><body name="q"><joint/><geom size="1"/></body></worldbody></mujoco>'
KINDS = {
    "mesh": ('<asset><mesh file="f.stl"/></asset>', "f.stl", stl()),
    "height field": ('<asset><hfield size="1 1 1 1" file="f.bin"/></asset>', "f.bin", HEIGHTS),
    "texture": ('<asset><texture type="2d" file="f.png"/></asset>', "f.png", png()),
    "side of a cube": ('<asset><texture name="t" type="cube" fileright="f.png"/></asset>', "f.png", png()),
    "flex": (
        '<worldbody><flexcomp name="c" type="mesh" dim="2" file="f.stl" mass="1" radius=".01" rigid="true"/>'
        "</worldbody>",
        "f.stl",
        stl(),
    ),
    "submodel": ('<asset><model name="m" file="f.xml"/></asset>', "f.xml", SUBMODEL),
}
PLACES = ("", "md/", "td/", "sub/", "md/sub/", "td/sub/")
COMPILER = '<compiler meshdir="md" texturedir="td"/>'


def written(folder: Path, files: dict[str, Any]) -> Path:
    """Files under a folder; the first of them."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder / next(iter(files))


def ours(path: Any) -> Any:
    """What MuJoCo makes of the text and the bytes that we give it."""
    return mujoco.MjModel.from_xml_string(*self_contained(*contents(path), Notes())[:2])


def same(path: Path) -> None:
    """MuJoCo makes the same of our text as of the file."""
    theirs, found = mujoco.MjModel.from_xml_path(str(path)), ours(path)
    assert found.names == theirs.names
    for field in ("mesh_vert", "tex_data", "hfield_data", "flex_vert", "body_inertia", "body_pos", "jnt_axis"):
        assert np.array_equal(getattr(found, field), getattr(theirs, field)), field


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_where_files_are_looked_for(kind, place, tmp_path):
    """Wherever MuJoCo finds a file, from the main file and from an included one."""
    text, name, data = KINDS[kind]
    main = written(tmp_path / "a", {"main.xml": f"<mujoco>{COMPILER}{text}{BODY}</mujoco>", place + name: data})
    files = {
        "main.xml": f'<mujoco>{COMPILER}<include file="sub/i.xml"/>{BODY}</mujoco>',
        "sub/i.xml": f"<mujoco>{text}</mujoco>",
        place + name: data,
    }
    for path in (main, written(tmp_path / "b", files)):
        try:
            mujoco.MjModel.from_xml_path(str(path))
        except ValueError:
            continue
        same(path)
    if (kind, place) in {("mesh", ""), ("texture", "md/")}:
        assert [each.elements for each in rd.load_mjcf(main).report if each.code == "mjcf-missing-file"] == [
            (f'file "{name}"',)
        ]


def test_the_first_of_two_files_is_the_one_of_mujoco(tmp_path):
    for kind, other in (("mesh", stl(2.0)), ("height field", HEIGHTS[:-4] + bytes(4)), ("texture", png(9))):
        text, name, data = KINDS[kind]
        files = {
            "main.xml": f'<mujoco>{COMPILER}<include file="sub/i.xml"/>{BODY}</mujoco>',
            "sub/i.xml": f"<mujoco>{text}</mujoco>",
            f"sub/{name}": data,
            f"md/{name}": other,
            f"td/{name}": other,
        }
        same(written(tmp_path / kind, files))


def test_folders_names_and_parts(tmp_path):
    mesh = '<geom type="mesh" mesh="arm"/>'
    body = f"<worldbody><body><joint/>{mesh}</body></worldbody>"
    part = (
        b'<mujoco model="s"><compiler meshdir="own"/><asset><mesh file="arm.stl"/></asset><worldbody>'
        b'<body name="q"><joint/><geom type="mesh" mesh="arm"/></body></worldbody></mujoco>'
    )
    for number, files in enumerate(
        (
            {  # the folder is set in an included file
                "main.xml": f'<mujoco><include file="c.xml"/><asset><mesh file="arm.stl"/></asset>{body}</mujoco>',
                "c.xml": '<mujocoinclude><compiler assetdir="md"/></mujocoinclude>',
                "md/arm.stl": stl(),
            },
            {
                "main.xml": '<mujoco><compiler strippath="true" meshdir="md"/><asset><mesh file="no/where/arm.stl"/>'
                f"</asset>{body}</mujoco>",
                "md/arm.stl": stl(),
            },
            {  # backslashes, and names that are reduced without a look
                "main.xml": f'<mujoco><asset><mesh file="nowhere/../md\\arm.stl"/></asset>{body}</mujoco>',
                "md/arm.stl": stl(),
            },
            {  # a submodel with files of its own, of the same name
                "main.xml": '<mujoco><asset><mesh file="arm.stl"/><model name="m" file="sub/part.xml"/></asset>'
                f'<worldbody>{mesh}<attach model="m" body="q" prefix="p"/></worldbody></mujoco>',
                "arm.stl": stl(2.0),
                "sub/part.xml": part,
                "sub/own/arm.stl": stl(),
            },
            {  # an include inside a body, and one inside of that
                "main.xml": '<mujoco><worldbody><body><joint/><include file="sub/g.xml"/></body></worldbody></mujoco>',
                "sub/g.xml": '<x><geom size="1"/><include file="h.xml"/></x>',
                "sub/h.xml": '<y><geom size="2"/></y>',
            },
            {  # the first place that is there counts, not what lies at the second
                "main.xml": '<mujoco><include file="sub/c.xml"/></mujoco>',
                "sub/c.xml": '<mujocoinclude><include file="d.xml"/></mujocoinclude>',
                "d.xml": f"<mujocoinclude>{BODY}</mujocoinclude>",
                "sub/d.xml": "no XML",
            },
            {"main.xml": '<mujoco><include file="c.xml"/></mujoco>', "c.xml": f"<whatever>{BODY}</whatever>"},
        )
    ):
        path = written(tmp_path / str(number), files)
        same(path)
        assert rd.load(path).nv == rd.load_mjcf(path).nv == ours(path).nv


def test_relative_paths_and_texts(tmp_path, monkeypatch):
    path = written(
        tmp_path / "robot", {"main.xml": f'<mujoco><asset><mesh file="f.stl"/></asset>{BODY}</mujoco>', "f.stl": stl()}
    )
    monkeypatch.chdir(tmp_path)
    assert rd.load_mjcf("robot/main.xml").nv == 1
    monkeypatch.chdir(path.parent)
    assert rd.load_mjcf(path.read_text()).nv == rd.load_mjcf(path.read_bytes()).nv == 1


def test_a_text_names_nothing_but_its_assets(tmp_path):
    for kind, (text, name, data) in KINDS.items():
        path = written(tmp_path / kind, {"main.xml": f"<mujoco>{text}{BODY}</mujoco>", name: data})
        found, assets, _ = self_contained(*contents(path), Notes())
        assert list(assets) == [f"0_{name}"] and f'="0_{name}"' in found and f'"{name}"' not in found, kind


HANGING = """
import sys, os
import robodyn as rd
for text in {texts!r}:
    try:
        rd.load_mjcf(text)
    except rd.LoadError as error:
        print("refused", error)
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_no_name_leads_to_a_pipe(tmp_path):
    """MuJoCo would wait for each of them."""
    (tmp_path / "sub").mkdir()
    for name in ("pipe.stl", "pipe.png", "pipe.xml", "sub/only.stl"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "child.xml").write_text('<mujocoinclude><compiler meshdir="sub"/></mujocoinclude>')
    parts = (
        '<asset><texture name="t" type="cube" fileright="pipe.png"/></asset>',
        '<asset><texture name="t" type="cube" file="no.png" fileback="pipe.png"/></asset>',
        '<compiler strippath="true"/><asset><mesh name="t" file="nowhere/pipe.stl"/></asset>',
        '<include file="child.xml"/><asset><mesh name="t" file="only.stl"/></asset>',
        '<asset><mesh name="t" file="nowhere/../pipe.stl"/></asset>',
        '<include file="nowhere/../pipe.xml"/>',
        '<INCLUDE file="pipe.xml"/>',
        '<asset><mesh name="t" file="sub\\\\only.stl"/></asset>',
        '<asset><mesh name="t" file="file:pipe.stl"/></asset>'
        '<worldbody><body><joint/><geom type="mesh" mesh="t"/></body></worldbody>',
        '<asset><model name="t" file="pipe.xml"/></asset>',
        '<compiler meshdir="nowhere/.."/><asset><mesh name="t" file="pipe.stl"/></asset>',
        '<worldbody><flexcomp name="c" type="mesh" file="pipe.stl"/></worldbody>',
    )
    texts = [f"<mujoco>{part}{BODY}</mujoco>" for part in parts]
    run = subprocess.run(
        [sys.executable, "-c", HANGING.format(texts=texts)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(rd.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert run.stdout.count("refused") == len(texts), run.stdout


@pytest.mark.parametrize(
    "text, nv",
    [
        (f"<mujoco><!-- a -- b --- -->{BODY}<!-----></mujoco>", 1),
        (
            '<mujoco><asset><texture name="t" type="skybox" builtin="gradient" width="8" height="8" file=""/></asset>'
            f"{BODY}</mujoco>",
            1,
        ),
        (f'<?xml version="1.0" encoding="utf-16"?><mujoco>{BODY}</mujoco>'.encode("utf-16"), 1),
        (
            "<mujoco><worldbody>" + '<body><joint/><geom size="1"/>' * 496 + "</body>" * 496 + "</worldbody></mujoco>",
            496,
        ),
    ],
    ids=["dashes in comments", "no file", "UTF-16", "deep"],
)
def test_what_mujoco_takes_is_taken(text, nv):
    assert rd.load_mjcf(text).nv == rd.load(text).nv == nv


def test_names_keep_their_letters():
    text = (
        '<?xml version="1.0" encoding="ISO-8859-1"?><mujoco><worldbody><body name="é"><joint name="ü"/>'
        '<geom size="1"/></body></worldbody></mujoco>'
    )
    for encoding in ("iso-8859-1", "utf-8", "utf-16"):
        model = rd.load_mjcf(text.replace("ISO-8859-1", encoding).encode(encoding))
        assert model.joint_names == ("ü",) and model.link_names == ("world", "é")
    mended = rd.load_mjcf(text.replace("ISO-8859-1", "utf-8").encode("iso-8859-1"))
    assert mended.joint_names == ("ü",) and "xml-not-well-formed" in {each.code for each in mended.report}
    odd = "a&lt;b&gt;&quot;&apos;&amp;"
    found = rd.load_mjcf(f'<mujoco><worldbody><body name="{odd}"><joint/><geom size="1"/></body></worldbody></mujoco>')
    assert found.link_names == ("world", "a<b>\"'&")


def test_messages_of_mujoco_name_the_line(tmp_path):
    path = written(
        tmp_path,
        {
            "main.xml": '<mujoco>\n<include file="i.xml"/>\n<worldbody>\n  <!-- -->\n  <body nonsense="1"/>'
            "</worldbody></mujoco>",
            "i.xml": "<x>\n\n\n\n\n\n\n\n\n<option/></x>",
        },
    )
    with pytest.raises(rd.LoadError, match=r"MuJoCo does not compile it: .*nonsense.* line 5"):
        rd.load_mjcf(path)


def test_files_are_bounded(tmp_path, monkeypatch):
    chain = {f"{i}.xml": f'<x><include file="{i + 1}.xml"/></x>' for i in range(70)}
    chain["0.xml"] = '<mujoco><include file="1.xml"/></mujoco>'
    with pytest.raises(rd.LoadError, match="leads to files more than 50 deep"):
        rd.load_mjcf(written(tmp_path / "chain", chain))
    twice = {
        "main.xml": '<mujoco><include file="i.xml"/><include file="./i.xml"/></mujoco>',
        "i.xml": "<x><option/></x>",
    }
    with pytest.raises(rd.LoadError, match="is included twice"):
        rd.load_mjcf(written(tmp_path / "twice", twice))
    own = {"main.xml": '<mujoco><asset><model name="m" file="main.xml"/></asset></mujoco>'}
    with pytest.raises(rd.LoadError, match="is a part of itself"):
        rd.load_mjcf(written(tmp_path / "own", own))
    path = written(tmp_path, {"main.xml": '<mujoco><asset><mesh file="f.stl"/></asset></mujoco>', "f.stl": stl()})
    monkeypatch.setattr(mjcf_files, "MOST_ASSET_BYTES", 100)
    with pytest.raises(rd.LoadError, match="files of more than 100 bytes"):
        rd.load_mjcf(path)
    with pytest.raises(rd.LoadError, match="nested more than 499 deep"):
        rd.load_mjcf("<mujoco>" + "<worldbody>" * 600)


def test_what_mujoco_has_compiled(tmp_path):
    path = tmp_path / "ROBOT.MJB"
    mujoco.mj_saveModel(mujoco.MjModel.from_xml_string(f"<mujoco>{BODY}</mujoco>"), str(path), None)
    data = path.read_bytes()
    (tmp_path / "robot").write_bytes(data)
    with path.open("rb") as file:
        for source in (path, str(path), data, bytearray(data), tmp_path / "robot", file):
            assert rd.load_mjcf(source).nv == 1
            if source is not file:
                assert rd.load(source).nv == 1
    with path.open("rb") as file:
        assert rd.load(file).nv == 1
    for wrong in (data[:20], data[:-9], data[:4]):
        with pytest.raises(rd.LoadError):
            rd.load_mjcf(wrong)


class _Evil:
    def __getattr__(self, name):
        raise RuntimeError("evil")


class _Liar:
    @property
    def __class__(self):
        raise RuntimeError("evil")


class _Closed:
    def __getattribute__(self, name):
        raise RuntimeError("evil")


class _NoPath:
    def __fspath__(self):
        raise RuntimeError("no path")


class _OddPath:
    def __fspath__(self):
        return 3


@pytest.mark.parametrize("kind", [_Evil, _Liar, _Closed, _NoPath, _OddPath])
def test_objects_that_raise(kind):
    for load in (rd.load, rd.load_mjcf, rd.load_urdf):
        with pytest.raises((rd.LoadError, rd.ArgumentError)):
            load(kind())
    with pytest.raises(rd.ArgumentError, match="pin_model: got"):
        pytest.importorskip("pinocchio")
        rd.from_pinocchio(kind())


def test_options_of_one_door():
    with pytest.raises(rd.ArgumentError, match="source: no option of load_mjcf"):
        rd.load("<mujoco/>", source="x")
    assert rd.load("<!--" + "x" * 1_200_000 + "--><mujoco/>").nv == 0
    assert rd.load("<!-- <? --><mujoco/><!-- ?> -->").nv == 0


def test_a_root_is_looked_for_once():
    """Expressions with a way back took minutes for these."""
    for text in ("<!--" * 200_000, "<?" * 400_000, "<a" * 200_000, "<" * 200_000, "<!--x-->" * 200_000):
        with pytest.raises(rd.LoadError):
            rd.load(text + "<mujoco")

"""Reading URDF: where it comes from, and everything about XML."""

import io
import os
import threading

import pytest
from urdf_texts import INERTIAL, codes, finding, refused, robot

from robodyn.internals.errors import ArgumentError, LoadError
from robodyn.io.builders import elements, sources, urdf
from robodyn.io.builders.urdf import read_urdf


def test_all_kinds_of_source_give_the_same_robot(tmp_path):
    text = robot('<axis xyz="0 0 1"/>')
    path = tmp_path / "robot.urdf"
    path.write_text(text)
    expected = read_urdf(text)
    assert expected.name == "r"
    for source in (
        path,
        str(path),
        text.encode(),
        bytearray(text.encode()),
        io.StringIO(text),
        io.BytesIO(text.encode()),
    ):
        assert read_urdf(source) == expected
    with path.open("rb") as binary, path.open() as readable:
        assert read_urdf(binary) == expected
        assert read_urdf(readable) == expected


def test_unusable_paths_are_refused(tmp_path):
    refused(str(tmp_path / "missing.urdf"), "missing.urdf", "No such file")
    refused(tmp_path, "directory")
    refused("bad\0name", "cannot read", "null")
    refused("x" * 10_000, "cannot read", "begins with '<'")
    refused(os.devnull, "device")
    refused("   ", "blank")
    refused("", "blank")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names on this system")
def test_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    refused(tmp_path / "pipe", "pipe")
    refused(tmp_path / "link", "link", "pipe")


@pytest.mark.parametrize("said", [0, 10, 1 << 40])
def test_files_are_read_of_whatever_size_the_system_says_they_are(tmp_path, monkeypatch, said):
    path = tmp_path / "robot.urdf"
    path.write_text(robot() + " " * 300_000)
    wanted = read_urdf(robot())
    reads, read, look = [], os.read, os.fstat

    def told(file):
        found = look(file)
        return os.stat_result((*found[:6], said, *found[7:10]))

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", lambda file, size: reads.append(size) or read(file, size))
        patch.setattr(os, "fstat", told)
        found = read_urdf(path)
    assert found == wanted
    assert len(reads) < 20 and max(reads) <= 1 << 20


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="this user may read every file")
def test_an_unreadable_file_is_refused(tmp_path):
    path = tmp_path / "secret.urdf"
    path.write_text(robot())
    path.chmod(0)
    refused(path, "secret.urdf", "ermission")


class Hostile:
    """An object whose attributes raise when they are looked at."""

    def __init__(self, *names):
        self.names = names

    def __getattr__(self, name):
        if name in self.names:
            raise ZeroDivisionError(f"no {name}")
        raise AttributeError(name)


@pytest.mark.parametrize("name", ["robot", "links", "joints", "read"])
def test_objects_that_raise_are_refused(name):
    refused(Hostile(name), "an object of type Hostile", f"ZeroDivisionError('no {name}')")


class Fspath:
    """A path object with an answer of its own."""

    def __init__(self, answer):
        self.answer = answer

    def __fspath__(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [RuntimeError("gone"), 7, None, "bad\0name", b"\xff\xfe missing"])
def test_path_objects_that_give_no_path_are_refused(answer):
    refused(Fspath(answer), "path" if not isinstance(answer, (str, bytes)) else "file")


def test_released_memory_is_refused():
    view = memoryview(robot().encode())
    view.release()
    refused(view, "the bytes", "released")


@pytest.mark.parametrize("source", [None, 7, 2.5, ["<robot/>"], {"links": []}, object(), read_urdf])
def test_other_kinds_of_source_are_refused(source):
    with pytest.raises(ArgumentError, match=f"{type(source).__name__}.*a path, XML text"):
        read_urdf(source)


def test_a_description_is_not_a_source():
    with pytest.raises(ArgumentError, match="RobotDescription already"):
        read_urdf(read_urdf(robot()))


class Broken:
    """A file object whose answers are wrong or errors."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def read(self, _size=-1):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize("answers", [(OSError("gone"),), (RuntimeError("odd"),), (None,), (3,), (b"<", "robot/>")])
def test_broken_files_are_refused(answers):
    refused(Broken(*answers), "open file")


def test_closed_and_piecewise_files(tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_text(robot())
    with path.open() as file:
        pass
    refused(file, "closed file")
    text = robot()
    assert read_urdf(Broken(text[:9], text[9:], "")) == read_urdf(text)


def test_a_large_source_is_refused_wherever_it_comes_from(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MAX_BYTES", 100)
    text = robot()
    path = tmp_path / "robot.urdf"
    path.write_text(text)
    for source in (text, text.encode(), path, io.StringIO(text), io.BytesIO(text.encode()), Broken(*[text] * 9)):
        refused(source, "larger than 100 bytes")
    assert sources.read_source("<a/>") == b"<a/>"


# XML


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (robot()[:-5], "not well-formed XML at line 1"),
        (robot()[:40].encode(), "not well-formed XML at line 1"),
        (b"\x00\x01\x02\xff\xfe", "not well-formed"),
        (b"\x7fELF" + bytes(range(256)), "not well-formed"),
        (b"solid mesh", "not well-formed"),
        ("<robot><link></robot>", "mismatched tag"),
        ('<?xml version="1.0"?>\n<robot>\n<link name="a" name="b"/>\n</robot>', "line 3"),
        ("<robot>&nothing;</robot>", "undefined entity"),
        ("<sdf/>", 'the root element is "sdf"'),
        ("<html><robot/></html>", 'the root element is "html"'),
        ('<robot name="\ud800"/>', "cannot be encoded"),
        (robot().encode("utf-16")[:-7], "not well-formed"),
    ],
)
def test_what_is_no_robot_file_is_refused(text, part):
    refused(text, part)


LAUGHS = '<!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'


@pytest.mark.parametrize(
    "doctype",
    [
        LAUGHS,
        "<!DOCTYPE robot>",
        '<!DOCTYPE robot SYSTEM "http://localhost/robot.dtd">',
        '<!DOCTYPE robot [<!ENTITY x SYSTEM "file:///etc/hostname">]>',
        '<!DOCTYPE robot [<!ENTITY % p SYSTEM "file:///etc/hostname"> %p;]>',
    ],
)
def test_document_types_and_entities_are_refused(doctype):
    refused(doctype + robot(), "document type or entities")
    refused((doctype + robot()).encode("utf-16"), "document type or entities")


def test_messages_begin_with_what_is_wrong():
    """What readers raise while the parser runs passes through it as it is."""
    for text, start in (
        (f"<!DOCTYPE robot>{robot()}", "the XML holds a document type"),
        ("<machine/>", "not a robot file"),
        ("<robot>" + "<x>" * 200, "line 1: elements are nested"),
        ('<robot name="r"><link/></robot>', "link (line 1): the attribute name"),
    ):
        with pytest.raises(LoadError) as caught:
            read_urdf(text)
        assert str(caught.value).startswith(start)


def test_bounds_on_depth_elements_and_links(monkeypatch):
    refused("<robot>" + "<visual>" * 200 + "</visual>" * 200 + "</robot>", "line 1", "100 deep")
    refused("<robot>" + "<a>" * 200 + "</a>" * 200 + "</robot>", "100 deep")
    read_urdf(robot(base="<visual>" + "<a>" * 90 + "</a>" * 90 + "</visual>"))
    monkeypatch.setattr(elements, "MAX_ELEMENTS", 5)
    refused(robot(), "more than 5 elements")
    monkeypatch.undo()
    monkeypatch.setattr(urdf, "MAX_LINKS", 1)
    refused(robot(), "more than 1 links or joints")


def test_long_tokens_take_linear_time():
    """Each of these took minutes where a parser was fed in pieces or an expression could match in two ways."""
    digits = "1" * 2_000_000
    refused(robot(f'<axis xyz="{digits}x 0 0"/>'), "axis xyz", "not 3 finite numbers")
    refused(robot(f'<axis xyz="{"1 " * 1_000_000}"/>'), "axis xyz")
    refused(robot(tip=INERTIAL.replace('"1"', f'"{digits}x"', 1)), "mass value")
    assert len(read_urdf(robot(f"<!--{digits}-->")).links) == 2


def test_unexpanded_xacro_is_refused():
    hint = "expand the file with xacro first, as robodyn.load_xacro does"
    for tag in ("macro", "include", "property", "if"):
        refused(
            f'<robot xmlns:xacro="http://www.ros.org/wiki/xacro"><xacro:{tag} name="x"/></robot>', f"xacro:{tag}", hint
        )
    refused(robot("<xacro:limits/>"), 'joint "j"', "<xacro:limits>", hint)
    refused(robot(tip='<xacro:box mass="1"/>'), 'link "tip"', "<xacro:box>", hint)
    refused(robot('<axis xyz="0 0 ${z}"/>'), 'joint "j" axis xyz', "${z}", hint)
    refused(robot('<limit lower="$(arg low)"/>'), 'joint "j" limit lower', "$(arg low)", hint)
    refused(robot(more='<parent link="${prefix}base"/><child link="tip"/>'), "${prefix}base", hint)
    refused('<robot name="$(arg name)"><link name="a"/></robot>', "$(arg name)", hint)


# Points of real files about XML


def test_point_10_versions_namespaces_and_prefixes():
    plain = read_urdf(robot())
    assert read_urdf('<?xml version="0.0"?>' + robot()) == plain
    assert read_urdf(b'<?xml version="0.0"?>' + robot().encode()) == plain
    assert read_urdf(robot(root='xmlns="http://www.ros.org" xmlns:xacro="http://www.ros.org/wiki/xacro"')) == plain
    prefixed = read_urdf(
        robot(extra='<gazebo:plugin a="${b}"><x/></gazebo:plugin>', joint='<limit lower="0" upper="1" a:b="2"/>')
    )
    assert finding(prefixed, "kept-tag").message == "<gazebo:plugin> belongs to another program; kept as text"
    assert '"a:b" of <limit>' in finding(prefixed, "ignored-attribute").message


@pytest.mark.parametrize(
    ("codec", "name", "mark"),
    [
        ("utf-8", "utf-8", b""),
        ("utf-8-sig", "UTF-8", b""),
        ("utf-16", "UTF-16", b""),
        ("utf-16-le", "UTF-16LE", b"\xff\xfe"),
        ("utf-16-be", "UTF-16", b"\xfe\xff"),
        ("latin-1", "ISO-8859-1", b""),
        ("cp1252", "windows-1252", b""),
    ],
)
def test_point_10_encodings_and_byte_order_marks(codec, name, mark):
    text = robot().replace('"tip"', '"M\u00fche"')
    declared = f'<?xml version="1.0" encoding="{name}"?>{text}'
    expected = read_urdf(text)
    assert expected.links[1].name == "M\u00fche"
    assert read_urdf(mark + declared.encode(codec)) == expected
    for source in (declared, "\ufeff " + declared, io.StringIO(declared)):
        assert read_urdf(source) == expected


VISUAL = "<visual><geometry>in</geometry> here </visual>"


@pytest.mark.parametrize("codec", ["utf-8", "utf-16", "latin-1"])
@pytest.mark.parametrize("text", ["x", "<![CDATA[ x ]]>", "&#120;", "&gt;", "\u00e9", " \n x"])
@pytest.mark.parametrize("before", ["", "<limit/>", VISUAL, "<gazebo/>", "<!-- > -->", "<?go?>", "</parent>"])
def test_text_is_seen_wherever_it_stands(before, text, codec):
    """Files without any are told by a look at their bytes, and no text is listened to in them."""
    parent = '<parent link="base">' if before == "</parent>" else '<parent link="base"/>'

    def read(inside):
        joint = f'{parent}{before}{inside} <child link="tip"/><axis xyz="0 0 1"/>'
        document = f'<?xml version="1.0" encoding="{codec}"?>' + robot("", more=joint, kind="continuous")
        return read_urdf(document.encode(codec))

    found = finding(read(text), "stray-text")
    assert (found.element, found.message) == ('joint "j"', "text inside <joint> is not read; skipped")
    assert "stray-text" not in codes(read(" "))


@pytest.mark.parametrize("codec", ["utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("before", ["", "\ufeff", "\n ", '<?xml version="1.0" encoding="UTF-32"?>'])
def test_point_10_utf_32_is_called_by_its_name(codec, before):
    refused((before + robot()).encode(codec), "UTF-32", "save it as UTF-8")


def test_point_10_lines_count_from_the_first_character_of_a_text():
    text = f'\n\n<?xml version="1.0"\nencoding="utf-16"?>\n{robot()}'
    assert {part.line for part in (*read_urdf(text).links, *read_urdf(text).joints)} == {5}


def test_point_10_a_link_and_a_joint_may_share_a_name():
    description = read_urdf(robot().replace('name="j"', 'name="tip"'))
    assert description.joints[0].name == description.links[1].name == "tip"


def test_point_10_a_dollar_where_nothing_is_used_is_allowed():
    text = robot(
        '<safety_controller k_velocity="${k}"/>',
        base='<visual name="$(v)"><origin xyz="${x} 0 0"/></visual>',
        extra='<gazebo reference="${g}"/><transmission name="$(t)"/><!-- <xacro:if value="$(arg DEBUG)"/> -->',
    )
    assert len(read_urdf(text).links) == 2
    read_urdf(robot('<axis xyz="${x}"/>', kind="fixed"))
    read_urdf(robot('<limit lower="${x}"/><dynamics damping="$(arg d)"/>', kind="fixed"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names on this system")
def test_point_10_meshes_and_textures_are_never_opened(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    mesh = f'<geometry><mesh filename="{pipe}"/></geometry><material><texture filename="{pipe}"/></material>'
    path = tmp_path / "robot.urdf"
    path.write_text(robot(base=f"<visual>{mesh}</visual>", tip=f"<collision>{mesh}</collision>{INERTIAL}"))
    reader = threading.Thread(target=read_urdf, args=(path,), daemon=True)
    reader.start()
    reader.join(timeout=60)
    assert not reader.is_alive(), "reading waits for a pipe"


def test_point_10_deep_and_wide_trees_need_no_recursion():
    n = 3000
    links = "".join(f'<link name="l{i}"/>' for i in range(n + 1))
    joint = '<joint name="j{0}" type="continuous"><parent link="l{1}"/><child link="l{0}"/></joint>'
    for parent in (lambda i: i - 1, lambda _: 0):
        joints = "".join(joint.format(i, parent(i)) for i in range(n, 0, -1))
        assert read_urdf(f"<robot>{links}{joints}</robot>").root == "l0"

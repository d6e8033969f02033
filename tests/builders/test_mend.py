"""XML that is not well-formed: what others read is read with findings, as the same robot; else it is refused."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from robots import own
from urdf_texts import refused

import robodyn as rd
from robodyn.io.builders.urdf import read_urdf

CODE = "xml-not-well-formed"
BODY = """
<link name="base"/>
<link name="rod"><inertial><origin xyz="0 0 -0.5"/><mass value="1"/>
  <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.01"/></inertial></link>
<joint name="hinge" type="continuous"><parent link="base"/><child link="rod"/><axis xyz="0 1 0"/></joint>
"""


def document(before="", inside="", after="", body=BODY):
    parts = (before, '<robot name="r">', body, inside, "</robot>", after)
    return b"".join(part if isinstance(part, bytes) else part.encode() for part in parts)


def named(name):
    """The robot with another name for its base."""
    body = BODY.encode().replace(b'"base"', b'"' + (name if isinstance(name, bytes) else name.encode()) + b'"')
    return document(body=body)


DECLARED = '<?xml version="1.0" encoding="{}"?>'
READ = {
    "two dashes": (document("<!-- a -- b -->"), 1, 'a comment holds "--"'),
    "three dashes at the end": (document(inside="\n<!-- a --->"), 7, 'a comment holds "--"'),
    "a ruler": (document("\n<!--" + "-" * 33 + "-->"), 2, 'a comment holds "--"'),
    "a comment in a comment": (document("<!-- a <!-- b -->"), 1, 'a comment holds "--"'),
    "a tag in dashes": (document(inside='<!-- -- <link name="x"/> -->'), 6, 'a comment holds "--"'),
    "ampersand": (document(inside='<gazebo x="a & b"/>'), 6, 'a bare "&" in an attribute, which should be "&amp;"'),
    "ampersand in a name": (named("b & c"), 2, 'a bare "&" in an attribute'),
    "reference without an end": (named("b&amp c&lt"), 2, 'a bare "&" in an attribute'),
    "reference to nothing": (named("b&#; &;"), 2, 'a bare "&" in an attribute'),
    "ampersand in text": (document(inside="<gazebo>a && b</gazebo>"), 6, 'a bare "&" in text'),
    "less than": (document(inside="<gazebo x='a < b'/>"), 6, 'a bare "<" in an attribute, which should be "&lt;"'),
    "less than in a name": (named("b<c"), 2, 'a bare "<" in an attribute'),
    "end of CDATA": (document(inside="<gazebo>a ]]> b</gazebo>"), 6, 'a "]]>" in text'),
    "Latin-1 in a comment": (document(b"\n<!-- M\xfcller -->"), 2, "bytes that are not UTF-8; read as Latin-1"),
    "Latin-1 that is declared UTF-8": (document(DECLARED.format("UTF-8").encode() + b"<!-- \xe9 -->"), 1, "Latin-1"),
    "Latin-1 in a name": (named(b"M\xfc"), 2, "read as Latin-1"),
    "Latin-1 beside UTF-8": (named(b"M\xfc\xc3\xbc"), 2, "read as Latin-1"),
    "half a character": (document(inside=b'<gazebo x="\xed\xa0\x80 \xc0\x80"/>'), 6, "read as Latin-1"),
    "control character": (document(inside="<gazebo x='\1'/>"), 6, "a control character in an attribute"),
    "control character in text": (document(inside="<gazebo>\x1b</gazebo>"), 6, "a control character in text"),
    "control character in a comment": (document(inside="<!-- \1 -->"), 6, "a control character in a comment"),
    "no character": (document(inside="<gazebo x='\uffff'/>"), 6, "a control character in an attribute"),
    "form feed": (document(inside='\f<gazebo\vx="1"/>'), 6, "form feeds or vertical tabs; read as blanks"),
    "second root": (document(after='\n<robot name="z"><link name="u"/></robot>'), 7, "a second root element <robot>"),
    "another root": (document(after="<!-- x --><a/><b></b>"), 6, "a second root element <a>"),
    "text before": (document("hello "), 1, "text outside of the root element"),
    "text after": (document(after="\n\nhello <!-- x --> again"), 8, "text outside of the root element"),
    "CDATA after": (document(after="<![CDATA[<x>]]>"), 6, "text outside of the root element"),
    "an end too many": (document(after="</link></robot>"), 6, "an end tag </link> after the root element"),
    "nulls at the end": (document(after=b"\n\0\0\xff<"), 7, "a null character, after which nothing is read"),
    "two marks": (document("\ufeff\ufeff"), 1, "text outside of the root element"),
    "two declarations": (document(DECLARED.format("utf-8") * 2), 1, "a second declaration"),
    "no version": (document('<?xml encoding="utf-8"?>'), 1, "the declaration <?xml ...?> is not as XML wants it"),
    "no quotes": (document("<?xml version=1.0?>"), 1, "the declaration <?xml ...?> is not as XML wants it"),
    "unknown encoding": (document(DECLARED.format("klingon")), 1, 'the declared encoding "klingon" is not known'),
    "encoding of words": (
        document(DECLARED.format("utf-16")),
        1,
        'the declared encoding "utf-16" is not known, or not',
    ),
    "no ASCII": (document(DECLARED.format("us-ascii"), "<gazebo x='\u00fc'/>"), 1, 'encoding "us-ascii" is not'),
    "no blank": (document(inside='<gazebo x="1"y="2"/>'), 6, "no blank before an attribute of <gazebo>"),
    "blank before a name": (document(inside="< gazebo/>"), 6, "blanks between < and gazebo"),
    "more in an end": (
        document(inside='<gazebo></gazebo x="1">'),
        6,
        "an end tag </gazebo> that holds more than its name",
    ),
    "no comment": (document("<! x >"), 1, '"<! x >" is no comment, and skipped'),
}
"""Documents that TinyXML-2 reads as the robot above, with the line and the words of the finding."""


@pytest.mark.parametrize("case", READ)
def test_what_others_read_is_read_with_a_finding(case, tmp_path):
    data, line, words = READ[case]
    model = rd.load_urdf(data)
    found = [each for each in model.report if each.code == CODE]
    assert any(each.line == line and words in each.message for each in found), found
    assert all(each.severity == "warning" and each.element == "robot" for each in found)
    assert np.allclose(rd.Dynamics(model, engine="reference").mass_matrix([0.0]), 0.26)
    assert model.link_names[1] == "rod" and "hello" not in str(model.link_names)
    if case in ("text after", "text before"):
        return  # it stands at the end, where TinyXML-2 refuses it; a declaration is looked for by Pinocchio
    path = tmp_path / "robot.urdf"
    path.write_bytes(data)
    pin = pytest.importorskip("pinocchio", reason="Pinocchio is the oracle")
    theirs = pin.buildModelFromUrdf(str(path))
    assert theirs.nv == 1 and np.allclose(pin.crba(theirs, theirs.createData(), np.array([1.0, 0.0])), 0.26)


def test_names_are_what_they_are_there():
    for written, name in (
        (b"b & c&lt;", "b & c<"),
        (b"b&ampc", "b&ampc"),
        (b"M\xfc\xc3\xbc", "M\xfc\xfc"),
        (b"a<b", "a<b"),
    ):
        assert read_urdf(named(written)).links[0].name == name


@pytest.mark.parametrize("name", ["shift_jis", "gb2312", "euc_kr", "big5"])
def test_encodings_that_the_parser_does_not_know_are_read(name):
    link = "\u624b" if name != "euc_kr" else "\uac00"
    text = DECLARED.format(name) + named(link).decode()
    description = read_urdf(text.encode(name))
    assert description.links[0].name == link
    assert not [each for each in description.report if each.code == CODE]
    mended = read_urdf(text.replace("<robot", "<!-- -- --><robot").encode(name))
    assert mended.links == description.links


def test_declared_encodings_hold_for_what_is_mended():
    for name in ("ISO-8859-1", "windows-1252", "utf-16"):
        text = DECLARED.format(name) + "<!-- -- -->" + named("M\u00fc").decode()
        assert read_urdf(text.encode(name)).links[0].name == "M\u00fc"


REFUSED = {
    "entity": (named("b&foo;c"), 2, ("undefined entity &foo; in an attribute", "&amp;")),
    "character of no use": (named("b&#1;c"), 2, ("invalid character number",)),
    "less than in text": (document(inside="<gazebo>a < b</gazebo>"), 6, ('a bare "<" in text', "&lt;")),
    "comment without an end": (document(inside="\n<!-- a -- "), 7, ("a comment that does not end", "-->")),
    "root without an end": (document(after="<foo>"), 6, ("<foo> is not closed before the file ends",)),
    "cut": (document()[:-8], 6, ("<robot> is not closed before the file ends",)),
    "cut in a tag": (document()[:-3], 6, ('a "</" that begins no end tag',)),
    "late declaration": (document("<!-- a -->\n" + DECLARED.format("utf-8")), 2, ("not stand at the very beginning",)),
    "declaration inside": (document(inside=DECLARED.format("utf-8")), 6, ("not stand at the very beginning",)),
    "attribute twice": (document(inside='<gazebo\nx="1" y="2" x="1"/>'), 7, ('duplicate attribute "x" of <gazebo>',)),
    "no quotes": (document(inside="<gazebo x=1/>"), 6, ('in <gazebo>: the attribute "x" has no value in quotes',)),
    "curly quotes": (document(inside="<gazebo x=\u201c1\u201d/>"), 6, ('the attribute "x" has no value in quotes',)),
    "other ends": (document(inside="<a><b>\n</a></b>"), 7, ("mismatched tag: </a> where </b> is wanted",)),
    "other capitals": (document(inside="<a></A>"), 6, ("mismatched tag: </A> where </a> is wanted",)),
    "a null": (document(inside=b'\0<link name="z"/>'), 6, ("a null character",)),
    "a null in a comment": (document(inside=b"<!--\n\0 -- -->"), 7, ("a null character",)),
    "instruction without an end": (document(inside="<? x >"), 6, ("does not end", "?>")),
    "odd name": (document(inside="<gazebo \u00adx='1'/>"), 6, ("invalid token",)),
}
"""Documents that TinyXML-2 refuses, or that say nothing certain: with the line and words of the message."""


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_told_in_plain_words_and_by_line(case):
    data, line, words = REFUSED[case]
    refused(data, f"not well-formed XML at line {line}", *words)


@pytest.mark.parametrize("error", ["<!-- -- -->", "<a x='&'/>", "\1"])
def test_document_types_and_entities_are_refused_behind_errors(error):
    for kind in ("<!DOCTYPE robot>", '<!DOCTYPE r [<!ENTITY a "b">]>', '<!ENTITY a "b">', "<!doctype x>"):
        refused(document(error + kind), "document type or entities")
        refused(document(inside=error + kind), "document type or entities")


def test_mending_is_without_effect_on_what_is_sound():
    """Errors anywhere between elements, with any line ends: the same robot, from the same lines."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    text = own("arm6").read_text(encoding="utf-8")
    for ends in ("\n", "\r\n", "\r"):
        sound = text.replace("\n", ends)
        expected = read_urdf(sound.encode())
        places = [i for i in range(len(sound)) if sound.startswith(f"{ends}  <", i)] + [len(sound)]
        for place in chance.sample(places, 8):
            error = chance.choice(
                ["<!-- -- -->", "<gazebo x='&'/>", "<gazebo x='<'/>", "<!x>"] if place != len(sound) else ["x"]
            )
            description = read_urdf((sound[:place] + error + sound[place:]).encode())
            assert (description.links, description.joints) == (expected.links, expected.joints)
            found = next(each for each in description.report if each.code == CODE)
            assert found.line == 1 + sound[:place].count(ends)


def test_hostile_texts_take_linear_time():
    """Each of these would take minutes if a part of them were looked at again and again."""
    n = 1_000_000
    start = time.thread_time()
    read_urdf(document(inside="<!--" + "-" * n + "-->"))
    read_urdf(document(inside="<!-- -- -->" + "<!---->" * (n // 20)))
    read_urdf(document(inside=b"<!-- " + b"\xff" * n + b" -->"))
    read_urdf(document(inside="<!-- -- -->" + "\r" * n))
    many = "more than 10000 errors"
    refused(document(inside=f'<a x="{"&" * n}"/>'), many)
    refused(document(inside=f'<a x="{"<" * n}"/>'), many)
    refused(document(inside="&" * n), many)
    refused(document(inside="<!-- -- -->" * (n // 10)), many)
    refused(document(inside="<" * n), 'a bare "<"')
    refused(document(inside="<!--" * n), "does not end")
    refused(document(inside="<a " * n), "in <a>")
    refused(document(inside="\1" + "<a>" * n), "nested more than 100 deep")
    refused(document(inside=f'<a x="&{"a" * n};"/>'), "undefined entity")
    refused(document(inside=f'\1<a x="&#{"1" * n};"/>'), "invalid character number")
    assert time.thread_time() - start < 5.0


def test_elements_are_bounded_behind_errors(monkeypatch):
    monkeypatch.setattr("robodyn.io.builders.elements.MAX_ELEMENTS", 5)
    refused(document("<!-- -- -->"), "more than 5 elements")


def test_other_readers_mend_as_well(tmp_path):
    sdf = '<sdf version="1.9"><!-- a -- b --><model name="m"><link name="a & b"/></model></sdf>'
    model = rd.load_sdf(sdf)
    assert "a & b" in model.link_names
    found = [each for each in model.report if each.code == CODE]
    assert [each.element for each in found] == ["sdf", "sdf"]
    assert rd.load(sdf).link_names == model.link_names
    pytest.importorskip("trimesh", reason="the viewer's looks need trimesh")
    from robodyn.tools.viewer.visuals import looks_of

    visual = '<visual><geometry><box size="1 1 1"/></geometry></visual>'
    looks = looks_of(document("<!-- a -- b -->", body=f'<link name="a & b">{visual}</link>'), ())
    assert [shape[0] for shape in looks.shapes] == ["a & b"] and not looks.left_out

"""Small URDF texts for tests, and what tests ask of a report."""

import pytest

from robodyn.internals.errors import LoadError
from robodyn.io.builders.urdf import read_urdf

INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'
ENDS = '<parent link="base"/><child link="tip"/>'
LIMIT = '<limit lower="-1" upper="1" effort="2" velocity="3"/>'


def robot(joint="", *, kind="revolute", base="", tip=INERTIAL, extra="", more=ENDS, root=""):
    """A robot of two links and one joint, with room for oddities."""
    joints = f'<joint name="j" type="{kind}">{more}{joint}</joint>'
    return f'<robot name="r" {root}><link name="base">{base}</link><link name="tip">{tip}</link>{joints}{extra}</robot>'


def codes(description):
    return {finding.code for finding in description.report}


def finding(description, code):
    return next(finding for finding in description.report if finding.code == code)


def refused(text, *parts, **options):
    """The text is refused with a LoadError whose message holds all parts."""
    with pytest.raises(LoadError) as caught:
        read_urdf(text, **options)
    for part in parts:
        assert part in str(caught.value), f"{part!r} is not in {caught.value}"

"""`robodyn simulate`: a robot through time, with the contacts of MJCF."""

from __future__ import annotations

import numpy as np
import pytest
from cli_runner import refused, run
from robots import own

BALL = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 .2"><freejoint/>
<geom type="{kind}" size=".1 .1 .1" mass="1"/></body></worldbody><keyframe><key name="high" qpos="0 0 9 1 0 0 0"/>
</keyframe></mujoco>"""


@pytest.fixture
def ball(tmp_path):
    pytest.importorskip("mujoco")
    path = tmp_path / "ball.xml"
    path.write_text(BALL.format(kind="sphere"))
    return path


def test_a_ball_comes_to_rest_on_the_floor_and_falls_through_it_without_contacts(ball, tmp_path):
    out = tmp_path / "states.npz"
    status, text, err = run("simulate", ball, "--seconds", "1", "--out", out)
    assert (status, err) == (0, "") and "converged: True" in text and "1 s by 'mujoco'" in text
    end = np.load(out)
    assert end["q"][0, 2] == 0.2  # where MuJoCo begins
    assert end["q"][-1, 2] == pytest.approx(0.1, abs=2e-3) and len(end["q"]) == 501
    assert run("simulate", ball, "--seconds", "1", "--no-contacts", "--out", out)[0] == 0
    assert np.load(out)["q"][-1, 2] < -4.0
    assert run("simulate", ball, "--seconds", "0.1", "--keyframe", "high", "--out", out)[0] == 0
    assert np.load(out)["q"][-1, 2] == pytest.approx(9.0 - 9.81 * 0.1**2 / 2, abs=1e-3)


def test_what_contacts_cannot_do_is_named(ball):
    ball.write_text(BALL.format(kind="ellipsoid"))
    refused(["simulate", ball], "ellipsoid")
    assert run("simulate", ball, "--ignore-unsupported", "--seconds", "0.1")[0] == 0
    refused(["simulate", ball, "--no-contacts", "--max-contacts", "3"], "--max-contacts")
    refused(["simulate", ball, "--no-contacts", "--keyframe", "low"], '--keyframe: got "low"')


def test_robots_of_urdf_have_no_contacts():
    status, text, err = run("simulate", own("arm7"), "--q", "0,1,0,0,0,0,0", "--seconds", "0.1")
    assert (status, err) == (0, "") and "contacts" not in text
    refused(["simulate", own("arm7"), "--contacts"], "contacts")


def test_a_plot(tmp_path):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "arm.svg"
    status, text, err = run("simulate", own("arm7"), "--seconds", "0.1", "--plot", figure)
    assert (status, err) == (0, "") and "wrote" in text and "<svg" in figure.read_text()
    refused(["simulate", own("arm7"), "--plot", tmp_path / "arm.txt"], "--plot: got")

"""Views: what they take and refuse, sliders and configurations that follow each other, closing, threads."""

from __future__ import annotations

import dataclasses
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest
from cli_runner import refused, run
from robots import OWN, own
from viewed import by_user

import robodyn as rd

pytest.importorskip("viser")
pytestmark = pytest.mark.extras

ARM, SEED = own("arm6"), 30


@pytest.fixture(scope="module")
def model():
    return rd.load_urdf(ARM)


@pytest.fixture
def view(model):
    with rd.show(model) as shown:
        yield shown


def reached(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.status


def test_it_answers_here_and_nowhere_else(view):
    assert view.url.startswith("http://127.0.0.1:") and reached(view.url) == 200
    port = int(view.url.rsplit(":", 1)[1])
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"}
    for address in [each for each in others if not each.startswith("127.")]:
        with pytest.raises(OSError), socket.create_connection((address, port), timeout=2):
            pass
    assert view._server.request_share_url() is None


def test_nothing_is_printed(model, capfd):
    with rd.show(model):
        pass
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
@pytest.mark.parametrize("base", ["fixed", "floating"])
def test_every_robot_is_shown(path, base):
    robot = rd.load_urdf(path, base=base, strict=False)
    for source in (None, False):
        with rd.show(robot, looks=source) as shown:
            q = robot.random_configuration(SEED)
            shown.show(q)
            np.testing.assert_array_equal(shown.q, q)
            values = [slider.value for slider in shown._sliders]
            assert len(values) == robot.nv
            assert all(slider.min <= slider.value <= slider.max for slider in shown._sliders)


def test_what_is_drawn_stands_where_the_links_are(model):
    q = model.random_configuration(SEED)
    dyn = rd.Dynamics(model)
    with rd.show(model, q) as shown:
        for again in (q, model.random_configuration(SEED + 1)):
            shown.show(again)
            poses, nodes = dyn.forward_kinematics(again), shown._scene._nodes
            np.testing.assert_allclose(nodes["frames"].batched_positions, poses[:, :3, 3], atol=1e-6)
            np.testing.assert_allclose(nodes["centre"].batched_positions[0], dyn.center_of_mass(again), atol=1e-6)
            pairs = [[poses[p, :3, 3], poses[k, :3, 3]] for k, p in enumerate(model.link_parent) if p >= 0]
            np.testing.assert_allclose(nodes["lines"].points, pairs, atol=1e-6)
            for link, frame in nodes["looks"].items():
                np.testing.assert_allclose(frame.position, poses[link, :3, 3], atol=1e-12)
            m = model.link_inertia[:, 0]
            centres = nodes["solids"].batched_positions
            moving = model.link_body[shown._scene._solids.link] >= 0
            weights = m[shown._scene._solids.link][moving]
            np.testing.assert_allclose(weights @ centres[moving] / weights.sum(), dyn.center_of_mass(again), atol=1e-6)


def test_sliders_and_configurations_follow_each_other(view, model):
    q = model.random_configuration(SEED)
    view.show(q)
    np.testing.assert_allclose([slider.value for slider in view._sliders], q)
    by_user(view._sliders[2], -0.25)
    wanted = q.copy()
    wanted[2] = -0.25
    np.testing.assert_array_equal(view.q, wanted)
    view.show(np.full(6, 30.0))
    assert all(slider.max == slider.value == 30.0 for slider in view._sliders), "beyond limits ranges widen"


def test_sliders_of_a_floating_base():
    robot = rd.load_urdf(own("satellite"), base="floating")
    with rd.show(robot, looks=False) as shown:
        names = ["x", "y", "z", "roll", "pitch", "yaw"]
        for name, slider, value in zip(names, shown._sliders, (0.1, -0.2, 0.3, 0.4, -0.5, 0.6), strict=False):
            assert slider.label.endswith(name)
            by_user(slider, value)
        from scipy.spatial.transform import Rotation

        np.testing.assert_allclose(shown.q[:3], [0.1, -0.2, 0.3])
        np.testing.assert_allclose(Rotation.from_quat(shown.q[3:7]).as_euler("xyz"), [0.4, -0.5, 0.6])
        np.testing.assert_allclose([slider.value for slider in shown._sliders[:6]], [0.1, -0.2, 0.3, 0.4, -0.5, 0.6])


def test_joints_that_follow_others_move_with_them():
    robot = rd.load_urdf(own("hand"))
    with rd.show(robot) as shown:
        assert len(shown._sliders) == robot.nq < robot.nq_tree
        by_user(shown._sliders[0], 0.2)
        poses = rd.Dynamics(robot).forward_kinematics(shown.q)
        np.testing.assert_allclose(shown._scene._nodes["frames"].batched_positions, poses[:, :3, 3], atol=1e-6)


def test_layers(view, model):
    assert {"shapes", "inertia", "frames", "lines", "centre of mass", "forces", "names"} == set(view.layers)
    view.layer("frames")
    assert view.layers["frames"] and view._scene._nodes["frames"].visible and view._boxes["frames"].value
    by_user(view._boxes["frames"], False)
    assert not view._scene._nodes["frames"].visible
    view.layer("names")
    assert [label.text for _, label in view._scene._nodes["names"]] == list(model.link_names)
    view.layer("names", False)
    assert "names" not in view._scene._nodes
    for wrong in ("frame", 3, None):
        with pytest.raises(rd.ArgumentError, match=r"name: got .*allowed: 'shapes'"):
            view.layer(wrong)
    with pytest.raises(rd.ArgumentError, match="shown: got 1"):
        view.layer("frames", 1)


def test_forces_are_arrows_on_their_lines(model):
    q = model.random_configuration(SEED)
    tool = rd.Dynamics(model).link_pose(q, "tool0")[:3, 3]
    f_ext = rd.external_force(model, q, "tool0", [0, 0, 0, 0, 0, -50.0])
    with rd.show(model, q, f_ext=f_ext) as shown:
        arrows = shown._scene._nodes["forces"]
        ((start, end),) = arrows.points
        along = (end - start) / np.linalg.norm(end - start)
        np.testing.assert_allclose(along, [0, 0, -1], atol=1e-6)
        np.testing.assert_allclose(start[:2], tool[:2], atol=1e-6)
        longest = np.linalg.norm(end - start)
        shown.show(q, f_ext=0.5 * f_ext)
        np.testing.assert_allclose(np.linalg.norm(np.diff(arrows.points[0], axis=0)), 0.5 * longest, rtol=1e-5)
        shown.show(q)
        assert not arrows.visible
        shown.layer("forces", False)
        shown.layer("forces", True)
        assert not arrows.visible, "nothing pushes"
        shown.layer("forces", False)
        shown.show(q, f_ext=f_ext)
        assert not arrows.visible, "hidden"


def test_constraints_are_drawn():
    robot = rd.load_urdf(own("arm6").parent / "loops" / "four_bar.urdf")
    q = robot.assemble(np.array([np.pi / 3, -0.5, 1.5]), free=["elbow", "swing"])
    with rd.show(robot, q) as shown:
        first, second = shown._scene._nodes["held"].batched_positions
        np.testing.assert_allclose(first, second, atol=1e-6)
        shown.show(np.zeros(3))
        first, second = shown._scene._nodes["apart"].points[0]
        assert np.linalg.norm(first - second) > 0.01
    own_constraints = rd.Dynamics(rd.load_urdf(ARM), constraints=[rd.Point("tool0", to_at=[0.1, 0.2, 0.3])])
    with rd.show(own_constraints) as shown:
        np.testing.assert_allclose(shown._scene._nodes["held"].batched_positions[1], [0.1, 0.2, 0.3], atol=1e-6)


# What is refused.


@pytest.mark.parametrize(
    ("q", "error", "says"),
    [
        (np.zeros(5), rd.ArgumentError, r"q: got shape \(5,\)"),
        (np.zeros((2, 6)), rd.ArgumentError, r"q: got shape \(2, 6\)"),
        ("abc", rd.ArgumentError, "q: got"),
        (np.full(6, np.nan), rd.NumericalError, "q: NaN or infinite"),
        ([0, 0, 0, 0, 0, np.inf], rd.NumericalError, "q: NaN or infinite"),
        (np.zeros(6) * 1j, rd.ArgumentError, "q: got"),
    ],
)
def test_configurations_that_are_none(view, model, q, error, says):
    before = view.q
    with pytest.raises(error, match=says):
        view.show(q)
    with pytest.raises(error, match=says):
        rd.show(model, q)
    np.testing.assert_array_equal(view.q, before)


def test_configurations_that_are_too_far_away():
    robot = rd.load_urdf(own("cartpole"))
    with rd.show(robot) as shown:
        with pytest.raises(rd.NumericalError, match=r"q: it puts links beyond 1e[+]09 m"):
            shown.show([1e12, 0.0])
        assert (shown.q == 0).all()
    with pytest.raises(rd.NumericalError, match="beyond"):
        rd.show(robot, [1e300, 0.0])


def test_a_quaternion_of_no_length():
    robot = rd.load_urdf(own("satellite"), base="floating")
    with rd.show(robot, looks=False) as shown, pytest.raises(rd.ArgumentError, match="quaternion"):
        shown.show(np.zeros(robot.nq))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"f_ext": np.zeros((5, 6))}, "f_ext: got shape"),
        ({"f_ext": np.zeros((2, 6, 6))}, "f_ext: got shape"),
        ({"model": 3}, "model: got 3; only a rollout takes one"),
        ({"port": -1}, "port: got -1"),
        ({"port": 65536}, "port: got 65536"),
        ({"port": "80"}, "port: got '80'"),
        ({"package_dirs": "here"}, "package_dirs: got"),
        ({"package_dirs": [3]}, "package_dirs: got"),
    ],
)
def test_options_that_are_none(model, options, says):
    with pytest.raises(rd.ArgumentError, match=says):
        rd.show(model, **options)


def test_forces_that_are_none(model):
    for wrong, says in ((np.nan, "f_ext: NaN"), (1e200, "f_ext: it has numbers beyond")):
        with pytest.raises(rd.NumericalError, match=says):
            rd.show(model, f_ext=np.full((6, 6), wrong))


@pytest.mark.parametrize("robot", [None, 3, "arm.urdf", object(), [1, 2]])
def test_robots_that_are_none(robot):
    with pytest.raises(rd.ArgumentError, match="robot: got"):
        rd.show(robot)


def test_a_port_that_is_taken(view, model):
    port = int(view.url.rsplit(":", 1)[1])
    with pytest.raises(rd.ArgumentError, match=f"port: got {port}, on which nothing can listen now"):
        rd.show(model, port=port)


def test_without_viser(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(rd.UnavailableError, match=r'pip install "\.\[viewer\]"'):
        rd.show(model)
    refused(["view", ARM], "viser cannot be imported", ".[viewer]")


# Odd robots.


def test_ten_thousand_bodies():
    robot = rd.auto_tree(10_000, branching=1.5)
    with rd.show(robot) as shown:
        assert len(shown._sliders) == 100
        begin = time.monotonic()
        shown.show(robot.random_configuration(SEED))
        assert time.monotonic() - begin < 30.0
        shown.layer("names")
        assert len(shown._scene._nodes["names"]) == 300


def test_more_links_than_are_drawn():
    robot = rd.auto_tree(100_001)
    with pytest.raises(rd.ArgumentError, match="robot: got a robot of 100001 links; wanted at most 100000"):
        rd.show(robot)


def test_masses_that_are_zero():
    robot = rd.load_urdf(ARM)
    nothing = dataclasses.replace(robot, inertia=np.zeros((6, 10)), link_inertia=np.zeros((8, 10)))
    with rd.show(nothing, looks=False) as shown:
        assert "inertia" not in shown.layers and "centre of mass" not in shown.layers
        shown.show(robot.random_configuration(SEED))


@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.parametrize("mass", ["", '<mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/>'])
def test_one_link_alone(base, mass):
    text = f'<robot name="r"><link name="a"><inertial>{mass}</inertial></link></robot>'
    with rd.show(rd.load_urdf(text if mass else '<robot name="r"><link name="a"/></robot>', base=base)) as shown:
        shown.show(shown.q)


def test_inertias_of_no_part_of_a_robot_are_said():
    text = ARM.read_text().replace('<mass value="8.393"/>', '<mass value="1e-6"/>', 1)
    assert text != ARM.read_text()
    with rd.show(rd.load_urdf(text, strict=False)) as shown:
        assert any("larger than the robot" in each for each in shown.left_out), shown.left_out


# Rollouts.


@pytest.fixture(scope="module")
def rollout(model):
    q0 = model.random_configuration(SEED, (3, 2))
    return rd.Dynamics(model).rollout(q0, np.zeros((3, 2, 6)), dt=0.01, steps=50)


def test_rollouts_play(rollout):
    with rd.show(rollout) as shown:
        np.testing.assert_array_equal(shown.q, rollout.q[0, 0, 0])
        shown.go(0.2, row=4)
        np.testing.assert_array_equal(shown.q, rollout.q[20, 2, 0])
        assert shown._times.value == 0.2 and shown._rows.value == 4
        shown.play(speed=2.0)
        seen = set()
        end = time.monotonic() + 20.0
        while len(seen) < 5 and time.monotonic() < end:
            q = shown.q
            (k,) = np.flatnonzero((rollout.q[:, 2, 0] == q).all(axis=1))[:1]
            seen.add(int(k))
            time.sleep(0.02)
        assert len(seen) >= 5
        shown.pause()
        stopped = shown.q
        time.sleep(0.2)
        np.testing.assert_array_equal(shown.q, stopped)
        np.testing.assert_allclose([slider.value for slider in shown._sliders], stopped)
        shown.play()
        shown.show(np.zeros(6))
        time.sleep(0.2)
        assert (shown.q == 0).all(), "a configuration that is given stays"


def test_a_rollout_that_leaves_the_picture(model):
    robot = rd.load_urdf(own("cartpole"))
    q = np.zeros((3, 2))
    q[1:, 0] = 1e12
    run = rd.Rollout(np.array([0.0, 0.1, 0.2]), q, np.zeros((3, 2)), np.array(-1), 2, robot)
    with rd.show(run) as shown:
        with pytest.raises(rd.NumericalError, match="beyond"):
            shown.go(0.1)
        shown.play()
        end = time.monotonic() + 20.0
        while shown._playing and time.monotonic() < end:
            time.sleep(0.05)
        assert not shown._playing and shown._player.is_alive()
        assert shown._time == shown._times.value < 0.1, "the time is that of what is shown"


def test_a_row_that_cannot_be_drawn_is_not_gone_to(rollout):
    q = rollout.q.copy()
    q[1:, 1, 0] = 1e25  # as a row that diverged: finite, but no angle whose sine is known
    with rd.show(dataclasses.replace(rollout, q=q)) as shown:
        shown.go(0.1, row=1)
        before = shown.q
        with pytest.raises(rd.NumericalError, match="q: it cannot be drawn, as in a motion that diverges"):
            shown.go(0.2, row=2)
        assert shown._row == shown._rows.value == 1 and shown._time == shown._times.value == 0.1
        np.testing.assert_array_equal(shown.q, before)


def test_rows_of_one_time(rollout, tmp_path):
    one = dataclasses.replace(rollout, t=rollout.t[:1], q=rollout.q[:1], qd=rollout.qd[:1])
    with rd.show(one) as shown:
        shown.go(0.0, row=3)
        np.testing.assert_array_equal(shown.q, one.q[0, 1, 1])
        by_user(shown._rows, 4)
        np.testing.assert_array_equal(shown.q, one.q[0, 2, 0])
    pages = [tmp_path / f"{row}.html" for row in (0, 3)]
    for row, page in zip((0, 3), pages, strict=True):
        one.save_html(page, row=row)
    assert pages[0].read_bytes() != pages[1].read_bytes()


def test_a_handle_stays_when_a_page_is_not_written(view, tmp_path, monkeypatch):
    view.target(-1 + len(view.model.link_names))

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("robodyn.tools.viewer.view.write_page", full)
    with pytest.raises(OSError, match="no space"):
        view.save_html(tmp_path / "page.html")
    assert view._target._handle.visible


def test_the_play_bar(rollout):
    with rd.show(rollout) as shown:
        by_user(shown._times, 0.31)
        np.testing.assert_array_equal(shown.q, rollout.q[31, 0, 0])
        by_user(shown._rows, 5)
        np.testing.assert_array_equal(shown.q, rollout.q[31, 2, 1])
        for call in shown._button._impl.update_cb:
            call(SimpleNamespace(client_id=1, client=None, target=shown._button))
        assert shown._playing and shown._button.label == "pause"
        by_user(shown._pace, 3.0)
        assert shown._speed == 3.0


def test_forces_of_rollouts(rollout, model):
    f_ext = np.zeros((51, 3, 2, 6, 6))
    f_ext[10:, 1, 1, 5, 5] = 10.0
    with rd.show(rollout, f_ext=f_ext) as shown:
        assert "forces" not in shown._scene._nodes
        shown.go(0.3, row=3)
        arrows = shown._scene._nodes["forces"]
        assert arrows.visible
        shown.go(0.0)
        assert not arrows.visible
    for each in (f_ext[0, 0, 0], f_ext[:, :1, :1]):
        with rd.show(rollout, f_ext=each) as shown:
            shown.go(0.5, row=5)
    with pytest.raises(rd.ArgumentError, match="f_ext: got shape"):
        rd.show(rollout, f_ext=f_ext[:7])


def test_rollouts_that_were_read(rollout, model, tmp_path):
    rollout.save(tmp_path / "run.npz")
    again = rd.Rollout.load(tmp_path / "run.npz")
    with pytest.raises(rd.ArgumentError, match="model: the rollout does not know its robot"):
        rd.show(again)
    with pytest.raises(rd.ArgumentError, match="model: the rollout does not know its robot"):
        again.save_html(tmp_path / "run.html")
    with rd.show(again, model=model) as shown:
        np.testing.assert_array_equal(shown.q, again.q[0, 0, 0])
    again.save_html(tmp_path / "run.html", model=model)
    with pytest.raises(rd.ArgumentError, match=r"rollout.q: got shape .* nq of 'cartpole'"):
        rd.show(again, model=rd.load_urdf(own("cartpole")))


def test_what_rollouts_refuse(rollout, tmp_path):
    path = tmp_path / "run.html"
    for options, says in (
        ({"row": 6}, "row: got 6"),
        ({"row": -1}, "row: got -1"),
        ({"fps": 0.0}, "fps: got 0"),
        ({"fps": 1e9}, "fps: got 1e[+]09, which makes 5e[+]08 frames; wanted at most 20000"),
        ({"fps": "many"}, "fps: got 'many'"),
        ({"speed": -1}, "speed: got -1"),
        ({"speed": 1e-300}, "fps: got"),
        ({"looks": 3}, None),
    ):
        if says is None:
            rollout.save_html(path, **options)
            continue
        with pytest.raises(rd.ArgumentError, match=says):
            rollout.save_html(path, **options)
    with pytest.raises(rd.ArgumentError, match="path: got"):
        rollout.save_html("")
    with pytest.raises(rd.ArgumentError, match=r"q: got .*; a rollout has its configurations"):
        rd.show(rollout, np.zeros(6))
    broken = dataclasses.replace(rollout, q=np.where(rollout.q > 0, np.nan, rollout.q))
    with pytest.raises(rd.NumericalError, match=r"rollout\.q: NaN"):
        rd.show(broken)
    with rd.show(rollout) as shown:
        with pytest.raises(rd.ArgumentError, match="row: got 6"):
            shown.go(0.0, row=6)
        with pytest.raises(rd.ArgumentError, match="t: got nan"):
            shown.go(np.nan)
        with pytest.raises(rd.ArgumentError, match="speed: got 0"):
            shown.play(0)


def test_what_does_not_move_cannot_be_played(view, rollout):
    with pytest.raises(rd.ArgumentError, match="nothing to play"):
        view.play()
    with pytest.raises(rd.ArgumentError, match="nothing to play"):
        view.go(0.0)
    one = dataclasses.replace(rollout, t=rollout.t[:1], q=rollout.q[:1], qd=rollout.qd[:1])
    with rd.show(one) as shown, pytest.raises(rd.ArgumentError, match="nothing to play"):
        shown.play()


def test_pages(view, rollout, tmp_path):
    path = tmp_path / "page.html"
    view.save_html(path)
    rollout.save_html(tmp_path / "run.html")
    for each in (path, tmp_path / "run.html"):
        text = each.read_text(encoding="utf-8")
        assert "<html" in text and "__VISER_EMBED_DATA__=" in text
        assert set(re.findall(r"https?://[\w.]+", text)) <= {"http://www.w3.org"}, "nothing is fetched"
    assert view.layers["shapes"] and reached(view.url) == 200, "a view goes on after it was written"
    with pytest.raises(rd.ArgumentError, match="path"):
        view.save_html(tmp_path)


# Life.


def test_closing(model):
    shown = rd.show(model)
    url = shown.url
    assert url in repr(shown) and f'src="{url}"' in shown._repr_html_()
    shown.close()
    shown.close()
    assert "closed" in repr(shown) and "closed" in shown._repr_html_()
    with pytest.raises(OSError):
        reached(url)
    for act in (
        lambda: shown.show(np.zeros(6)),
        lambda: shown.layer("frames"),
        lambda: shown.save_html("x.html"),
        shown.pause,
        lambda: shown.target(None),
    ):
        with pytest.raises(rd.ArgumentError, match="the view is closed"):
            act()
    assert shown.q.shape == (6,)
    shown.wait()


def test_no_thread_stays(model, rollout):
    before = set(threading.enumerate())
    for _ in range(3):
        with rd.show(model), rd.show(rollout) as shown:
            shown.play()
    end = time.monotonic() + 10.0
    while set(threading.enumerate()) - before and time.monotonic() < end:
        time.sleep(0.05)
    assert set(threading.enumerate()) <= before


def test_several_at_once_and_threads(model, rollout):
    with rd.show(model) as a, rd.show(model) as b, rd.show(rollout) as c:
        assert len({a.url, b.url, c.url}) == 3
        c.play()
        problems = []

        def move(seed):
            try:
                for k in range(50):
                    a.show(model.random_configuration(seed + k))
                    b.layer("frames", k % 2 == 0)
                    c.go(0.01 * k)
                    by_user(a._sliders[k % 6], 0.1 * seed)
            except Exception as error:
                problems.append(error)

        threads = [threading.Thread(target=move, args=(seed,)) for seed in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert problems == []
        a.show(np.full(6, 0.5))
        np.testing.assert_allclose([slider.value for slider in a._sliders], 0.5)


def test_closing_while_others_use_it(model, rollout):
    for _ in range(5):
        shown, others = rd.show(rollout), []
        shown.play()

        def use(shown=shown, others=others):
            try:
                while True:
                    shown.go(0.1)
            except rd.ArgumentError as error:
                others.append(str(error))

        threads = [threading.Thread(target=use) for _ in range(3)]
        for each in threads:
            each.start()
        time.sleep(0.05)
        shown.close()
        for each in threads:
            each.join(20.0)
        assert len(others) == 3 and all("the view is closed" in each for each in others)


def test_a_process_that_forgets_to_close_ends():
    code = f"import robodyn as rd; v = rd.show(rd.load_urdf({str(ARM)!r})); print('shown')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("shown")


# The command.


def test_the_command_writes_a_page(tmp_path):
    page = tmp_path / "arm.html"
    status, out, err = run("view", ARM, "--out", page, "--q", "0.1,0.2,0.3,0,0,0")
    assert (status, err) == (0, "") and str(page) in out and page.stat().st_size > 100_000
    refused(["view", ARM, "--q", "1,2"], "--q: 2 given; wanted 6")
    refused(["view", ARM, "--out", tmp_path], "--out")
    refused(["view", tmp_path / "none.urdf"], "none.urdf")


def test_the_command_serves_until_it_is_interrupted():
    process = subprocess.Popen(
        [sys.executable, "-m", "robodyn", "view", str(ARM), "--no-browser"], stdout=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline()
        url = line.split()[3].rstrip(",")
        assert "arm6 is at http://127.0.0.1:" in line and reached(url) == 200
    finally:
        process.send_signal(2)
        process.communicate(timeout=60)
    assert process.returncode == 0


# Dragging.


def drag(view, by, phase="update"):
    """What viser does where somebody drags the handle."""
    handle = view._target._handle
    handle._impl.position = np.array(handle.position) + by
    for call in handle._impl_aux.update_cb:
        call(SimpleNamespace(client_id=1, client=None, target=handle, phase=phase))
    return np.array(handle.position)


def test_inverse_kinematics_follows_the_handle(model):
    q, dyn = np.array([0.4, -0.9, 1.1, 0.3, 0.7, 0.2]), rd.Dynamics(model)
    with rd.show(model, q) as shown:
        shown.target("tool0")
        start = dyn.link_pose(q, "tool0")
        for k in range(8):
            last, place = shown.q, drag(shown, [0.0, 0.01, -0.01])
            pose = dyn.link_pose(shown.q, "tool0")
            np.testing.assert_allclose(pose[:3, 3], place, atol=2e-6)
            np.testing.assert_allclose(pose[:3, :3], start[:3, :3], atol=2e-6)
            assert np.abs(shown.q - last).max() < 0.3, f"no other branch, step {k}"
            np.testing.assert_allclose([slider.value for slider in shown._sliders], shown.q)
        far = drag(shown, [0.0, 0.0, 9.0])
        away = dyn.link_pose(shown.q, "tool0")[:3, 3]
        assert np.linalg.norm(far - away) > 5.0 and np.isfinite(shown.q).all()
        np.testing.assert_allclose(shown._target._handle.position, far, err_msg="it is still held")
        drag(shown, 0.0, "end")
        np.testing.assert_allclose(shown._target._handle.position, away, err_msg="it comes back to the link")
        shown.show(q)
        np.testing.assert_allclose(shown._target._handle.position, start[:3, 3], atol=1e-9)


def test_handles_of_other_links(view):
    view.target("forearm")
    assert view._aims.value == "forearm"
    by_user(view._aims, "tool0")
    assert view._target.link == "tool0"
    by_user(view._aims, "(nothing)")
    assert view._target is None
    with pytest.raises(rd.ArgumentError, match="link: got 'base', which is fixed to the world"):
        view.target("base")
    with pytest.raises(rd.ArgumentError, match="link: got 'hand'"):
        view.target("hand")


def test_a_floating_robot_is_dragged():
    robot = rd.load_urdf(own("quadruped"), base="floating")
    foot = next(name for name in robot.link_names if name.endswith("_foot"))
    with rd.show(robot) as shown:
        shown.target(foot)
        place = drag(shown, [0.05, 0.02, 0.04])
        np.testing.assert_allclose(rd.Dynamics(robot).link_pose(shown.q, foot)[:3, 3], place, atol=2e-6)

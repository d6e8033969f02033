"""What a browser shows: places in the picture are where the camera has to see them, sliders, pages that play.

One link of a robot is red. Its middle in the picture is compared with the projection of where kinematics puts it.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from browser import chromium, served
from robots import own

import robodyn as rd

pytest.importorskip("viser")
pytestmark = pytest.mark.extras

PANEL = 560
"""Where the panel begins, pixels from the left."""
NEAR = 6.0
"""Pixels by which the middle of a ball in the picture may be off: perspective, shadows, edges."""
RED = '<material name="red"><color rgba="1 0 0 1"/></material>'


def red_arm():
    """An arm of models/ without its own shapes, whose tool is a red ball."""
    ball = f'<visual><geometry><sphere radius="0.06"/></geometry>{RED}</visual>'
    text = own("arm6").read_text().replace("<visual>", "<collision>").replace("</visual>", "</collision>")
    assert text.count('<link name="tool0">') == 1
    text = text.replace('<link name="tool0">', f'<link name="tool0">{ball}')
    return rd.load_urdf(text), text


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def arm():
    return red_arm()


def red(picture):
    """Where red pixels are: their mean (x, y), or None where there are next to none."""
    r, g, b = picture[..., 0], picture[..., 1], picture[..., 2]
    rows, columns = np.nonzero((r > 90) & (g < 0.65 * r) & (b < 0.65 * r))
    return np.array([columns.mean(), rows.mean()]) if len(rows) > 20 else None


def projected(camera, point, width, height):
    """Where a pinhole camera, its y axis up, sees a point of the world."""
    ahead = camera.look_at - camera.position
    ahead = ahead / np.linalg.norm(ahead)
    right = np.cross(ahead, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    up = np.cross(right, ahead)
    away = point - camera.position
    f = height / 2.0 / np.tan(camera.fov / 2.0)
    return np.array(
        [width / 2.0 + f * (away @ right) / (away @ ahead), height / 2.0 - f * (away @ up) / (away @ ahead)]
    )


def canvas(browser):
    """(left, top, width, height) of the scene in the page."""
    script = "const r = document.querySelector('canvas').getBoundingClientRect(); return [r.x, r.y, r.width, r.height]"
    return np.array(browser.driver.execute_script(script), dtype=float)


def seen_at(browser, camera, point):
    left, top, width, height = canvas(browser)
    return np.array([left, top]) + projected(camera, point, width, height)


def tool(model, q):
    return rd.Dynamics(model).link_pose(q, "tool0")[:3, 3]


START = np.array([0.5, -0.9, 1.1, 0.3, 0.7, 0.2])


@pytest.fixture(scope="module")
def page(browser, arm):
    """A view that is open in the browser: to open a page takes longest, so tests share it."""
    model, text = arm
    with rd.show(model, START, looks=text) as view:
        browser.open(view.url)
        yield view


@pytest.fixture
def shown(page):
    page.show(START)
    return page


def require_red(browser, view, point):
    """Wait until the red ball is seen where the camera has to see it."""
    wanted = seen_at(browser, view._server.initial_camera, point)
    last = []

    def there():
        last[:] = [red(browser.picture())]
        return last[0] is not None and np.linalg.norm(last[0] - wanted) < NEAR

    browser.until(there, lambda: f"red at {last}, wanted {wanted}")
    return last[0]


def changed(picture, other, most=20):
    """How many pixels of the scene differ, left of the panel, whose sliders may still be on their way."""
    return int((np.abs(picture - other)[:, :PANEL].max(axis=2) > most).sum())


def test_links_are_seen_where_they_are(browser, arm, shown):
    seen = []
    for change in (0.0, 0.2, -0.2):
        q = START + change
        shown.show(q)
        seen.append(require_red(browser, shown, tool(arm[0], q)))
    assert min(np.linalg.norm(a - b) for k, a in enumerate(seen) for b in seen[:k]) > 3 * NEAR


def test_a_slider_moves_its_link(browser, arm, shown):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    before = require_red(browser, shown, tool(arm[0], START))
    thumbs = browser.driver.find_elements(By.CSS_SELECTOR, "[role=slider]")
    assert len(thumbs) == 6
    thumbs[0].send_keys(Keys.ARROW_LEFT * 60)
    browser.until(lambda: shown.q[0] < START[0] - 0.3)
    np.testing.assert_array_equal(shown.q[1:], START[1:])
    after = require_red(browser, shown, tool(arm[0], shown.q))
    assert np.linalg.norm(after - before) > 3 * NEAR


def test_sliders_in_the_page_follow(browser, shown):
    from selenium.webdriver.common.by import By

    wanted = [0.1, 0.2, 0.3, 0.4, 0.5, -0.6]
    shown.show(np.array(wanted))

    def values():
        thumbs = browser.driver.find_elements(By.CSS_SELECTOR, "[role=slider]")
        return [float(each.get_attribute("aria-valuenow")) for each in thumbs]

    browser.until(lambda: np.allclose(values(), wanted), values)


def _comes_and_goes(browser, shown, layer):
    """Whether most of what has changed with a layer goes with it."""
    was, bare = shown.layers.get(layer, False), browser.still()
    shown.layer(layer, not was)
    browser.until(lambda: changed(browser.picture(), bare) > 20, lambda: layer)
    most = changed(browser.still(), bare) / 2
    shown.layer(layer, was)
    try:
        browser.until(lambda: changed(browser.picture(), bare) < most)
    except AssertionError:
        return False
    return True


def test_layers_appear_and_go(browser, arm, shown):
    """The ground is hidden, and a layer may come and go again: on a slow machine a page draws with fewer points, and
    with more when it has time, which changes edges everywhere."""
    ground = shown._server.scene.get_handle_by_name("/ground")
    ground.visible = False
    try:
        require_red(browser, shown, tool(arm[0], START))
        for layer in ("frames", "inertia", "centre of mass", "names"):
            assert any(_comes_and_goes(browser, shown, layer) for _ in range(3)), layer
    finally:
        ground.visible = True


def test_forces_point_where_they_push(browser, arm, shown):
    model, camera = arm[0], shown._server.initial_camera
    require_red(browser, shown, tool(model, START))
    bare, at = browser.still(), seen_at(browser, camera, tool(model, START))
    for push in ([0, 0, 40.0], [0, 0, -40.0]):
        shown.show(START, f_ext=rd.external_force(model, START, "tool0", [0, 0, 0, *push]))

        def points(push=push):
            rows, columns = np.nonzero(np.abs(browser.picture() - bare).max(axis=2) > 40)
            near = np.abs(columns - at[0]) < 40
            # Up is less in a picture.
            return near.sum() > 50 and np.sign(at[1] - rows[near].mean()) == np.sign(push[2])

        browser.until(points)


def test_nothing_failed_in_the_page(browser, shown):
    assert browser.errors() == []


def test_two_pages_of_one_view(browser, arm, shown):
    first = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    browser.open(shown.url)
    shown.show(START + 0.3)
    for _ in range(2):
        require_red(browser, shown, tool(arm[0], START + 0.3))
        if browser.driver.current_window_handle != first:
            browser.driver.close()
            browser.driver.switch_to.window(first)


def test_names_are_text_and_nothing_else(browser):
    """What a file calls its links and joints is shown, and no part of a page."""
    evil = "&lt;img src=x onerror=&quot;document.title='owned'&quot;&gt; {1+1} [a](javascript:alert(1))"
    text = own("cartpole").read_text()
    names = sorted(set(re.findall(r'(?:link|joint|robot) name="(\w+)"', text)))
    for name in names:
        text = text.replace(f'"{name}"', f'"{name} {evil}"')
    with rd.show(rd.load_urdf(text)) as view:
        view.layer("names")
        browser.open(view.url)
        shown = browser.driver.find_element("tag name", "body").text
        assert "<img src=x" in shown
        assert browser.driver.title != "owned"
        script = "return document.querySelectorAll('img[src=x], a[href^=javascript]').length"
        assert browser.driver.execute_script(script) == 0


def test_a_rollout_plays_in_the_view(browser, arm):
    model, text = arm
    with rd.show(moving(model), looks=text) as view:
        browser.open(view.url)
        view.play()
        watch(browser, 5 * NEAR)
        view.pause()
        require_red(browser, view, tool(model, view.q))


def moving(model):
    """A rollout of two seconds in which the arm turns about its base."""
    q = np.repeat(START[None], 201, axis=0)
    q[:, 0] += np.linspace(0.0, 1.0, 201)
    return rd.Rollout(np.linspace(0.0, 2.0, 201), q, np.zeros((201, 6)), np.array(-1), 200, model)


def watch(browser, far):
    """Wait until the red ball was seen in two places so far apart."""
    seen = []

    def moved():
        place = red(browser.picture())
        seen.extend([] if place is None else [place])
        return max((np.linalg.norm(a - b) for a in seen for b in seen), default=0.0) > far

    browser.until(moved, lambda: seen)


def test_a_page_plays_and_stops_where_it_says(browser, arm, tmp_path):

    model, text = arm
    run = moving(model)
    run.save_html(tmp_path / "run.html", looks=text, fps=50.0)
    with rd.show(run, looks=text) as view, served(tmp_path) as where:
        browser.open(f"{where}/run.html", plays=True)
        watch(browser, 5 * NEAR)
        browser.press_play()
        browser.still()
        (at,) = {float(each.get_attribute("value")) for each in hidden_inputs(browser)}
        # It shows a frame for 1 / fps, and may have one more to draw when it stops.
        k = int(np.searchsorted(run.t, at + 1e-9, side="right")) - 1
        require_red(browser, view, tool(model, run.q[max(k - 1, 0)]))
        assert browser.errors() == []


def hidden_inputs(browser):
    """The time of the play bar to all its digits."""
    from selenium.webdriver.common.by import By

    found = browser.driver.find_elements(By.CSS_SELECTOR, "input[type=hidden]")
    return [each for each in found if each.get_attribute("value").replace(".", "").isdigit()]


def test_a_page_of_a_configuration_is_what_the_view_shows(browser, arm, tmp_path):
    model, text = arm
    with rd.show(model, START, looks=text) as view, served(tmp_path) as where:
        view.save_html(tmp_path / "page.html")
        browser.open(f"{where}/page.html")
        require_red(browser, view, tool(model, START))


def test_a_notebook_s_frame_shows_it(browser, arm, tmp_path):
    model, text = arm
    with rd.show(model, START, looks=text) as view, served(tmp_path) as where:
        (tmp_path / "notebook.html").write_text(f"<!doctype html><body>{view._repr_html_()}</body>")
        browser.driver.get(f"{where}/notebook.html")
        browser.until(lambda: red(browser.picture()) is not None)


def test_a_dragged_handle_is_followed(browser, arm):
    from selenium.webdriver.common.actions.action_builder import ActionBuilder

    model, text = arm
    with rd.show(model, START, looks=text) as view:
        view.target("tool0")
        browser.open(view.url)
        camera = view._server.initial_camera
        pose, size = rd.Dynamics(model).link_pose(START, "tool0"), 0.25 * view._scene.size
        # By the arrow of the axis that lies most across the line of sight.
        across = [
            np.linalg.norm(
                seen_at(browser, camera, pose[:3, 3] + 0.1 * pose[:3, k]) - seen_at(browser, camera, pose[:3, 3])
            )
            for k in range(3)
        ]
        axis = pose[:3, int(np.argmax(across))]
        way = -0.12 * np.sign(axis @ pose[:3, 3]) * axis  # inwards, where it can be reached
        grip = pose[:3, 3] + 0.88 * size * axis  # beyond the rings, which turn
        mouse = ActionBuilder(browser.driver, duration=100)
        for k, part in enumerate(np.linspace(0.0, 1.0, 9)):
            mouse.pointer_action.move_to_location(*map(int, np.round(seen_at(browser, camera, grip + part * way))))
            if k == 0:
                mouse.pointer_action.pause(0.5).pointer_down()
            mouse.pointer_action.pause(0.3)  # pages that render in software take moves in as they can
        mouse.pointer_action.pointer_up()
        mouse.perform()
        browser.until(lambda: (view.q != START).any())
        browser.still()
        moved = tool(model, view.q) - pose[:3, 3]
        assert np.linalg.norm(moved - way) < 0.3 * np.linalg.norm(way), (moved, way)
        target = np.array(view._target._handle.position)
        np.testing.assert_allclose(tool(model, view.q), target, atol=1e-5)
        view.target(None)  # it covers the ball
        require_red(browser, view, target)

"""`View`, the object that controls a robot in a browser."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.internals import forks
from robodyn.internals.arguments import Array, finite_number, flag, one_of
from robodyn.internals.errors import ArgumentError, RobodynError
from robodyn.internals.files import require_writable, whole_file
from robodyn.internals.messages import printable, shortened
from robodyn.tools.viewer import server as servers
from robodyn.tools.viewer.motion import Motion, above_zero, frames, one_state, require_not_diverged, row_of
from robodyn.tools.viewer.origins import origins_of
from robodyn.tools.viewer.scene import Scene
from robodyn.tools.viewer.sliders import Slider, first, readings, sliders, turned
from robodyn.tools.viewer.target import Target
from robodyn.tools.viewer.visuals import Looks

if TYPE_CHECKING:
    import os

_MOST_SLIDERS, _MOST_TARGETS = 100, 500
_STEPS = 2000
"""Number of steps of a slider's range."""
_FRAME_RATE, _SLIDERS_EVERY = 30.0, 6
"""Frames per second of playing, and number of frames between updates of the joints' sliders."""
_SLOWEST, _FASTEST = 0.01, 1000.0
_LONGEST_LABEL, _HEIGHT = 60, 540
_NONE = "(nothing)"


class View:
    """A robot in a browser, made by `robodyn.show`.

    A view may be used from any thread. A `with` statement closes it. A notebook displays it.

    `url`: address of the page, which can be reached from this machine only. `model`: the robot. `left_out`:
    descriptions of shapes that could not be drawn.
    """

    def __init__(self, dyn: Dynamics, looks: Looks, motion: Motion, port: Any, origins: Any = ()) -> None:
        self.model = dyn.model
        self._dyn, self._looks, self._motion = dyn, looks, motion
        self._lock, self._ended = forks.lock(), threading.Event()
        self._row, self._time, self._speed, self._playing = 0, float(motion.t[0]), 1.0, False
        self._forces = motion.forces(0, 0)
        self._server = servers.start(label(self.model.name), port, "show", origins_of(origins))
        try:
            self.url = f"http://{servers.HOST}:{self._server.get_port()}"
            self._scene = Scene(self._server, dyn, looks, motion, 0)
            self.left_out = tuple(looks.left_out + self._scene.said)
            self._target: Target | None = None
            self._q = motion.q[0, 0].copy()
            self._poses = self._scene.place(self._q, self._forces)
            self._make_panel()
        except BaseException:
            servers.stop(self._server)
            raise
        self._player = threading.Thread(target=self._play, name="robodyn view", daemon=True)
        if motion.duration > 0.0:
            self._player.start()

    # Methods for users.

    @property
    def q(self) -> Array:
        """The configuration (nq,) that is shown."""
        with self._lock:
            configuration: Array = self._q.copy()
            return configuration

    @property
    def layers(self) -> dict[str, bool]:
        """Layers by name ("shapes", "frames" and so on), and whether they are shown."""
        return self._scene.layers

    def show(self, q: Any, *, f_ext: Any = None) -> None:
        """Show a configuration. Sliders follow, and a rollout pauses.

        Args:
            q: (nq,) the configuration.
            f_ext: (n_bodies, 6) external forces as in queries, drawn as arrows along their central axes.

        Raises:
            ArgumentError: wrong shape or type, or the view is closed.
            NumericalError: NaN or infinity, or links too far away to be drawn.
        """
        if q is None:
            raise ArgumentError(f"q: got None; wanted ({self.model.nq},) coordinates")
        state, forces = one_state(q, f_ext, self.model)
        with self._lock:
            self._require_open()
            self._pause()
            self._draw(state, forces)
            self._follow()

    def layer(self, name: str, shown: bool = True) -> None:
        """Show or hide a layer (see `layers`).

        Raises:
            ArgumentError: unknown layer, or the view is closed.
            UnavailableError: distances of so many shapes cannot be computed.
        """
        name, shown = one_of("name", name, tuple(self._boxes)), flag("shown", shown)
        with self._lock:
            self._require_open()
            self._scene.show(name, shown)
            self._boxes[name].value = shown

    def play(self, speed: Any = None) -> None:
        """Play the rollout in a loop from the present time. `speed`: relative to real time, 0.01 to 1000.

        Raises:
            ArgumentError: nothing to play, a speed that is no positive number, or the view is closed.
        """
        pace = None if speed is None else above_zero("speed", speed)
        with self._lock:
            self._require_open()
            self._require_motion()
            if pace is not None:
                self._pace.value = pace
                self._take_pace()
            self._playing = True
            self._button.label = "pause"

    def pause(self) -> None:
        """Stop playing."""
        with self._lock:
            self._require_open()
            self._pause()

    def go(self, t: Any, *, row: Any = None) -> None:
        """Show the state of the rollout at time `t`, s, optionally of another row of its batch.

        Raises:
            ArgumentError: nothing to play, no such row, or the view is closed.
        """
        at = finite_number("t", t)
        chosen = None if row is None else row_of(self._motion, row)
        with self._lock:
            self._require_open()
            if self._motion.rows == 1:
                self._require_motion()
            was = self._row
            self._row = was if chosen is None else chosen
            try:
                self._go(at)
            except RobodynError:
                self._row = was
                raise
            finally:  # reset the slider also if the state could not be drawn
                if self._rows is not None:
                    self._rows.value = self._row
            self._follow()

    def target(self, link: str | int | None) -> None:
        """Show a handle to drag a link, which inverse kinematics follows. None removes it.

        Raises:
            ArgumentError: no such link, a link that does not move, or the view is closed.
        """
        with self._lock:
            self._require_open()
            self._aim(None if link is None else self.model.link_names[self.model.link_index(link)])
            if self._aims is not None:
                name = _NONE if self._target is None else label(self._target.link)
                self._aims.value = name if name in self._aimed else _NONE

    def save_html(self, path: str | os.PathLike[str], *, row: Any = None, fps: Any = 30.0, speed: Any = 1.0) -> None:
        """Write an HTML page that works without Python: a rollout with a play bar, or the present configuration.

        Args:
            path: the file to write; an existing file is replaced.
            row: row of a rollout's batch; None for the one that is shown.
            fps: frames per second.
            speed: playback speed relative to real time.

        Raises:
            ArgumentError: no file name, no such row, too many frames, or the view is closed.
            NumericalError: the row diverged.
            OSError: the file cannot be written.
        """
        with self._lock:
            self._require_open()
            chosen = self._row if row is None else row_of(self._motion, row)
            require_not_diverged(self._motion, chosen)
            if not self._motion.duration > 0.0 and chosen == self._row:
                written = require_writable(path)
                if self._target is not None:
                    self._target.show(False)
                try:
                    write_page(written, self._server.get_scene_serializer())
                finally:
                    if self._target is not None:
                        self._target.show(True)
                return
            layers = self.layers
        save_motion(self._dyn, self._looks, self._motion, path, chosen, fps, speed, layers)

    def wait(self) -> None:
        """Wait until the view is closed or Ctrl-C raises KeyboardInterrupt."""
        while not self._ended.wait(0.5):
            pass

    def close(self) -> None:
        """Close the view: its page stops responding. A second call has no effect."""
        with self._lock:
            if self._ended.is_set():
                return
            self._ended.set()
            self._playing = False
        # The lock is released here, since the player thread may wait for it before it sees `_ended`.
        if self._player.is_alive() and self._player is not threading.current_thread():
            self._player.join()
        servers.stop(self._server)

    def __enter__(self) -> View:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._ended.is_set() else self.url
        return f"<View of {shortened(printable(self.model.name), 60)}: {state}>"

    def _repr_html_(self) -> str:
        if self._ended.is_set():
            return "<p>The view is closed.</p>"
        return f'<iframe src="{self.url}" width="100%" height="{_HEIGHT}" style="border:none"></iframe>'

    def _require_open(self) -> None:
        if self._ended.is_set():
            raise ArgumentError("the view is closed; robodyn.show makes another")

    def _require_motion(self) -> None:
        if not self._motion.duration > 0.0:
            raise ArgumentError("nothing to play: the view is of a configuration, or of a rollout of one time")

    # Drawing.

    def _draw(self, q: Array, f_ext: Array | None) -> None:
        """Update the scene and the handle, but not the panel."""
        self._poses = self._scene.place(q, f_ext)
        self._q, self._forces = q.copy(), f_ext
        if self._target is not None:
            self._target.follow(self._poses)

    def _go(self, at: float) -> None:
        """Show the state at a time of the motion."""
        time = float(np.clip(at, self._motion.t[0], self._motion.t[-1]))
        k = self._motion.at(time)
        try:
            self._draw(self._motion.q[k, self._row], self._motion.forces(k, self._row))
            self._time = time
        finally:
            if self._times is not None:
                self._times.value = self._time

    def _follow(self) -> None:
        """Set sliders to the configuration, widening their ranges if necessary."""
        for slider, value in zip(self._sliders, readings(self._knobs, self._q), strict=True):
            if value < slider.min:
                slider.min = value
            if value > slider.max:
                slider.max = value
            slider.value = value

    def _take_pace(self) -> None:
        self._speed = min(max(above_zero("speed", self._pace.value), _SLOWEST), _FASTEST)

    def _pause(self) -> None:
        if self._playing:
            self._playing = False
            self._button.label = "play"
            self._follow()

    def _play(self) -> None:
        """Loop of the thread that plays a rollout."""
        last, shown = time.monotonic(), 0
        while not self._ended.wait(1.0 / _FRAME_RATE):
            now = time.monotonic()
            with self._lock:
                if self._playing and not self._ended.is_set():
                    at = self._time + (now - last) * self._speed
                    shown += 1
                    try:
                        self._go(at if at <= self._motion.t[-1] else self._motion.t[0])
                    except RobodynError:  # links are too far away to be drawn
                        self._pause()
                    if shown % _SLIDERS_EVERY == 0:
                        self._follow()
            last = now

    # The panel.

    def _make_panel(self) -> None:
        gui = self._server.gui
        self._sliders: list[Any] = []
        self._boxes: dict[str, Any] = {}
        self._times: Any = None
        self._rows: Any = None
        self._aims: Any = None
        if self._motion.duration > 0.0 or self._motion.rows > 1:
            with gui.add_folder("time"):
                if self._motion.duration > 0.0:
                    self._make_play_bar(gui)
                if self._motion.rows > 1:
                    self._rows = gui.add_slider("row", 0, self._motion.rows - 1, 1, 0)
                    self._rows.on_update(self._by_user(lambda: self.go(self._time, row=int(self._rows.value))))
        with gui.add_folder("show", expand_by_default=False):
            for name, shown in self.layers.items():
                self._boxes[name] = box = gui.add_checkbox(name, shown)
                box.on_update(self._by_user(lambda name=name: self._toggle(name)))
            if self.left_out:
                gui.add_text("left out", "\n".join(self.left_out), multiline=True, disabled=True)
        all_sliders = sliders(self.model)
        self._knobs = first(all_sliders, _MOST_SLIDERS)
        if self._knobs:
            part = "" if len(self._knobs) == len(all_sliders) else f", {len(self._knobs)} of {len(all_sliders)}"
            with gui.add_folder(f"joints{part}"):
                for k, (knob, value) in enumerate(zip(self._knobs, readings(self._knobs, self._q), strict=True)):
                    self._sliders.append(self._slider(gui, knob, value))
                    self._sliders[k].on_update(self._by_user(lambda k=k: self._turn(k)))
        self._make_aims(gui)

    def _slider(self, gui: Any, knob: Slider, value: float) -> Any:
        lower, upper = min(knob.lower, value), max(knob.upper, value)
        unit = "rad" if knob.is_angle else "m"
        return gui.add_slider(label(knob.name), lower, upper, (upper - lower) / _STEPS, value, hint=unit)

    def _make_play_bar(self, gui: Any) -> None:
        motion = self._motion
        self._button = gui.add_button("play")
        self._button.on_click(self._by_user(lambda: self._pause() if self._playing else self.play()))
        begin, end = float(motion.t[0]), float(motion.t[-1])
        self._times = gui.add_slider("t, s", begin, end, motion.duration / _STEPS, begin)
        self._times.on_update(self._by_user(lambda: self.go(self._times.value)))
        self._pace = gui.add_number("speed", self._speed, min=_SLOWEST, max=_FASTEST, step=0.1)
        self._pace.on_update(self._by_user(self._take_pace))

    def _make_aims(self, gui: Any) -> None:
        moving = [name for name, body in zip(self.model.link_names, self.model.link_body, strict=True) if body >= 0]
        self._aimed = {label(name): name for name in moving[:_MOST_TARGETS]}
        self._aimed.pop(_NONE, None)
        if self._aimed:
            self._aims = gui.add_dropdown("drag", (_NONE, *self._aimed), initial_value=_NONE)
            self._aims.on_update(self._by_user(lambda: self._aim(self._aimed.get(self._aims.value))))

    def _by_user(self, act: Any) -> Any:
        """Callback for viser that runs `act` for changes by a user in a browser, while the view is open."""

        def called(event: Any) -> None:
            if event.client_id is None:
                return
            with self._lock:
                if not self._ended.is_set():
                    try:
                        act()
                    except RobodynError as error:
                        self._follow()
                        if event.client is not None:
                            event.client.add_notification("not shown", str(error), color="red")

        return called

    def _toggle(self, name: str) -> None:
        """Handle a click on the box of a layer."""
        try:
            self._scene.show(name, self._boxes[name].value)
        except RobodynError:
            self._boxes[name].value = self._scene.layers[name]
            raise

    def _turn(self, which: int) -> None:
        """Handle the motion of a slider."""
        self._pause()
        self._draw(turned(self._knobs, [slider.value for slider in self._sliders], self._q, which), self._forces)

    def _aim(self, link: str | None) -> None:
        if self._target is not None:
            self._target.remove()
            self._target = None
        if link is not None:
            self._target = Target(self._server, self._dyn, link, self._scene.size, self._reach)
            self._target.follow(self._poses)

    def _reach(self, target: Target, released: bool) -> None:
        """Handle the motion of the dragged handle. viser calls it in its own threads, at every motion of the mouse."""
        with self._lock:
            if self._ended.is_set() or self._target is not target:
                return
            if target.moved():
                self._pause()
                target.held = True
                try:
                    self._draw(target.solve(self._q), self._forces)
                except RobodynError:  # the result cannot be drawn
                    released = True
                finally:
                    target.held = False
                self._follow()
            if released:
                target.follow(self._poses)


def label(name: str) -> str:
    """A name shortened for display."""
    return printable(shortened(name, _LONGEST_LABEL))


def save_motion(
    dyn: Dynamics,
    looks: Looks,
    motion: Motion,
    path: str | os.PathLike[str],
    row: Any,
    fps: Any,
    speed: Any,
    layers: dict[str, bool] | None = None,
) -> None:
    """Write an HTML page that plays a motion (see `View.save_html`)."""
    chosen, (states, each) = row_of(motion, row), frames(motion, fps, speed)
    written = require_writable(path)
    server = servers.start(label(dyn.model.name), 0, "save_html")
    try:
        scene = Scene(server, dyn, looks, motion, chosen)
        for layer, shown in (layers or {}).items():
            scene.show(layer, shown)
        scene.place(motion.q[states[0], chosen], motion.forces(states[0], chosen))
        recording = server.get_scene_serializer()
        for k in states[1:]:
            recording.insert_sleep(each)
            scene.place(motion.q[k, chosen], motion.forces(k, chosen))
        write_page(written, recording)
    finally:
        servers.stop(server)


def write_page(path: str | os.PathLike[str], recording: Any) -> None:
    """Write a recording as an HTML page."""
    page = recording.as_html().encode("utf-8")  # first, since it ends the recording even if writing fails
    with whole_file(path) as file:
        file.write(page)

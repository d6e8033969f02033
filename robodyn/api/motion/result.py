"""What rollouts come to, in memory and in files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.internals import strict_types
from robodyn.internals.archives import Archive, damaged
from robodyn.internals.arguments import Array, as_array
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.files import LONGEST_PATH, file_named, open_regular, whole_file
from robodyn.internals.messages import brief, quoted
from robodyn.internals.provided import provided
from robodyn.internals.records import dataclass

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics
    from robodyn.core.model import Model

_KINDS = {"t": "f", "q": "f", "qd": "f", "diverged": "i", "steps": "iu"}
"""The arrays of a file, and of what kinds they are."""


@dataclass(frozen=True)
class Rollout:
    """What a rollout came to. Times are the first axis: (K,) of `t`, (K, ..., nq) of `q`, (K, ..., nv) of `qd`.

    `t`: seconds from the start of the states that were saved; `diverged` (...): the step after which a row's state was
    no longer finite, -1 where it always was. From then on the row keeps its last finite state. `steps`: how many were
    made; fewer than asked for after an interruption. `model`: the robot; None where it was read from a file.
    """

    t: Array
    q: Array
    qd: Array
    diverged: Array
    steps: int
    model: Model | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        # Of arrays on a GPU the shapes alone, which wait for nothing.
        shapes = ", ".join(f"{name} {tuple(getattr(array, 'shape', ()))}" for name, array in self._arrays().items())
        left = ""
        if isinstance(self.diverged, np.ndarray | np.generic) and (count := int(np.sum(self.diverged >= 0))):
            left = f", {count} diverged"
        return f"<Rollout of {self.steps} steps: {shapes}{left}>"

    def _repr_html_(self) -> str:
        from robodyn.core.tables import rollout_table, to_html

        return to_html(rollout_table(self))

    def _arrays(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("t", "q", "qd")}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as a NumPy archive (.npz) of this very name, which `load` reads.

        All of it is written, or what was there stays (`robodyn.internals.files.whole_file`).

        Raises:
            ArgumentError: the path is no name of a file, or of a symbolic link, folder, pipe, socket or device; or the
                arrays are not those of a rollout, so that `load` would refuse them.
            OSError: the folder is not there, or the file cannot be written.
        """
        arrays: dict[str, Any] = {name: _on_host(getattr(self, name)) for name in _KINDS}
        try:
            _require_sound(**arrays)
        except ArgumentError as error:
            raise ArgumentError(f"rollout: {error}") from None
        with whole_file(path) as file:
            np.savez(file, **arrays)

    def plot(
        self,
        *,
        model: Model | Dynamics | None = None,
        what: Sequence[str] = ("positions", "velocities", "torques", "energies"),
        joints: Any = None,
        rows: Any = None,
        tau: Any = None,
    ) -> Any:
        """A figure of it: a panel for each quantity and unit over time. Needs the extra `plot`.

        Curves of rows that diverged end there. It is not shown: notebooks show it, elsewhere `pyplot.show()` does.

        Args:
            model: the robot, or a `Dynamics` of it; for a rollout that was read from a file.
            what: of "positions", "velocities", "torques" and "energies"; also one of them alone.
            joints: names, or places in `model.joint_names`; one or several. None: all.
            rows: places in the batch, counted through all its axes; one or several. None: all, where they are more than
                eight as their median and a band from the 5th to the 95th percentile.
            tau: forces to draw, (..., nv), (K, ..., nv) or (K - 1, ..., nv). None: those that the motion takes,
                whatever gave them; see `robodyn.plots.trajectory`.

        Returns:
            matplotlib.figure.Figure

        Raises:
            ArgumentError: no model, other shapes, no such joint, row or word, or more coordinates than can be told
                apart.
            UnavailableError: Matplotlib is not installed: pip install 'robodyn[plot]'.
        """
        return provided("of_rollout")(self, model, tau, what, joints, rows)

    def save_html(
        self,
        path: str | os.PathLike[str],
        *,
        model: Model | Dynamics | None = None,
        row: int = 0,
        fps: float = 30.0,
        speed: float = 1.0,
        f_ext: Any = None,
        looks: Any = None,
        package_dirs: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        """Write a page that plays it in a browser, without Python and without a network.

        Args:
            path: the file to write, which may be there.
            model: the robot, of a rollout that was read from a file.
            row: which state of the batch, counted through all its axes.
            fps: states that it shows in a second, at most 20,000 in all.
            speed: how many times as fast it plays.
            f_ext, looks, package_dirs: as for `robodyn.show`.

        Raises:
            ArgumentError: an argument of another type, shape or range; no name of a file; or no model.
            NumericalError: a row that diverged, a state that is not finite, or links farther away than can be drawn.
            UnavailableError: viser is not installed.
            OSError: the file cannot be written.
        """
        with provided("show")(self, model=model, f_ext=f_ext, looks=looks, package_dirs=package_dirs) as view:
            view.save_html(path, row=row, fps=fps, speed=speed)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Rollout:
        """Read what `save` wrote. Files that others compressed are read, too, up to
        `robodyn.internals.archives.MOST_UNPACKED`.

        Raises:
            ArgumentError: the path is no name of a regular file; the file is damaged, or holds something else.
            OSError: it cannot be opened.
            UnavailableError: there is no memory for it.
        """
        named = file_named("path", path)
        try:
            with open_regular(named) as file:
                return _read(Archive(file))
        except (ArgumentError, UnavailableError) as error:
            raise type(error)(f"path: {quoted(str(named), most=LONGEST_PATH)} holds no rollout ({error})") from None


def _read(archive: Archive) -> Rollout:
    missing = [name for name in _KINDS if name not in archive.keys]
    if missing:
        raise ArgumentError(f"it lacks {', '.join(missing)}")
    # From headers alone, which an attacker's file can fill with rows that take next to nothing in it.
    like = {name: archive.like(name, kinds) for name, kinds in _KINDS.items()}
    _require_shapes(**{name: array for name, array in like.items() if name != "steps"})
    with damaged():
        arrays = {name: archive.read(name, kinds) for name, kinds in _KINDS.items()}
        _require_sound(**arrays)
    t, q, qd, diverged, steps = arrays.values()
    return Rollout(t, q, qd, diverged[()], int(steps))


def _on_host(array: Any) -> Array:
    return as_array(
        "rollout", array if strict_types.is_a(array, np.ndarray) else _from_device(array), "wanted an array"
    )


def _from_device(array: Any) -> Any:
    try:
        return array.get() if callable(getattr(array, "get", None)) and not strict_types.is_a(array, dict) else array
    except Exception as error:  # a foreign object may raise anything
        raise ArgumentError(f"rollout: got {brief(array)}; wanted an array") from error


def _require_shapes(t: Array, q: Array, qd: Array, diverged: Array) -> None:
    """Raise ArgumentError unless arrays of a rollout may have these shapes and dtypes."""
    for name, array in {"t": t, "q": q, "qd": qd}.items():
        if array.dtype.type not in (np.float32, np.float64):  # in any byte order
            raise ArgumentError(f"{name}: got {array.dtype}; wanted float32 or float64")
    if q.dtype.type is not qd.dtype.type:
        raise ArgumentError(f"qd: got {qd.dtype}; wanted {q.dtype}, as q")
    if q.ndim < 2 or qd.ndim < 2 or not q.shape[:-1] == qd.shape[:-1] == t.shape + diverged.shape:
        shapes = ", ".join(str(array.shape) for array in (t, q, qd, diverged))
        raise ArgumentError(f"t, q, qd, diverged: got shapes {shapes}; wanted (K,), (K, ..., nq), (K, ..., nv), (...)")


def _require_sound(t: Array, q: Array, qd: Array, diverged: Array, steps: Array) -> None:
    """Raise ArgumentError unless a rollout may be so."""
    _require_shapes(t, q, qd, diverged)
    if steps.dtype.kind not in "iu" or steps.ndim or steps < 0:
        raise ArgumentError(f"steps: got {brief(steps)}; wanted an integer from 0")
    if t.ndim != 1 or not 1 <= t.size <= int(steps) + 1:
        raise ArgumentError(f"t: got shape {t.shape}; wanted from 1 to {int(steps) + 1} times")
    if not np.isfinite(t).all() or t[0] < 0.0 or (np.diff(t) < 0.0).any():
        raise ArgumentError("t: wanted finite times from 0, in their order")
    if diverged.dtype.kind != "i" or (diverged < -1).any() or (diverged > steps).any():
        raise ArgumentError(f"diverged: wanted integers from -1 to {int(steps)}")
    finite = np.isfinite(q).all(axis=-1) & np.isfinite(qd).all(axis=-1)
    if not (finite.all(axis=0) | (diverged == 0)).all():
        raise ArgumentError("q, qd: got NaN or infinity in a row that was finite at its start")

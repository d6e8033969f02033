"""`Rollout`, the result of a rollout, in memory and in files."""

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
"""Arrays of a file and their allowed dtype kinds."""


@dataclass(frozen=True)
class Rollout:
    """The result of a rollout. Time is the first axis: `t` (K,), `q` (K, ..., nq), `qd` (K, ..., nv).

    `t`: times of the saved states, in seconds from the start. `diverged` (...): the step after which a row's state was
    no longer finite, -1 if it always was; afterwards the row keeps its last finite state. `steps`: number of steps
    computed, fewer than requested after an interruption. `model`: the robot; None for rollouts read from a file.
    `converged` (...): for robots with contacts, whether the contact forces of all steps converged; None for others, and
    for rollouts read from a file.
    """

    t: Array
    q: Array
    qd: Array
    diverged: Array
    steps: int
    model: Model | None = field(default=None, repr=False, compare=False)
    converged: Any = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        # Only shapes are shown: reading values of arrays on a GPU would wait for it.
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
        """Write the rollout as a NumPy archive (.npz), which `load` reads. The file gets exactly the name `path`.

        The file is written as a whole, or an existing file stays as it is (`robodyn.internals.files.whole_file`).

        Raises:
            ArgumentError: the path is no file name, or names a symbolic link, folder, pipe, socket or device; or the
                arrays are no valid rollout, so that `load` would refuse them.
            OSError: the folder does not exist, or the file cannot be written.
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
        """Plot the rollout over time, with a panel for each quantity and unit. Needs the extra `plot`.

        Curves of diverged rows end where they diverged. Notebooks show the figure; elsewhere call `pyplot.show()`.

        Args:
            model: the robot, or a `Dynamics` of it; needed for a rollout that was read from a file.
            what: one or several of "positions", "velocities", "torques" and "energies".
            joints: one or several names, or indices in `model.joint_names`. None: all.
            rows: one or several indices in the flattened batch. None: all rows; more than eight are drawn as their
                median and a band from the 5th to the 95th percentile.
            tau: forces to draw, (..., nv), (K, ..., nv) or (K - 1, ..., nv). None: the total generalised forces that
                the motion requires; see `robodyn.plots.trajectory`.

        Returns:
            matplotlib.figure.Figure

        Raises:
            ArgumentError: no model, wrong shapes, an unknown joint, row or word, or more coordinates than colours can
                distinguish.
            UnavailableError: Matplotlib is not installed (the extra `plot`).
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
        """Write an HTML page that plays the rollout in a browser, without Python and without a network.

        Args:
            path: the file to write; an existing file is replaced.
            model: the robot, for a rollout that was read from a file.
            row: index in the flattened batch.
            fps: frames per second, at most 20,000 frames in all.
            speed: playback speed relative to real time.
            f_ext, looks, package_dirs: as in `robodyn.show`.

        Raises:
            ArgumentError: an argument of the wrong type, shape or range; no file name; or no model.
            NumericalError: a row that diverged, a state that is not finite, or links too far away to be drawn.
            UnavailableError: viser is not installed.
            OSError: the file cannot be written.
        """
        with provided("show")(self, model=model, f_ext=f_ext, looks=looks, package_dirs=package_dirs) as view:
            view.save_html(path, row=row, fps=fps, speed=speed)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Rollout:
        """Read a file that `save` wrote. Compressed archives are read, too, up to
        `robodyn.internals.archives.MOST_UNPACKED`.

        Raises:
            ArgumentError: the path names no regular file, or the file is damaged or holds something else.
            OSError: the file cannot be opened.
            UnavailableError: there is no memory for it.
        """
        named = file_named("path", path)
        try:
            with open_regular(named) as file:
                return _read(Archive(file))
        except (ArgumentError, UnavailableError) as error:
            raise type(error)(f"path: {quoted(str(named), most=LONGEST_PATH)} holds no rollout ({error})") from None


def rollout_of(t: Array, q: Array, qd: Array, diverged: Any, steps: int, model: Model) -> Rollout:
    """A `Rollout` of these fields, in a third of the time that the class takes. Contact forces converged."""
    made = object.__new__(Rollout)
    values = made.__dict__
    values["t"], values["q"], values["qd"], values["diverged"] = t, q, qd, diverged
    values["steps"], values["model"] = steps, model
    values["converged"] = None if model.contacts is None else np.ones(np.shape(diverged), bool)[()]
    return made


def _read(archive: Archive) -> Rollout:
    missing = [name for name in _KINDS if name not in archive.keys]
    if missing:
        raise ArgumentError(f"it lacks {', '.join(missing)}")
    # Check the headers first: a malicious compressed file can declare huge arrays.
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
    """Raise ArgumentError unless these are shapes and dtypes of a rollout."""
    for name, array in {"t": t, "q": q, "qd": qd}.items():
        if array.dtype.type not in (np.float32, np.float64):  # in any byte order
            raise ArgumentError(f"{name}: got {array.dtype}; wanted float32 or float64")
    if q.dtype.type is not qd.dtype.type:
        raise ArgumentError(f"qd: got {qd.dtype}; wanted {q.dtype}, as q")
    if q.ndim < 2 or qd.ndim < 2 or not q.shape[:-1] == qd.shape[:-1] == t.shape + diverged.shape:
        shapes = ", ".join(str(array.shape) for array in (t, q, qd, diverged))
        raise ArgumentError(f"t, q, qd, diverged: got shapes {shapes}; wanted (K,), (K, ..., nq), (K, ..., nv), (...)")


def _require_sound(t: Array, q: Array, qd: Array, diverged: Array, steps: Array) -> None:
    """Raise ArgumentError unless these arrays are a valid rollout."""
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

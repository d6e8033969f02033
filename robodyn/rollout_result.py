"""What rollouts come to, in memory and in files."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np

from robodyn.arguments import Array
from robodyn.errors import ArgumentError
from robodyn.messages import brief


@dataclass(frozen=True)
class Rollout:
    """What a rollout came to. Times are the first axis: (K,) of `t`, (K, ..., nq) of `q`, (K, ..., nv) of `qd`.

    `t`: seconds from the start of the states that were saved; `diverged` (...): the step after which a row's state was
    no longer finite, -1 where it always was. From then on the row keeps its last finite state. `steps`: how many were
    made; fewer than asked for after an interruption.
    """

    t: Array
    q: Array
    qd: Array
    diverged: Array
    steps: int

    def save(self, path: str | Path) -> None:
        """Write it as a NumPy archive (.npz) of this very name, which `load` reads."""
        q, qd = (array if isinstance(array, np.ndarray) else array.get() for array in (self.q, self.qd))
        part = Path(f"{path}.part")  # written under another name, so that what was there stays whole until then
        try:
            with part.open("wb") as file:
                np.savez(file, t=self.t, q=q, qd=qd, diverged=self.diverged, steps=self.steps)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    @staticmethod
    def load(path: str | Path) -> Rollout:
        """Read what `save` wrote.

        Raises:
            ArgumentError: the file holds something else.
        """
        with file_named("path", path).open("rb") as file:
            try:
                return _read(file)
            except _DAMAGED as error:
                raise ArgumentError(f"path: {brief(str(path))} holds no rollout ({error})") from error


_DAMAGED = (KeyError, ValueError, TypeError, ArithmeticError, EOFError, OSError, RuntimeError, BadZipFile, zlib.error)
"""What NumPy and zipfile raise where an archive is damaged: places before the file, passwords, other versions."""


def _read(file: IO[bytes]) -> Rollout:
    with np.load(file, allow_pickle=False) as found:
        t, q, qd, diverged = (np.asarray(found[name]) for name in ("t", "q", "qd", "diverged"))
        steps = int(found["steps"])
    shapes = t.ndim == 1 and q.ndim > 1 and q.shape[:-1] == qd.shape[:-1] == t.shape + diverged.shape
    if not shapes or any(each.dtype.kind != kind for each, kind in zip((t, q, qd, diverged), "fffi", strict=True)):
        raise ValueError("arrays of no rollout")
    return Rollout(t, q, qd, diverged, steps)


def file_named(name: str, given: Any) -> Path:
    """A path from what a user gave as argument `name`."""
    if not isinstance(given, str | Path) or "\0" in str(given):
        raise ArgumentError(f"{name}: got {brief(given)}; wanted the name of a file")
    return Path(given)

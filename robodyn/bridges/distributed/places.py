"""Where results are stored: what users give, what is there already, and errors that name it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from robodyn.bridges.distributed.lock import LOCK_FILE
from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError, RobodynError, UnavailableError
from robodyn.internals.messages import brief, quoted

ATTRIBUTE = "robodyn"
"""Of a group: what it says of itself."""


@contextmanager
def naming(store: Any) -> Iterator[None]:
    """Around what reads from storage and writes to it.

    Raises:
        UnavailableError: storage, or zarr, raised something.
    """
    try:
        yield
    except RobodynError:
        raise
    except Exception as error:
        raise UnavailableError(
            f"out: {shown(store)} cannot be read or written to: {type(error).__name__}: {quoted(str(error), 300)}"
        ) from error


def shown(store: Any) -> str:
    """A store in words."""
    return quoted(str(store), 200)


def location(out: Any) -> Any:
    """A place that means the same for workers, which run in other folders."""
    from zarr.abc.store import Store

    if isinstance(out, Store):
        return out
    try:
        text = os.fspath(out) if strict_types.is_a(out, str, os.PathLike) else None
    except Exception:  # a foreign object may raise anything
        text = None
    if type(text) is not str or not text or "\0" in text:
        raise ArgumentError(f"out: got {brief(out)}; wanted a path, a URL, or a store of zarr")
    if text.startswith("file://"):
        text = url2pathname(urlsplit(text).path)
    return text if "://" in text else str(Path(text).absolute())


def folder_of(store: Any) -> Path | None:
    """The folder of this machine that it is, or None."""
    if isinstance(store, str):
        return None if "://" in store else Path(store)
    root = getattr(store, "root", None)
    return root.absolute() if isinstance(root, Path) else None


def open_group(store: Any, mode: str) -> Any:
    """A group of zarr that is there, as it is: metadata that others have consolidated may be of an earlier state."""
    import zarr

    return zarr.open_group(store, mode=mode, zarr_format=3, use_consolidated=False)


def attributes(store: Any, out: Any) -> dict[str, Any] | None:
    """What a group that is there says of itself; None where nothing is there.

    Raises:
        ArgumentError: something is there that no map has made.
    """

    try:
        found = dict(open_group(store, "r").attrs).get(ATTRIBUTE)
    except FileNotFoundError:
        path = folder_of(store)
        if path is None or not path.exists():
            return None
        if path.is_dir() and all(each.name == LOCK_FILE for each in path.iterdir()):
            return None
        found = None
    except Exception as error:  # whatever lies there may break whatever reads it
        raise ArgumentError(f"out: {brief(out)} cannot be read by zarr: {brief(error)}") from error
    if not isinstance(found, dict) or not isinstance(found.get("identity"), str):
        raise ArgumentError(f"out: {brief(out)} is there, and no results of map; wanted another place")
    return found

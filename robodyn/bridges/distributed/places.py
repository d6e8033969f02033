"""Locations of stored results: reads the user's `out`, inspects what is stored there, and names it in errors."""

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
"""Name of the attribute of a zarr group that holds the map's manifest."""


@contextmanager
def naming(store: Any) -> Iterator[None]:
    """Context around access to storage: errors become an UnavailableError that names the store.

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
    """A store as text for messages."""
    return quoted(str(store), 200)


def location(out: Any) -> Any:
    """Convert `out` to a location that is valid for workers, whose working directories differ."""
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
    """The folder of a store on this machine, or None."""
    if isinstance(store, str):
        return None if "://" in store else Path(store)
    root = getattr(store, "root", None)
    return root.absolute() if isinstance(root, Path) else None


def open_group(store: Any, mode: str) -> Any:
    """Open an existing zarr group without its consolidated metadata, which may be outdated."""
    import zarr

    return zarr.open_group(store, mode=mode, zarr_format=3, use_consolidated=False)


def attributes(store: Any, out: Any) -> dict[str, Any] | None:
    """The manifest stored in an existing group; None if nothing is there.

    Raises:
        ArgumentError: the location holds something that no map has made.
    """

    try:
        manifest = dict(open_group(store, "r").attrs).get(ATTRIBUTE)
    except FileNotFoundError:
        path = folder_of(store)
        if path is None or not path.exists():
            return None
        if path.is_dir() and all(each.name == LOCK_FILE for each in path.iterdir()):
            return None
        manifest = None
    except Exception as error:  # unknown data may raise anything in zarr
        raise ArgumentError(f"out: {brief(out)} cannot be read by zarr: {brief(error)}") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("identity"), str):
        raise ArgumentError(f"out: {brief(out)} is there, and no results of map; wanted another place")
    return manifest

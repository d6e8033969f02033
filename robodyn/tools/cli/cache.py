"""The command `cache`: shows or removes the compiled code that is cached on disk."""

from __future__ import annotations

from datetime import datetime

from rich import box
from rich.table import Table

from robodyn.compile.cache import FOLDER_VARIABLE, ObjectCache
from robodyn.core.tables import console
from robodyn.internals.errors import UnavailableError

_ROWS = 40


def show() -> None:
    """Print the cache's folder, size and objects, the most recently used first."""
    cache, screen = ObjectCache.from_environment(), console()
    problem, entries = cache.problem(), cache.entries()
    summary = Table.grid(padding=(0, 2))
    summary.add_column(style="bold")
    summary.add_column(overflow="fold")
    if cache.folder is not None:
        summary.add_row("folder", str(cache.folder))
    if problem is not None:
        summary.add_row("not used", problem)
    else:
        size = sum(entry.size for entry in entries)
        summary.add_row("objects", f"{len(entries)}, {_bytes(size)} of at most {_bytes(cache.max_bytes)}")
    screen.print(summary)
    if not entries:
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("object", overflow="fold")
    table.add_column("size", justify="right")
    table.add_column("last used")
    for entry in entries[:_ROWS]:
        used = datetime.fromtimestamp(entry.last_used).strftime("%Y-%m-%d %H:%M:%S")
        table.add_row("damaged" if entry.label is None else entry.label, _bytes(entry.size), used)
    if len(entries) > _ROWS:
        table.caption = f"... and {len(entries) - _ROWS} more"
    screen.print(table)


def clear() -> None:
    """Remove all objects of the cache and print their number and size.

    Raises:
        UnavailableError: there is no cache, its folder cannot be used, or some objects cannot be removed.
    """
    cache = ObjectCache.from_environment()
    problem = cache.problem()
    if problem is not None:
        raise UnavailableError(f"nothing was removed: {problem} ({FOLDER_VARIABLE} names the folder)")
    removed = cache.clear()
    print(f"removed {_count(len(removed))}, {_bytes(sum(entry.size for entry in removed))}, from {cache.folder}")
    remaining = len(cache.entries())
    if remaining:
        raise UnavailableError(f"{_count(remaining)} in {cache.folder} could not be removed")


def _count(objects: int) -> str:
    return f"{objects} object" if objects == 1 else f"{objects} objects"


def _bytes(size: int) -> str:
    """A number of bytes as text with a suitable unit."""
    for unit, large in (("MB", 1 << 20), ("kB", 1 << 10)):
        if size >= large:
            return f"{size / large:.4g} {unit}"
    return f"{size} bytes"

"""Results of blocks in storage (zarr), and which of them are there."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robodyn import exact
from robodyn.arguments import Array
from robodyn.distributed.inputs import Block
from robodyn.errors import ArgumentError, UnavailableError
from robodyn.messages import brief, quoted
from robodyn.questions import every_question
from robodyn.records import dataclass

_ATTRIBUTE, _DONE = "robodyn", "done"
"""The group's attribute that says what it holds, and its array that says which blocks are there."""
_VALUE = "value"


@dataclass(frozen=True)
class Output:
    """Where workers write.

    Args:
        store: a path, a URL, or a store of zarr.
        identity: of the group: another one may be under the same name where a disk is not shared.
    """

    store: Any
    identity: str

    def write(self, block: Block, results: Mapping[str, Array]) -> None:
        """Write a block, and after it that it is there.

        Raises:
            UnavailableError: the group is not there.
        """
        import zarr

        try:
            group = zarr.open_group(self.store, mode="r+")
            there = dict(group.attrs).get(_ATTRIBUTE)
        except FileNotFoundError:
            there = None
        if not isinstance(there, dict) or there.get("identity") != self.identity:
            raise UnavailableError(
                f"out: {self.store} as this worker sees it is not what map has made; wanted shared storage"
            )
        for name, array in results.items():
            group[name][block.first : block.last] = array
        group[_DONE][block.number] = 1


class Results:
    """A group of zarr for the results of a map.

    Args:
        out: a path, a URL, or a store of zarr.
        manifest: what the map computes, by words; what is there must be of the same.
        blocks: how many.
        resume: whether blocks that are there stay; if not, they are removed.

    Raises:
        ArgumentError: something else is there.
    """

    def __init__(self, out: Any, manifest: Mapping[str, Any], blocks: int, resume: bool) -> None:
        import zarr

        self.store = _location(out)
        found = _attributes(self.store, out)
        if found is not None:
            self._require_same(found, manifest, resume)
        if found is None:
            found = {**manifest, "identity": uuid.uuid4().hex}
            self._group = zarr.create_group(self.store, attributes={_ATTRIBUTE: found})
        else:
            self._group = zarr.open_group(self.store, mode="r+")
            if not resume:
                found = {**manifest, "identity": uuid.uuid4().hex}
                self._start_again(found)
        self.output = Output(self.store, found["identity"])
        flags = self.array(_DONE, (blocks,), np.uint8, 1)
        self.done = _flags(flags)

    def array(self, name: str, shape: tuple[int, ...], dtype: Any, rows: int) -> Any:
        """An array of the group, made if it is missing; chunks are of whole rows. What was not written is NaN, or zero.

        Raises:
            ArgumentError: there is another one of that name.
        """
        from zarr.codecs import Crc32cCodec

        dtype, chunks = np.dtype(dtype), (min(rows, shape[0]), *(max(1, n) for n in shape[1:]))
        if name in self._group:
            found = self._group[name]
            if (found.shape, found.dtype, getattr(found, "chunks", None)) != (shape, dtype, chunks):
                raise ArgumentError(f"out: its array {name!r} is not what map has made; resume=False makes it anew")
            return found
        # Random numbers do not get smaller by compression; a sum finds what was damaged.
        return self._group.create_array(
            name,
            shape=shape,
            dtype=dtype,
            chunks=chunks,
            compressors=[Crc32cCodec()],
            fill_value=np.nan if dtype.kind == "f" else 0,
        )

    def _start_again(self, manifest: dict[str, Any]) -> None:
        """Remove the arrays; what others have put beside them stays."""
        # First that blocks are there: whatever happens on the way, nothing old is taken for new.
        results = (name for question in every_question().values() for name in question.results)
        values = itertools.takewhile(self._group.__contains__, (f"{_VALUE}{k}" for k in itertools.count()))
        for name in itertools.chain((_DONE,), results, tuple(values)):
            if name in self._group:
                del self._group[name]
        self._group.attrs.put({_ATTRIBUTE: manifest})

    def refreshed(self) -> Array:
        """Which blocks are there now."""
        return _flags(self._group[_DONE])

    def _require_same(self, found: dict[str, Any], manifest: Mapping[str, Any], resume: bool) -> None:
        if resume and (other := [name for name in manifest if found.get(name) != manifest[name]]):
            was, now = (brief(each.get(other[0])) for each in (found, manifest))
            raise ArgumentError(
                f"out: {quoted(str(self.store), 200)} holds results of another map: {other[0]} was {was}, now {now}; "
                "wanted the same, another place, or resume=False, which removes them"
            )

    # Values of blocks, where there is a reduction.

    def put_value(self, number: int, blocks: int, value: Any) -> Any:
        """Keep the value of a block; returns it as `value` will.

        Raises:
            ArgumentError: it is not made of arrays, or not as those of other blocks are.
        """
        leaves: list[Array] = []
        form = _form(value, leaves)
        known = self._group.attrs.get(_VALUE)
        if known is None:
            self._group.attrs[_VALUE] = known = form
        if known != form:
            raise ArgumentError("reduce: gave a value of another form than for the blocks before")
        for k, leaf in enumerate(leaves):
            self._require_alike(f"{_VALUE}{k}", leaf)
            target = self.array(f"{_VALUE}{k}", (blocks, *leaf.shape), leaf.dtype, 1)
            target[number] = leaf
        self._group[_DONE][number] = 1
        return _built(form, leaves)

    def _require_alike(self, name: str, leaf: Array) -> None:
        """Raise where an array of a value is another than that of the blocks before."""
        if name in self._group:
            before = self._group[name]
            had, has = f"{before.dtype} of shape {before.shape[1:]}", f"{leaf.dtype} of shape {leaf.shape}"
            if had != has:
                raise ArgumentError(
                    f"reduce: gave an array {has}, and {had} for the blocks before; out= stores arrays that are alike"
                )

    def value(self, number: int) -> Any:
        """The value of a block."""
        form = self._group.attrs[_VALUE]
        leaves = [np.asarray(self._group[f"{_VALUE}{k}"][number]) for k in range(_count(form))]
        return _built(form, leaves)

    def arrays(self, names: Any) -> tuple[Any, ...]:
        """Results, as arrays of zarr to read."""
        import zarr

        group = zarr.open_group(self.store, mode="r")
        return tuple(group[name] for name in names)


def _flags(array: Any) -> Array:
    flags: Array = np.asarray(array[:]) == 1
    return flags


def _location(out: Any) -> Any:
    """A place that means the same for workers, which run in other folders."""
    from zarr.abc.store import Store

    if isinstance(out, Store):
        return out
    try:
        text = os.fspath(out) if exact.is_a(out, str, os.PathLike) else None
    except Exception:  # a foreign object may raise anything
        text = None
    if type(text) is not str or not text or "\0" in text:
        raise ArgumentError(f"out: got {brief(out)}; wanted a path, a URL, or a store of zarr")
    return text if "://" in text else str(Path(text).absolute())


def _attributes(store: Any, out: Any) -> dict[str, Any] | None:
    """What a group that is there says of itself; None where nothing is there.

    Raises:
        ArgumentError: something is there that no map has made.
    """
    import zarr

    try:
        found = dict(zarr.open_group(store, mode="r").attrs).get(_ATTRIBUTE)
    except FileNotFoundError:
        path = Path(store) if isinstance(store, str) and "://" not in store else getattr(store, "root", None)
        if not isinstance(path, Path) or not path.exists() or (path.is_dir() and not any(path.iterdir())):
            return None
        found = None
    except Exception as error:  # whatever lies there may break whatever reads it
        raise ArgumentError(f"out: {brief(out)} cannot be read by zarr: {brief(error)}") from error
    if not isinstance(found, dict) or not isinstance(found.get("identity"), str):
        raise ArgumentError(f"out: {brief(out)} is there, and no results of map; wanted another place")
    return found


def _form(value: Any, leaves: list[Array]) -> Any:
    """The form of a value in JSON, its arrays put at the end of `leaves`.

    Raises:
        ArgumentError: it holds something else than numbers, arrays, dictionaries by words, tuples and lists.
    """
    if isinstance(value, dict) and all(type(name) is str for name in value):
        return {"dict": {name: _form(each, leaves) for name, each in value.items()}}
    if isinstance(value, tuple | list):
        return {"tuple" if isinstance(value, tuple) else "list": [_form(each, leaves) for each in value]}
    try:
        leaf = np.asarray(value)
    except Exception as error:  # a foreign object may raise anything
        raise ArgumentError(f"reduce: gave {brief(value)}, which cannot be stored") from error
    if leaf.dtype.kind not in "biufc":
        raise ArgumentError(
            f"reduce: gave {brief(value)}; out= stores numbers, arrays, and dictionaries, tuples and lists"
        )
    leaves.append(leaf)
    return {"array": len(leaves) - 1}


def _built(form: Any, leaves: list[Array]) -> Any:
    """A value of this form."""
    ((kind, inside),) = form.items()
    if kind == "array":
        return leaves[inside][()]
    if kind == "dict":
        return {name: _built(each, leaves) for name, each in inside.items()}
    found = [_built(each, leaves) for each in inside]
    return tuple(found) if kind == "tuple" else found


def _count(form: Any) -> int:
    """How many arrays are in a value of this form."""
    ((kind, inside),) = form.items()
    if kind == "array":
        return 1
    return sum(map(_count, inside.values() if kind == "dict" else inside))

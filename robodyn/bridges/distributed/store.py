"""Results of blocks in storage (zarr), with checks of completeness and integrity.

Each block has a checksum over its run, its number and its bytes. So blocks that are missing, truncated, changed,
exchanged or of an earlier run are detected, whatever a crash has lost.
"""

from __future__ import annotations

import itertools
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from robodyn.bridges.distributed.forms import built, count_of, form_of
from robodyn.bridges.distributed.identity import array_bytes
from robodyn.bridges.distributed.inputs import Block
from robodyn.bridges.distributed.lock import LOCK_FILE, alone
from robodyn.bridges.distributed.places import ATTRIBUTE, attributes, folder_of, location, naming, open_group, shown
from robodyn.engines.query_table import every_query
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief, quoted
from robodyn.internals.records import dataclass

FORMAT = 2
"""Version of the storage format. Other versions are not resumed."""
_DONE, _SUMS = "done", "checksums"
"""Arrays of the group: flags of complete blocks, and checksums of blocks."""
_VALUE = "value"
_SUM_BYTES = 16
_CODECS = ["bytes", "crc32c"]
_RUN_BYTES, _MOST_ROWS = 1 << 26, 1 << 12
"""Limits of bytes and of blocks that are read at once."""


@dataclass(frozen=True)
class Output:
    """The group that workers write to.

    Args:
        store: a path, a URL, or a zarr store.
        mark: hash that identifies the group. On a disk that is not shared another group may have the same name.
    """

    store: Any
    mark: str

    def write(self, block: Block, results: Mapping[str, Array]) -> None:
        """Write a block, then its checksum, and finally its flag.

        Raises:
            UnavailableError: the group does not exist, or cannot be written to.
        """
        with naming(self.store):
            try:
                group = open_group(self.store, "r+")
                manifest = dict(group.attrs).get(ATTRIBUTE)
            except FileNotFoundError:
                manifest = None
            if not isinstance(manifest, dict) or _mark(manifest) != self.mark:
                raise UnavailableError(
                    f"out: {self.store} as this worker sees it is not what map has made; wanted shared storage"
                )
            for name, array in results.items():
                group[name][block.first : block.last] = array
            group[_SUMS][block.number] = _checksum(self.mark, block.number, results)
            group[_DONE][block.number] = 1


@contextmanager
def open_results(
    out: Any,
    manifest: Mapping[str, Any],
    unknown: Sequence[str],
    resume: bool,
    rows: tuple[int, int, int],
    arrays: Mapping[str, tuple[tuple[int, ...], Any]] | None,
) -> Iterator[Results]:
    """Context with the group for the results of a map, locked against other maps.

    Args:
        out: a path, a URL, or a zarr store.
        manifest: description of the map's computation; existing results must have the same. None for unknown entries.
        unknown: reasons for unknown entries.
        resume: True to keep existing blocks, False to remove them.
        rows: number of blocks, number of states, states of a block.
        arrays: results by name, with the shape of one state and their dtype; None if values of blocks are stored.

    Raises:
        ArgumentError: the location holds something else, or results that may be of another map.
        UnavailableError: another map writes there, or it cannot be read or written to.
    """
    store = location(out)
    folder = folder_of(store)
    try:
        attributes(store, out)  # raises if the location belongs to something else
    except ArgumentError:
        if folder is None or not (folder / LOCK_FILE).exists():
            attributes(store, out)  # try again: a map may just have created it
    with ExitStack() as stack:
        with naming(store):
            stack.enter_context(alone(str(folder or store), folder))
            results = Results(store, attributes(store, out), manifest, unknown, resume, rows, arrays)
        yield results


class Results:
    """The zarr group with the results of a map; made by `open_results`."""

    def __init__(
        self,
        store: Any,
        found: dict[str, Any] | None,
        manifest: Mapping[str, Any],
        unknown: Sequence[str],
        resume: bool,
        rows: tuple[int, int, int],
        arrays: Mapping[str, tuple[tuple[int, ...], Any]] | None,
    ) -> None:
        import zarr

        self.store, (self._blocks, self._states, self._chunk) = store, rows
        if found is not None and resume:
            self._require_same(found, manifest, unknown)
        if found is None or not resume:
            fresh = {"format": FORMAT, **manifest, "identity": uuid.uuid4().hex}
            if found is None:
                self._group = zarr.create_group(store, zarr_format=3, attributes={ATTRIBUTE: fresh})
            else:
                self._group = open_group(store, "r+")
                self._start_again(found, fresh)
            found = fresh
        else:
            self._group = open_group(store, "r+")
        self.output = Output(store, _mark(found))
        self._done = self._array(_DONE, (self._blocks,), np.uint8, 1)
        self._sums = self._array(_SUMS, (self._blocks, _SUM_BYTES), np.uint8, 1)
        self._results: dict[str, Any] | None = None
        if arrays is not None:
            shapes = {name: ((self._states, *shape), dtype) for name, (shape, dtype) in arrays.items()}
            self._results = {name: self._array(name, *each, self._chunk) for name, each in shapes.items()}
        self.done = self._intact()
        """Which blocks were complete when the group was opened."""

    def _array(self, name: str, shape: tuple[int, ...], dtype: Any, rows: int) -> Any:
        """An array of the group, made if it is missing. Chunks have whole rows; unwritten entries are NaN or zero.

        Raises:
            ArgumentError: another array has that name.
        """
        from zarr.codecs import Crc32cCodec
        from zarr.errors import ContainsArrayError, ContainsGroupError

        dtype, chunks = np.dtype(dtype), (min(rows, shape[0]), *(max(1, n) for n in shape[1:]))
        if self._is_there(name):
            if self._is_alike(name, shape, dtype, chunks):
                return self._group[name]
            raise self._strange(name)
        try:
            # No compression: it does not shrink data that look random.
            return self._group.create_array(
                name,
                shape=shape,
                dtype=dtype,
                chunks=chunks,
                compressors=[Crc32cCodec()],
                fill_value=np.nan if dtype.kind in "fc" else 0,
            )
        except (ContainsArrayError, ContainsGroupError):  # an array that zarr cannot read
            raise self._strange(name) from None

    def _strange(self, name: str) -> ArgumentError:
        return ArgumentError(
            f"out: its array {name!r} is not what map has made, in {shown(self.store)}; resume=False makes it anew"
        )

    def _is_there(self, name: str) -> bool:
        """Whether an array of that name exists, or something that zarr cannot read."""
        folder = folder_of(self.store)
        if folder is not None:  # zarr does not see an array with damaged metadata, but cannot create a new one either
            return os.path.lexists(folder / name)
        try:
            return name in self._group
        except OSError:
            raise
        except Exception:  # unknown data may raise anything in zarr
            return True

    def _is_alike(self, name: str, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...]) -> bool:
        """Whether an array has the format that `_array` makes. Other codecs are refused: some run code on data."""
        try:
            array = self._group[name]
            codecs = [each["name"] for each in array.metadata.to_dict()["codecs"]]
            return bool((array.shape, array.dtype, array.chunks, codecs) == (shape, dtype, chunks, _CODECS))
        except OSError:
            raise
        except Exception:  # as above
            return False

    @staticmethod
    def _results_of(manifest: Mapping[str, Any]) -> tuple[str, ...]:
        """Names of the arrays of a map's results."""
        question = every_query().get(str(manifest.get("query")))
        return () if question is None else tuple(question.results)

    def _start_again(self, found: Mapping[str, Any], manifest: dict[str, Any]) -> None:
        """Remove the arrays of the previous map and of this one; other arrays in the group stay."""
        # Flags go first, so that old blocks never count as new ones, even after an interruption.
        for name in (_DONE, _SUMS, *self._results_of(found), *self._results_of(manifest), *self._values()):
            with suppress(FileNotFoundError, KeyError):  # some do not exist
                del self._group[name]
        if _VALUE in self._group.attrs:
            del self._group.attrs[_VALUE]
        self._group.attrs[ATTRIBUTE] = manifest

    def _values(self) -> tuple[str, ...]:
        """Names of arrays of values, including damaged ones."""
        least = count_of(self._group.attrs.get(_VALUE)) or 0
        names = (f"{_VALUE}{k}" for k in itertools.count())
        first = [name for name in itertools.islice(names, least) if self._is_there(name)]
        return (*first, *itertools.takewhile(self._is_there, names))

    def _require_same(self, found: dict[str, Any], manifest: Mapping[str, Any], unknown: Sequence[str]) -> None:
        place = shown(self.store)
        if found.get("format") != FORMAT:
            raise ArgumentError(
                f"out: {place} has format {brief(found.get('format', 1))}, of another version of robodyn; this one "
                f"reads and writes {FORMAT}; wanted another place, or resume=False, which removes what it holds"
            )
        known = [name for name in manifest if manifest[name] is not None]
        if other := [name for name in known if found.get(name) != manifest[name]]:
            was, now = found.get(other[0]), brief(manifest[other[0]])
            raise ArgumentError(
                f"out: {place} holds results of another map: {other[0]} was "
                f"{'not known for certain' if was is None else brief(was)}, now {now}; wanted the same, another place, "
                "or resume=False, which removes them"
            )
        if unknown:
            raise ArgumentError(
                f"resume: it is not certain that results in {place} are of the same map ({'; '.join(unknown)}); wanted "
                'key="...", from the first map on: a name of your own for what cannot be read, which you change with '
                "it; or resume=False, which removes the results"
            )

    # Checks of stored blocks.

    def _intact(self) -> Array:
        """Which blocks are complete and undamaged. Flags of damaged blocks are cleared."""
        self._require_no_others()
        flags = self._is_done()
        intact = np.zeros(self._blocks, bool)
        for number, leaves in self._leaves(flags):
            intact[number] = leaves is not None
        for damaged in np.flatnonzero(flags & ~intact):
            self._done[int(damaged)] = 0
        if self._results is None and not intact.any():  # without intact values their stored form is obsolete
            for name in self._values():
                del self._group[name]
            if _VALUE in self._group.attrs:
                del self._group.attrs[_VALUE]
        return intact

    def require_whole(self, blocks: Any) -> None:
        """Raise if a block is missing or damaged. `blocks`: function that returns a block by number.

        Raises:
            UnavailableError: names the first such block and its file.
        """
        with naming(self.store):
            self._require_no_others()
            flags = self._is_done()
            bad = [number for number, leaves in self._leaves(flags) if leaves is None]
        if not flags.any():
            raise UnavailableError(
                f"out: workers have written, and nothing is there, in {shown(self.store)}; wanted storage that all of "
                "them share"
            )
        if bad or not flags.all():
            number = min([*bad, *np.flatnonzero(~flags).tolist()])
            raise UnavailableError(
                f"{blocks(number)}: out: {self._place(number)} is missing or is not what was written; something else "
                "has changed it, or a task ran twice with other results; another call computes it again"
            )

    def _is_done(self) -> Array:
        flags: Array = np.zeros(self._blocks, bool)
        for number, row in enumerate(_rows(self._group[_DONE], 0, self._blocks)):
            flags[number] = row is not None and row == 1
        return flags

    def _leaves(self, wanted: Array) -> Iterator[tuple[int, dict[str, Array] | None]]:
        """For each wanted block its arrays by name; None if they do not match the checksum."""
        form_text, arrays = "", self._results
        if arrays is None:
            form = self._group.attrs.get(_VALUE)
            form_text, count = _words(form), count_of(form)
            names = [f"{_VALUE}{k}" for k in range(count or 0)]
            if count is None or not all(map(self._is_value, names)):
                yield from ((int(number), None) for number in np.flatnonzero(wanted))
                return
            arrays = {name: self._group[name] for name in names}
        size = sum(each.dtype.itemsize * int(np.prod(each.chunks, dtype=object)) for each in arrays.values())
        step = max(1, min(_MOST_ROWS, _RUN_BYTES // max(1, size)))
        for first in range(0, self._blocks, step):
            last = min(self._blocks, first + step)
            if not wanted[first:last].any():
                continue
            sums = _rows(self._group[_SUMS], first, last)
            columns = {name: self._pieces(each, first, last) for name, each in arrays.items()}
            for number in (first + np.flatnonzero(wanted[first:last])).tolist():
                pieces = {name: column[number - first] for name, column in columns.items()}
                read = {name: piece for name, piece in pieces.items() if piece is not None}
                total, noted = _checksum(self.output.mark, number, read, form_text), sums[number - first]
                good = len(read) == len(pieces) and noted is not None and (noted == total).all()
                yield number, read if good else None

    def _pieces(self, array: Any, first: int, last: int) -> list[Array | None]:
        """The part of an array for each block; None for parts that cannot be read."""
        if self._results is None:
            return _rows(array, first, last)
        return [_piece(array, number * self._chunk, (number + 1) * self._chunk) for number in range(first, last)]

    def _is_value(self, name: str) -> bool:
        """Whether an array of values has the format that `_array` makes."""
        if not self._is_there(name):
            return False
        try:
            array = self._group[name]
            shape, dtype = tuple(array.shape), np.dtype(array.dtype)
        except OSError:
            raise
        except Exception:  # unknown data may raise anything in zarr
            return False
        plain = dtype.kind in "biufc" and shape[:1] == (self._blocks,)
        return plain and self._is_alike(name, shape, dtype, (1, *(max(1, n) for n in shape[1:])))

    def _place(self, number: int) -> str:
        """Path of a block in storage, for messages."""
        array = next(iter(self._results.values())) if self._results else self._group[_SUMS]
        key = "/".join(map(str, ("c", number, *(0 for _ in array.shape[1:]))))
        return f"{self.store}/{array.basename}/{key}"

    def _require_no_others(self) -> None:
        """Raise if an array's folder has chunk files that belong to no block. Only local folders are checked.

        Raises:
            ArgumentError: names the first such file.
        """
        folder = folder_of(self.store)
        if folder is None:
            return
        values = filter(self._is_value, self._values())
        for name in (_DONE, _SUMS, *(values if self._results is None else self._results)):
            ends = (self._blocks, *(1 for _ in self._group[name].shape[1:]))
            for path in _files(folder / name / "c"):
                at = path.relative_to(folder / name / "c").parts
                if len(at) != len(ends) or not all(map(_is_below, at, ends)):
                    raise ArgumentError(
                        f"out: {quoted(str(path), 300)} is none of the blocks of this map; remove it, or pass "
                        "resume=False, which removes all blocks"
                    )

    # Values of blocks of a reduction.

    def put_value(self, number: int, value: Any) -> Any:
        """Store the value of a block; returns it as `values` will read it.

        Raises:
            ArgumentError: it does not consist of arrays, or its structure differs from that of other blocks.
        """
        leaves: list[Array] = []
        form = form_of(value, leaves)
        with naming(self.store):
            known = self._group.attrs.get(_VALUE)
            if known is None:
                self._group.attrs[_VALUE] = known = form
            if known != form:
                raise ArgumentError("reduce: gave a value of another form than for the blocks before")
            named = {f"{_VALUE}{k}": leaf for k, leaf in enumerate(leaves)}
            for name, leaf in named.items():
                self._require_alike(name, leaf)
                self._array(name, (self._blocks, *leaf.shape), leaf.dtype, 1)[number] = leaf
            self._sums[number] = _checksum(self.output.mark, number, named, _words(form))
            self._done[number] = 1
        return built(form, leaves)

    def _require_alike(self, name: str, leaf: Array) -> None:
        """Raise if an array of a value has another shape or dtype than that of earlier blocks."""
        if self._is_there(name):
            before = self._group[name]
            had, has = f"{before.dtype} of shape {before.shape[1:]}", f"{leaf.dtype} of shape {leaf.shape}"
            if had != has:
                raise ArgumentError(
                    f"reduce: gave an array {has}, and {had} for the blocks before; out= stores arrays that are alike"
                )

    def values(self, numbers: Array) -> Iterator[tuple[int, Any]]:
        """Numbers and values of these blocks.

        Raises:
            UnavailableError: a value has changed since it was checked.
        """
        selected = np.zeros(self._blocks, bool)
        selected[numbers] = True
        with naming(self.store):
            form = self._group.attrs.get(_VALUE)
            for number, leaves in self._leaves(selected):
                if leaves is None:
                    raise UnavailableError(f"out: {self._place(number)} has just changed; wanted one map at a time")
                yield number, built(form, list(leaves.values()))

    def arrays(self) -> tuple[Any, ...]:
        """The results as zarr arrays, opened for reading."""
        with naming(self.store):
            group = open_group(self.store, "r")
            return tuple(group[name] for name in self._results or ())


def _mark(manifest: Mapping[str, Any]) -> str:
    """Hash of a group's manifest, which is part of all its checksums."""
    return blake2b(json.dumps(manifest, sort_keys=True).encode(), digest_size=_SUM_BYTES).hexdigest()


def _words(form: Any) -> str:
    """A form as text for checksums."""
    return json.dumps(form, sort_keys=True)


def _checksum(mark: str, number: int, arrays: Mapping[str, Array], words: str = "") -> Array:
    """Checksum of a block's arrays, its number and its run."""
    state = blake2b(f"{mark} {number} {words}".encode(), digest_size=_SUM_BYTES)
    for name, array in arrays.items():
        array = _as_stored(np.asarray(array))
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        state.update(f" {name} {array.dtype.str} {array.shape} ".encode())
        for run in array_bytes(array):
            state.update(run.data)
    return np.frombuffer(state.digest(), np.uint8)


def _as_stored(array: Array) -> Array:
    """The array as zarr reads it back: zarr omits chunks of NaN alone, so their NaN payloads change."""
    if array.dtype.kind in "fc" and array.size and np.isnan(array.flat[0]) and np.isnan(array).all():
        return np.full_like(array, np.nan)
    return array


def _rows(array: Any, first: int, last: int) -> list[Array | None]:
    """Rows of a zarr array; None for those that cannot be read."""
    rows = _piece(array, first, last)
    if rows is not None:
        return list(rows)
    if last - first == 1:
        return [None]
    middle = (first + last) // 2
    return [*_rows(array, first, middle), *_rows(array, middle, last)]


def _piece(array: Any, first: int, last: int) -> Array | None:
    """Rows of a zarr array as one array; None if one of them is damaged."""
    try:
        return np.asarray(array[first:last])
    except OSError:
        raise
    except Exception:  # damaged data may raise anything
        return None


def _files(folder: Path) -> Iterator[Path]:
    """Files below a folder, except hidden files and partial files left by a crash."""
    for parent, _, files in os.walk(folder):
        for file in files:
            if not file.startswith(".") and not file.endswith(".partial"):
                yield Path(parent, file)


def _is_below(part: str, end: int) -> bool:
    return part.isascii() and part.isdecimal() and str(int(part)) == part and int(part) < end

"""Results of blocks in storage (zarr), which of them are there, and whether they are what was computed.

Nothing that lies in storage is believed: of each block there is a checksum, of the run that it is part of, its number
and its bytes. So what is missing, cut short, changed, of another block or of an earlier run is found, in whatever order
a crash lost things.
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
"""Of what lies in storage; another one is not resumed."""
_DONE, _SUMS = "done", "checksums"
"""Arrays of the group that say which blocks are there, and of which bytes."""
_VALUE = "value"
_SUM_BYTES = 16
_CODECS = ["bytes", "crc32c"]
_RUN_BYTES, _MOST_ROWS = 1 << 26, 1 << 12
"""Of values of blocks that are read at once."""


@dataclass(frozen=True)
class Output:
    """Where workers write.

    Args:
        store: a path, a URL, or a store of zarr.
        mark: of the group: another one may be under the same name where a disk is not shared.
    """

    store: Any
    mark: str

    def write(self, block: Block, results: Mapping[str, Array]) -> None:
        """Write a block, after it its checksum, and last that it is there.

        Raises:
            UnavailableError: the group is not there, or cannot be written to.
        """
        with naming(self.store):
            try:
                group = open_group(self.store, "r+")
                there = dict(group.attrs).get(ATTRIBUTE)
            except FileNotFoundError:
                there = None
            if not isinstance(there, dict) or _mark(there) != self.mark:
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
    """The group for the results of a map, which no other map writes to meanwhile.

    Args:
        out: a path, a URL, or a store of zarr.
        manifest: what the map computes, by words; what is there must be of the same. None for what is not known.
        unknown: why something of it is not known for certain.
        resume: whether blocks that are there stay; if not, they are removed.
        rows: how many blocks and states there are, and how many states a block has.
        arrays: results by name, with the shape of one state and their dtype; None where values of blocks are kept.

    Raises:
        ArgumentError: something else is there, or it is not certain that it is of the same map.
        UnavailableError: another map writes there, or it cannot be read or written to.
    """
    store = location(out)
    folder = folder_of(store)
    try:
        attributes(store, out)  # nothing is put into what others have made
    except ArgumentError:
        if folder is None or not (folder / LOCK_FILE).exists():
            attributes(store, out)  # unless a map was just making it
    with ExitStack() as stack:
        with naming(store):
            stack.enter_context(alone(str(folder or store), folder))
            results = Results(store, attributes(store, out), manifest, unknown, resume, rows, arrays)
        yield results


class Results:
    """A group of zarr, of `open_results`."""

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
        """Which blocks were there to begin with."""

    def _array(self, name: str, shape: tuple[int, ...], dtype: Any, rows: int) -> Any:
        """An array of the group, made if it is missing; chunks are of whole rows. What was not written is NaN, or zero.

        Raises:
            ArgumentError: there is another one of that name.
        """
        from zarr.codecs import Crc32cCodec
        from zarr.errors import ContainsArrayError, ContainsGroupError

        dtype, chunks = np.dtype(dtype), (min(rows, shape[0]), *(max(1, n) for n in shape[1:]))
        if self._is_there(name):
            if self._is_alike(name, shape, dtype, chunks):
                return self._group[name]
            raise self._strange(name)
        try:
            # Random numbers do not get smaller by compression.
            return self._group.create_array(
                name,
                shape=shape,
                dtype=dtype,
                chunks=chunks,
                compressors=[Crc32cCodec()],
                fill_value=np.nan if dtype.kind in "fc" else 0,
            )
        except (ContainsArrayError, ContainsGroupError):  # one that zarr cannot read
            raise self._strange(name) from None

    def _strange(self, name: str) -> ArgumentError:
        return ArgumentError(
            f"out: its array {name!r} is not what map has made, in {shown(self.store)}; resume=False makes it anew"
        )

    def _is_there(self, name: str) -> bool:
        """Whether there is an array of that name, or something in its place that zarr cannot read."""
        folder = folder_of(self.store)
        if folder is not None:  # damaged metadata is nothing to zarr, and in the way all the same
            return os.path.lexists(folder / name)
        try:
            return name in self._group
        except OSError:
            raise
        except Exception:  # whatever lies there may break whatever reads it
            return True

    def _is_alike(self, name: str, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...]) -> bool:
        """Whether an array is as this makes them: no codecs but these, of which others run code on what they read."""
        try:
            found = self._group[name]
            codecs = [each["name"] for each in found.metadata.to_dict()["codecs"]]
            return bool((found.shape, found.dtype, found.chunks, codecs) == (shape, dtype, chunks, _CODECS))
        except OSError:
            raise
        except Exception:  # as above
            return False

    @staticmethod
    def _results_of(manifest: Mapping[str, Any]) -> tuple[str, ...]:
        """Names of the arrays that a map stores."""
        question = every_query().get(str(manifest.get("query")))
        return () if question is None else tuple(question.results)

    def _start_again(self, found: Mapping[str, Any], manifest: dict[str, Any]) -> None:
        """Remove the arrays of the map that was here, and those of this one; what others have put beside them stays."""
        # First that blocks are there: whatever happens on the way, nothing old is taken for new.
        for name in (_DONE, _SUMS, *self._results_of(found), *self._results_of(manifest), *self._values()):
            with suppress(FileNotFoundError, KeyError):  # of those that are not there
                del self._group[name]
        if _VALUE in self._group.attrs:
            del self._group.attrs[_VALUE]
        self._group.attrs[ATTRIBUTE] = manifest

    def _values(self) -> tuple[str, ...]:
        """Names of arrays of values, and of whatever stands in their place."""
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

    # What is there.

    def _intact(self) -> Array:
        """Which blocks are there, with the bytes that were written; the others are not marked as done any more."""
        self._require_no_others()
        flags = self._is_done()
        intact = np.zeros(self._blocks, bool)
        for number, leaves in self._leaves(flags):
            intact[number] = leaves is not None
        for damaged in np.flatnonzero(flags & ~intact):
            self._done[int(damaged)] = 0
        if self._results is None and not intact.any():  # whatever the form of values is there, it is of none
            for name in self._values():
                del self._group[name]
            if _VALUE in self._group.attrs:
                del self._group.attrs[_VALUE]
        return intact

    def require_whole(self, blocks: Any) -> None:
        """Raise where a block is not there, or is not what was written. `blocks`: gives a block by its number.

        Raises:
            UnavailableError: names the first, and its place.
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
        """Of each wanted block its arrays by name, None where they are not those of its checksum."""
        words, arrays = "", self._results
        if arrays is None:
            form = self._group.attrs.get(_VALUE)
            words, count = _words(form), count_of(form)
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
                found = {name: column[number - first] for name, column in columns.items()}
                read = {name: piece for name, piece in found.items() if piece is not None}
                total, noted = _checksum(self.output.mark, number, read, words), sums[number - first]
                good = len(read) == len(found) and noted is not None and (noted == total).all()
                yield number, read if good else None

    def _pieces(self, array: Any, first: int, last: int) -> list[Array | None]:
        """Of an array the part of each block, None where it cannot be read."""
        if self._results is None:
            return _rows(array, first, last)
        return [_piece(array, number * self._chunk, (number + 1) * self._chunk) for number in range(first, last)]

    def _is_value(self, name: str) -> bool:
        """Whether an array of values is as this makes them."""
        if not self._is_there(name):
            return False
        try:
            found = self._group[name]
            shape, dtype = tuple(found.shape), np.dtype(found.dtype)
        except OSError:
            raise
        except Exception:  # whatever lies there may break whatever reads it
            return False
        plain = dtype.kind in "biufc" and shape[:1] == (self._blocks,)
        return plain and self._is_alike(name, shape, dtype, (1, *(max(1, n) for n in shape[1:])))

    def _place(self, number: int) -> str:
        """Where a block is, in words."""
        array = next(iter(self._results.values())) if self._results else self._group[_SUMS]
        key = "/".join(map(str, ("c", number, *(0 for _ in array.shape[1:]))))
        return f"{self.store}/{array.basename}/{key}"

    def _require_no_others(self) -> None:
        """Raise where files lie among the chunks of an array that are none of its blocks; in a folder of this machine.

        Raises:
            ArgumentError: names the first.
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

    # Values of blocks, where there is a reduction.

    def put_value(self, number: int, value: Any) -> Any:
        """Keep the value of a block; returns it as `value` will.

        Raises:
            ArgumentError: it is not made of arrays, or not as those of other blocks are.
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
        """Raise where an array of a value is another than that of the blocks before."""
        if self._is_there(name):
            before = self._group[name]
            had, has = f"{before.dtype} of shape {before.shape[1:]}", f"{leaf.dtype} of shape {leaf.shape}"
            if had != has:
                raise ArgumentError(
                    f"reduce: gave an array {has}, and {had} for the blocks before; out= stores arrays that are alike"
                )

    def values(self, numbers: Array) -> Iterator[tuple[int, Any]]:
        """Values of these blocks, with their numbers.

        Raises:
            UnavailableError: one is not what was written.
        """
        wanted = np.zeros(self._blocks, bool)
        wanted[numbers] = True
        with naming(self.store):
            form = self._group.attrs.get(_VALUE)
            for number, leaves in self._leaves(wanted):
                if leaves is None:
                    raise UnavailableError(f"out: {self._place(number)} has just changed; wanted one map at a time")
                yield number, built(form, list(leaves.values()))

    def arrays(self) -> tuple[Any, ...]:
        """Results, as arrays of zarr to read."""
        with naming(self.store):
            group = open_group(self.store, "r")
            return tuple(group[name] for name in self._results or ())


def _mark(manifest: Mapping[str, Any]) -> str:
    """A hash of all that a group says of itself: checksums are those of these words alone."""
    return blake2b(json.dumps(manifest, sort_keys=True).encode(), digest_size=_SUM_BYTES).hexdigest()


def _words(form: Any) -> str:
    """A form as checksums count it."""
    return json.dumps(form, sort_keys=True)


def _checksum(mark: str, number: int, arrays: Mapping[str, Array], words: str = "") -> Array:
    """Of a block's arrays, and of which block of which run they are."""
    state = blake2b(f"{mark} {number} {words}".encode(), digest_size=_SUM_BYTES)
    for name, array in arrays.items():
        array = _as_stored(np.asarray(array))
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        state.update(f" {name} {array.dtype.str} {array.shape} ".encode())
        for run in array_bytes(array):
            state.update(run.data)
    return np.frombuffer(state.digest(), np.uint8)


def _as_stored(array: Array) -> Array:
    """What is read again: zarr leaves out a chunk of nothing but NaN, and gives one kind of NaN for it."""
    if array.dtype.kind in "fc" and array.size and np.isnan(array.flat[0]) and np.isnan(array).all():
        return np.full_like(array, np.nan)
    return array


def _rows(array: Any, first: int, last: int) -> list[Array | None]:
    """Rows of an array of zarr, None for those that cannot be read."""
    found = _piece(array, first, last)
    if found is not None:
        return list(found)
    if last - first == 1:
        return [None]
    middle = (first + last) // 2
    return [*_rows(array, first, middle), *_rows(array, middle, last)]


def _piece(array: Any, first: int, last: int) -> Array | None:
    """Rows of an array of zarr together, None where one of them is damaged."""
    try:
        return np.asarray(array[first:last])
    except OSError:
        raise
    except Exception:  # damage shows as whatever error it leads to
        return None


def _files(folder: Path) -> Iterator[Path]:
    """Below a folder, but for hidden ones of file systems, and for what a crash left half written."""
    for parent, _, files in os.walk(folder):
        for file in files:
            if not file.startswith(".") and not file.endswith(".partial"):
                yield Path(parent, file)


def _is_below(part: str, end: int) -> bool:
    return part.isascii() and part.isdecimal() and str(int(part)) == part and int(part) < end

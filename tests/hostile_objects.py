"""Objects that raise or lie wherever Python lets them: what careless, broken or malicious code may pass in."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import numpy as np


class Unspeakable(Exception):
    """An error that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


ERRORS: tuple[type[Exception], ...] = (
    *(RuntimeError, RecursionError, MemoryError, AttributeError, TypeError, ValueError, KeyError, OSError),
    *(StopIteration, AssertionError, Unspeakable),
)

HOOKS = (  # not __call__: what a callback raises is its own, and comes out
    *("__class__", "__getattr__", "__getattribute__", "__repr__", "__str__", "__format__", "__hash__", "__eq__"),
    *("__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "__len__", "__length_hint__", "__iter__"),
    *("__next__", "__getitem__", "__setitem__", "__contains__", "__reversed__", "__index__", "__int__", "__float__"),
    *("__complex__", "__round__", "__trunc__", "__abs__", "__neg__", "__add__", "__radd__", "__sub__", "__rsub__"),
    *("__mul__", "__rmul__", "__mod__", "__fspath__", "__bytes__", "__buffer__", "__array__"),
    *("__array_interface__", "__array_struct__", "__array_ufunc__", "__array_function__", "__array_finalize__"),
    *("__array_wrap__", "__array_priority__", "__cuda_array_interface__", "__dlpack__", "__dlpack_device__"),
    *("__dict__", "__reduce_ex__", "__copy__", "__deepcopy__", "__enter__", "__sizeof__", "__dir__", "__name__"),
    *("read", "links", "joints", "robot", "name", "shape", "dtype", "ndim", "size", "flags", "mask", "strides"),
    *("encode", "strip", "startswith", "endswith", "isprintable", "lower", "split", "replace", "join", "removeprefix"),
    *("tolist", "astype", "reshape", "ravel", "copy", "get", "items", "keys", "values", "count", "index", "data"),
    *("item", "ctypes", "view", "any", "all", "T", "base", "real", "is_integer", "decode", "suffix", "parent"),
)
_ATTRIBUTES = ("__class__", "__dict__", "__array_interface__", "__array_struct__", "__array_priority__", "__name__")
_PROPERTIES = (
    *_ATTRIBUTES,
    *("__cuda_array_interface__", "shape", "dtype", "ndim", "size", "flags", "mask", "strides", "links", "joints"),
    *("robot", "name", "ctypes", "T", "base", "real", "data", "suffix", "parent"),
)


def _raiser(error: type[Exception]) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise error("hostile") if error is not Unspeakable else Unspeakable

    return fail


def raising(base: type, hooks: tuple[str, ...], error: type[Exception]) -> type:
    """A subclass of `base` whose `hooks` raise."""
    fail = _raiser(error)
    body = {hook: property(fail) if hook in _PROPERTIES else fail for hook in hooks}
    if "__eq__" in body and "__hash__" not in body:
        body["__hash__"] = base.__hash__
    return type("Hostile", (base,), body)


def made(kind: type, value: Any) -> Any:
    """An instance of a hostile class that holds `value`, by the methods of the class that it descends from."""
    for base in (str, bytes, bytearray, int, float, tuple, list, dict):
        if issubclass(kind, base):
            thing = base.__new__(kind, value) if base in (str, bytes, int, float, tuple) else base.__new__(kind)
            if base in (list, dict, bytearray):
                base.__init__(thing, value)
            return thing
    if issubclass(kind, np.ndarray):
        plain = np.ascontiguousarray(value)
        thing = np.ndarray.__new__(kind, plain.shape, plain.dtype)
        np.copyto(np.ndarray.view(thing, np.ndarray), plain)
        return thing
    return object.__new__(kind)


BASES: dict[type, Any] = {
    object: None,
    str: None,
    bytes: b"<robot/>",
    bytearray: b"<robot/>",
    int: 3,
    float: 0.5,
    tuple: (0.0, 0.0, -9.81),
    list: [0.0, 0.0, -9.81],
    dict: {"q": 1},
    np.ndarray: None,
}
"""Classes that hostile ones descend from, with what an instance holds; None: what is right at the place."""


def _holding(base: type, valid: Any) -> Any:
    """What an instance holds: the right value at its place where its class can, else something of its kind."""
    try:
        if base is str:
            return valid if isinstance(valid, str) else "cpu"
        if base is np.ndarray:
            return np.array(valid if isinstance(valid, (list, tuple, float, np.ndarray)) else [1.0, 2.0], dtype=float)
        if base in (int, float, tuple, list) and isinstance(valid, base) and not isinstance(valid, bool):
            return valid
        if base in (tuple, list) and isinstance(valid, (tuple, list, np.ndarray)):
            return base(valid)
    except (TypeError, ValueError):
        pass
    return BASES[base]


class _LyingText(str):
    """Equal to everything, of no length, of other letters wherever it is asked."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[str]:
        return itertools.repeat("x", 1000)

    def __contains__(self, other: object) -> bool:
        return True

    def __str__(self) -> str:
        return "other"

    def __format__(self, spec: str) -> str:
        return "other"

    def __getitem__(self, at: Any) -> Any:
        return 7

    def encode(self, *_: Any) -> Any:
        return 7

    def strip(self, *_: Any) -> Any:
        return 7

    def isprintable(self) -> bool:
        return True

    startswith = endswith = __contains__  # type: ignore[assignment]


class _LyingTuple(tuple):
    def __len__(self) -> int:
        return 1 << 40

    def __iter__(self) -> Any:
        return itertools.repeat(1.0, 100_000)

    def __getitem__(self, at: Any) -> Any:
        return "x"


class _LyingList(list):
    __len__, __iter__, __getitem__ = _LyingTuple.__len__, _LyingTuple.__iter__, _LyingTuple.__getitem__


class _LyingInt(int):
    __hash__ = int.__hash__

    def __lt__(self, other: object) -> bool:
        return True

    __le__ = __gt__ = __ge__ = __eq__ = __lt__

    def __int__(self) -> int:
        return 10**30

    __index__ = __int__

    def __float__(self) -> float:
        return float("nan")

    def __mod__(self, other: object) -> Any:
        return "x"

    __neg__ = __abs__ = __mod__  # type: ignore[assignment]


class _LyingFloat(float):
    __hash__ = float.__hash__

    def __lt__(self, other: object) -> bool:
        return True

    __le__ = __gt__ = __ge__ = __eq__ = __lt__

    def __float__(self) -> Any:
        return float("inf")

    def is_integer(self) -> bool:
        return True


class _LyingArray(np.ndarray):
    """An array that says that it is larger than it is, and writable."""

    shape = property(lambda self: (1000, 6))  # type: ignore[assignment]
    ndim = property(lambda self: 2)  # type: ignore[assignment]
    size = property(lambda self: 6000)  # type: ignore[assignment]
    dtype = property(lambda self: np.dtype(np.float64))  # type: ignore[assignment]

    def reshape(self, *_: Any, **__: Any) -> Any:
        return np.zeros(1)

    def astype(self, *_: Any, **__: Any) -> Any:
        return np.zeros(1)

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        return 7

    def __array_function__(self, *_: Any, **__: Any) -> Any:
        return 7

    def __getitem__(self, at: Any) -> Any:
        return "x"

    def __setitem__(self, at: Any, value: Any) -> None:
        pass


def liars(valid: Any) -> Iterator[tuple[str, Any]]:
    """Objects that answer falsely."""
    if isinstance(valid, str):
        yield "lying text", made(_LyingText, valid)
    else:
        yield "lying text", made(_LyingText, "1.0")
    yield "lying tuple", made(_LyingTuple, _holding(tuple, valid))
    yield "lying list", made(_LyingList, _holding(list, valid))
    yield "lying int", made(_LyingInt, _holding(int, valid))
    yield "lying float", made(_LyingFloat, _holding(float, valid))
    yield "lying array", made(_LyingArray, _holding(np.ndarray, valid))
    for kind in (str, bytes, int, float, bool, tuple, list, dict, np.ndarray, np.bool_, np.integer, memoryview, type):
        yield f"says it is {kind.__name__}", type("Liar", (), {"__class__": kind})()
    import robodyn as rd
    from robodyn.engines.gpu.options import GpuOptions
    from robodyn.engines.scan.options import ScanOptions

    for kind in (rd.Model, rd.Dynamics, rd.RobotDescription, PurePosixPath, GpuOptions, ScanOptions):
        yield f"says it is {kind.__name__}", type("Liar", (), {"__class__": kind})()
    for what in (None, 7, "text", b"bytes", np.zeros(2), object()):
        yield f"path of {type(what).__name__}", type("Path", (), {"__fspath__": lambda self, what=what: what})()
        yield f"array of {type(what).__name__}", type("A", (), {"__array__": lambda self, *_, w=what, **__: w})()
        yield f"file of {type(what).__name__}", type("F", (), {"read": lambda self, n=-1, w=what: w})()
    for what in (
        None,
        7,
        {},
        {"shape": (1 << 60,)},
        {"shape": (6,), "typestr": "<f8", "data": (8, False), "version": 3},
    ):
        if what is None or "data" not in (what if isinstance(what, dict) else {}):
            yield f"interface {what}", type("I", (), {"__array_interface__": what})()
        yield f"cuda interface {what}", type("I", (), {"__cuda_array_interface__": what})()
    for what in (None, (2, 0), (13, 0), (), "x", (None,)):
        yield f"dlpack device {what}", type("D", (), {"__dlpack_device__": lambda self, what=what: what})()


def metaclasses() -> Iterator[tuple[str, Any]]:
    """Instances of classes that raise themselves when they are looked at."""
    fail = _raiser(RuntimeError)
    named = ("__name__", "__mro__", "__bases__")
    for hook in (
        *named,
        "__hash__",
        "__eq__",
        "__repr__",
        "__getattribute__",
        "__instancecheck__",
        "__subclasscheck__",
    ):
        body = {hook: property(fail) if hook in named else fail}
        meta = type("Meta", (type,), body | ({"__hash__": type.__hash__} if hook == "__eq__" else {}))
        # NumPy leaves the error of a class's __hash__ behind, for whatever is called next to stumble over.
        for base in (object, tuple) if hook == "__hash__" else (object, str, int, tuple, np.ndarray):
            try:
                thing = made(type.__new__(meta, "Hostile", (base,), {"__repr__": fail}), _holding(base, None))
            except Exception:  # NumPy asks the class before there is an array
                continue
            yield f"{base.__name__} of a class with {hook}", thing


class _Long:
    """A sequence that says it is short and goes on."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, at: Any) -> float:
        if isinstance(at, int) and at < 100_000:
            return 1.0
        raise IndexError


def endless() -> Iterator[tuple[str, Any]]:
    """Iterators without an end, and objects that pretend to be huge."""
    yield "count", itertools.count()
    yield "repeat", itertools.repeat("damping")
    yield "generator", (0.0 for _ in itertools.count())
    yield "reader of x", type("F", (), {"read": lambda self, n=-1: "x" * min(1 << 20, max(n, 1))})()
    yield "reader of nothing but blanks", type("F", (), {"read": lambda self, n=-1: b" " * min(1 << 20, max(n, 1))})()
    yield "long", _Long()
    yield "huge", type("Huge", (), {"__len__": lambda self: 1 << 62, "__getitem__": lambda self, at: 1.0})()
    released = memoryview(bytearray(8))
    released.release()
    yield "released", released
    yield "deep", _nested(5000)
    yield "wide int", 10**5000
    yield "surrogate", "\ud800"
    yield "null", "\0"
    yield "bytes path", os.fsencode("none")
    own: list[Any] = []
    own.append(own)
    yield "itself", own


def _nested(depth: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


def inside(things: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Each of them as the one member of a tuple, and of a list."""
    for what, thing in things:
        yield f"({what},)", (thing,)
        yield f"[{what}]", [thing]


def parts(valid: Any) -> Iterator[tuple[str, Any]]:
    """Objects of subclasses of a part of a description, and some that lack its fields; none of what is no such part."""
    if not dataclasses.is_dataclass(valid) or not hasattr(type(valid), "__slots__"):
        return
    kind, names = type(valid), [field.name for field in dataclasses.fields(valid)]
    fail = _raiser(RuntimeError)
    for name in ("__getattribute__", *names):
        lies = {"raises": fail} if name == "__getattribute__" else {"raises": property(fail), "lies": 7}
        for how, attribute in lies.items():
            thing = object.__new__(type("Part", (kind,), {name: attribute}))
            yield f"part whose fields are not there, and {name} {how}", thing
            thing = object.__new__(type(thing))
            for own in names:
                kind.__dict__[own].__set__(thing, getattr(valid, own))
            yield f"part whose {name} {how}", thing
    yield "part without fields", object.__new__(kind)


def raisers(valid: Any, errors: tuple[type[Exception], ...], hooks: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Objects that raise: at one place each, and everywhere at once."""
    for base in BASES:
        for error in errors:
            for chosen in (*((hook,) for hook in hooks), hooks, tuple(h for h in hooks if h != "__getattribute__")):
                what = chosen[0] if len(chosen) == 1 else f"{len(chosen)} hooks"
                try:
                    thing = made(raising(base, chosen, error), _holding(base, valid))
                except Exception:  # not every class can be so hostile that it cannot be made
                    continue
                yield f"{base.__name__} whose {what} raises {error.__name__}", thing

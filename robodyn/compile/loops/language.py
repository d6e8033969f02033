"""What functions that are printed may use besides Python's own arithmetic, `if`, `for`, `while` and calls.

Types in annotations: `Word` is an integer of 64 bits, `Flag` a bool, `Address` where bytes are, `Array[T]` where values
of a type T are; T is `Word`, `Integer` (of 32 bits), `Byte`, `Address`, a `ctypes.Structure`, whose pointers are
arrays, or a name that stands for another type in each module, such as `Vector`. `Static[T]` is known when a function is
printed, so are its parameters without an annotation; what can be computed from such values is computed then, and loops
over them are unrolled.

A function with `@routine` is called where others call it; any other one becomes a part of its caller. Both run as plain
Python as well: memory is real then, vectors are arrays of NumPy's.
"""

from __future__ import annotations

import ctypes
import linecache
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Generic, ParamSpec, TypeAlias, TypeVar, cast, get_type_hints

import numpy as np

from robodyn.compile.loops.blocks import ADDRESS, I1, I8, I32, I64, Fixed, Number, Pointer, Struct, Type
from robodyn.internals.forks import lock

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

Word: TypeAlias = int
Address: TypeAlias = int
Flag: TypeAlias = bool
Index: TypeAlias = int
"""An integer; in C it has as many bits as what is given."""
Static: TypeAlias = Annotated[T, "static"]
NULL: Address = 0


if TYPE_CHECKING:
    Integer: TypeAlias = int
    Byte: TypeAlias = int
    Scalar: TypeAlias = float
else:

    class Integer(int):
        """An integer of 32 bits in memory."""

    class Byte(int):
        """An integer of 8 bits in memory."""

    class Scalar(float):
        """A floating-point number of the module's precision."""


if TYPE_CHECKING:

    class Vector:
        """Numbers of several states, or columns."""

        def __add__(self, other: Vector | float) -> Vector: ...
        def __radd__(self, other: float) -> Vector: ...
        def __sub__(self, other: Vector | float) -> Vector: ...
        def __rsub__(self, other: float) -> Vector: ...
        def __mul__(self, other: Vector | float) -> Vector: ...
        def __rmul__(self, other: float) -> Vector: ...
        def __truediv__(self, other: Vector | float) -> Vector: ...
        def __rtruediv__(self, other: float) -> Vector: ...
        def __neg__(self) -> Vector: ...
        def __lt__(self, other: Vector | float) -> Vector: ...
        def __le__(self, other: Vector | float) -> Vector: ...
        def __gt__(self, other: Vector | float) -> Vector: ...
        def __ge__(self, other: Vector | float) -> Vector: ...

    Words: TypeAlias = Vector
    """Integers of several states, or a mask."""
    Loose: TypeAlias = Vector
    Unaligned: TypeAlias = Vector
    """Vectors in memory, aligned to a scalar or not at all."""
    LooseScalar: TypeAlias = Scalar
    UnalignedScalar: TypeAlias = Scalar
    """The same of scalars."""
    Entry: TypeAlias = Vector
    """Entries of a matrix that vectors are multiplied with: vectors as well, or scalars for all their places."""
    Lanes: TypeAlias = Vector
    Lane: TypeAlias = int
    """Integers of a scalar's size, beside those of a vector, and one of them."""
    State: TypeAlias = Vector
    """Numbers of all states that are worked on at once."""

else:
    _NAMES = "Vector Words Loose Unaligned LooseScalar UnalignedScalar Entry State Lanes Lane"
    Vector, Words, Loose, Unaligned, LooseScalar, UnalignedScalar, Entry, State, Lanes, Lane = (
        type(name, (), {}) for name in _NAMES.split()
    )


OWN: Mapping[str, Type] = {
    "Word": I64,
    "int": I64,
    "Index": I64,
    "Integer": I32,
    "Byte": I8,
    "Flag": I1,
    "bool": I1,
    "Address": ADDRESS,
}
"""Types by the names that they have in annotations."""
_BOUND: list[Mapping[str, Type]] = []


@contextmanager
def bound(**types: Type) -> Iterator[None]:
    """Functions run as Python within, where names stand for these types."""
    _BOUND.append(types)
    try:
        yield
    finally:
        _BOUND.pop()


_Structs: TypeAlias = dict[type[ctypes.Structure], Struct]
_STRUCTS: _Structs = {}
_MAKING_STRUCTS = lock()
_CTYPES: Mapping[Any, Type] = {
    ctypes.c_int64: I64,
    ctypes.c_int32: I32,
    ctypes.c_char: I8,
    ctypes.c_int8: I8,
    ctypes.c_void_p: ADDRESS,
    ctypes.c_double: Number("double"),
    ctypes.c_float: Number("float"),
}


def struct_of(kind: type[ctypes.Structure]) -> Struct:
    """The fields of a structure of ctypes."""
    if kind not in _STRUCTS:
        made: _Structs = {}
        with _MAKING_STRUCTS:  # one of each for all threads, none of which sees it before its fields are there
            _struct(kind, made)
            _STRUCTS.update(made)
    return _STRUCTS[kind]


def _struct(kind: type[ctypes.Structure], made: _Structs) -> Struct:
    """The same; what is made on the way stands in `made`."""
    found = _STRUCTS.get(kind) or made.get(kind)
    if found is None:
        fields: dict[str, tuple[int, Type]] = {}
        found = made[kind] = Struct(kind.__name__, ctypes.sizeof(kind), fields)  # which its own fields may point to
        for name, of, *_ in kind._fields_:
            fields[name] = getattr(kind, name).offset, _field(of, made)
    return found


def _field(of: Any, made: _Structs) -> Type:
    if isinstance(of, type) and issubclass(of, ctypes.Structure):
        return _struct(of, made)
    if isinstance(of, type) and issubclass(of, ctypes._Pointer):
        to = _field(of._type_, made)
        assert not isinstance(to, Fixed)
        return Pointer(to)
    if isinstance(of, type) and issubclass(of, ctypes.Array):
        inner, count = _field(of._type_, made), int(of._length_)  # type: ignore[call-overload]
        return Fixed(inner.to, inner.count * count) if isinstance(inner, Fixed) else Fixed(inner, count)
    return _CTYPES[of]


def type_of(kind: Any) -> Type:
    """The type that a class stands for, where functions run as Python."""
    if isinstance(kind, (Number, Pointer, Struct)):
        return kind
    if isinstance(kind, type) and issubclass(kind, ctypes.Structure):
        return struct_of(kind)
    if getattr(kind, "__origin__", None) is Array:
        to = type_of(kind.__args__[0])
        assert not isinstance(to, Fixed)
        return Pointer(to)
    name = kind.__name__
    for types in reversed(_BOUND):
        if name in types:
            return types[name]
    return OWN[name]


class Routine(Generic[P, R]):
    """A function of a module, which others call."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it as Python."""
        return self.function(*args, **kwargs)


def routine(function: Callable[P, R]) -> Routine[P, R]:
    """Decorate what is a function of its own where it is printed. Its file is read now: later it may have changed, or
    there may be no file descriptor left."""
    linecache.getlines(function.__code__.co_filename, function.__globals__)
    return Routine(function)


class Operator:
    """What is called like a function, and says itself what becomes of it where it is printed: more than the language
    can say."""

    def read(self, reader: Any, *arguments: Any, **named: Any) -> Any:
        """Add operations to those that a reader (`reader.Reader`) has read; the result is a value, or known."""
        raise NotImplementedError

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The same as Python."""
        raise NotImplementedError


PRIMITIVES: dict[Callable[..., Any], str] = {}
"""Functions that `reader` knows by name."""


def primitive(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate what is an operation where it is printed."""
    PRIMITIVES[function] = function.__name__
    return function


KNOWN: set[Callable[..., Any]] = set()
"""Functions that Python computes."""


def known(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate what is computed, of what is known, when a function is printed."""
    KNOWN.add(function)
    return function


# Memory.


class Array(Generic[T]):
    """Where values of a type are: `a[k]` is the k-th of them, or where it is if that is a structure; `a + k` is where
    the k-th is; `a.name` is a field of the structure there."""

    def __init__(self, address: int, to: Any = None) -> None:
        self.__dict__.update(address=int(address), to=to)

    def __getitem__(self, k: int) -> T:
        place = self + k
        return cast(T, place if isinstance(self.to, Struct) else _loaded(place.address, self.to))

    def __setitem__(self, k: int, value: object) -> None:
        _stored((self + k).address, self.to, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not isinstance(self.to, Struct):
            raise AttributeError(name)
        offset, kind = self.to.fields[name]
        if isinstance(kind, Fixed):
            return Array(self.address + offset, kind.to)
        if isinstance(kind, Struct):
            return Array(self.address + offset, kind)
        return _loaded(self.address + offset, kind)

    def __setattr__(self, name: str, value: Any) -> None:
        offset, kind = self.to.fields[name]
        _stored(self.address + offset, kind, value)

    def __add__(self, k: int) -> Array[T]:
        return Array(self.address + int(k) * self.to.size, self.to)

    def __sub__(self, k: int) -> Array[T]:
        return self + -k

    def __eq__(self, other: object) -> bool:
        return int(self) == int(cast(int, other))

    def __hash__(self) -> int:
        return hash(int(self))

    def __int__(self) -> int:
        return int(self.__dict__["address"])

    __index__ = __int__


_FORMATS = {"i1": np.bool_, "i8": np.int8, "i32": np.int32, "i64": np.int64, "float": np.float32, "double": np.float64}


def _memory(address: int, kind: Number) -> np.ndarray[Any, Any]:
    buffer = (ctypes.c_char * kind.size).from_address(address)
    found: np.ndarray[Any, Any] = np.frombuffer(buffer, np.dtype(_FORMATS[kind.scalar]), kind.width)  # type: ignore[call-overload]
    return found


def _loaded(address: int, kind: Type) -> Any:
    if isinstance(kind, Pointer):
        word = int(_memory(address, I64)[0])
        return word if kind.to is None else Array(word, kind.to)
    assert isinstance(kind, Number)
    found = _memory(address, kind).copy()
    if kind.width > 1:
        return found
    return found[0] if kind.real else int(found[0])


def _stored(address: int, kind: Type, value: Any) -> None:
    if isinstance(kind, Pointer):
        kind, value = I64, int(value)
    assert isinstance(kind, Number)
    _memory(address, kind)[:] = wrapped(int(value)) if kind == I64 else value


@primitive
def array(of: type[T], address: Address | Array[Any]) -> Array[T]:
    """Values of a type from an address on."""
    return Array(int(address), type_of(of))


@primitive
def address(of: Array[Any] | Address) -> Address:
    """The address as bytes: `+` moves it by bytes then."""
    return int(of)


@primitive
def place(of: Array[Any], name: str) -> Any:
    """Where a field of a structure is."""
    offset, kind = of.to.fields[name]
    return Array(of.address + offset, kind.to if isinstance(kind, Fixed) else kind)


_KEPT: list[Any] = []


@primitive
def local(of: type[T], count: Word) -> Array[T]:
    """Room for some values until the function returns; where their number is not known, each time that it is asked
    for."""
    kind = type_of(of)
    assert not isinstance(kind, Fixed)
    _KEPT.append(owner := ctypes.create_string_buffer(kind.size * count + 64))
    return Array(-(-ctypes.addressof(owner) // 64) * 64, kind)


_VARIABLES: dict[str, int] = {}


@primitive
def variable(of: type[T], name: str) -> Array[T]:
    """Where a variable of the module is, which is zero at first. Others may look it up by its name."""
    if name not in _VARIABLES:
        _VARIABLES[name] = local(of, 1).address
    return Array(_VARIABLES[name], type_of(of))


@primitive
def size_of(of: Any) -> Static[int]:
    """Bytes of a value in memory."""
    kind = type_of(of)
    assert not isinstance(kind, Fixed)
    return kind.size


@primitive
def lanes_of(of: Any) -> Static[int]:
    """How many numbers a vector has."""
    return cast(Number, type_of(of)).width


@primitive
def clear(at: Address | Array[Any], size: Word) -> None:
    """Bytes become zero."""
    ctypes.memset(int(at), 0, size)


@primitive
def copy(to: Address | Array[Any], source: Address | Array[Any], size: Word) -> None:
    """Copy bytes, of memory that does not overlap."""
    ctypes.memmove(int(to), int(source), size)


@primitive
def fetch(at: Address | Array[Any]) -> None:
    """Begin to bring the line of an address to the cache, if it is memory."""


@primitive
def stream(to: Array[T], value: T) -> None:
    """Store a value past the caches."""
    to[0] = value


@primitive
def load_some(source: Array[T], mask: Any) -> T:
    """A vector, its places where a mask holds: nothing else is read, others are zero."""
    kind = cast(Number, source.to)
    found: Any = np.zeros(kind.width, _FORMATS[kind.scalar])
    one = Number(kind.scalar)
    for k in np.flatnonzero(mask):
        found[k] = _loaded(source.address + int(k) * one.size, one)
    return cast(T, found)


@primitive
def store_some(to: Array[T], mask: Any, value: Any) -> None:
    """Store the places of a vector where a mask holds, and touch no others."""
    one = Number(to.to.scalar)
    for k in np.flatnonzero(mask):
        _stored(to.address + int(k) * one.size, one, value[k])


# Numbers and vectors.


@primitive
def wrapped(value: int) -> Word:
    """A sum or a product of words as it is in 64 bits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


@primitive
def fma(a: T, b: Any, c: Any) -> T:
    """a b + c, rounded once where the processor can."""
    return cast(T, cast(Any, a) * b + c)


@primitive
def spread(of: type[T], value: Any) -> T:
    """A number in every place of a vector."""
    kind = cast(Number, type_of(of))
    found: Any = np.full(kind.width, value, _FORMATS[kind.scalar])
    return cast(T, found if kind.width > 1 else found[0])


@primitive
def places_of(of: type[T]) -> T:
    """0, 1, 2 ... in a vector of integers."""
    kind = cast(Number, type_of(of))
    return cast(T, np.arange(kind.width, dtype=_FORMATS[kind.scalar]))


@primitive
def convert(of: type[T], value: Any) -> T:
    """A number, or a vector, in another precision; a word as another integer."""
    kind = cast(Number, type_of(of))
    found: Any = np.asarray(value).astype(_FORMATS[kind.scalar])
    if kind.width > 1:
        return cast(T, found)
    return cast(T, found[()] if kind.real else int(found))


@primitive
def shuffled(a: Any, b: Any, numbers: Sequence[int]) -> Any:
    """The places that numbers say of two vectors one behind the other; -1: any."""
    return np.concatenate([a, b])[list(numbers)]


@primitive
def permuted(a: T, numbers: Any, b: T) -> T:
    """The places that a vector of numbers says of two vectors of 64 bytes one behind the other, with AVX-512."""
    pair = np.concatenate([cast(Any, a), cast(Any, b)])
    return cast(T, pair[np.asarray(numbers) % len(pair)])


@primitive
def extracted(vector: Any, k: int) -> Any:
    """A place of a vector, whose number is known."""
    return vector[k]


@primitive
def inserted(vector: Any, value: Any, k: int) -> Any:
    """A vector with another value in a place, whose number is known."""
    found = np.array(vector)
    found[k] = value
    return found


@primitive
def anything(of: type[T]) -> T:
    """A vector that nobody reads before it is filled."""
    kind = cast(Number, type_of(of))
    return cast(T, np.full(kind.width, math.nan if kind.real else -1, _FORMATS[kind.scalar]))


@primitive
def all_of(mask: Any) -> Flag:
    """Whether a mask holds in all places."""
    return bool(np.all(mask))


@primitive
def unsigned_less(a: Word, b: Word) -> Flag:
    """Whether a < b, as integers without a sign."""
    return a % (1 << 64) < b % (1 << 64)


@primitive
def shifted(value: Word, bits: int) -> Word:
    """A word shifted to the right, zeros following."""
    return value % (1 << 64) >> bits


@primitive
def leading_zeros(value: Word) -> Word:
    """Of the binary digits of a positive word."""
    return 64 - value.bit_length()


@primitive
def chosen(test: Flag, a: T, b: T) -> T:
    """One of two values, both of which are computed."""
    return a if test else b


def switch(value: Word, numbers: Sequence[int]) -> Iterator[int]:
    """`for k in switch(value, numbers)` runs its body once, for the k among known numbers that a value is: it must be
    one of them. The body is printed for each number, which is known there, behind a jump to that of the value."""
    assert value in numbers
    yield value


# Other code, other threads, the processor.


@primitive
def call(of: type[T] | None, function: Address, *arguments: Any, fixed: int | None = None) -> T:
    """Call what is at an address; with the type of its result, or None. `fixed`: the arguments that the function names
    itself, where it takes any others behind them, as C's printf does."""
    words = [int(each) for each in arguments]
    narrow = of is not None and cast(Number, type_of(of)).size == 4
    result = None if of is None else ctypes.c_int32 if narrow else ctypes.c_int64
    return cast(T, ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * len(words))(int(function))(*words))


@primitive
def code_of(routine: Routine[..., Any]) -> Address:
    """Where a function of the module is, for others to call."""
    hints = get_type_hints(routine.function)
    result = None if hints.pop("return") is type(None) else ctypes.c_int64
    kinds = [type_of(kind) for kind in hints.values()]

    def run(*words: int) -> Any:
        pairs = zip(words, kinds, strict=True)
        found = routine.function(*[Array(at, to.to) if isinstance(to, Pointer) and to.to else at for at, to in pairs])
        return found if result is None else int(found)

    _KEPT.append(made := ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * len(kinds))(run))
    return ctypes.cast(made, ctypes.c_void_p).value or 0


@primitive
def load_atomic(source: Array[T], order: str) -> T:
    """A value that other threads may write; `order` as in C."""
    return source[0]


@primitive
def store_atomic(to: Array[Any], value: Any, order: str) -> None:
    """A value that other threads may read."""
    to[0] = value


@primitive
def exchange_if(at: Array[Any], old: Any, new: Any, order: str) -> Flag:
    """Store a new value if the old one is there; whether it was. `order` of success; that of failure is relaxed."""
    found = at[0] == old
    if found:
        at[0] = new
    return bool(found)


_UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "and": operator.and_,
    "or": operator.or_,
}


@primitive
def update(at: Array[T], how: str, value: Any, order: str) -> T:
    """Change a value by "add", "sub", "and" or "or", at once for all threads; the one before."""
    before = at[0]
    at[0] = _UPDATES[how](before, value)
    return before


@primitive
def processor(name: str, *operands: int) -> None:
    """An instruction without a result, by LLVM's name of it; operands are known, and have 32 bits."""

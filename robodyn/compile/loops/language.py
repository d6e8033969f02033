"""The types and operations that printed functions may use besides Python's arithmetic, `if`, `for`, `while` and calls.

Types in annotations: `Word` is a 64-bit integer, `Flag` a bool, `Address` the address of bytes, `Array[T]` the address
of values of type T. T is `Word`, `Integer` (32 bits), `Byte`, `Address`, a `ctypes.Structure` (pointers in it are
arrays), or a name whose type each module defines, such as `Vector`. A parameter annotated `Static[T]`, or without an
annotation, is known when the function is printed. Everything that depends on known values alone is computed then, and
loops over known values are unrolled.

A function with `@routine` becomes a function of the module. Any other function is inlined into its caller. Both also
run as plain Python, where memory is real memory and vectors are NumPy arrays.
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
"""An integer; in C it has as many bits as the argument."""
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
        """A vector of numbers, one for each of several states or columns."""

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
        def __and__(self, other: Vector) -> Vector: ...

    Words: TypeAlias = Vector
    """A vector of integers, one for each state, or a mask."""
    Loose: TypeAlias = Vector
    Unaligned: TypeAlias = Vector
    """Vectors in memory: `Loose` ones are aligned to a scalar, `Unaligned` ones not at all."""
    LooseScalar: TypeAlias = Scalar
    UnalignedScalar: TypeAlias = Scalar
    """Scalars in memory: aligned to a scalar, or not at all."""
    Entry: TypeAlias = Vector
    """An entry of a matrix that multiplies vectors: a vector, or a scalar used for all elements."""
    Lanes: TypeAlias = Vector
    Lane: TypeAlias = int
    """Integers as wide as the scalars of a vector: a vector of them, and one of them."""
    Columns: TypeAlias = Vector
    """A vector of consecutive numbers of one state, or where there are several states one for each."""
    State: TypeAlias = Vector
    """A vector of numbers, one for each state that is computed at once."""

else:
    _NAMES = "Vector Words Loose Unaligned LooseScalar UnalignedScalar Entry Columns State Lanes Lane"
    Vector, Words, Loose, Unaligned, LooseScalar, UnalignedScalar, Entry, Columns, State, Lanes, Lane = (
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
"""Types by their names in annotations."""
_BOUND: list[Mapping[str, Type]] = []


@contextmanager
def bound(**types: Type) -> Iterator[None]:
    """A context in which functions run as Python and type names stand for these types."""
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
    """The fields of a ctypes structure, with their types and offsets."""
    if kind not in _STRUCTS:
        made: _Structs = {}
        with _MAKING_STRUCTS:  # all threads share one Struct, and none sees it before its fields are complete
            _struct(kind, made)
            _STRUCTS.update(made)
    return _STRUCTS[kind]


def _struct(kind: type[ctypes.Structure], made: _Structs) -> Struct:
    """The same; `made` holds the structures made so far."""
    struct = _STRUCTS.get(kind) or made.get(kind)
    if struct is None:
        fields: dict[str, tuple[int, Type]] = {}
        struct = made[kind] = Struct(kind.__name__, ctypes.sizeof(kind), fields)  # its own fields may point to it
        for name, of, *_ in kind._fields_:
            fields[name] = getattr(kind, name).offset, _field(of, made)
    return struct


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
    """The type for which a class stands while functions run as Python."""
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
    """A function of a module, which other functions call."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function as Python."""
        return self.function(*args, **kwargs)


def routine(function: Callable[P, R]) -> Routine[P, R]:
    """Decorator: the function is printed as a function of its own. Its source file is read now, because later the file
    may have changed or no file descriptor may be left."""
    linecache.getlines(function.__code__.co_filename, function.__globals__)
    return Routine(function)


class Operator:
    """A callable that prints itself, for operations that the language cannot express."""

    def read(self, reader: Any, *arguments: Any, **named: Any) -> Any:
        """Print the call with a reader (`reader.Reader`, or `c_statements.Writer` for C). The result is a value, or
        known."""
        raise NotImplementedError

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the same operation as Python."""
        raise NotImplementedError


PRIMITIVES: dict[Callable[..., Any], str] = {}
"""Functions that the readers translate by name."""


def primitive(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: a call of the function is printed as one operation."""
    PRIMITIVES[function] = function.__name__
    return function


KNOWN: set[Callable[..., Any]] = set()
"""Functions that run as Python when their caller is printed."""


def known(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: the function runs as Python when its caller is printed; its arguments must be known."""
    KNOWN.add(function)
    return function


# Memory.


class Array(Generic[T]):
    """The address of values of one type. `a[k]` is the k-th value, or its address if it is a structure. `a + k` is the
    address of the k-th value. `a.name` is a field of the structure at the address."""

    def __init__(self, address: int, to: Any = None) -> None:
        self.__dict__.update(address=int(address), to=to)

    def __getitem__(self, k: int) -> T:
        at = self + k
        return cast(T, at if isinstance(self.to, Struct) else _loaded(at.address, self.to))

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
    values: np.ndarray[Any, Any] = np.frombuffer(buffer, np.dtype(_FORMATS[kind.scalar]), kind.width)  # type: ignore[call-overload]
    return values


def _loaded(address: int, kind: Type) -> Any:
    if isinstance(kind, Pointer):
        word = int(_memory(address, I64)[0])
        return word if kind.to is None else Array(word, kind.to)
    assert isinstance(kind, Number)
    values = _memory(address, kind).copy()
    if kind.width > 1:
        return values
    return values[0] if kind.real else int(values[0])


def _stored(address: int, kind: Type, value: Any) -> None:
    if isinstance(kind, Pointer):
        kind, value = I64, int(value)
    assert isinstance(kind, Number)
    _memory(address, kind)[:] = wrapped(int(value)) if kind == I64 else value


@primitive
def array(of: type[T], address: Address | Array[Any]) -> Array[T]:
    """The address of values of a type."""
    return Array(int(address), type_of(of))


@primitive
def address(of: Array[Any] | Address) -> Address:
    """The address as an address of bytes: `+` then moves it by bytes."""
    return int(of)


@primitive
def place(of: Array[Any], name: str) -> Any:
    """The address of a field of a structure."""
    offset, kind = of.to.fields[name]
    return Array(of.address + offset, kind.to if isinstance(kind, Fixed) else kind)


_KEPT: list[Any] = []


@primitive
def local(of: type[T], count: Word) -> Array[T]:
    """Memory for `count` values until the function returns. If `count` is not known, each call allocates new memory."""
    kind = type_of(of)
    assert not isinstance(kind, Fixed)
    _KEPT.append(owner := ctypes.create_string_buffer(kind.size * count + 64))
    return Array(-(-ctypes.addressof(owner) // 64) * 64, kind)


_VARIABLES: dict[str, int] = {}


@primitive
def variable(of: type[T], name: str) -> Array[T]:
    """The address of a module variable, which starts at zero. Other code can look it up by its name."""
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
    """Number of elements of a vector."""
    return cast(Number, type_of(of)).width


@primitive
def clear(at: Address | Array[Any], size: Word) -> None:
    """Set bytes to zero."""
    ctypes.memset(int(at), 0, size)


@primitive
def copy(to: Address | Array[Any], source: Address | Array[Any], size: Word) -> None:
    """Copy bytes between memory that does not overlap."""
    ctypes.memmove(int(to), int(source), size)


@primitive
def fetch(at: Address | Array[Any]) -> None:
    """Prefetch the cache line of an address; invalid addresses are allowed."""


@primitive
def stream(to: Array[T], value: T) -> None:
    """Store a value with a streaming store, which bypasses the caches."""
    to[0] = value


@primitive
def load_some(source: Array[T], mask: Any) -> T:
    """Load the elements of a vector where a mask is set. The others are zero, and their memory is not read."""
    kind = cast(Number, source.to)
    vector: Any = np.zeros(kind.width, _FORMATS[kind.scalar])
    one = Number(kind.scalar)
    for k in np.flatnonzero(mask):
        vector[k] = _loaded(source.address + int(k) * one.size, one)
    return cast(T, vector)


@primitive
def store_some(to: Array[T], mask: Any, value: Any) -> None:
    """Store the elements of a vector where a mask is set. The memory of the others is not written."""
    one = Number(to.to.scalar)
    for k in np.flatnonzero(mask):
        _stored(to.address + int(k) * one.size, one, value[k])


# Numbers and vectors.


@primitive
def wrapped(value: int) -> Word:
    """A sum or product of words, wrapped to 64 bits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


@primitive
def fma(a: T, b: Any, c: Any) -> T:
    """a b + c, rounded once if the processor has FMA."""
    return cast(T, cast(Any, a) * b + c)


@primitive
def spread(of: type[T], value: Any) -> T:
    """Broadcast a number to all elements of a vector."""
    kind = cast(Number, type_of(of))
    vector: Any = np.full(kind.width, value, _FORMATS[kind.scalar])
    return cast(T, vector if kind.width > 1 else vector[0])


@primitive
def places_of(of: type[T]) -> T:
    """A vector of the integers 0, 1, 2 ..."""
    kind = cast(Number, type_of(of))
    return cast(T, np.arange(kind.width, dtype=_FORMATS[kind.scalar]))


@primitive
def convert(of: type[T], value: Any) -> T:
    """A number or a vector in another precision; a word as an integer of another size."""
    kind = cast(Number, type_of(of))
    converted: Any = np.asarray(value).astype(_FORMATS[kind.scalar])
    if kind.width > 1:
        return cast(T, converted)
    return cast(T, converted[()] if kind.real else int(converted))


@primitive
def shuffled(a: Any, b: Any, numbers: Sequence[int]) -> Any:
    """Elements of the concatenation of two vectors, by known indices; -1: any value."""
    return np.concatenate([a, b])[list(numbers)]


@primitive
def permuted(a: T, numbers: Any, b: T) -> T:
    """Elements of the concatenation of two vectors of 64 bytes, by a vector of indices (AVX-512)."""
    pair = np.concatenate([cast(Any, a), cast(Any, b)])
    return cast(T, pair[np.asarray(numbers) % len(pair)])


@primitive
def extracted(vector: Any, k: int) -> Any:
    """An element of a vector, at a known index; that of a number is the number."""
    return vector[k] if np.ndim(vector) else vector


@primitive
def inserted(vector: Any, value: Any, k: int) -> Any:
    """The vector with another value at a known index."""
    changed = np.array(vector)
    changed[k] = value
    return changed


@primitive
def anything(of: type[T]) -> T:
    """A vector with arbitrary elements, to be filled before it is read."""
    kind = cast(Number, type_of(of))
    return cast(T, np.full(kind.width, math.nan if kind.real else -1, _FORMATS[kind.scalar]))


@primitive
def all_of(mask: Any) -> Flag:
    """Whether a mask is set in all elements."""
    return bool(np.all(mask))


@primitive
def unsigned_less(a: Word, b: Word) -> Flag:
    """Whether a < b as unsigned integers."""
    return a % (1 << 64) < b % (1 << 64)


@primitive
def shifted(value: Word, bits: int) -> Word:
    """A word shifted to the right; zeros are shifted in."""
    return value % (1 << 64) >> bits


@primitive
def leading_zeros(value: Word) -> Word:
    """Number of leading zero bits of a positive word."""
    return 64 - value.bit_length()


@primitive
def chosen(test: Any, a: T, b: T) -> T:
    """One of two values, or of two elements for each of a vector's; both are computed."""
    return cast(T, np.where(test, cast(Any, a), cast(Any, b))) if np.ndim(test) else a if test else b


def switch(value: Word, numbers: Sequence[int]) -> Iterator[int]:
    """`for k in switch(value, numbers)` runs its body once, with k = value, which must be one of the known `numbers`.
    The body is printed once for each number, in which k is known, behind a jump table."""
    assert value in numbers
    yield value


# Other code, other threads, the processor.


@primitive
def call(of: type[T] | None, function: Address, *arguments: Any, fixed: int | None = None) -> T:
    """Call the function at an address. `of`: the type of its result, or None. `fixed`: number of named parameters, if
    the function is variadic like C's printf."""
    words = [int(each) for each in arguments]
    narrow = of is not None and cast(Number, type_of(of)).size == 4
    result = None if of is None else ctypes.c_int32 if narrow else ctypes.c_int64
    return cast(T, ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * len(words))(int(function))(*words))


@primitive
def code_of(routine: Routine[..., Any]) -> Address:
    """The address of a function of the module, for other code to call."""
    hints = get_type_hints(routine.function)
    result = None if hints.pop("return") is type(None) else ctypes.c_int64
    kinds = [type_of(kind) for kind in hints.values()]

    def run(*words: int) -> Any:
        pairs = zip(words, kinds, strict=True)
        returned = routine.function(
            *[Array(at, to.to) if isinstance(to, Pointer) and to.to else at for at, to in pairs]
        )
        return returned if result is None else int(returned)

    _KEPT.append(made := ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * len(kinds))(run))
    return ctypes.cast(made, ctypes.c_void_p).value or 0


@primitive
def load_atomic(source: Array[T], order: str) -> T:
    """Load a value that other threads may write; `order` as in C."""
    return source[0]


@primitive
def store_atomic(to: Array[Any], value: Any, order: str) -> None:
    """Store a value that other threads may read."""
    to[0] = value


@primitive
def exchange_if(at: Array[Any], old: Any, new: Any, order: str) -> Flag:
    """Compare and swap: store the new value if the old one is there, and return whether it was. `order`: memory order
    on success; on failure it is relaxed."""
    swapped = at[0] == old
    if swapped:
        at[0] = new
    return bool(swapped)


_UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "and": operator.and_,
    "or": operator.or_,
}


@primitive
def update(at: Array[T], how: str, value: Any, order: str) -> T:
    """Change a value atomically by "add", "sub", "and" or "or", and return the value before."""
    before = at[0]
    at[0] = _UPDATES[how](before, value)
    return before


@primitive
def processor(name: str, *operands: int | Array[Any]) -> None:
    """An instruction without a result, by the name of its LLVM intrinsic. The operands are known 32-bit integers, and
    addresses."""

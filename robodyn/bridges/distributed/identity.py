"""Identity of functions across processes: a hash of everything that determines what a function computes.

The hash covers bytecode, constants, defaults, captured variables, and the globals that the code names. These must be
plain values and arrays, other such functions, or pure functions of Python and NumPy, which a version number represents.
Anything else, such as an object of a user's class, may differ in ways that this module cannot see. It has no hash, and
the user must pass a key instead.
"""

from __future__ import annotations

import builtins
import dis
import functools
import importlib.util
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array
from robodyn.internals.messages import printable, shortened

_DIGEST_BYTES = 16
_DEEPEST = 60
"""Limit of nesting of functions and values."""
_MOST_VALUES = 200_000
"""Limit of the number of values. An array counts as one."""
_RUN_BYTES = 1 << 24
"""Bytes of an array that is not contiguous that are copied at a time."""

_PYTHON = f"{sys.implementation.cache_tag} {importlib.util.MAGIC_NUMBER.hex()}"
"""Version of the bytecode format: equal bytecode means the same for equal versions."""
_LIBRARIES = {"math": _PYTHON, "cmath": _PYTHON, "numpy": f"numpy {np.__version__}", "robodyn": ""}
"""Versions that represent functions and classes of a library. The manifest has robodyn's version separately."""
_OF_NUMPY = ("numpy", "numpy.linalg", "numpy.fft", "numpy.random")
_READING = (
    *("load", "loadtxt", "genfromtxt", "fromfile", "fromregex", "memmap", "save", "savetxt", "savez"),
    *("savez_compressed", "geterr", "seterr", "geterrcall", "seterrcall", "getbufsize", "setbufsize"),
    *("get_printoptions", "set_printoptions", "printoptions", "array_repr", "array_str", "array2string"),
    *("datetime64", "show_config", "show_runtime", "info", "test"),
)
"""NumPy's functions that access files, settings or the clock."""
_OF_ROBODYN = (
    ("robodyn.bridges.distributed.inputs", "random_inputs"),
    ("robodyn.api.queries.external", "external_force"),
)
_PURE = (
    *("abs", "all", "any", "bin", "bool", "bytes", "chr", "complex", "dict", "divmod", "enumerate", "filter", "float"),
    *("frozenset", "hex", "int", "isinstance", "iter", "len", "list", "map", "max", "min", "next", "oct", "ord", "pow"),
    *("print", "range", "reversed", "round", "set", "slice", "sorted", "str", "sum", "tuple", "zip"),
)
_OF_PYTHON = {
    name: each
    for name, each in vars(builtins).items()
    if name in _PURE or (strict_types.is_a(each, type) and issubclass(each, BaseException))
}
"""Built-in functions and classes that depend on their arguments alone."""

_SCALARS = frozenset(np.sctypeDict.values())
_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_WRONG_NAMES = {
    "IMPORT_NAME": "it imports {}",
    "IMPORT_FROM": "it imports {}",
    "STORE_GLOBAL": "it changes the global {}",
    "DELETE_GLOBAL": "it changes the global {}",
    "STORE_ATTR": "it sets the attribute {}",
    "DELETE_ATTR": "it removes the attribute {}",
}
"""Messages for instructions whose effects depend on state that the hash does not cover."""
_REACHING = (
    *("format", "format_map", "gi_frame", "ag_frame", "cr_frame", "tb_frame"),
    *("f_globals", "f_locals", "f_builtins", "f_back"),
)
"""Attributes that give access to objects that the code does not name, besides those with two leading underscores."""

_Seen: TypeAlias = dict[int, tuple[int, Any]]
"""By `id`: the number of a mutable object, and the object itself, which keeps its id from being reused."""


_LONGEST = 300
"""Longest message of an `UncertainError`, in characters."""


class UncertainError(Exception):
    """An object has no certain identity; the message says where and what it is."""


def identity(name: str, value: Any, by_key: bool = False) -> str:
    """A hash of a value, or of everything that a function reads. Equal hashes mean equal computations in all processes.

    Args:
        name: name of the argument, for messages.
        value: a function, a reduction, or plain values.
        by_key: True if the user's key stands for functions and objects without a certain identity.

    Raises:
        UncertainError: a part of the value has no certain identity.
    """
    reader = _Reader(by_key, iter(range(_MOST_VALUES)))
    try:
        reader.read(name, value, {}, 0)
    except UncertainError as error:
        raise UncertainError(printable(shortened(str(error), _LONGEST))) from None
    except Exception as error:  # nested too deeply for Python, or a foreign class that raises anything
        raise UncertainError(f"{name}: to read it raised {strict_types.type_name(error)}") from error
    return reader.state.hexdigest()


def array_bytes(array: Array) -> Iterator[Array]:
    """The bytes of an array in C order, in runs. Contiguous arrays are not copied."""
    if array.nbytes == 0:
        return
    contiguous = array.flags.c_contiguous
    rows = max(1, _RUN_BYTES * len(array) // array.nbytes) if not contiguous else 0
    for run in (array,) if contiguous else (array[start : start + rows] for start in range(0, len(array), rows)):
        yield np.ascontiguousarray(run).reshape(-1).view(np.uint8)


def _plain_kinds() -> dict[type, Callable[[Any], bytes]]:
    """Types of plain immutable values, and functions that return their bytes."""
    nothing = dict.fromkeys((type(None), type(...), type(NotImplemented)), lambda value: b"")
    return nothing | {
        bool: lambda value: b"1" if value else b"0",
        int: lambda value: hex(value).encode(),  # Python refuses decimal text of long integers
        float: lambda value: struct.pack("<d", value),
        complex: lambda value: struct.pack("<dd", value.real, value.imag),
        str: lambda value: value.encode("utf-8", "surrogatepass"),
        bytes: lambda value: value,
    }


_PLAIN = _plain_kinds()


class _Reader:
    """Adds a value to a hash. Kind and length precede each part, so that different values never coincide."""

    def __init__(self, by_key: bool, left: Iterator[int]) -> None:
        self.state = blake2b(_PYTHON.encode(), digest_size=_DIGEST_BYTES)
        self._by_key, self._left = by_key, left
        self._functions: _Seen = {}

    def _put(self, kind: str, data: bytes = b"") -> None:
        self.state.update(f"{kind} {len(data)} ".encode())
        self.state.update(data)

    def read(self, where: str, value: Any, seen: _Seen, depth: int, literal: bool = False) -> None:
        """Add a value. `seen`: mutable objects read before in the same function, since an alias differs from a copy.
        `literal`: True for constants of a function's code."""
        kind = type(value)
        plain = _PLAIN.get(kind)
        if next(self._left, None) is None:
            raise UncertainError(f"{where}: holds more than {_MOST_VALUES} values; arrays of NumPy may")
        if plain is not None:
            self._put(kind.__name__, plain(value))
            return
        if depth > _DEEPEST:
            raise UncertainError(f"{where}: nested too deeply")
        if kind in (list, dict, set, np.ndarray):
            if id(value) in seen:
                self._put("again", str(seen[id(value)][0]).encode())
                return
            seen[id(value)] = (len(seen), value)
        if kind in (tuple, list, dict, range, slice):
            parts = _parts(value)
            self._put(kind.__name__, str(len(parts)).encode())
            for part in parts:
                self.read(where, part, seen, depth + 1, literal)
        elif kind in (set, frozenset):
            # The order of a set's members may vary between equal sets, but not for the same literal.
            if len(value) > 1 and not (literal or self._by_key):
                raise UncertainError(f"{where}: a {kind.__name__} of {len(value)}, whose order may be looked at")
            # Members are immutable values only; `_of_member` refuses others, such as functions.
            self._put(kind.__name__, b"".join(sorted(self._of_member(where, member, depth + 1) for member in value)))
        elif not self._read_array(value):
            self._read_object(where, value, seen, depth)

    def _of_member(self, where: str, member: Any, depth: int) -> bytes:
        """The hash of a set's member, an immutable value."""
        plain = type(member) in _PLAIN or type(member) in (tuple, frozenset) or type(member) in _SCALARS
        if not plain:
            raise UncertainError(f"{where}: {_words_for(member)} in a set")
        reader = _Reader(False, self._left)
        if type(member) is tuple and depth <= _DEEPEST:
            for part in member:
                reader._put("part", self._of_member(where, part, depth + 1))
        else:
            reader.read(where, member, {}, depth)
        return reader.state.digest()

    def _read_array(self, value: Any) -> bool:
        """Add a NumPy array, number or dtype. False if `value` is none, or if its bytes do not determine it."""
        if type(value) is np.ndarray:
            dtype, array = value.dtype, value
        elif type(value) in _SCALARS:
            array = np.asarray(value)
            dtype = array.dtype
        elif strict_types.is_a(value, np.dtype):
            dtype, array = value, None
        else:
            return False
        long = dtype.char in "gG"  # long double has padding bytes
        if dtype.kind not in "biufcSUmM" or dtype.metadata or long:
            return False
        self._put("dtype" if array is None else type(value).__name__, dtype.str.encode())
        if array is not None:
            turned = bool(array.flags.f_contiguous and not array.flags.c_contiguous)  # affects the order of sums
            self._put("turned" if turned else "rows", repr((array.shape, array.flags.writeable)).encode())
            for run in array_bytes(array.T if turned else array):
                self.state.update(run.data)
        return True

    def _read_object(self, where: str, value: Any, seen: _Seen, depth: int) -> None:
        kind = type(value)
        if kind is Model:
            self._put("model", value.digest.encode())  # the digest does not cover the fields below
            others = (value.proximal, tuple(value.report), value.file_tree, value.source)
            self.read(where, others, seen, depth + 1)
        elif kind is Dynamics:
            self.read(where, (value.model, value._arguments), seen, depth + 1)
        elif is_dataclass(kind) and _is_of("robodyn", kind):
            self._put("record", kind.__qualname__.encode())
            for each in fields(kind):
                self.read(where, getattr(value, each.name), seen, depth + 1)
        elif self._by_key:
            self._put("key")
        elif (library := _library(value)) is not None:
            self._put("library", library.encode())
        elif kind is FunctionType:
            self._read_function(where, value, depth)
        elif kind is functools.partial and not vars(value):
            self._put("partial")
            self.read(where, (value.func, value.args, value.keywords), seen, depth + 1)
        else:
            raise UncertainError(f"{where}: {_words_for(value)}")

    def _read_function(self, where: str, function: FunctionType, depth: int) -> None:
        if id(function) in self._functions:
            self._put("again", str(self._functions[id(function)][0]).encode())
            return
        self._functions[id(function)] = (len(self._functions), function)
        code = function.__code__
        captured: dict[str, Any] = {}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                captured[name] = cell.cell_contents
            except ValueError:
                raise UncertainError(f"{where}, variable {name}: has no value yet") from None
        self._put("function")
        seen: _Seen = {}
        for name, value in captured.items():
            if type(value) is ModuleType:  # the code shows which attributes are used
                self._put("module")
            else:
                self.read(f"{where}, variable {name}", value, seen, depth + 1)
        for name in ("__defaults__", "__kwdefaults__", "__dict__"):
            self.read(f"{where}, {name}", getattr(function, name), seen, depth + 1)
        names = _Names(self, where, function, captured, seen, depth)
        names.read_code(code, frozenset(captured))

    def read_code(self, code: CodeType) -> None:
        """Add a code object without its constants, file name and line numbers."""
        self._put("code", code.co_code)
        self._put("exceptions", code.co_exceptiontable)
        facts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self._put("facts", repr((facts, names)).encode("utf-8", "surrogatepass"))


class _Names:
    """Adds the code of a function, nested code objects, and the values of the names that they use."""

    def __init__(
        self, reader: _Reader, where: str, function: FunctionType, captured: dict[str, Any], seen: _Seen, depth: int
    ) -> None:
        self._reader, self._where, self._seen, self._depth = reader, where, seen, depth
        self._globals, self._builtins = function.__globals__, vars(FunctionType)["__builtins__"].__get__(function)
        self._captured = captured
        self._known: set[str] = set()
        if type(self._globals) is not dict or type(self._builtins) is not dict:
            raise UncertainError(f"{where}: its globals are no dictionary of Python's")

    def read_code(self, code: CodeType, captured: frozenset[str], depth: int = 0) -> None:
        """Add a code object. `captured`: names that refer to captured variables of the function."""
        reader = self._reader
        reader.read_code(code)
        if depth > _DEEPEST:
            raise UncertainError(f"{self._where}: nested too deeply")
        steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
        for number, step in enumerate(steps):
            self._read_step(step, steps[number + 1 : number + _DEEPEST], captured)
        for constant in code.co_consts:
            if type(constant) is CodeType:
                inner = captured.difference(code.co_cellvars).intersection(constant.co_freevars)
                self.read_code(constant, inner, depth + 1)
            else:
                reader.read(self._where, constant, {}, self._depth + 1, literal=True)

    def _read_step(self, step: dis.Instruction, after: Sequence[dis.Instruction], captured: frozenset[str]) -> None:
        name = step.argval
        if step.opname == "LOAD_GLOBAL":
            self._read_name("global", name, after)
        elif step.opname in _ATTRIBUTES:
            if name.startswith("__") or name in _REACHING:
                raise UncertainError(f"{self._where}: it reads the attribute {name!r}")
        elif step.opcode in dis.hasname:
            words = _WRONG_NAMES.get(step.opname, "it looks {} up while it runs")
            raise UncertainError(f"{self._where}: {words.format(repr(name))}")
        elif step.opname == "LOAD_BUILD_CLASS":
            raise UncertainError(f"{self._where}: it makes a class")
        elif step.opcode in dis.hasfree and name in captured:
            if step.opname.startswith(("STORE", "DELETE")):
                raise UncertainError(f"{self._where}: it changes its variable {name!r}")
            if step.opname.startswith("LOAD") and step.opname != "LOAD_CLOSURE":
                self._read_name("variable", name, after)

    def _read_name(self, kind: str, name: str, after: Sequence[dis.Instruction]) -> None:
        """Add the value of a name; for a module the attributes that the code uses."""
        where = f"{self._where}, {kind} {name}"
        if kind == "variable":
            value = self._captured[name]
            if type(value) is not ModuleType:
                return  # already added
        elif name in self._globals:
            value = self._globals[name]
        elif name in self._builtins:
            value = self._builtins[name]
        else:
            raise UncertainError(f"{where}: has no value yet")
        path = f"{kind} {name}"
        for step in after:
            if type(value) is not ModuleType:
                break
            if step.opname not in _ATTRIBUTES:
                raise UncertainError(f"{where}: the module {value.__name__} is used as a value")
            path, where = f"{path}.{step.argval}", f"{where}.{step.argval}"
            value = _attribute(where, value, step.argval)
        if path not in self._known:
            self._known.add(path)
            self._reader._put("name", path.encode("utf-8", "surrogatepass"))
            self._reader.read(where, value, self._seen, self._depth + 1)


def _attribute(where: str, module: ModuleType, name: str) -> Any:
    """An attribute of a module. Only for `_LIBRARIES` it may be created on access."""
    if name not in vars(module) and module.__name__.partition(".")[0] in _LIBRARIES:
        return getattr(module, name, None)
    if name not in vars(module):
        raise UncertainError(f"{where}: the module {module.__name__} does not have it yet")
    return vars(module)[name]


def _parts(value: Any) -> list[Any]:
    """The parts of a Python container, in order."""
    if type(value) is dict:
        return [part for pair in value.items() for part in pair]
    if type(value) in (range, slice):
        return [value.start, value.stop, value.step]
    return list(value)


def _library(value: Any) -> str | None:
    """Version and name of a pure function or class of Python, NumPy or robodyn; None for any other value."""
    named = _name_of(value)
    if named is None:
        return None
    (module, name), bound = named, getattr(value, "__self__", None)
    if bound is not None and type(bound) is not ModuleType:
        return None  # a bound method depends on its object
    if _OF_PYTHON.get(name) is value:
        return f"{_PYTHON} {name}"
    root = module.partition(".")[0]
    allowed = (
        (module in ("math", "cmath") and type(value) is BuiltinFunctionType)
        or (module in _OF_NUMPY and name not in _READING)
        or (module, name) in _OF_ROBODYN
    )
    return f"{_LIBRARIES[root]} {module}.{name}" if allowed and _is_of(root, value) else None


def _is_of(root: str, value: Any) -> bool:
    """Whether a value is the library's own function or class of its name."""
    named = _name_of(value)
    if named is None or named[0].partition(".")[0] != root:
        return False
    return getattr(sys.modules.get(named[0]), named[1], None) is value


def _name_of(value: Any) -> tuple[str, str] | None:
    """The module of a function or class, and its name there, or None."""
    try:
        names = value.__module__, value.__qualname__
    except Exception:  # a foreign object may raise anything
        return None
    return names if type(names[0]) is type(names[1]) is str else None


def _words_for(value: Any) -> str:
    """Description of a value's type. It omits contents, which may be secret."""
    if strict_types.is_a(value, type):
        return f"the class {strict_types.name_of(value)}"
    if type(value) is ModuleType:
        return f"the module {value.__name__} is used as a value"
    if type(value) in (FunctionType, BuiltinFunctionType):
        return f"the function {printable(value.__name__)}"
    return f"an object of type {printable(strict_types.type_name(value))}"

"""Fast path: replaces a query's method by a built-in function that answers calls without running Python code.

Looking up the method on a `Dynamics` installs the built-in function in the object's `__dict__`. It passes calls of an
unknown form to the method and learns the form: which arguments are positional and which are keywords, which arrays are
None, which link, frame and method are chosen. Later calls of this form run machine code. All of this is derived from
the table of queries and the method's signature; no query has fast-path code of its own.
"""

from __future__ import annotations

import ctypes
import itertools
import operator
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from robodyn.api.queries.engine_selector import EngineSelector, current_table
from robodyn.api.queries.replay import TEXT, Launching
from robodyn.core.model import Model
from robodyn.engines.protocol import Calls, Engine
from robodyn.engines.query_table import FORCE_AXES, FRAMES, QUERIES, LinkSelection, QuerySpec, every_query, find
from robodyn.internals.arguments import Array
from robodyn.internals.cached import with_fast_path
from robodyn.internals.errors import ArgumentError, UnavailableError

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics
    from robodyn.engines.cpu.native.answers import Answers
    from robodyn.engines.cpu.native.entry import Argument, Entry, Forms

LINK_BITS, WORD_BITS = 24, 5
"""Bits that encode a link's index, and a choice such as a frame or method."""
_MOST_LISTS = 1 << 10
"""Number of lists of links that a query keeps answers for."""


class _Links:
    """Represents a list of links in calls of built-in functions. It compares and hashes by identity.

    `number`: its index among the lists that the query has seen; `links`: link indices in `model`.
    """

    __slots__ = ("links", "model", "number")

    def __init__(self, number: int, links: tuple[int, ...], model: Model) -> None:
        self.number, self.links, self.model = number, links, model


class Epoch:
    """Counter of changes of a `Dynamics`. Built-in functions drop calls learnt before the last change."""

    def __init__(self) -> None:
        self.now, self._numbers = ctypes.c_int64(), itertools.count(1)

    def ends(self) -> None:
        """Start a new epoch: calls go to the methods again."""
        self.now.value = next(self._numbers)


def changing(dyn: Dynamics) -> Epoch | None:
    """Remove the built-in functions of a `Dynamics` whose attribute changes. Returns its epoch, if there is one."""
    for name in (*every_query(), FAST_ROLLOUTS, FAST_GRADIENTS):
        dyn.__dict__.pop(name, None)
    for name in STEPS:
        fast = dyn.__dict__.get(_KNOWN, {}).get(name)
        if fast is not None and dyn.__dict__.get(name) is fast.entry.function:  # a user's function stays
            dyn.__dict__.pop(name, None)
    epoch: Epoch | None = dyn.__dict__.get(_EPOCH)
    return epoch


def _quicker(dyn: Dynamics, name: str, method: Callable[..., Any]) -> Callable[..., Any] | None:
    """The fast replacement of a query's method, or None."""
    question = find(name)
    if question is None:
        return None
    function: Callable[..., Any] | None
    if dyn.engine.native:
        kind = _FastShapes if question.of_shapes else _FastQuery
        function = built_in(dyn, name, method, lambda: kind(dyn, question, method))
    else:
        function = _launching(dyn, name, method, dyn.engine)
    if dyn._options.chooses and current_table().unusual(name, dyn.dtype.name, dyn.model):
        function = EngineSelector(dyn, name, function or method)
    if function is not None:
        dyn.__dict__[name] = function
    return function


def built_in(
    dyn: Dynamics, name: str, method: Callable[..., Any], make: Callable[[], FastPath]
) -> Callable[..., Any] | None:
    """The built-in function that replaces a method, or None. `make`: makes the function behind it."""
    epoch = dyn.__dict__.setdefault(_EPOCH, Epoch())
    known = dyn.__dict__.setdefault(_KNOWN, {})
    if name not in known:
        fast = make()
        entry = dyn.engine.entry(name, documented(name, method), fast, epoch.now)
        if entry is not None:
            fast.entry = entry
        known.setdefault(name, None if entry is None else fast)
    fast_path: FastPath | None = known[name]
    return None if fast_path is None else fast_path.entry.function


def _launching(dyn: Dynamics, name: str, method: Callable[..., Any], engine: Engine) -> Launching | None:
    """The replay of a query on a GPU; None if the engine is not exactly `GpuEngine`. A subclass may answer
    differently."""
    if engine.name != "gpu" or name not in QUERIES:
        return None
    from robodyn.engines.gpu.engine import GpuEngine

    if type(engine) is not GpuEngine:
        return None
    return Launching(dyn, method, engine, dyn.__dict__.setdefault(_EPOCH, Epoch()))


STEPS = ("step", "step_gradient", "contact_forward_dynamics_gradient")
"""Other methods of a `Dynamics` with fast calls (`robodyn.api.motion.fast_steps`, `robodyn.api.queries.contacts`)."""
FAST_ROLLOUTS, FAST_GRADIENTS = "_fast_rollouts", "_fast_gradients"
"""Where a `Dynamics` keeps its `FastRollouts` and `FastGradients` (`robodyn.api.motion`)."""
_EPOCH, _KNOWN = "_epoch_of_queries", "_quick_queries"
query = with_fast_path(_quicker)
"""Decorator: the method is the query of its name in `robodyn.engines.query_table.QUERIES`. On an object it is a
built-in function if the engine has one."""


class FastPath(ABC):
    """Handles calls that a built-in function does not know: runs the method and learns the form of the call.

    Args:
        owner: the object of the method.
        method: the bound method.
        dtype: dtype of the arrays that machine code takes.
    """

    entry: Entry
    lists: ClassVar[str] = "links"
    """Name of the argument that is a list."""
    converts: ClassVar[bool] = True
    """True if lists and arrays of other dtypes are converted to the dtype of the machine code."""

    def __init__(self, owner: Any, method: Callable[..., Any], dtype: np.dtype[Any]) -> None:
        self.__self__, self.__wrapped__, self._dtype = owner, method, dtype
        self._parameters, self.defaults = _parameters(getattr(method, "__func__", method))

    @abstractmethod
    def calls(self, given: Mapping[str, Any]) -> Hashable | None:
        """Key of the machine code that answers a call with these arguments; None if machine code does not answer
        it."""

    @abstractmethod
    def answers(self, calls: Any, given: Mapping[str, Any]) -> Answers | None:
        """The machine code for a key of `calls`, or None if it is not ready yet.

        Raises:
            UnavailableError: there will never be machine code for these calls.
        """

    @abstractmethod
    def argument(self, name: str) -> Argument:
        """Kind of an argument."""

    @abstractmethod
    def number(self, name: str, value: Any) -> int:
        """Integer that encodes the value of a choice."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call that the built-in function passed on."""
        replay = self.launching(args[0] if args else kwargs.get("q"))
        if replay is not None:
            return replay(*args, **kwargs)
        if not kwargs:  # shortcut without keywords; it saves a microsecond or two
            return self._by_place(args)
        if not TEXT.issuperset(map(id, map(type, kwargs))):
            return self.__wrapped__(*args, **kwargs)
        keywords, links = kwargs, kwargs.get(self.lists)
        listed = links if links is None else self.listed(links)
        if listed is not links:  # with the list replaced the built-in function may know the call
            keywords = {**kwargs, self.lists: listed}
            answer = self.entry.strict(*args, **keywords)
            if answer is not self.entry.missed:
                return answer
        names, forms, values = tuple(map(sys.intern, keywords)), self.entry.forms, (*args, *keywords.values())
        arguments = forms.arguments(len(args), names)
        if arguments:
            converted = _as_wanted(arguments, values, self._dtype) if self.converts else None
            if converted is None and any(map(operator.is_not, keywords, names)):  # keywords that were not interned
                converted = list(values)
            if converted is not None:
                n_positional = len(args)
                answer = self.entry.strict(
                    *converted[:n_positional], **dict(zip(names, converted[n_positional:], strict=True))
                )
                if answer is not self.entry.missed:
                    return answer
        answer = self.__wrapped__(*args, **kwargs)
        self._learn(forms, len(args), names, tuple(map(_plain_number, values)))
        return answer

    def _by_place(self, args: tuple[Any, ...]) -> Any:
        forms = self.entry.forms
        arguments = forms.arguments(len(args), ())
        converted = _as_wanted(arguments, args, self._dtype) if arguments and self.converts else None
        if converted is not None:
            answer = self.entry.strict(*converted)
            if answer is not self.entry.missed:
                return answer
        answer = self.__wrapped__(*args)
        self._learn(forms, len(args), (), tuple(map(_plain_number, args)))
        return answer

    def _learn(self, forms: Forms, given: int, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
        """Register the form of a call that the method has answered, with and without `out=`."""
        parameters = (*self._parameters[:given], *names)
        by_name = dict(zip(parameters, values, strict=True))
        calls = self.calls(by_name)
        if calls is None or calls in forms.refused:
            return
        known = forms.answers.get(calls)
        try:
            answers = known if known is not None and known.whole else self.answers(calls, by_name)
        except UnavailableError:  # no machine code for such calls: the method answers them, only more slowly
            forms.refused.add(calls)
            return
        if answers is None:
            return
        forms.answers[calls] = answers
        if answers.knows:
            self.remember(answers, by_name)
        arguments = list(map(self.argument, parameters))
        choices = {
            k: self.number(name, value)
            for k, (name, value) in enumerate(zip(parameters, values, strict=True))
            if arguments[k].role == "choice"
        }
        forms.add(given, names, arguments, values, choices, answers)
        if "out" not in parameters and "out" in self.defaults:
            forms.add(given, (*names, "out"), [*arguments, self.argument("out")], (*values, None), choices, answers)

    def listed(self, links: Any) -> Any:
        """The object that represents a list of links in calls of the built-in function."""
        return links

    def launching(self, first: Any) -> Launching | None:
        """The replay for a first argument on a GPU; None for other arguments, or before there is a GPU engine."""
        return None

    def remember(self, answers: Answers, given: Mapping[str, Any]) -> None:  # noqa: B027  (most remember nothing)
        """Remember argument values that the method has verified, so that machine code accepts them."""


class _FastQuery(FastPath):
    """The fast path of a query."""

    def __init__(self, dyn: Dynamics, question: QuerySpec, method: Callable[..., Any]) -> None:
        super().__init__(dyn, method, dyn.dtype)
        self._question = question
        self._lists: dict[tuple[Any, ...], _Links] = {}
        self._seen = 0
        self._launching: Launching | None = None

    def launching(self, first: Any) -> Launching | None:
        """The replay on the GPU engine that the `Dynamics` made at its first call with arrays on a GPU."""
        dyn, replay = self.__self__, self._launching
        if replay is None and "_gpu" in dyn.__dict__:
            replay = self._launching = _launching(dyn, self._question.name, self.__wrapped__, dyn._gpu)
        return replay if replay is not None and replay.takes(first) else None

    def listed(self, links: Any) -> Any:
        """The same `_Links` object for equal lists of names and indices; other lists unchanged."""
        if type(links) is not list and type(links) is not tuple:
            return links
        key = tuple(links)
        if not _NAMED.issuperset(map(id, map(type, key))):
            key = tuple(map(_plain_number, key))
            if not _NAMED.issuperset(map(id, map(type, key))):
                return links
        known, model = self._lists.get(key), self.__self__.model
        if (known is None or known.model is not model) and key and self._seen < _MOST_LISTS:
            try:
                numbers = tuple(map(model.link_index, key))
            except ArgumentError:  # the method reports the unknown link
                return links
            known = self._lists[key] = _Links(self._seen, numbers, model)
            self._seen += 1
        if known is not None and known.model is not model:
            return links
        return links if known is None else known

    def calls(self, given: Mapping[str, Any]) -> Calls | None:
        """Names of the arrays in the call, and its choices."""
        question = self._question
        chosen: dict[str, Any] = {}
        for name, value in given.items():
            if name in question.arrays or name == "out":
                continue
            types = _TYPES.get(name, (bool,))
            if not one_of_types(value, types) or (name not in _TYPES and value is not self.defaults[name]):
                return None
            if name in _TYPES:
                chosen[name] = value
        links, base = chosen.pop("links", None), chosen.pop("relative_to", None)
        if question.of_link:
            link = chosen.pop("link", None)
            if (link is None) == (links is None):
                return None
            numbers = [self.number("relative_to", base)] if base is not None else []
            if links is None:
                numbers.append(self.number("link", link))
                chosen["link"] = numbers[-1]
            if max(numbers, default=0) >= 1 << LINK_BITS:
                return None
            if links is not None or base is not None:
                selected = (chosen.pop("link"),) if links is None else links.links
                chosen["places"] = LinkSelection(selected, links is not None, numbers[0] if base is not None else None)
        arrays = tuple(name for name in question.arrays if given.get(name) is not None)
        return Calls(arrays, **chosen)

    def answers(self, calls: Calls, given: Mapping[str, Any]) -> Answers | None:
        """The engine's machine code for such calls."""
        dyn = self.__self__
        doubted = self._question.check_precision and self._dtype != np.float64 and dyn.check is not False
        double = dyn._in_double.engine if doubted else None
        answers: Answers | None = dyn.engine.quick(self._question, calls, dyn.check, dyn.joint_forces, double)
        return answers

    def argument(self, name: str) -> Argument:
        """Kind of the argument: an array of the query, a choice, or `out`."""
        from robodyn.engines.cpu.native.entry import Argument

        if name == "out":
            return Argument("out")
        if name in self._question.arrays:
            return Argument("array", self._question.arrays.index(name), name in self._question.optional)
        bits = LINK_BITS if name in ("link", "links", "relative_to") else WORD_BITS
        return Argument("choice", types=_TYPES.get(name, (bool,)), bits=bits)

    def number(self, name: str, value: Any) -> int:
        """Index of a link, list of links, frame or method; a bool as 0 or 1."""
        if name in ("link", "relative_to"):
            return int(self.__self__.model.link_index(value))
        if name == "links":
            return int(value.number)
        methods = ("auto", *(method.name for method in self._question.methods))
        choices = {"frame": FRAMES, "axes": FORCE_AXES, "method": methods}.get(name)
        return int(value) if choices is None else choices.index(value)

    def remember(self, answers: Answers, given: Mapping[str, Any]) -> None:
        """Let machine code answer calls with these inertias, if they have mass (or a regular mass matrix)."""
        array = np.array(given["inertia"], self._dtype)  # a copy: the user may change the array later
        rows = array.astype(np.float64, copy=False).reshape(-1, *array.shape[-2:])
        if "mass" in self._question.needs:
            impossible = rows[..., 0].sum(axis=-1) == 0.0
        else:
            impossible = self.__self__._judge.singular(rows)
        if not impossible.any():
            answers.know(array)


class _FastShapes(_FastQuery):
    """The fast path of a query about distances. The method has built-in functions about obstacles."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call that the built-in function passed on."""
        if (len(args) > 1 and args[1] is not None) or kwargs.get("obstacles") is not None:
            return self.__wrapped__(*args, **kwargs)
        return super().__call__(*args, **kwargs)


_REALS = (np.float64, np.float32)
_INTEGERS = (np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8)
_INTEGER_TYPES, _NAMED = frozenset(map(id, _INTEGERS)), frozenset((id(str), id(int)))
"""Types by identity, because a foreign type may override comparison and hashing."""
_LARGEST = 2**63
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("link", "relative_to"), (str, int)),
    "links": (_Links,),
    **dict.fromkeys(("frame", "method"), (str,)),
    "classical": (bool,),
    "axes": (str,),
}
"""Types of choices. Other arguments besides arrays have fast calls at their default value only."""


def _plain_number(value: Any) -> Any:
    """Convert a NumPy integer to a Python int; return anything else unchanged."""
    return int(value) if id(type(value)) in _INTEGER_TYPES else value


def one_of_types(value: Any, types: tuple[type, ...]) -> bool:
    """Whether the exact type of an object is one of `types`, by identity (foreign types may override comparison)."""
    return any(type(value) is each for each in types)


@cache
def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of a method's positional arguments after self, and defaults of all arguments."""
    parameters = list(signature(function).parameters.values())[1:]
    positional = tuple(each.name for each in parameters if each.kind is not Parameter.KEYWORD_ONLY)
    return positional, {each.name: each.default for each in parameters}


def documented(name: str, method: Callable[..., Any]) -> str:
    """Docstring of the built-in function: the method's signature without annotations, then its docstring."""
    original = signature(method).parameters.values()
    parameters = [each.replace(annotation=Parameter.empty) for each in original]
    return f"{name}{Signature(parameters)}\n--\n\n{method.__doc__ or ''}"


def _as_wanted(arguments: Sequence[Argument], values: tuple[Any, ...], dtype: np.dtype[Any]) -> list[Any] | None:
    """Convert lists, tuples and other arrays to arrays of the dtype, and NumPy integers to Python's. None if nothing
    needs conversion or an argument cannot be converted."""
    converted, changed = list(values), False
    for k, (argument, value) in enumerate(zip(arguments, values, strict=True)):
        kind = type(value)
        if id(kind) in _INTEGER_TYPES:
            converted[k] = value = int(value)
            kind, changed = int, True
        if argument.role != "array":
            continue
        if kind is np.ndarray:
            if value.dtype is dtype and value.flags.c_contiguous:
                continue
            array = value
        elif kind is list or kind is tuple:
            try:
                array = np.array(value)
            except Exception:  # a foreign object may raise anything; the method reports the error
                return None
        elif argument.number and (one_of_types(value, _REALS) or (kind is int and abs(value) < _LARGEST)):
            converted[k], changed = float(value), True
            continue
        else:
            continue
        if array.dtype.kind not in "fiu":
            return None
        converted[k], changed = _converted(array, dtype), True
    return converted if changed else None


def _converted(array: Array, dtype: np.dtype[Any]) -> Array:
    if array.dtype.itemsize <= dtype.itemsize:
        return np.ascontiguousarray(array, dtype)
    with np.errstate(over="ignore"):  # as in `robodyn.internals.arguments.real_array`
        return np.ascontiguousarray(array, dtype)

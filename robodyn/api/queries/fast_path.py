"""From a query's method to a built-in function that answers its calls without passing through Python.

The built-in stands on the `Dynamics` from the moment the method is looked up, in whatever way it is called later. A
call that it does not know goes to the method, and is known from then on: which arguments come by place and by name,
which arrays are None, which link, frame and method are chosen. No query has code of its own for this: all of it is read
from the table of questions and from the method's signature.
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
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.api.queries.engine_selector import EngineSelector, current_table
from robodyn.api.queries.replay import TEXT, Launching
from robodyn.core.model import Model
from robodyn.engines.protocol import Calls, Engine
from robodyn.engines.query_table import CONSTRAINED, FRAMES, QUERIES, LinkSelection, QuerySpec, find
from robodyn.internals.arguments import Array
from robodyn.internals.cached import with_fast_path
from robodyn.internals.errors import ArgumentError, UnavailableError

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics
    from robodyn.engines.cpu.native.answers import Answers
    from robodyn.engines.cpu.native.entry import Argument, Entry, Forms

LINK_BITS, WORD_BITS = 24, 5
"""Of the numbers of links, and of words."""
_MOST_LISTS = 1 << 10
"""Lists of links that a query keeps answers for."""


class _Links:
    """What stands for a list of links in calls of built-in functions: equal to itself alone, and so is its hash.

    `number`: its place among those that a query has seen; `links`: indices in `model`.
    """

    __slots__ = ("links", "model", "number")

    def __init__(self, number: int, links: tuple[int, ...], model: Model) -> None:
        self.number, self.links, self.model = number, links, model


class Epoch:
    """When a `Dynamics` was changed last: built-in functions answer by what was learnt since."""

    def __init__(self) -> None:
        self.now, self._numbers = ctypes.c_int64(), itertools.count(1)

    def ends(self) -> None:
        """Have the methods asked again: something has changed."""
        self.now.value = next(self._numbers)


def changing(dyn: Dynamics) -> Epoch | None:
    """What is to be told before and after an attribute changes, if anything was learnt."""
    for name in (*QUERIES, *CONSTRAINED):
        dyn.__dict__.pop(name, None)
    found: Epoch | None = dyn.__dict__.get(_EPOCH)
    return found


def _quicker(dyn: Dynamics, name: str, method: Callable[..., Any]) -> Callable[..., Any] | None:
    """What stands in for a method, or None."""
    question = find(name)
    if question is None:
        return None
    found: Callable[..., Any] | None
    if dyn.engine.native:
        epoch = dyn.__dict__.setdefault(_EPOCH, Epoch())
        known = dyn.__dict__.setdefault(_KNOWN, {})
        if name not in known:
            quick = _QuickQuery(dyn, question, method)
            entry = dyn.engine.entry(name, documented(name, method), quick, epoch.now)
            if entry is not None:
                quick.entry = entry
            known.setdefault(name, None if entry is None else quick)
        found = known[name] and known[name].entry.function
    else:
        found = _launching(dyn, name, method, dyn.engine)
    if dyn._options.chooses and current_table().unusual(name, dyn.dtype.name, dyn.model):
        found = EngineSelector(dyn, name, found or method)
    if found is not None:
        dyn.__dict__[name] = found
    return found


def _launching(dyn: Dynamics, name: str, method: Callable[..., Any], engine: Engine) -> Launching | None:
    """What stands before a method on a GPU: where the engine is our own, and no subclass of it, which may answer in
    another way."""
    if engine.name != "gpu" or name not in QUERIES:
        return None
    from robodyn.engines.gpu.engine import GpuEngine

    if type(engine) is not GpuEngine:
        return None
    return Launching(dyn, method, engine, dyn.__dict__.setdefault(_EPOCH, Epoch()))


_EPOCH, _KNOWN = "_epoch_of_queries", "_quick_queries"
query = with_fast_path(_quicker)
"""Declare a method of a `Dynamics` the query of its name in `robodyn.engines.query_table.QUERIES`. Looked up on an
object, it is a built-in function, where the engine has one."""


class FastPath(ABC):
    """What a built-in function calls where it does not know a call: the method; and it learns.

    Args:
        owner: whose method it is.
        method: the method, bound.
        dtype: of the arrays that machine code takes.
    """

    entry: Entry

    def __init__(self, owner: Any, method: Callable[..., Any], dtype: np.dtype[Any]) -> None:
        self.__self__, self.__wrapped__, self._dtype = owner, method, dtype
        self._parameters, self.defaults = _parameters(getattr(method, "__func__", method))

    @abstractmethod
    def calls(self, given: Mapping[str, Any]) -> Hashable | None:
        """What tells calls apart that machine code answers in one way, from arguments by name; None for those that it
        does not answer."""

    @abstractmethod
    def answers(self, calls: Any, given: Mapping[str, Any]) -> Answers | None:
        """What answers them, or None where that is not there yet.

        Raises:
            UnavailableError: it never will be.
        """

    @abstractmethod
    def argument(self, name: str) -> Argument:
        """What an argument is."""

    @abstractmethod
    def number(self, name: str, value: Any) -> int:
        """The number of what an argument chooses."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call that the built-in function has left."""
        there = self.launching(args[0] if args else kwargs.get("q"))
        if there is not None:
            return there(*args, **kwargs)
        if not kwargs:  # what follows does the same, and takes a quick call a microsecond or two
            return self._by_place(args)
        if not TEXT.issuperset(map(id, map(type, kwargs))):
            return self.__wrapped__(*args, **kwargs)
        asked, links = kwargs, kwargs.get("links")
        listed = links if links is None else self.listed(links)
        if listed is not links:  # the rest may be what the built-in function knows
            asked = {**kwargs, "links": listed}
            answer = self.entry.strict(*args, **asked)
            if answer is not self.entry.missed:
                return answer
        names, forms, given = tuple(map(sys.intern, asked)), self.entry.forms, (*args, *asked.values())
        known = forms.arguments(len(args), names)
        if known:
            again = _as_wanted(known, given, self._dtype)
            if again is None and any(map(operator.is_not, asked, names)):  # names that are no interned strings
                again = list(given)
            if again is not None:
                places = len(args)
                answer = self.entry.strict(*again[:places], **dict(zip(names, again[places:], strict=True)))
                if answer is not self.entry.missed:
                    return answer
        answer = self.__wrapped__(*args, **kwargs)
        self._learn(forms, len(args), names, tuple(map(_plain_number, given)))
        return answer

    def _by_place(self, args: tuple[Any, ...]) -> Any:
        forms = self.entry.forms
        known = forms.arguments(len(args), ())
        again = _as_wanted(known, args, self._dtype) if known else None
        if again is not None:
            answer = self.entry.strict(*again)
            if answer is not self.entry.missed:
                return answer
        answer = self.__wrapped__(*args)
        self._learn(forms, len(args), (), tuple(map(_plain_number, args)))
        return answer

    def _learn(self, forms: Forms, given: int, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
        """Know calls like one that the method has answered, with `out=` or without."""
        parameters = (*self._parameters[:given], *names)
        by_name = dict(zip(parameters, values, strict=True))
        calls = self.calls(by_name)
        if calls is None or calls in forms.refused:
            return
        known = forms.answers.get(calls)
        try:
            answers = known if known is not None and known.whole else self.answers(calls, by_name)
        except UnavailableError:  # there never will be code for it: calls take longer, and no answer is lost
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
        """What stands for an argument that is a list."""
        return links

    def launching(self, first: Any) -> Launching | None:
        """What answers calls whose first argument is an array on a GPU, once there is an engine for those."""
        return None

    def remember(self, answers: Answers, given: Mapping[str, Any]) -> None:  # noqa: B027  (most remember nothing)
        """Have calls answered that give what was found to be possible."""


class _QuickQuery(FastPath):
    """That of a query."""

    def __init__(self, dyn: Dynamics, question: QuerySpec, method: Callable[..., Any]) -> None:
        super().__init__(dyn, method, dyn.dtype)
        self._question = question
        self._lists: dict[tuple[Any, ...], _Links] = {}
        self._seen = 0
        self._launching: Launching | None = None

    def launching(self, first: Any) -> Launching | None:
        """Of the engine that the Dynamics made when it was first given such arrays."""
        dyn, found = self.__self__, self._launching
        if found is None and "_gpu" in dyn.__dict__:
            found = self._launching = _launching(dyn, self._question.name, self.__wrapped__, dyn._gpu)
        return found if found is not None and found.takes(first) else None

    def listed(self, links: Any) -> Any:
        """The same object for equal lists of names and indices; a list of anything else as it is."""
        if type(links) is not list and type(links) is not tuple:
            return links
        key = tuple(links)
        if not _NAMED.issuperset(map(id, map(type, key))):
            key = tuple(map(_plain_number, key))
            if not _NAMED.issuperset(map(id, map(type, key))):
                return links
        found, model = self._lists.get(key), self.__self__.model
        if (found is None or found.model is not model) and key and self._seen < _MOST_LISTS:
            try:
                numbers = tuple(map(model.link_index, key))
            except ArgumentError:  # the method says which
                return links
            found = self._lists[key] = _Links(self._seen, numbers, model)
            self._seen += 1
        if found is not None and found.model is not model:
            return links
        return links if found is None else found

    def calls(self, given: Mapping[str, Any]) -> Calls | None:
        """Which arrays are given, and what is chosen."""
        question = self._question
        chosen: dict[str, Any] = {}
        for name, value in given.items():
            if name in question.arrays or name == "out":
                continue
            known = _TYPES.get(name, (bool,))
            if not one_of_types(value, known) or (name not in _TYPES and value is not self.defaults[name]):
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
                every = (chosen.pop("link"),) if links is None else links.links
                chosen["places"] = LinkSelection(every, links is not None, numbers[0] if base is not None else None)
        arrays = tuple(name for name in question.arrays if given.get(name) is not None)
        return Calls(arrays, **chosen)

    def answers(self, calls: Calls, given: Mapping[str, Any]) -> Answers | None:
        """Those of the engine."""
        dyn = self.__self__
        doubted = self._question.check_precision and self._dtype != np.float64 and dyn.check is not False
        double = dyn._in_double.engine if doubted else None
        found: Answers | None = dyn.engine.quick(self._question, calls, dyn.check, dyn.joint_forces, double)
        return found

    def argument(self, name: str) -> Argument:
        """An array of the question, a choice, or `out`."""
        from robodyn.engines.cpu.native.entry import Argument

        if name == "out":
            return Argument("out")
        if name in self._question.arrays:
            return Argument("array", self._question.arrays.index(name), name in self._question.optional)
        bits = LINK_BITS if name in ("link", "links", "relative_to") else WORD_BITS
        return Argument("choice", types=_TYPES.get(name, (bool,)), bits=bits)

    def number(self, name: str, value: Any) -> int:
        """The place of a link, a frame or a method, or a bool as a number."""
        if name in ("link", "relative_to"):
            return int(self.__self__.model.link_index(value))
        if name == "links":
            return int(value.number)
        words = {"frame": FRAMES, "method": ("auto", *(method.name for method in self._question.methods))}.get(name)
        return int(value) if words is None else words.index(value)

    def remember(self, answers: Answers, given: Mapping[str, Any]) -> None:
        """Have calls with inertias answered that were found to have mass, or to leave a mass matrix with an inverse,
        and no others."""
        array = np.array(given["inertia"], self._dtype)  # what is judged is what is kept
        every = array.astype(np.float64, copy=False).reshape(-1, *array.shape[-2:])
        if "mass" in self._question.needs:
            impossible = every[..., 0].sum(axis=-1) == 0.0
        else:
            impossible = self.__self__._judge.singular(every)
        if not impossible.any():
            answers.know(array)


_REALS = (np.float64, np.float32)
_INTEGERS = (np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8)
_INTEGER_TYPES, _NAMED = frozenset(map(id, _INTEGERS)), frozenset((id(str), id(int)))
"""Types by their identities: a foreign one may compare, and hash, as it likes."""
_LARGEST = 2**63
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("link", "relative_to"), (str, int)),
    "links": (_Links,),
    **dict.fromkeys(("frame", "method"), (str,)),
    "classical": (bool,),
}
"""What choices are made by; other arguments that are no arrays are known at their default alone."""


def _plain_number(value: Any) -> Any:
    """An integer of NumPy's as one of Python's; anything else as it is."""
    return int(value) if id(type(value)) in _INTEGER_TYPES else value


def one_of_types(value: Any, types: tuple[type, ...]) -> bool:
    """Whether an object is exactly of one of some types; a foreign type may compare as it likes."""
    return any(type(value) is each for each in types)


@cache
def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of a method's arguments behind the object, and defaults."""
    found = list(signature(function).parameters.values())[1:]
    placed = tuple(each.name for each in found if each.kind is not Parameter.KEYWORD_ONLY)
    return placed, {each.name: each.default for each in found}


def documented(name: str, method: Callable[..., Any]) -> str:
    """A method's docstring behind its signature as built-in functions have it: without annotations."""
    found = signature(method).parameters.values()
    parameters = [each.replace(annotation=Parameter.empty) for each in found]
    return f"{name}{Signature(parameters)}\n--\n\n{method.__doc__ or ''}"


def _as_wanted(arguments: Sequence[Argument], values: tuple[Any, ...], dtype: np.dtype[Any]) -> list[Any] | None:
    """Arguments with lists, tuples and other arrays as arrays of a dtype, and integers of NumPy's as Python's; None
    where nothing changes, or cannot."""
    again, changed = list(values), False
    for k, (argument, value) in enumerate(zip(arguments, values, strict=True)):
        kind = type(value)
        if id(kind) in _INTEGER_TYPES:
            again[k] = value = int(value)
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
            except Exception:  # a foreign object may raise anything; the method says what is wrong
                return None
        elif argument.number and (one_of_types(value, _REALS) or (kind is int and abs(value) < _LARGEST)):
            again[k], changed = float(value), True
            continue
        else:
            continue
        if array.dtype.kind not in "fiu":
            return None
        again[k], changed = _converted(array, dtype), True
    return again if changed else None


def _converted(array: Array, dtype: np.dtype[Any]) -> Array:
    if array.dtype.itemsize <= dtype.itemsize:
        return np.ascontiguousarray(array, dtype)
    with np.errstate(over="ignore"):  # as in `robodyn.internals.arguments.real_array`
        return np.ascontiguousarray(array, dtype)

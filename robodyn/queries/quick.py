"""From a query's method to a built-in function that answers its calls without passing through Python.

The built-in stands on the `Dynamics` from the moment the method is looked up, in whatever way it is called later. A
call that it does not know goes to the method, and is known from then on: which arguments come by place and by name,
which arrays are None, which link, frame and method are chosen. No query has code of its own for this: all of it is read
from the table of questions and from the method's signature.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, Signature, signature
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from robodyn.arguments import Array, integer
from robodyn.engines.protocol import Calls
from robodyn.errors import UnavailableError
from robodyn.queries.scheduler import Scheduled, current_table
from robodyn.questions import FRAMES, QUESTIONS, Question

if TYPE_CHECKING:
    from robodyn.dynamics import Dynamics
    from robodyn.engines.cpu.native.answers import Answers
    from robodyn.engines.cpu.native.entry import Argument, Entry, Forms

_Method = TypeVar("_Method", bound=Callable[..., Any])
_LINK_BITS, _WORD_BITS = 31, 6


class _Looked:
    """A method that is replaced where it is looked up: by a built-in function that stands before it."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        self.__wrapped__ = function

    def __get__(self, dyn: Dynamics | None, owner: type | None = None) -> Any:
        if dyn is None:
            return self._function
        method = self._function.__get__(dyn)
        name = self.__name__
        if sum(name in vars(each) for each in type(dyn).__mro__) != 1:
            return method  # a subclass has one of its own, which asks for this one
        found = _quick(dyn, name, method)
        if found is not None:
            dyn.__dict__[name] = found
        return found or method


def query(method: _Method) -> _Method:
    """Declare a method of a `Dynamics` the query of its name in `robodyn.questions.QUESTIONS`.

    Looked up on an object, it is a built-in function, where the engine has one. It is for methods of one class alone:
    those that a subclass has made its own stay in sight.
    """
    return cast(_Method, _Looked(cast(FunctionType, method)))


def forget(dyn: Dynamics) -> None:
    """Have built-in functions ask the methods again: something about the object has changed."""
    for name in QUESTIONS:
        dyn.__dict__.pop(name, None)
    for quick in dyn.__dict__.get("_quick_queries", {}).values():
        if quick is not None:
            quick.forget()


def _quick(dyn: Dynamics, name: str, method: Callable[..., Any]) -> Callable[..., Any] | None:
    """What stands before a method, or None."""
    question = QUESTIONS.get(name)
    if question is None:
        return None
    function: Callable[..., Any] | None = None
    if dyn.engine.native:
        known = dyn.__dict__.setdefault("_quick_queries", {})
        if name not in known:
            known[name] = _Quick.made(dyn, question, method)
        function = known[name] and known[name].function
    if dyn._options.chooses and current_table().unusual(name, dyn.dtype.name, dyn.model):
        return Scheduled(dyn, name, function or method)
    return function


class _Quick:
    """What a built-in function calls where it does not know a call: the method, and learns."""

    entry: Entry

    def __init__(self, dyn: Dynamics, question: Question, method: Callable[..., Any]) -> None:
        self.__self__, self._question, self._method = dyn, question, method
        self._parameters, self._defaults = _parameters(method.__func__)  # type: ignore[attr-defined]  # a bound method

    @classmethod
    def made(cls, dyn: Dynamics, question: Question, method: Callable[..., Any]) -> _Quick | None:
        """With its entry, or None where the engine has none."""
        quick = cls(dyn, question, method)
        doc = f"{question.name}{_text_signature(method)}\n--\n\n{method.__doc__ or ''}"
        entry = dyn.engine.entry(question.name, doc, quick)
        if entry is None:
            return None
        quick.entry = entry
        return quick

    @property
    def function(self) -> Callable[..., Any]:
        """The built-in function."""
        return self.entry.function

    def forget(self) -> None:
        """Know no call any more."""
        self.entry.forget()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call that the built-in function has left."""
        names, forms = tuple(map(sys.intern, kwargs)), self.entry.forms
        known = forms.arguments(len(args), names)
        if known:
            again = _as_wanted(known, (*args, *kwargs.values()), self.__self__.dtype)
            if again is not None:
                places = len(args)
                answer = self.entry.strict(*again[:places], **dict(zip(names, again[places:], strict=True)))
                if answer is not self.entry.missed:
                    return answer
        answer = self._method(*args, **kwargs)
        self._learn(forms, len(args), names, (*args, *kwargs.values()))
        return answer

    def _learn(self, forms: Forms, given: int, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
        """Know calls like one that the method has answered, with `out=` or without."""
        parameters = (*self._parameters[:given], *names)
        by_name = dict(zip(parameters, values, strict=True))
        calls = self._calls(by_name)
        if calls is None or calls in forms.memo.setdefault("refused", set()):
            return
        answers: Answers | None = forms.memo.get(calls)
        if answers is None or not answers.whole:
            dyn = self.__self__
            try:
                answers = dyn.engine.quick(self._question, calls, dyn.check, dyn.joint_forces)
            except UnavailableError:  # there never will be code for it: calls take longer, and no answer is lost
                forms.memo["refused"].add(calls)
            if answers is None:
                return
            forms.memo[calls] = answers
        if answers.knows:
            self._remember(answers, by_name["inertia"])
        arguments = list(map(self._argument, parameters))
        choices = {
            k: self._number(name, value)
            for k, (name, value) in enumerate(zip(parameters, values, strict=True))
            if arguments[k].role == "choice"
        }
        forms.add(given, names, arguments, values, choices, answers)
        if "out" not in parameters:
            forms.add(given, (*names, "out"), [*arguments, self._argument("out")], (*values, None), choices, answers)

    def _calls(self, given: Mapping[str, Any]) -> Calls | None:
        """What tells calls apart that machine code answers in one way; None for those that it does not answer."""
        question = self._question
        if question.doubts and self.__self__.dtype != np.float64 and self.__self__.check is not False:
            return None
        chosen: dict[str, Any] = {}
        for name, value in given.items():
            if name in question.arrays or name == "out":
                continue
            known = _TYPES.get(name, (bool,))
            if type(value) not in known or (name not in _TYPES and value is not self._defaults[name]):
                return None
            if name == "link":
                chosen[name] = self.__self__.model.link_index(value)
            elif name in _TYPES:
                chosen[name] = value
        arrays = tuple(name for name in question.arrays if given.get(name) is not None)
        return Calls(arrays, **chosen)

    def _argument(self, name: str) -> Argument:
        from robodyn.engines.cpu.native.entry import Argument

        if name == "out":
            return Argument("out")
        if name in self._question.arrays:
            return Argument("array", self._question.arrays.index(name), name in self._question.optional)
        bits = _LINK_BITS if name == "link" else _WORD_BITS
        return Argument("choice", types=_TYPES.get(name, (bool,)), bits=bits)

    def _number(self, name: str, value: Any) -> int:
        """The number of what an argument chooses."""
        if name == "link":
            return self.__self__.model.link_index(value)
        words = {"frame": FRAMES, "method": ("auto", *(method.name for method in self._question.methods))}.get(name)
        return int(value) if words is None else words.index(value)

    def _remember(self, answers: Answers, inertia: Any) -> None:
        """Have calls with inertias answered that were found to leave a mass matrix with an inverse, and no others."""
        dyn = self.__self__
        array = np.asarray(inertia, dyn.dtype)
        every = array.astype(np.float64, copy=False).reshape(-1, *array.shape[-2:])
        if not dyn._judge.singular(every).any():
            answers.know(array)


_TYPES: dict[str, tuple[type, ...]] = {"link": (str, int), "frame": (str,), "method": (str,), "classical": (bool,)}
"""What choices are made by; other arguments that are no arrays are known at their default alone."""


@cache
def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of a method's arguments behind the object, and defaults."""
    found = list(signature(function).parameters.values())[1:]
    placed = tuple(each.name for each in found if each.kind is not Parameter.KEYWORD_ONLY)
    return placed, {each.name: each.default for each in found}


def _text_signature(method: Callable[..., Any]) -> str:
    """A bound method's signature as built-in functions have it: without annotations."""
    found = signature(method)
    parameters = (each.replace(annotation=Parameter.empty) for each in found.parameters.values())
    return str(Signature(list(parameters)))


def _as_wanted(arguments: Sequence[Argument], values: tuple[Any, ...], dtype: np.dtype[Any]) -> list[Any] | None:
    """Arguments with lists, tuples and other arrays as arrays of a dtype; None where nothing changes, or cannot."""
    again, changed = list(values), False
    for k, (argument, value) in enumerate(zip(arguments, values, strict=True)):
        kind = type(value)
        if argument.role == "array":
            if kind is np.ndarray:
                if value.dtype is dtype and value.flags.c_contiguous:
                    continue
                array = value
            elif kind is list or kind is tuple:
                try:
                    array = np.array(value)
                except Exception:  # a foreign object may raise anything; the method says what is wrong
                    return None
            else:
                continue
            if array.dtype.kind not in "fiu":
                return None
            again[k], changed = _converted(array, dtype), True
        elif argument.role == "choice" and kind is not str and (number := integer(value)) is not None:
            again[k], changed = number, changed or kind is not int
    return again if changed else None


def _converted(array: Array, dtype: np.dtype[Any]) -> Array:
    if array.dtype.itemsize <= dtype.itemsize:
        return np.ascontiguousarray(array, dtype)
    with np.errstate(over="ignore"):  # as in `robodyn.arguments.real_array`
        return np.ascontiguousarray(array, dtype)

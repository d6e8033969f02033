"""Built-in functions that answer a query without running Python code.

Machine code answers calls with contiguous arrays of the engine's dtype and the right shapes: it reads the structs of
the arrays. All other calls, and all errors, are passed to the checked Python function.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from robodyn.compile.llvm.jit import Code
from robodyn.compile.loops.blocks import Number
from robodyn.compile.loops.llvm import Module, printed_module
from robodyn.engines import buffer_pool
from robodyn.engines.cpu.native.answers import Answers
from robodyn.engines.cpu.native.buffer_pool_code import (
    kept_calloc,
    kept_free,
    kept_malloc,
    kept_realloc,
    kept_release,
)
from robodyn.engines.cpu.native.context import (
    ARRAY,
    CHOICE,
    HASH,
    MAX_NAMED,
    MAX_SLOTS,
    MAX_TYPES,
    OUT,
    AnswerTable,
    Form,
    FormList,
    Front,
    Slot,
    State,
)
from robodyn.engines.cpu.native.forms import entry
from robodyn.engines.cpu.native.layout import api
from robodyn.engines.cpu.native.objects import PyBytes
from robodyn.engines.cpu.threads.pool import load_once
from robodyn.internals.forks import lock
from robodyn.internals.records import dataclass

_METH_KEYWORDS, _METH_FASTCALL = 0x0002, 0x0080
_METHOD, _FALLBACK = 1, 3  # indices of the PyMethodDef and of the checked function in `_Owned`
_KEY_BITS = 62
_MAX_FORMS = 128
_LEAST_PLACES = 4
_HEAD = AnswerTable.places.offset // 8  # words before the places of a hash table
_PYTHON_API = tuple(name for name, *_ in Front._fields_ if name.startswith("Py"))


class _MethodDef(ctypes.Structure):
    """PyMethodDef of CPython."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@cache
def entry_text() -> str:
    """The module that all built-in functions of this process share; the same for every model and query."""

    def export(module: Module) -> None:
        for each in (entry, kept_release, kept_malloc, kept_calloc, kept_free, kept_realloc):
            module.export(each)

    facts = "entries", sys.platform, tuple.__basicsize__, bytes.__basicsize__
    return printed_module(facts, {"Words": Number("i64", 8, align=64)}, export)


@dataclass(frozen=True)
class Argument:
    """An argument of a call.

    `role`: "array", "out" or "choice"; `place`: an array's index among those of its query; `optional`: True if it may
    be None; `types`: types of choices that may be looked up, whose hash and equality are Python's own; `bits`: bits of
    a choice's number in the key; `number`: True if the array is a Python float instead.
    """

    role: str
    place: int = 0
    optional: bool = False
    types: tuple[type, ...] = ()
    bits: int = 8
    number: bool = False


class _Form:
    """A form of calls, and its answers in the memory that machine code reads.

    A full hash table is replaced by one of twice the size. Old tables are kept, because other threads may read them.
    """

    def __init__(self, given: int, names: tuple[str, ...], arguments: Sequence[Argument]) -> None:
        self.arguments = tuple(arguments)
        self._names = [sys.intern(name) for name in names]
        self._words: list[dict[Any, bytes]] = [{} for _ in arguments]
        self._shifts, self._answers, self._kept = list[int](), dict[int, Answers](), list[Any]()
        slots, bit = [], 0
        for argument, words in zip(arguments, self._words, strict=True):
            self._shifts.append(bit)
            slots.append(
                Slot(
                    role={"array": ARRAY, "out": OUT, "choice": CHOICE}[argument.role],
                    place=argument.place,
                    none=1 << bit if argument.optional else 0,
                    words=id(words),
                    types=(ctypes.c_void_p * MAX_TYPES)(*map(id, argument.types)),
                )
            )
            bit += argument.bits if argument.role == "choice" else argument.optional
        self.fits = bit <= _KEY_BITS
        self._table = self._with(_LEAST_PLACES, {})
        self._facts = {
            "given": given,
            "named": len(names),
            "names": (ctypes.c_void_p * MAX_NAMED)(*map(id, self._names)),
            "slots": (Slot * MAX_SLOTS)(*slots),
        }

    def add(self, values: Sequence[Any], choices: Mapping[int, int], answers: Answers) -> bool:
        """Answer calls with such arrays and choices. `choices`: numbers of the chosen values, by position. True if the
        hash table was replaced."""
        key = 0
        for k, (argument, value) in enumerate(zip(self.arguments, values, strict=True)):
            part = 0
            if argument.role == "choice":
                part = choices[k] << self._shifts[k]
                self._words[k].setdefault(value, part.to_bytes(8, "little"))
            elif argument.role == "array" and argument.optional and value is None:
                part = 1 << self._shifts[k]
            key += part
        if self._answers.get(key) is answers:
            return False
        places = int(self._table[0]) + 1
        if 2 * len(self._answers) < places:
            self._kept.append(answers)
            self._put(self._table, key, answers)
            self._answers[key] = answers
            return False
        self._table = self._with(2 * places, {**self._answers, key: answers})
        self._answers[key] = answers
        return True

    @property
    def memory(self) -> Form:
        """The form as the struct that machine code reads."""
        return Form(answers=ctypes.addressof(self._table), **self._facts)

    def _with(self, places: int, answers: Mapping[int, Answers]) -> Any:
        """A hash table with answers."""
        table = (ctypes.c_int64 * (_HEAD + 2 * places))()
        table[0] = places - 1
        for key, each in answers.items():
            self._put(table, key, each)
        self._kept += [table, *answers.values()]
        return table

    @staticmethod
    def _put(table: Any, key: int, answers: Answers) -> None:
        places, at = int(table[0]) + 1, (key * HASH % 2**64) >> 32
        while True:
            place = _HEAD + 2 * (at % places)
            if not table[place + 1] or table[place] == key:
                break
            at += 1
        table[place] = key
        table[place + 1] = ctypes.addressof(answers.context)  # from now on machine code reads this place


class Forms:
    """The forms that an entry answers during one epoch. Forms are never removed.

    For the entry's owner: `answers` by a key of the calls, and `refused`, keys of calls that have no answers.
    """

    def __init__(self, epoch: int = 0) -> None:
        self.epoch, self.shown = epoch, False
        self.answers: dict[Any, Answers] = {}
        self.refused: set[Any] = set()
        self.state = State(epoch=epoch)
        self._forms: dict[tuple[int, tuple[str, ...]], _Form] = {}
        self._blocks: list[Any] = []
        self._lock, self._inside, self._shown = lock(), 0, 0
        self._publish()

    def arguments(self, given: int, names: tuple[str, ...]) -> Sequence[Argument]:
        """The arguments of calls of a form; empty if no call of the form is answered."""
        form = self._forms.get((given, names))
        return () if form is None else form.arguments

    def add(
        self,
        given: int,
        names: tuple[str, ...],
        arguments: Sequence[Argument],
        values: Sequence[Any],
        choices: Mapping[int, int],
        answers: Answers,
    ) -> bool:
        """Answer calls of a form from now on. False if there is no room, or if another thread, or the code that a
        signal handler interrupted, is adding answers.

        Args:
            given: number of positional arguments.
            names: names of keyword arguments, in order.
            arguments: the arguments; always the same for a form.
            values: values of such a call; for arrays only None or not None matters.
            choices: numbers of the chosen values, by position in the call.
            answers: the answers to such calls.
        """
        if not self._lock.acquire(blocking=False):
            return False
        inside, me = self._inside, os.getpid()
        try:
            if inside == me:
                return False
            self._inside = me
            return self._added((given, names), arguments, values, choices, answers)
        finally:
            self._inside = inside
            self._lock.release()

    def _added(
        self,
        key: tuple[int, tuple[str, ...]],
        arguments: Sequence[Argument],
        values: Sequence[Any],
        choices: Mapping[int, int],
        answers: Answers,
    ) -> bool:
        form = self._forms.get(key)
        if form is None:
            if len(arguments) > MAX_SLOTS or len(key[1]) > MAX_NAMED or len(self._forms) == _MAX_FORMS:
                return False
            form = _Form(*key, arguments)
            if not form.fits:
                return False
            form.add(values, choices, answers)
            self._forms[key] = form
            self._publish()
        elif form.add(values, choices, answers) or self._shown != len(self._forms):  # or an exception prevented it
            self._publish()
        return True

    def _publish(self) -> None:
        """Let machine code use all forms."""
        forms, size = tuple(self._forms.values()), ctypes.sizeof(Form)
        block = ctypes.create_string_buffer(FormList.forms.offset + size * len(forms))
        FormList.from_buffer(block).count = len(forms)
        for k, form in enumerate(forms):
            memory = form.memory
            ctypes.memmove(ctypes.addressof(block) + FormList.forms.offset + size * k, ctypes.addressof(memory), size)
        self._blocks.append(block)
        self.state.forms = ctypes.addressof(block)
        self._shown = len(forms)


class Entry:
    """A built-in function, and the forms of calls that it answers. All other calls are passed to `fallback`.

    `function`: the built-in function; `strict`: a built-in function that returns `missed` instead of calling
    `fallback`.

    Args:
        name, doc: name and docstring of the function.
        fallback: the checked function.
        load: compiles `entry_text()`, once per process, e.g. through a cache.
        epoch: a number that changes when all answers become invalid.
    """

    def __init__(
        self,
        name: str,
        doc: str,
        fallback: Callable[..., Any],
        load: Callable[[str], Code],
        epoch: ctypes.c_int64 | None = None,
    ) -> None:
        self.epoch = ctypes.c_int64() if epoch is None else epoch
        first = Forms(self.epoch.value)
        self._every, first.shown = {ctypes.addressof(first.state): first}, True
        self._cell = ctypes.c_void_p(ctypes.addressof(first.state))
        module = load_once(entry_text(), load)
        buffer_pool.start(module.address, api()["PyDataMem_SetHandler"])
        self.missed = object()
        with _REPLACING:
            code = (_LATEST or [module])[-1].address("entry")
            self.function, self.strict = (self._builtin(code, name, doc, each) for each in (fallback, self._miss))
            _ENTRIES.add(self)

    @property
    def forms(self) -> Forms:
        """The forms of the current epoch."""
        found = None
        while found is None:  # another thread may remove it in between
            found = self._every.get(self._cell.value or 0)
        now = self.epoch.value
        if found.epoch == now:
            return found
        fresh = Forms(now)
        self._every[ctypes.addressof(fresh.state)] = fresh
        # The forms in the cell are valid: another thread, or a signal handler, may replace them in between.
        self._cell.value = ctypes.addressof(fresh.state)
        fresh.shown = True
        for place, each in tuple(self._every.items()):
            # Remove forms that were in the cell before, unless a thread is in a call with them.
            if each.shown and place != self._cell.value and not each.state.calls:
                self._every.pop(place, None)
        return fresh

    def go_on_with(self, code: int) -> None:
        """Let both functions run other code from the next call on. Python reads the address in PyMethodDef at each
        call, and an address is one word."""
        for function in (self.function, self.strict):
            method = function.__self__[_METHOD]  # type: ignore[attr-defined]
            word = id(method) + PyBytes.data.offset + _MethodDef.function.offset
            ctypes.c_void_p.from_address(word).value = code

    def _builtin(self, code: int, name: str, doc: str, fallback: Callable[..., Any]) -> Callable[..., Any]:
        front = Front(
            state=ctypes.addressof(self._cell),
            epoch=ctypes.addressof(self.epoch),
            fallback=id(fallback),
            none=id(None),
            **_api(),
        )
        return _builtin(name, doc, code, front, (fallback, self))

    def _miss(self, *_: Any, **__: Any) -> object:
        return self.missed


class _Better:
    """Replaces the first code of `entry_text()` by optimized code (`tiered_compilation.later`)."""

    def replace(self, code: Code) -> None:
        """Let all built-in functions run the code, including later ones."""
        address = code.address("entry")
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))  # never unloaded; see `load_once`
        with _REPLACING:
            _LATEST.append(code)
            for entry in tuple(_ENTRIES):
                entry.go_on_with(address)


BETTER = _Better()
_REPLACING = lock()
_LATEST: list[Code] = []
"""The optimized code, once it is compiled."""
_ENTRIES: weakref.WeakSet[Entry] = weakref.WeakSet()


@cache
def _api() -> dict[str, int]:
    return {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in _PYTHON_API}


class _Owned(tuple[Any, ...]):
    """The objects that a built-in function owns. Pickled as the object whose method the function replaces."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self[_FALLBACK].__self__,)


def _itself(given: Any) -> Any:
    return given


def _builtin(name: str, doc: str, function: int, front: Front, owned: tuple[object, ...]) -> Callable[..., Any]:
    """A built-in function. Its `self` is a tuple of the `Front`'s bytes and of all objects that the `Front` points to.

    The garbage collector sees the tuple, so that it can collect a `Dynamics` together with its entries.
    """
    texts = name.encode(), doc.encode()
    # Bytes, because the collector clears ctypes structures in a cycle before the function releases its method.
    method = bytes(_MethodDef(texts[0], function, _METH_FASTCALL | _METH_KEYWORDS, texts[1]))
    pointer, any_object = ctypes.c_void_p, ctypes.py_object
    make = ctypes.PYFUNCTYPE(any_object, pointer, any_object, pointer, pointer)(("PyCMethod_New", ctypes.pythonapi))
    everything = _Owned((bytes(front), method, texts, *owned))
    built: Callable[..., Any] = make(id(method) + PyBytes.data.offset, everything, None, None)
    return built

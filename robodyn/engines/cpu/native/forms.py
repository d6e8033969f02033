"""Finds the context that answers a call from its arguments: functions with loops that read a `Front`."""

from __future__ import annotations

from robodyn.compile.loops.language import (
    NULL,
    Address,
    Array,
    Word,
    address,
    array,
    call,
    local,
    routine,
    shifted,
    wrapped,
)
from robodyn.engines.cpu.native.code import LEFT, answer
from robodyn.engines.cpu.native.context import (
    ARRAY,
    CHOICE,
    HASH,
    MAX_SLOTS,
    MAX_TYPES,
    OUT,
    AnswerTable,
    Context,
    Form,
    FormList,
    Front,
    Slot,
    State,
)
from robodyn.engines.cpu.native.objects import PyBytes, PyObject, PyTuple


@routine
def entry(self: Array[PyTuple], args: Array[Address], given: Word, names: Array[PyTuple]) -> Address:
    """The C function of every built-in function. Its `self` begins with the bytes of a `Front`. Calls without an answer
    are passed to the checked function."""
    front = array(Front, address(array(PyBytes, self.items[0]).data))
    found = tried(front, args, given, names)
    if found == LEFT:
        return call(Address, front.PyObject_Vectorcall, front.fallback, args, given, names)
    return found


def tried(front: Array[Front], args: Array[Address], given: Word, names: Array[PyTuple]) -> Address:
    """The answer to a call. Null with an exception, or `LEFT`.

    A form is found by the number of arguments and the keyword names, which are interned strings. Choices, and which
    arrays are None, make a key that selects the context.
    """
    state = array(State, array(Address, front.state)[0])
    if state.epoch != array(Word, front.epoch)[0]:
        return LEFT
    named = 0
    if names != NULL:
        named = names.size
    form = form_of(array(FormList, state.forms), given, named, names)
    if form == NULL:
        return LEFT
    arrays = local(Address, MAX_SLOTS)
    key, targets, none = 0, array(Address, NULL), front.none
    for s in range(given + named):
        slot, argument = form.slots + s, args[s]
        if slot.role == ARRAY:
            arrays[slot.place] = argument
            if argument == none:
                key += slot.none
        elif slot.role == OUT:
            if argument != none:
                targets = args + s
        elif slot.role == CHOICE:
            number = number_of(front, slot, argument)
            if number == NULL:
                return LEFT
            key += array(Word, array(PyBytes, number).data)[0]
        else:
            return LEFT
    context = context_of(array(AnswerTable, form.answers), key)
    if context == NULL:
        return LEFT
    state.calls += 1
    result = answer(context, arrays, targets)
    state.calls -= 1
    return result


def form_of(known: Array[FormList], given: Word, named: Word, names: Array[PyTuple]) -> Array[Form]:
    """The form of a call, or null."""
    for f in range(known.count):
        form: Array[Form] = known.forms + f
        if form.given == given and form.named == named and all(names.items[j] == form.names[j] for j in range(named)):
            return form
    return array(Form, NULL)


def number_of(front: Array[Front], slot: Array[Slot], choice: Address) -> Address:
    """The bytes whose first word a choice adds to the key, or null."""
    kind = array(PyObject, choice).type
    if all(kind != slot.types[t] for t in range(MAX_TYPES)):
        return NULL
    return call(Address, front.PyDict_GetItem, slot.words, choice)


def context_of(table: Array[AnswerTable], key: Word) -> Array[Context]:
    """The context of calls with a key, or null."""
    at = shifted(wrapped(key * HASH), 32)
    while True:
        place = table.places + (at & table.mask)
        context = place.context
        if context == NULL or place.key == key:
            return array(Context, context)
        at += 1

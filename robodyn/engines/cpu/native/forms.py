"""From a call's arguments to the context that answers it: machine code that reads a `Front`."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template

# The function of every built-in. A form is found by its number of arguments and its names, which callers intern; then
# what was chosen, and which arrays are None, make a key. Whatever is not found goes to the checked function.
_ENTRY = """
define ptr @entry(ptr %self, ptr %args, i64 %given, ptr %names) {
start:
  %arrays = alloca [$max_places x ptr], align 16
  %item.at = getelementptr i8, ptr %self, i64 $tuple_items
  %item = load ptr, ptr %item.at, align 8
  %front = getelementptr i8, ptr %item, i64 $bytes_data
  $front_addresses
  %cell = load ptr, ptr %front.forms, align 8
  %state = load ptr, ptr %cell, align 8
  %learnt.at = getelementptr i64, ptr %state, i64 2
  %learnt = load i64, ptr %learnt.at, align 8
  %epoch.at = load ptr, ptr %front.epoch, align 8
  %epoch = load i64, ptr %epoch.at, align 8
  %timely = icmp eq i64 %learnt, %epoch
  br i1 %timely, label %begin, label %other
begin:
  %forms = load ptr, ptr %state, align 8
  %count = load i64, ptr %forms, align 8
  %first = getelementptr i8, ptr %forms, i64 16
  %none = load ptr, ptr %front.none, align 8
  %nameless = icmp eq ptr %names, null
  br i1 %nameless, label %forms.next, label %count.names
count.names:
  %names.size.at = getelementptr i8, ptr %names, i64 $tuple_size
  %names.size = load i64, ptr %names.size.at, align 8
  br label %forms.next
forms.next:
  %f = phi i64 [ 0, %begin ], [ 0, %count.names ], [ %f.next, %unlike ]
  %named = phi i64 [ 0, %begin ], [ %names.size, %count.names ], [ %named, %unlike ]
  %more = icmp slt i64 %f, %count
  br i1 %more, label %look, label %other
unlike:
  %f.next = add i64 %f, 1
  br label %forms.next
look:
  %form = getelementptr [$form_bytes x i8], ptr %first, i64 %f
  $form_addresses
  %form.given = load i64, ptr %form.given.at, align 8
  %form.named = load i64, ptr %form.named.at, align 8
  %same.given = icmp eq i64 %form.given, %given
  %same.named = icmp eq i64 %form.named, %named
  %same.counts = and i1 %same.given, %same.named
  br i1 %same.counts, label %name.next, label %unlike
name.next:
  %j = phi i64 [ 0, %look ], [ %j.next, %name ]
  %name.more = icmp slt i64 %j, %named
  br i1 %name.more, label %name, label %slots
name:
  %j.next = add i64 %j, 1
  %names.items = getelementptr i8, ptr %names, i64 $tuple_items
  %name.at = getelementptr ptr, ptr %names.items, i64 %j
  %name.own = load ptr, ptr %name.at, align 8
  %form.name.at = getelementptr ptr, ptr %form.names.at, i64 %j
  %form.name = load ptr, ptr %form.name.at, align 8
  %same.name = icmp eq ptr %name.own, %form.name
  br i1 %same.name, label %name.next, label %unlike
slots:
  %all = add i64 %given, %named
  br label %slot.next
slot.next:
  %s = phi i64 [ 0, %slots ], [ %s.next, %slot.done ]
  %key = phi i64 [ 0, %slots ], [ %key.next, %slot.done ]
  %targets = phi ptr [ null, %slots ], [ %targets.next, %slot.done ]
  %slot.more = icmp slt i64 %s, %all
  br i1 %slot.more, label %slot, label %find
slot:
  %s.next = add i64 %s, 1
  %slot.own = getelementptr [$slot_bytes x i8], ptr %form.slots.at, i64 %s
  $slot_addresses
  %arg.at = getelementptr ptr, ptr %args, i64 %s
  %arg = load ptr, ptr %arg.at, align 8
  %nothing = icmp eq ptr %arg, %none
  %role = load i64, ptr %slot.role, align 8
  switch i64 %role, label %other [
    i64 $ARRAY, label %array
    i64 $OUT, label %out
    i64 $CHOICE, label %choice
  ]
array:
  %place = load i64, ptr %slot.place, align 8
  %array.at = getelementptr [$max_places x ptr], ptr %arrays, i64 0, i64 %place
  store ptr %arg, ptr %array.at, align 8
  %none.adds = load i64, ptr %slot.none, align 8
  %array.adds = select i1 %nothing, i64 %none.adds, i64 0
  br label %slot.done
out:
  %out.at = select i1 %nothing, ptr null, ptr %arg.at
  br label %slot.done
choice:
  %type.at = getelementptr i8, ptr %arg, i64 $type
  %type = load ptr, ptr %type.at, align 8
  br label %type.next
type.next:
  %t = phi i64 [ 0, %choice ], [ %t.next, %type.look ]
  %t.more = icmp slt i64 %t, $max_types
  br i1 %t.more, label %type.look, label %other
type.look:
  %t.next = add i64 %t, 1
  %type.wanted.at = getelementptr ptr, ptr %slot.types, i64 %t
  %type.wanted = load ptr, ptr %type.wanted.at, align 8
  %type.fits = icmp eq ptr %type.wanted, %type
  br i1 %type.fits, label %word, label %type.next
word:
  %words = load ptr, ptr %slot.words, align 8
  %get = load ptr, ptr %front.PyDict_GetItem, align 8
  %found = call ptr %get(ptr %words, ptr %arg)
  %unknown = icmp eq ptr %found, null
  br i1 %unknown, label %other, label %chosen
chosen:
  %found.data = getelementptr i8, ptr %found, i64 $bytes_data
  %choice.adds = load i64, ptr %found.data, align 1
  br label %slot.done
slot.done:
  %adds = phi i64 [ %array.adds, %array ], [ 0, %out ], [ %choice.adds, %chosen ]
  %targets.next = phi ptr [ %targets, %array ], [ %out.at, %out ], [ %targets, %chosen ]
  %key.next = add i64 %key, %adds
  br label %slot.next
find:
  %answers = load ptr, ptr %form.answers.at, align 8
  %mask = load i64, ptr %answers, align 8
  %answers.first = getelementptr i8, ptr %answers, i64 16
  %mixed = mul i64 %key, $hash
  %mixed.high = lshr i64 %mixed, 32
  br label %probe
probe:
  %h = phi i64 [ %mixed.high, %find ], [ %h.next, %again ]
  %h.place = and i64 %h, %mask
  %answer = getelementptr [2 x i64], ptr %answers.first, i64 %h.place
  %answer.key = load i64, ptr %answer, align 8
  %answer.context.at = getelementptr i8, ptr %answer, i64 8
  %context = load ptr, ptr %answer.context.at, align 8
  %empty = icmp eq ptr %context, null
  br i1 %empty, label %other, label %check
check:
  %hit = icmp eq i64 %answer.key, %key
  br i1 %hit, label %run, label %again
again:
  %h.next = add i64 %h, 1
  br label %probe
run:
  %calls.at = getelementptr i64, ptr %state, i64 1
  %calls = load i64, ptr %calls.at, align 8
  %calls.more = add i64 %calls, 1
  store i64 %calls.more, ptr %calls.at, align 8
  %result = call ptr @answer(ptr %context, ptr %arrays, ptr %targets)
  %calls.now = load i64, ptr %calls.at, align 8
  %calls.less = sub i64 %calls.now, 1
  store i64 %calls.less, ptr %calls.at, align 8
  %left = icmp eq ptr %result, inttoptr (i64 -1 to ptr)
  br i1 %left, label %other, label %done
done:
  ret ptr %result
other:
  %vectorcall = load ptr, ptr %front.PyObject_Vectorcall, align 8
  %fallback = load ptr, ptr %front.fallback, align 8
  %answer.other = call ptr %vectorcall(ptr %fallback, ptr %args, i64 %given, ptr %names)
  ret ptr %answer.other
}
"""


def forms_text(words: Mapping[str, object]) -> str:
    """`@entry`, the function of every built-in."""
    return Template(_ENTRY).substitute(words)

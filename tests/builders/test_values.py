"""Numbers in files: what is taken at a glance, and what is looked at, is what XML's decimals are."""

from __future__ import annotations

import math
import random
import re

import pytest

from robodyn.io.builders.values import number, numbers

_DECIMAL = re.compile(r"[ \t\r\n]*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t\r\n]*")
_PIECES = (
    *"0123456789+-.eE_ \t\n\r",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x85",
    "\xa0",
    "\u0663",
    "\u2003",
    "nan",
    "inf",
    "1e400",
    "0x1",
)


def plain(text):
    """By the grammar alone."""
    value = float(text) if _DECIMAL.fullmatch(text) else math.inf
    return value if math.isfinite(value) else None


@pytest.mark.parametrize("seed", range(4))
def test_random_texts(seed):
    rng = random.Random(seed)
    spelled = 0
    for _ in range(20_000):
        text = "".join(rng.choice(_PIECES[: rng.choice((13, len(_PIECES)))]) for _ in range(rng.randrange(7)))
        assert number(text) == plain(text), repr(text)
        spelled += plain(text) is not None
        parts = re.split("[ \t\r\n]+", text.strip(" \t\r\n"))
        for count in (1, 2, 3):
            values = tuple(map(plain, parts)) if len(parts) == count else (None,)
            assert numbers(text, count) == (None if None in values else values), repr(text)
    assert spelled > 1000


def test_numbers_whose_sum_is_not_finite_are_finite():
    assert numbers("1e308 1e308 1e308", 3) == (1e308,) * 3 and numbers("1e308 1e309 0", 3) is None

"""What functions are known by: two that may differ have other hashes, or none; the same source has the same."""

from __future__ import annotations

import collections
import contextvars
import decimal
import enum
import fractions
import functools
import itertools
import math
import operator
import os
import pathlib
import random
import struct
import subprocess
import sys
import textwrap
import threading
import types
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from robots import own

import robodyn as rd
from robodyn.distributed import Histogram, Reduction, Statistics, random_inputs
from robodyn.distributed.identity import UncertainError, identity
from robodyn.distributed.reductions import reduction


def known(value, **options):
    """The hash of a value, None where there is none."""
    try:
        return identity("it", value, **options)
    except UncertainError:
        return None


def copied(function):
    """As workers get it; where there is no cloudpickle, the same."""
    try:
        import cloudpickle
    except ImportError:
        return function
    return cloudpickle.loads(cloudpickle.dumps(function))


# Pairs of functions that differ in one respect. Sources have a hole for a value in Python's words.

NUMBER = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(width=64),
    st.booleans(),
    st.none(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.complex_numbers(),
)
PLAIN = st.recursive(
    NUMBER,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.frozensets(st.integers(0, 5), max_size=1),
        st.sets(st.text(max_size=2), max_size=1),
    ),
    max_leaves=5,
)
ARRAYS = st.builds(
    lambda dtype, numbers, shape: np.resize(np.array(numbers), shape).astype(dtype),
    st.sampled_from(["f8", "f4", "i8", "i4", "u1", "?", "c16", ">f8"]),
    st.lists(st.integers(0, 3), min_size=1, max_size=4),
    st.sampled_from([(), (1,), (4,), (2, 2), (4, 1)]),
)
ODD = st.one_of(
    st.integers(0, 3).map(range),
    st.lists(st.integers(0, 3)).map(collections.deque),
    st.fractions(),
    st.decimals(),
    st.sampled_from(["a", "b"]).map(pathlib.PurePosixPath),
    st.binary(max_size=3).map(bytearray),
    st.integers(0, 3).map(np.random.default_rng),
    st.integers(0, 3).map(random.Random),
    st.integers(0, 3).map(itertools.count),
    st.sampled_from([math.sin, math.cos, len, max, np.sum, np.add, np.float64, np.float32, int, ValueError]),
    st.integers(0, 3).map(lambda n: np.ma.masked_array([n, 2], [0, 1])),
    st.integers(0, 3).map(lambda n: types.SimpleNamespace(n=n)),
    st.integers(0, 3).map(lambda n: memoryview(bytes([n]))),
    st.integers(0, 3).map(lambda n: np.array([n, [n]], dtype=object)),
    st.integers(0, 3).map(lambda n: np.array([(n,)], dtype=[("n", "i4")])),
    st.integers(0, 3).map(lambda n: operator.itemgetter(n)),
)
VALUES = st.one_of(PLAIN, ARRAYS, ODD)


def bits(value):
    """All of a value that a function could see, in words; equal for equal ones."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, complex):
        return struct.pack("<dd", value.real, value.imag)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return (type(value), value.dtype.str, value.shape, value.tobytes(), repr(value))
    if isinstance(value, dict):
        return ("dict", *((bits(k), bits(each)) for k, each in value.items()))
    if isinstance(value, list | tuple | collections.deque):
        return (type(value), *map(bits, value))
    if isinstance(value, set | frozenset):
        return (type(value), *sorted(map(repr, value)))
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, memoryview | bytearray):
        return (type(value), bytes(value))
    return (type(value), repr(value))


def in_module(source, **names):
    """What a module of this source, with these names, calls f."""
    space = {"__name__": "made", "np": np, "math": math, **names}
    exec(compile(textwrap.dedent(source), "made", "exec"), space)
    return space["f"]


def of_closure(value):
    def f(a):
        return value

    return f


def of_deep_closure(value):
    def f(a):
        return [(lambda: [value for _ in a])() for _ in a]

    return f


def of_default(value):
    def f(a, more=value):
        return more

    return f


def of_keyword(value):
    def f(a, *, more=value):
        return more

    return f


def of_attribute(value):
    def f(a):
        return f.more

    f.more = value
    return f


def of_wrapped(value):
    inner = of_closure(value)

    @functools.wraps(inner)
    def f(*given):
        return inner(*given)

    return f


def of_object(value):
    class Kind:
        def __init__(self):
            self.more = value

        def method(self, a):
            return self.more

        def __call__(self, a):
            return self.more

    return Kind()


def of_slots(value):
    class Kind:
        __slots__ = ("more",)

        def method(self, a):
            return self.more

    found = Kind()
    found.more = value
    return found.method


def of_class(value):
    class Base:
        more = value

        @property
        def known(self):
            return value

        @staticmethod
        def plainly(a):
            return value

        @classmethod
        def of_all(cls, a):
            return cls.more

        def method(self, a):
            return value

    class Kind(Base):
        def other(self, a):
            return self.method(a)

        def called(self, a):
            return self.known

    return Kind


def of_reduction(value):
    class Own(Reduction):
        def block(self, arrays):
            return value

        def combine(self, one, other):
            return one

    return Own()


def of_global(value):
    return in_module("def f(a): return more", more=value)


def of_module(value):
    other = types.ModuleType("other")
    other.deep = types.ModuleType("deep")
    other.deep.more = value
    return in_module("def f(a): return [other.deep.more for _ in a]", other=other)


def of_helper(value):
    return in_module(
        """
        def helper(a): return more
        def middle(a): return (helper(each) for each in a)
        def f(a): return [*middle(a)]
        """,
        more=value,
    )


def of_class_of_module(value):
    return in_module("def f(a): return Kind.more", Kind=of_class(value))


def of_partial(value):
    return functools.partial(lambda more, a: more, value)


def of_statistics(value):
    return Statistics(of=lambda a: np.full(len(a["gravity"]), value))


def of_histogram(value):
    return Histogram(lambda a: np.full(len(a["gravity"]), value), [[0.0, 1.5, 3.0]])


MAKERS = [
    *(of_closure, of_deep_closure, of_default, of_keyword, of_attribute, of_wrapped, of_object, of_slots),
    lambda value: of_object(value).method,
    *(lambda value, name=name: getattr(of_class(value)(), name) for name in ("other", "called", "plainly", "of_all")),
    lambda value: of_class(value).plainly,
    lambda value: of_class(value).of_all,
    *(
        of_class,
        of_reduction,
        of_global,
        of_module,
        of_helper,
        of_class_of_module,
        of_partial,
        of_statistics,
        of_histogram,
    ),
    lambda value: functools.lru_cache(of_closure(value)),
    lambda value: [of_closure(value)],
]


@settings(max_examples=150, deadline=None)
@given(maker=st.sampled_from(MAKERS), one=VALUES, other=VALUES)
def test_functions_that_differ_in_a_value_have_other_hashes_or_none(maker, one, other):
    first, second = known(maker(one)), known(maker(other))
    if first is not None and second is not None:
        assert (first == second) == (bits(one) == bits(other))


@settings(max_examples=100, deadline=None)
@given(maker=st.sampled_from([of_closure, of_deep_closure, of_default, of_keyword, of_global, of_helper]), value=PLAIN)
def test_the_same_source_and_values_have_the_same_hash(maker, value):
    first = known(maker(value))
    assert first is not None and first == known(copied(maker(value)))


@settings(max_examples=50, deadline=None)
@given(value=PLAIN | ARRAYS, other=PLAIN | ARRAYS)
def test_constants_in_code(value, other):
    made = [in_module(f"def f(a): return [{each!r}, (lambda: {each!r})]", nan=math.nan, inf=math.inf, array=np.array,
            float32=np.float32, int32=np.int32, uint8=np.uint8) for each in (value, other)]  # fmt: skip
    if repr(value) != repr(other):
        first, second = map(known, made)
        assert first is None or second is None or first != second


CODES = [
    *("return 1", "return 1.0", "return True", "return -0.0", "return 0.0", "return 0", "return a", "return -a"),
    *("return a + 1", "return a - 1", "return np.sin(a)", "return np.cos(a)", "return math.sin(a)", "return a.sin"),
    *(
        "return a.cos",
        "return np.linalg.norm(a)",
        "return np.linalg.det(a)",
        "return b'1'",
        "return '1'",
        "return (1,)",
    ),
    *("return [x for x in a]", "return [x for x in a if x]", "return (x for x in a)", "return {x for x in a}"),
    *("return a in {1, 2}", "return a in {1, 3}", "return a[0:1]", "return a[0:2]", "return a[...]", "yield a"),
    *("return lambda: 1", "return lambda: 2", "return lambda x=1: x", "return lambda x=2: x", "return f(a)"),
    *("try: return a\n finally: print(a)", "try: return a\n except ValueError: print(a)", "return 'ab' 'c'"),
    *("try: return a\n except KeyError: print(a)", "return max(a)", "return min(a)", "return np.pi", "return np.e"),
    *("return np.float32(a)", "return np.float64(a)", "return 10**40", "return 10**41", "return 1j", "return 2j"),
]


def test_codes_that_differ_have_other_hashes():
    found = [known(in_module(f"def f(a):\n {code}")) for code in CODES]
    assert None not in found and len(set(found)) == len(found)
    assert found == [known(in_module(f"\n\n\ndef f(a):\n {code}")) for code in CODES]


UNCERTAIN = {
    "import math; return math.pi": "it imports 'math'",
    "from math import pi; return pi": "it imports 'math'",
    "global more; more = a": "it changes the global 'more'",
    "class Kind: pass": "it makes a class",
    "return getattr(a, 'x')": "global getattr: the function getattr",
    "return eval('more')": "global eval: the function eval",
    "return globals()": "global globals: the function globals",
    "return vars(a)": "global vars",
    "return open('x')": "global open",
    "return id(a)": "global id",
    "return hash(a)": "global hash",
    "return a.__class__": "it reads the attribute '__class__'",
    "return '{0.x}'.format(a)": "it reads the attribute 'format'",
    "return (x for x in a).gi_frame.f_globals": "it reads the attribute 'gi_frame'",
    "a.x = 1": "it sets the attribute 'x'",
    "return missing": "global missing: has no value yet",
    "return np": "the module numpy is used as a value",
    "m = np; return m.sin(a)": "the module numpy is used as a value",
    "return [np][0].sin(a)": "the module numpy is used as a value",
    "return np.random.normal()": "global np.random.normal",
    "return np.random.rand()": "global np.random.rand",
    "return np.load('x')": "global np.load",
    "return np.fromfile('x')": "global np.fromfile",
    "return np.datetime64('now')": "global np.datetime64",
    "return np.geterr()": "global np.geterr",
    "return np.get_printoptions()": "global np.get_printoptions",
    "return np.r_[a]": "global np.r_",
    "return os.environ": "global os.environ",
    "return random.random()": "global random.random",
    "return rd.load_urdf('x')": "global rd.load_urdf",
    "return lock": "global lock",
    "return context.get()": "global context: an object of type ContextVar",
    "return Colour.RED": "global Colour: the class Colour",
    "return weak": "global weak",
    "return __builtins__": "global __builtins__",
    "return undone.later": "global undone.later: the module undone does not have it yet",
    "nonlocal_ = a; return (lambda: np)()": "the module numpy is used as a value",
}


@pytest.mark.parametrize("code", UNCERTAIN)
def test_what_may_depend_on_more_is_named(code):
    names = {
        "lock": threading.Lock(),
        "Colour": enum.Enum("Colour", "RED"),
        "context": contextvars.ContextVar("context"),
        "weak": weakref.ref(of_closure),
        "undone": types.ModuleType("undone"),
    }
    function = in_module(f"def f(a):\n {code}", os=os, random=random, rd=rd, **names)
    with pytest.raises(UncertainError) as caught:
        identity("draw", function)
    assert str(caught.value).startswith("draw") and UNCERTAIN[code] in str(caught.value)
    assert identity("draw", function, by_key=True) == identity("draw", of_closure(1), by_key=True)


def test_variables_that_change_or_are_not_there_yet():
    def counting():
        count = 0

        def f(a):
            nonlocal count
            count += 1
            return count

        return f

    def early():
        def f(a):
            return later

        found = known(f)
        later = 1
        return found, known(f)

    assert known(counting()) is None
    before, after = early()
    assert before is None and after is not None


def test_aliases_cycles_and_depth():
    row, other = [0], [0]
    assert known(lambda a: [row, row]) is not None
    one, two = [row, row], [row, other]
    assert known(lambda a: one) != known(lambda a: two)
    assert known(of_pair(row, row)) != known(of_pair(row, other))
    assert known(of_pair(row, other)) == known(of_pair([0], [0]))

    def odd(n):
        return n and even(n - 1)

    def even(n):
        return not n or odd(n - 1)

    assert known(odd) is not None and known(even) not in (None, known(odd))
    inside = []
    inside.append(inside)
    assert known(lambda a: inside) is not None
    deep = ()
    for _ in range(100_000):
        deep = (deep,)
    assert known(of_closure(deep)) is None
    chain = of_closure(1)
    for _ in range(500):
        chain = of_closure(chain)
    assert known(chain) is None
    wide = functools.reduce(lambda inner, _: [inner, inner], range(50), [0])  # 2^50 members without aliases
    assert known(lambda a: wide) is not None
    for kind in (tuple, frozenset):
        assert known(of_closure(functools.reduce(lambda inner, _: kind([inner, (inner,)]), range(25), (0,)))) is None


def of_pair(one, two):
    def f(a):
        return one, two

    return f


def test_arrays_count_by_all_that_sums_see():
    square = np.arange(9.0).reshape(3, 3)
    found = {known(each) for each in (square, square.T.copy(), np.asfortranarray(square), square[::-1], -square * 0)}
    assert len(found) == 5 and None not in found
    assert known(np.broadcast_to(np.ones(2), (2,))) != known(np.ones(2)), "what writes to it meets an error"
    assert known(square[::2]) == known(square[::2].copy())
    nans = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(float)
    assert len({known(float(each)) for each in nans} | {known(each) for each in nans}) == 6
    big = np.zeros((3000, 2000, 2))
    assert known(big[:, ::2]) == known(np.zeros((3000, 1000, 2)))
    assert known(np.zeros(2, "g")) is None and known(np.zeros(2).view(np.matrix)) is None


def test_the_order_of_sets_is_not_known():
    """{8, 0} and {0, 8} are equal, and list their members in other orders; a set in the code is the same each time."""
    assert known({3}) is not None and known(frozenset((3,))) is not None
    for kind in (set, frozenset):
        assert known(kind((8, 0))) is None and known(of_closure(kind((8, 0)))) is None

    def member(rng, n):
        return [k in {"one", "two"} for k in range(n)]

    assert known(member) is not None


def test_models_and_dynamics_count_by_what_they_compute():
    model = rd.load_urdf(own("arm7"))
    held = rd.Point("tool0", at=(0.0, 0.0, 0.1))
    others = [
        rd.Dynamics(model),
        rd.Dynamics(model, engine="reference"),
        rd.Dynamics(model, dtype="float32"),
        rd.Dynamics(model, joint_forces=("damping",)),
        rd.Dynamics(model, constraints=[held]),
        rd.Dynamics(model, constraints=[held], proximal=(1e-6, 3)),
        rd.Dynamics(model, constraints=[rd.Point("tool0", at=(0.0, 0.0, 0.2))]),
        rd.Dynamics(rd.load_urdf(own("arm6"))),
    ]
    found = [known(of_closure(dyn)) for dyn in others]
    assert None not in found and len(set(found)) == len(found)
    again = of_closure(rd.Dynamics(rd.load_urdf(own("arm7"))))
    assert known(again) == known(copied(again)) == found[0]
    assert known(of_closure(model)) not in (None, *found)

    class Own(rd.Dynamics):
        pass

    assert known(of_closure(Own(model))) is None


def test_functions_of_libraries():
    certain = [np.sum, np.add, np.linalg.norm, len, max, math.sin, random_inputs, np.float64, np.random.default_rng]
    assert len({known(each) for each in certain} - {None}) == len(certain)

    @functools.wraps(np.sum)
    def disguised(a):
        return os.getpid()

    own_ufunc = np.frompyfunc(lambda x: x, 1, 1)
    uncertain = (np.random.normal, np.random.default_rng(3).normal, [].append, np.load, os.getpid, disguised, own_ufunc)
    assert {known(each) for each in uncertain} == {None}


def test_reductions_count_by_their_kind_and_functions():
    edges = [np.linspace(0, 1, 4)], [np.linspace(0, 1, 5)]
    asked = [
        *(Statistics(), Statistics(of_closure(1)), Statistics(of_closure(2)), np.sum, np.max, of_closure(1)),
        *(Histogram(of_closure(1), edges[0]), Histogram(of_closure(1), edges[1]), Histogram(of_closure(2), edges[0])),
        *({"a": Statistics()}, {"b": Statistics()}, {"a": Statistics(), "b": Statistics()}),
    ]
    for by_key, differ in ((False, 12), (True, 8)):  # with a key, functions are one, and what robodyn knows counts
        found = [known(reduction(each, ("tau",)), by_key=by_key) for each in asked]
        assert None not in found and len(set(found)) == differ


PROCESS = """
import sys
sys.path[:0] = {path!r}
import test_identity
print([test_identity.known(maker((1, "x", {{"a": 2.5}}, {{"p", "q", "r"}}))) for maker in test_identity.MAKERS])
"""


def test_hashes_are_the_same_in_another_process():
    code = PROCESS.format(path=sys.path)
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert run.stdout.strip() == repr([known(maker((1, "x", {"a": 2.5}, {"p", "q", "r"}))) for maker in MAKERS])


def test_functions_that_have_run_and_are_optimised_keep_their_hash():
    function = in_module("def f(a):\n return [math.sin(x) + more for x in a]", more=2)
    before = known(function)
    for _ in range(200):
        function([1.0, 2.0])
    assert known(function) == before is not None
    assert decimal.Decimal(1) == fractions.Fraction(1), "equal values of other kinds"
    assert known(1) != known(1.0) != known(True)

"""Every way to write a call of a query: the built-in function answers it as the method does."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
import random
import signal
import sys
import threading
import time

import numpy as np
import pytest
from native_kernels import PATIENCE, Recorder, make_entry
from robots import own

import robodyn as rd
from robodyn.engines.cpu.native import entry as entries
from robodyn.engines.cpu.native.answers import Answers, Input
from robodyn.engines.cpu.native.entry import Argument, Forms
from robodyn.engines.cpu.native.layout import layout_is_known
from robodyn.engines.query_table import FRAMES, QUERIES

pytestmark = pytest.mark.skipif(not layout_is_known(), reason="no built-in entries on this Python and NumPy")

ROBOTS = {
    "all kinds": lambda: rd.random_tree(
        4, seed=3, joints=("spherical", "revolute", "prismatic", "planar"), base="floating"
    ),
    "mimicking": lambda: rd.random_tree(5, seed=11, joints=("revolute", "prismatic"), mimic=0.5),
}
FORCES = ((), ("damping",), ("friction",), ("damping", "friction"))
ROLLED = ("inverse_dynamics", "forward_dynamics", "inverse_dynamics_vjp", "link_velocity")
"""Of rolled code, which takes a second to compile for every set of arrays."""
WIDTHS = {"f_ext": 6, "inertia": 10}


def several(answer):
    return answer if isinstance(answer, tuple) else (answer,)


def same(one, two):
    return all(
        np.array_equal(a, b, equal_nan=True) and a.dtype == b.dtype and np.shape(a) == np.shape(b)
        for a, b in zip(several(one), several(two), strict=True)
    )


class Caller:
    """Draws calls of queries on a robot, in all the ways they may be written."""

    def __init__(self, model, dtype, seed):
        self.model, self.dtype, self.rng = model, dtype, random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        scale = self.numbers.uniform(0.9, 1.1, (5, 1, 1))
        self.inertias = {rows: (scale[0] if rows is None else scale[:rows]) * model.inertia for rows in (None, 1, 5)}

    def array(self, name, rows):
        """An array of an argument, of one state where `rows` is None."""
        lead = () if rows is None else (rows,)
        if name == "q":
            found = self.model.random_configuration(self.numbers, lead)
        elif name == "inertia":
            found = self.inertias[rows].reshape(*lead, self.model.n_bodies, 10)
        elif name in ("V0", "dV0", "point"):
            found = self.numbers.uniform(-1, 1, (*lead, 3 if name == "point" else 6))
        else:
            shape = (self.model.n_bodies, WIDTHS[name]) if name in WIDTHS else (self.model.nv,)
            found = self.numbers.uniform(-1, 1, (*lead, *shape))
        return np.ascontiguousarray(found, self.dtype)

    def link(self):
        """A link's name or index."""
        number = self.rng.randrange(len(self.model.link_names))
        return self.rng.choice((number, self.model.link_names[number]))

    def draw(self, question, engine):
        """What comes by place, and what by name."""
        rng = self.rng
        rows = rng.choice((None, None, 1, 5))
        placed = [name for name in question.inputs if name != "vector"]
        values = {name: self.array(name, rng.choice((rows, None))) for name in question.inputs}
        for name in question.optional:
            what = rng.random()
            if what < 0.6:
                values[name] = self.array(name, rng.choice((rows, None))) if what < 0.45 else None
        if question.of_link and rng.random() < 0.3:
            values["links"] = rng.choice((list, tuple))(self.link() for _ in range(rng.randrange(1, 4)))
            if values.get("point") is not None:
                values["point"] = self.numbers.uniform(-1, 1, (len(values["links"]), 3)).astype(self.dtype)
        elif question.of_link:
            placed.append("link")
            values["link"] = self.link()
        if question.can_be_relative and rng.random() < 0.3:
            values["relative_to"] = self.link()
        if question.in_frame and rng.random() < 0.7:
            values["frame"] = rng.choice(FRAMES)
        if question.variants and rng.random() < 0.6:
            values["classical"] = rng.random() < 0.5
        if question.methods and rng.random() < 0.5:
            values["method"] = rng.choice(("auto", *question.possible(self.model, engine)))
        if rng.random() < 0.2:
            values["out"] = None
        by_place = placed[: rng.randrange(len(placed) + 1)]
        by_name = [name for name in values if name not in by_place]
        rng.shuffle(by_name)
        return [values[name] for name in by_place], {name: values[name] for name in by_name}


@pytest.mark.parametrize("robot", list(ROBOTS))
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("code", ["unrolled", "rolled"])
@pytest.mark.parametrize("forces", FORCES, ids=lambda forces: "+".join(forces) or "none")
@pytest.mark.some(of=40, rest="matrix")
def test_every_way_to_call(robot, dtype, code, forces, passed_on):
    """To the bit, into new arrays and given ones; and after the second call at the latest no method is asked."""
    seed = 5
    print(f"seed {seed}")
    model = ROBOTS[robot]()
    dyn = rd.Dynamics(model, engine="cpu", dtype=dtype, code=code, joint_forces=forces, threads=2)
    caller = Caller(model, dtype, seed)
    for question in QUERIES.values() if code == "unrolled" else map(QUERIES.get, ROLLED):
        method = getattr(rd.Dynamics, question.name)
        for _ in range(4 if code == "unrolled" else 2):
            args, options = caller.draw(question, "cpu")
            wanted = method(dyn, *args, **options)
            for _ in range(2):  # at the second time code for one and for several states is there
                assert same(getattr(dyn, question.name)(*args, **options), wanted), (question.name, options.keys())
            out = tuple(np.full(np.shape(each), np.nan, dtype) for each in several(wanted))
            target = {"out": out if len(out) > 1 else out[0]}
            passed_on.clear()
            assert same(getattr(dyn, question.name)(*args, **options), wanted)
            if "out" not in options:
                given = several(getattr(dyn, question.name)(*args, **options, **target))
                assert all(one is two for one, two in zip(given, out, strict=True)) and same(out, several(wanted))
            # Several links and motion between them are one program, which there is of straight-line code alone.
            in_parts = code == "rolled" and not {"links", "relative_to"}.isdisjoint(options)
            assert passed_on == [] or in_parts, (question.name, options.keys())


def test_functions_that_were_looked_up_before_the_first_call(passed_on):
    dyn = rd.Dynamics(rd.load_urdf(own("arm6")), engine="cpu")
    held = {name: getattr(dyn, name) for name in ("inverse_dynamics", "jacobian", "mass_matrix")}
    q = np.zeros(6)
    for args in ((q, q, q),):
        held["inverse_dynamics"](*args), held["jacobian"](q, 2), held["mass_matrix"](q)
    passed_on.clear()
    held["inverse_dynamics"](q, q, q), held["jacobian"](q, 2), held["mass_matrix"](q)
    assert passed_on == [] and held["jacobian"] is dyn.jacobian


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_lists_and_other_arrays_are_made_into_what_is_wanted(dtype, passed_on):
    model = ROBOTS["all kinds"]()
    dyn, caller = rd.Dynamics(model, engine="cpu", dtype=dtype), Caller(model, dtype, 1)
    q, qd, f_ext = caller.array("q", 3), caller.array("qd", 3), caller.array("f_ext", 3)
    wanted = dyn.bias_force(q, qd, f_ext=f_ext), dyn.bias_force(q[0], qd[0])
    other = "float32" if dtype == "float64" else "float64"
    dyn.jacobian(q[0], 1)
    ones = np.ones(model.nv)
    dyn.bias_force(q, ones.astype(dtype))
    passed_on.clear()
    for given in (np.ndarray.tolist, np.asfortranarray, lambda a: np.repeat(a, 2, 0)[::2], lambda a: a.astype(">f8")):
        assert same(dyn.bias_force(given(q), qd, f_ext=given(f_ext)), wanted[0])
    assert same(dyn.bias_force(tuple(q[0].tolist()), list(qd[0])), wanted[1])
    assert same(dyn.bias_force(q, [1] * model.nv), dyn.bias_force(q, ones.astype(dtype)))
    assert same(dyn.jacobian(q[0], np.int64(1)), dyn.jacobian(q[0], 1))
    np.testing.assert_allclose(dyn.bias_force(q[0].astype(other), qd[0]), wanted[1], rtol=1e-4, atol=1e-4)
    assert passed_on == []
    for bad in (["a"] * model.nv, [True] * model.nv, [[1.0], [1.0, 2.0]], [1j] * model.nv, [None] * model.nv, "abc"):
        with pytest.raises(rd.ArgumentError, match=r"^qd: got"):
            dyn.bias_force(q[0], bad)
    with pytest.raises(rd.NumericalError, match=r"^qd: NaN"):
        dyn.bias_force(q[0].tolist(), [float("nan")] * model.nv)
    if dtype == "float32":
        with pytest.raises(rd.NumericalError, match=r"^qd: NaN or infinite"):
            dyn.bias_force(q[0], [1e300] * model.nv)


def test_only_what_the_method_allows_is_chosen():
    """True is no link, 1 is no flag, though they are equal to what was asked before."""
    dyn = rd.Dynamics(rd.load_urdf(own("arm6")), engine="cpu")
    q = np.zeros(6)

    class Word(str):
        __slots__ = ()

        def __eq__(self, other):
            raise RuntimeError("compared")

        __hash__ = str.__hash__

    for _ in range(2):
        for link, frame in itertools.product((0, 1, dyn.model.link_names[1]), FRAMES):
            dyn.jacobian(q, link, frame=frame)
        for classical in (True, False):
            dyn.link_acceleration(q, q, q, 1, classical=classical)
        for link in (True, False, 1.0, None, b"tool", [1], np.float64(1.0), np.array([1])):
            with pytest.raises(rd.ArgumentError, match=r"^link(, links)?: got"):
                dyn.jacobian(q, link)
            with pytest.raises(rd.ArgumentError, match=r"^links\[1\]: got"):
                dyn.jacobian(q, links=[1, link])
        for frame in ("World", b"world", 0, None, ["world"]):
            with pytest.raises(rd.ArgumentError, match=r"^frame: got"):
                dyn.jacobian(q, 1, frame=frame)
        for flag in (1, 0, "True", None):
            with pytest.raises(rd.ArgumentError, match=r"^classical: got"):
                dyn.link_acceleration(q, q, q, 1, classical=flag)
        assert same(dyn.jacobian(q, 1, frame=Word("world")), dyn.jacobian(q, 1, frame="world"))
        name = "".join(list(dyn.model.link_names[1]))  # an equal word that is another object
        assert same(dyn.jacobian(q, name), dyn.jacobian(q, 1))
        with pytest.raises(TypeError):
            dyn.jacobian(q, 1, frames="world")
        with pytest.raises(TypeError):
            dyn.jacobian(q, 1, "world")
        with pytest.raises(TypeError):
            dyn.jacobian(q, 1, link=1)


def test_all_links_of_a_large_robot(passed_on):
    """The table of answers grows; every link has its own."""
    model = rd.auto_tree(150)
    dyn = rd.Dynamics(model, engine="cpu", code="rolled")
    q = model.random_configuration(0)
    wanted = rd.Dynamics(model, engine="reference").forward_kinematics(q)
    for _ in range(2):
        for number, name in enumerate(model.link_names):
            for link in (number, name):
                np.testing.assert_allclose(dyn.link_pose(q, link), wanted[number], atol=1e-12)
    passed_on.clear()
    for number, name in enumerate(model.link_names):
        for link in (number, name):
            np.testing.assert_allclose(dyn.link_pose(q, link), wanted[number], atol=1e-12)
    assert passed_on == []


@pytest.mark.parametrize("check", [None, False])
def test_inertias_are_judged_before_they_are_trusted(check, passed_on):
    """Also where the same array gets other numbers."""
    model = rd.load_urdf(own("arm6"))
    dyn = rd.Dynamics(model, engine="cpu", check=check)
    q, tau, inertia = np.zeros(6), np.ones(6), model.inertia.copy()
    wanted = dyn.forward_dynamics(q, q, tau, inertia=inertia)
    assert same(dyn.forward_dynamics(q, q, tau, inertia=inertia), wanted)
    passed_on.clear()
    assert same(dyn.forward_dynamics(q, q, tau, inertia=inertia.copy()), wanted) and passed_on == []
    inertia *= 2.0
    assert not same(dyn.forward_dynamics(q, q, tau, inertia=inertia), wanted)
    inertia[-1] = 0.0
    for _ in range(2):
        if check is None:
            with pytest.raises(rd.SingularError, match="inertia: "):
                dyn.forward_dynamics(q, q, tau, inertia=inertia)
        else:
            assert np.isnan(dyn.forward_dynamics(q, q, tau, inertia=inertia)).all()
    several = np.stack([model.inertia, inertia])
    if check is None:
        batch = dyn.forward_dynamics(q, q, tau, inertia=several)
        assert same(batch[0], wanted) and np.isnan(batch[1]).all()


def test_other_threads_learn_and_forget_at_once():
    """Answers are right whatever others look up, learn or change meanwhile."""
    interval = sys.getswitchinterval()
    model = ROBOTS["all kinds"]()
    dyn, problems = rd.Dynamics(model, engine="cpu", threads=2), []
    caller, cases = Caller(model, "float64", 3), []
    for question in (QUERIES[name] for name in ("inverse_dynamics", "link_velocity", "forward_dynamics")):
        for _ in range(12):
            args, options = caller.draw(question, "cpu")
            cases.append((question.name, args, options, getattr(rd.Dynamics, question.name)(dyn, *args, **options)))
    stop = threading.Event()

    def work(seed):
        rng = random.Random(seed)
        for _ in range(600):
            name, args, options, wanted = rng.choice(cases)
            try:
                if not same(getattr(dyn, name)(*args, **options), wanted):
                    problems.append(name)
            except Exception as error:
                problems.append(error)

    def change():
        while not stop.is_set():
            dyn.check = None

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    changing = [threading.Thread(target=change) for _ in range(2)]
    try:
        sys.setswitchinterval(1e-5)
        for thread in (*threads, *changing):
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    finally:
        stop.set()
        sys.setswitchinterval(interval)
    for thread in changing:
        thread.join(PATIENCE)
    assert problems == [] and not any(thread.is_alive() for thread in threads)
    for quick in dyn._quick_queries.values():
        for _ in range(3):  # those that were in use then are given back
            dyn.check = None
            assert quick.entry.forms.epoch == quick.entry.epoch.value
        assert len(quick.entry._every) <= 8


def test_functions_that_threads_looked_up_at_once_heed_changes():
    """Also those that lost the race for their place."""
    model = ROBOTS["all kinds"]()
    q, qd = model.random_configuration(0), np.ones(model.nv)
    interval = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-6)
        for _ in range(20):
            dyn, held, barrier = rd.Dynamics(model, engine="cpu", threads=1), [], threading.Barrier(4)

            def look(dyn=dyn, held=held, barrier=barrier):
                barrier.wait(PATIENCE)
                held.append(dyn.bias_force)
                held[-1](q, qd), held[-1](q, qd)

            threads = [threading.Thread(target=look) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
            dyn.joint_forces = ("damping", "friction")
            wanted = rd.Dynamics.bias_force(dyn, q, qd)
            assert all(np.array_equal(function(q, qd), wanted) for function in held)
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # where Python drops an exception
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_changes_that_signals_make_or_interrupt():
    """A handler that changes the object in the middle of a change, and one that raises there."""
    model = rd.load_urdf(own("arm6"))
    dyn, q = rd.Dynamics(model, engine="cpu"), np.ones(6)
    bad = np.full(6, np.nan)
    wanted = dyn.inverse_dynamics(q, q, q)

    class Interrupted(BaseException):  # np.array_equal answers False where comparing raises an Exception
        pass

    def change(*_):
        dyn.check = None

    armed = [False]

    def interrupt(*_):
        if armed[0]:
            armed[0] = False
            raise Interrupted

    old = signal.getsignal(signal.SIGALRM)
    try:
        for handler in (change, interrupt):
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, 1e-3, 3e-4)
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                with contextlib.suppress(Interrupted):
                    armed[0] = True
                    dyn.check = False
                    dyn.check = True
                    for _ in range(3):
                        assert same(dyn.inverse_dynamics(q, q, q), wanted)
                    if dyn.check:
                        with pytest.raises(rd.NumericalError):
                            dyn.inverse_dynamics(q, q, bad)
                    armed[0] = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, old)


def test_names_that_nobody_interned_and_integers_of_numpys(passed_on):
    dyn, q = rd.Dynamics(rd.load_urdf(own("arm6")), engine="cpu"), np.zeros(6)
    name = "".join(["l", "i", "n", "k"])

    class Name(str):
        __slots__ = ()

    wanted = dyn.jacobian(q, 2)
    for _ in range(2):
        assert same(dyn.jacobian(q, **{name: 2}), wanted) and same(dyn.jacobian(q, np.int32(2)), wanted)
        assert same(dyn.jacobian(q, np.int64(3)), rd.Dynamics.jacobian(dyn, q, 3))
        passed_on.clear()
    assert same(dyn.jacobian(q, **{name: 2}), wanted) and same(dyn.jacobian(q, np.int64(3)), dyn.jacobian(q, 3))
    assert passed_on == []
    assert same(dyn.jacobian(q, **{Name("link"): 2}), wanted) and passed_on == ["jacobian"]


# Forms themselves.


def test_forms_that_are_too_many_or_too_long_are_left():
    forms, argument = Forms(), Argument("array")
    fallback = Recorder()
    assert make_entry("f", "", np.dtype(float), (3,), ((3,),), fallback, None, None, False) is not None
    answers = Answers(np.dtype(float), [Input(0, (3,))], [(3,)], None, None, False)
    for k in range(entries._MAX_FORMS):
        assert forms.add(1, (f"n{k}",), [argument, argument], [0, 0], {}, answers)
    assert not forms.add(2, (), [argument, argument], [0, 0], {}, answers)
    assert forms.add(1, ("n3",), [argument, argument], [0, 0], {}, answers)
    names = tuple(f"n{k}" for k in range(entries.MAX_NAMED + 1))
    assert not Forms().add(0, names, [argument] * len(names), [0] * len(names), {}, answers)
    assert not Forms().add(17, (), [argument] * 17, [0] * 17, {}, answers)
    choices = [Argument("choice", types=(int,), bits=31)] * 3
    assert not Forms().add(3, (), choices, [0] * 3, {0: 0, 1: 0, 2: 0}, answers)


def test_what_a_signal_interrupts_is_left():
    """A handler that learns while its thread is learning changes nothing."""
    forms, argument = Forms(), Argument("array")
    answers, inner = Answers(np.dtype(float), [Input(0, (3,))], [(3,)], None, None, False), []

    class Values(list):
        def __iter__(self):  # asked for in the middle of `add`
            inner.append(forms.add(1, ("x",), [argument, argument], [0, 0], {}, answers))
            return super().__iter__()

    assert forms.add(1, (), [argument], Values([0]), {}, answers)
    assert inner == [False] and forms.add(1, ("x",), [argument, argument], [0, 0], {}, answers)


def at_the_edge(array, behind):
    """A copy that ends right before a page that nobody may touch, or begins right behind one; what keeps it alive is
    its base."""
    page = mmap.PAGESIZE
    pages = -(-array.nbytes // page)
    memory = mmap.mmap(-1, (pages + 2) * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for guard in (0, pages + 1):
        assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + guard * page), ctypes.c_size_t(page), 0)
    at = page + (pages * page - array.nbytes if behind else 0)
    found = np.frombuffer(memory, array.dtype, array.size, at).reshape(array.shape)
    found[...] = array
    return found


@pytest.mark.skipif(os.name != "posix", reason="guard pages are set with mprotect")
def test_arrays_of_two_axes_at_the_edge_of_memory():
    """Forces and inertias that end where nobody may read on."""
    model = ROBOTS["all kinds"]()
    dyn, caller = rd.Dynamics(model, engine="cpu"), Caller(model, "float64", 2)
    names = ("q", "qd", "tau", "f_ext", "inertia", "V0", "dV0")
    for rows in (None, 1, 5):
        arrays = {name: caller.array(name, rows) for name in names}
        q, qd, tau = (arrays[name] for name in names[:3])
        others = {name: arrays[name] for name in names[3:]}
        wanted = dyn.forward_dynamics(q, qd, tau, **others)
        for behind in (False, True):
            edged = {name: at_the_edge(array, behind) for name, array in arrays.items()}
            out = at_the_edge(np.full(wanted.shape, np.nan), behind)
            others = {name: edged[name] for name in names[3:]}
            assert same(dyn.forward_dynamics(edged["q"], edged["qd"], edged["tau"], **others, out=out), wanted)
            assert same(out, wanted)

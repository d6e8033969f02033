"""Arrays as users have them, given to machine code: layouts, types, results in place; the checked path and the other.

After a query's first answer a built-in function takes its calls; the method of the class is the checked path. Whatever
the arguments, both give the same bits or raise the same error.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from cpu_queries import states_of

import robodyn as rd

DTYPES = ["float64", "float32"]
CODES = ["unrolled", "rolled"]
ROWS = 5


@pytest.fixture(scope="module")
def model():
    return rd.random_tree(3, seed=3, joints=("spherical", "revolute", "prismatic"), base="fixed")


def unaligned(array):
    memory = bytearray(array.nbytes + 1)
    memory[1:] = array.tobytes()
    return np.frombuffer(memory, array.dtype, offset=1).reshape(array.shape)


def read_only(array):
    locked = array.copy()
    locked.flags.writeable = False
    return locked


def strided(array):
    wide = np.full((*array.shape[:-1], 2 * array.shape[-1] + 1), np.nan, array.dtype)
    wide[..., 1::2] = array
    return wide[..., 1::2]


def padded(array):
    wide = np.full((*array.shape[:-1], array.shape[-1] + 3), np.nan, array.dtype)
    wide[..., 1:-2] = array
    return wide[..., 1:-2]


class Subclass(np.ndarray):
    pass


LAYOUTS = {
    "contiguous": np.array,
    "fortran": np.asfortranarray,
    "rows backwards": lambda a: a[::-1].copy()[::-1],
    "columns backwards": lambda a: a[..., ::-1].copy()[..., ::-1],
    "every second column": strided,
    "padded rows": padded,
    "one row for all": lambda a: np.broadcast_to(a[:1], a.shape),
    "byte-swapped": lambda a: a.astype(a.dtype.newbyteorder()),
    "unaligned": unaligned,
    "read-only": read_only,
    "subclass": lambda a: a.view(Subclass),
    "transposed": lambda a: a.T.copy().T,
    "list": lambda a: a.tolist(),
    "double": lambda a: a.astype(np.float64),
    "single": lambda a: a.astype(np.float32),
    "half": lambda a: a.astype(np.float16),
    "long double": lambda a: a.astype(np.longdouble),
    "integers": lambda a: np.rint(3 * a).astype(np.int64),
    "small unsigned integers": lambda a: np.rint(np.abs(3 * a)).astype(np.uint8) + np.uint8(1),
}
WRITABLE = ("contiguous", "fortran", "rows backwards", "columns backwards", "every second column", "padded rows")
QUERIES = {
    "inverse_dynamics": ("q", "qd", "qdd"),
    "forward_dynamics": ("q", "qd", "tau"),
    "mass_matrix": ("q",),
    "kinetic_energy": ("q", "qd"),
}


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.some(of=12, rest="matrix")
def test_every_layout_and_type(layout, dtype, code, model):
    dyn = rd.Dynamics(model, engine="cpu", dtype=dtype, code=code)
    s = states_of(model, (ROWS,), seed=1, dtype=dtype)
    for query, names in QUERIES.items():
        for made in names:  # one argument at a time
            arguments = {name: getattr(s, name) for name in names}
            arguments[made] = LAYOUTS[layout](arguments[made])
            clean = [np.ascontiguousarray(np.asarray(arguments[name]), dtype) for name in names]
            before = [np.array(each) for each in arguments.values()]
            checked, call = getattr(rd.Dynamics, query), getattr(dyn, query)
            wanted = checked(dyn, *clean)
            assert (call(*arguments.values()) == wanted).all(), (query, made)
            assert (checked(dyn, *arguments.values()) == wanted).all(), (query, made)
            for each, was in zip(arguments.values(), before, strict=True):
                assert (np.array(each) == was).all(), "an input was written to"
            for row in range(ROWS):  # one state of it
                single = [np.asarray(each)[row] for each in arguments.values()]
                assert (call(*single) == wanted[row]).all(), (query, made)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_are_written_in_place(dtype, code, model):
    dyn = rd.Dynamics(model, engine="cpu", dtype=dtype, code=code)
    s = states_of(model, (ROWS,), seed=2, dtype=dtype)
    wanted = dyn.mass_matrix(s.q)
    for _ in range(2):
        for layout in (
            "contiguous",
            "fortran",
            "rows backwards",
            "columns backwards",
            "every second column",
            "padded rows",
        ):
            out = LAYOUTS[layout](np.full(wanted.shape, np.nan, dtype))
            address = out.ctypes.data
            assert dyn.mass_matrix(s.q, out=out) is out and out.ctypes.data == address, layout
            assert (out == wanted).all(), layout
        single = np.full(wanted.shape[1:], np.nan, dtype)
        assert dyn.mass_matrix(s.q[2], out=single) is single and (single == wanted[2]).all()
        memory = bytearray(wanted.nbytes + 1)
        odd = np.frombuffer(memory, dtype, offset=1).reshape(wanted.shape)
        assert dyn.mass_matrix(s.q, out=odd) is odd and (odd == wanted).all()
        assert memory[0] == 0


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_over_inputs(dtype, code, model):
    """`out` may be memory of an input, moved by any number of places: results are those of separate memory."""
    dyn = rd.Dynamics(model, engine="cpu", dtype=dtype, code=code)
    s = states_of(model, (ROWS,), seed=3, dtype=dtype)
    wanted = dyn.inverse_dynamics(s.q, s.qd, s.qdd)
    for call in (dyn.inverse_dynamics, lambda *a, **o: rd.Dynamics.inverse_dynamics(dyn, *a, **o)):
        for name in ("qd", "qdd"):
            given = {"qd": s.qd.copy(), "qdd": s.qdd.copy()}
            assert call(s.q, **given, out=given[name]) is given[name]
            assert (given[name] == wanted).all()
            given = [s.q, s.qd.copy(), s.qdd.copy()]
            out = given[1 if name == "qd" else 2]
            assert call(*given, out=out) is out and (out == wanted).all()
        for shift in (1, model.nv, 2 * model.nv + 1):
            memory = np.zeros(s.qdd.size + shift, dtype)
            qdd, out = memory[: s.qdd.size].reshape(s.qdd.shape), memory[shift:].reshape(s.qdd.shape)
            qdd[:] = s.qdd
            assert (call(s.q, s.qd, qdd, out=out) == wanted).all(), shift


def test_one_array_for_two_results_is_refused(model):
    dyn = rd.Dynamics(model, engine="cpu")
    s = states_of(model, (ROWS,), seed=4)
    out = np.empty((ROWS, model.nv, model.nv))
    with pytest.raises(rd.ArgumentError, match=r"^out: got arrays that share memory"):
        dyn.inverse_dynamics_gradient(s.q, s.qd, s.qdd, out=(out, out))


# The fast path against the checked one.


def argument(rng, clean, dtype):
    """What somebody might pass where `clean`, rows of states, would be right."""
    leading = [clean, clean[:1], clean[0], clean[:0], clean[:, None], clean[None]]
    array = leading[rng.choice(6, p=[0.4, 0.1, 0.35, 0.05, 0.05, 0.05])].copy()
    kind = rng.integers(0, 40)
    if kind < 8 and array.ndim == 2 and array.size:
        names = [name for name in LAYOUTS if name not in ("list",)]
        return LAYOUTS[names[int(rng.integers(len(names)))]](array)
    odd = {
        8: lambda: array[..., :-1],
        9: lambda: np.full_like(array, np.nan),
        10: lambda: np.where(np.arange(array.shape[-1]) == 1, np.inf, array),
        11: lambda: np.zeros_like(array),
        12: lambda: array * np.dtype(dtype).type(1e20),
        13: lambda: array * np.dtype(dtype).type(1e-20),
        14: lambda: None,
        15: lambda: "state",
        16: lambda: array.tolist(),
        17: lambda: array.astype(complex),
        18: lambda: array.astype(object),
        19: lambda: array > 0,
        20: lambda: array.view(Subclass),
        21: lambda: 0.5,
        22: lambda: unaligned(array),
    }
    return odd.get(int(kind), lambda: array)()


def result_array(rng, shape, dtype):
    """What somebody might pass as `out`."""
    kinds = (
        lambda: np.full(shape, np.nan, dtype),
        lambda: np.full(shape, np.nan, dtype),
        lambda: np.full(shape, np.nan, dtype, order="F"),
        lambda: np.full((*shape, 2), np.nan, dtype)[..., 0],
        lambda: np.full(shape, np.nan, "float32" if dtype == "float64" else "float64"),
        lambda: np.full(shape, np.nan, np.dtype(dtype).newbyteorder()),
        lambda: np.full((2, *shape), np.nan, dtype),
        lambda: read_only(np.full(shape, np.nan, dtype)),
        lambda: np.full(shape, np.nan, dtype).view(Subclass),
        lambda: (np.full(shape, np.nan, dtype),),
        lambda: [0.0],
        lambda: None,
        lambda: np.broadcast_to(np.zeros((), dtype), shape),
        lambda: unaligned(np.full(shape, np.nan, dtype)),
    )
    return kinds[int(rng.integers(len(kinds)))]()


def outcome(call, arguments, keywords):
    """The result, or the error and its words; and what `out` holds afterwards."""
    try:
        result = call(*arguments, **keywords)
        return np.asarray(result).tobytes(), np.shape(result), type(result), np.asarray(result).dtype
    except (rd.RobodynError, TypeError) as error:
        # Python words a wrong call by the function's qualified name.
        return type(error), str(error).removeprefix("Dynamics.")


def bytes_of(out):
    return out.tobytes() if isinstance(out, np.ndarray) else None


@pytest.mark.parametrize("check", [None, True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.some(of=6, rest="matrix")
def test_the_fast_path_does_what_the_checked_path_does(dtype, check, model):
    first = rd.Dynamics(model, engine="cpu", dtype=dtype, check=check, threads=2)
    s = states_of(model, (ROWS,), seed=5, dtype=dtype)
    shapes = {"inverse_dynamics": (model.nv,), "mass_matrix": (model.nv, model.nv), "kinetic_energy": ()}
    seed = 7
    print(f"arguments: seed {seed}")
    for dyn in (first, pickle.loads(pickle.dumps(first))):
        for query, shape in shapes.items():
            names = QUERIES[query]
            getattr(dyn, query)(*(getattr(s, name) for name in names))
            assert query in vars(dyn)
            fast, checked = getattr(dyn, query), getattr(rd.Dynamics, query).__get__(dyn)
            rng = np.random.default_rng(seed)
            for trial in range(400):
                arguments = [argument(rng, getattr(s, name), dtype) for name in names]
                keywords, outs = {}, [None, None]
                if rng.random() < 0.3:
                    leading = ((), (ROWS,), (1,), (0,))[int(rng.integers(4))]
                    state = rng.bit_generator.state
                    outs[0] = result_array(rng, (*leading, *shape), dtype)
                    rng.bit_generator.state = state
                    outs[1] = result_array(rng, (*leading, *shape), dtype)
                    keywords = {"out": None}
                if rng.random() < 0.1:
                    keywords = {**keywords, names[-1]: arguments.pop()}
                elif rng.random() < 0.05:
                    arguments.append(arguments[-1])
                told = []
                for call, out in zip((fast, checked), outs, strict=True):
                    if "out" in keywords:
                        keywords["out"] = out
                    told.append(
                        (outcome(call, arguments, keywords), bytes_of(out) if isinstance(out, np.ndarray) else 0)
                    )
                assert told[0] == told[1], (query, trial, arguments, keywords)

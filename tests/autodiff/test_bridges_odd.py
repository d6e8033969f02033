"""robodyn.jax and robodyn.torch in the hands of users who do what nobody should: odd arguments, results written to,
tracers, settings of the libraries, threads, processes, devices, robots that are gone.

What cannot be answered raises an error of robodyn, or of the library's own checks.
"""

from __future__ import annotations

import copy
import gc
import itertools
import os
import pickle
import subprocess
import sys
import threading
import warnings
import weakref

import numpy as np
import pytest
from bridges import ROADS, asked, close, jax, torch
from robots import ROOT, own

import robodyn as rd
import robodyn.jax
import robodyn.torch
from robodyn.engines.query_table import QUERIES

jnp = jax.numpy
# PyTorch's own, of its tracers.
pytestmark = [pytest.mark.extras, pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")]


# What a user may pass in.


@pytest.fixture(scope="module")
def arm():
    """A robot, whose functions in the two libraries are `rj` and `rt`."""
    return rd.Dynamics(rd.load_urdf(own("arm6")))


@pytest.fixture(scope="module")
def rj(arm):
    return robodyn.jax.wrap(arm)


@pytest.fixture(scope="module")
def rt(arm):
    return robodyn.torch.wrap(arm)


def numbers(*shape, seed=0):
    return torch.tensor(np.random.default_rng(seed).standard_normal((*shape, 6)))


def test_tensors_of_any_layout_in_memory(arm, rt):
    """Views, conjugates and negatives that PyTorch only remembers, zeros that it has no memory for, subclasses."""
    x = numbers(4)
    wide = torch.zeros(4, 6, 3, dtype=torch.float64)
    wide[..., 1] = x
    odd = {
        "strided": wide[..., 1],
        "transposed": x.T.contiguous().T,
        "backwards": x.flip(0).flip(0),
        "negative": torch._neg_view(-x),
        "imaginary": torch.complex(x, -x).conj().imag,
        "parameter": torch.nn.Parameter(x),
        "shared": x.clone().share_memory_(),
        "subclass": x.as_subclass(type("Mine", (torch.Tensor,), {})),
    }
    for name, each in odd.items():
        assert np.array_equal(rt.gravity_force(each).detach().numpy(), arm.gravity_force(x.numpy())), name
        assert np.array_equal(rt.jacobian(each, 2).detach().numpy(), arm.jacobian(x.numpy(), 2)), name
    row = x[:1].expand(4, 6)
    assert np.array_equal(rt.gravity_force(row).numpy(), arm.gravity_force(row.numpy()))
    none = torch._efficientzerotensor((6,), dtype=torch.float64)
    assert np.array_equal(rt.gravity_force(none).numpy(), arm.gravity_force(np.zeros(6)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int64", "uint8", "bool", "complex128"])
def test_other_dtypes(dtype, rj, rt):
    """PyTorch's are refused, JAX's are converted where they are real."""
    with pytest.raises(rd.ArgumentError, match=r"^q: got a tensor of dtype"):
        rt.gravity_force(torch.ones(6).to(getattr(torch, dtype)))
    given = jnp.ones(6).astype(dtype)
    if dtype in ("bool", "complex128"):
        with pytest.raises(rd.ArgumentError, match=r"^q: got an array of dtype"):
            rj.gravity_force(given)
    else:
        assert np.array_equal(rj.gravity_force(given), rj.gravity_force(jnp.ones(6)))


@pytest.mark.parametrize("shape", [(), (5,), (7,), (6, 1), (2, 5), (6, 2), (0,), (1, 1, 1, 1, 1, 5)])
def test_other_shapes(shape, rj, rt):
    for functions, array in ((rj, jnp.ones(shape)), (rt, torch.ones(shape, dtype=torch.float64))):
        for query in (functions.gravity_force, functions.gravity_force_gradient, functions.center_of_mass_jacobian):
            with pytest.raises(rd.ArgumentError, match=r"^q: got shape"):
                query(array)


def require_refused_without_numbers(rt, bad):
    for query in (rt.gravity_force, rt.gravity_force_gradient):
        with pytest.raises(rd.ArgumentError, match=r"^q: got a .*Tensor without numbers"):
            query(bad)


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors:UserWarning")
def test_masked_tensors_are_refused(rt):
    from torch.masked import masked_tensor

    require_refused_without_numbers(rt, masked_tensor(torch.ones(6, dtype=torch.float64), torch.arange(6) > 2))


@pytest.mark.nightly  # PyTorch takes seconds to import what it needs for them
def test_fake_tensors_are_refused(rt):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(6, dtype=torch.float64)
    require_refused_without_numbers(rt, fake)
    require_refused_without_numbers(rt, fake.requires_grad_())


def require_refused_by_recorder(record, *queries):
    """A recorder would take results for constants, without a word."""
    for query in queries:
        with pytest.raises(rd.UnavailableError, match=r"cannot be recorded by torch\.jit\.trace, torch\.fx"):
            record(lambda *q: query(*q), numbers())  # noqa: B023  # called at once; make_fx counts arguments


def test_the_tracer_of_pytorch_is_refused(rt):
    require_refused_by_recorder(torch.jit.trace, rt.gravity_force, rt.gravity_force_gradient)


@pytest.mark.nightly  # as above
def test_newer_recorders_of_pytorch_are_refused_and_its_compiler_works(rt):
    from torch.fx.experimental.proxy_tensor import make_fx

    queries = (rt.gravity_force, rt.gravity_force_gradient, torch.func.grad(lambda q: rt.gravity_force(q).sum()))
    require_refused_by_recorder(lambda f, q: make_fx(f)(q), *queries)
    require_refused_by_recorder(torch.func.linearize, *queries)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its compiler, about what it leaves out of its graphs
        for query in (rt.gravity_force, rt.gravity_force_gradient):

            def loss(q, query=query):
                return (query(2.0 * q) ** 2).sum()

            q, other = numbers().requires_grad_(), numbers().requires_grad_()
            loss(q).backward()
            torch.compile(loss, backend="eager")(other).backward()
            assert torch.equal(q.grad, other.grad)


def test_what_jax_reads_as_an_array_is_one(rj):
    class Foreign:
        def __array__(self, dtype=None, copy=None):
            return np.ones(6)

    wanted = rj.gravity_force(np.ones(6))
    for given in (Foreign(), torch.ones(6, dtype=torch.float64), memoryview(np.ones(6)), (1, 1, 1, 1, 1, 1)):
        assert np.array_equal(rj.gravity_force(given), wanted)
        assert np.array_equal(rj.jacobian(given, 2), rj.jacobian(np.ones(6), 2))
    with pytest.raises(rd.ArgumentError, match=r"^q: got shape \(6,\)"):
        robodyn.jax.wrap(rd.random_tree(3, seed=0)).gravity_force(Foreign())


def test_links_frames_and_flags_that_are_none(rj, rt):
    one = np.ones(6)
    for functions, q in ((rj, one), (rt, torch.tensor(one))):
        for link in ("nope", ["a"], None, True, 1.0, -1, 99, np.arange(2), {}, jnp.int64(1), torch.tensor(1)):
            with pytest.raises(rd.ArgumentError, match=r"^link(, links)?: got"):
                functions.jacobian(q, link)
        for frame in ("nope", [], np.arange(2), None, 1):
            with pytest.raises(rd.ArgumentError, match=r"^frame: got"):
                functions.jacobian(q, 1, frame=frame)
        for flag in (1, [], None, "yes", np.arange(2)):
            with pytest.raises(rd.ArgumentError, match=r"^classical: got"):
                functions.link_acceleration(q, q, q, 1, classical=flag)


def test_axes_of_unknown_length_are_refused(rj):
    from jax import export

    (rows,) = export.symbolic_shape("rows")
    for query in (rj.gravity_force, rj.gravity_force_gradient):
        with pytest.raises(rd.ArgumentError, match=r"^q: got shape \(rows, 6\) with axes of unknown length"):
            jax.eval_shape(query, jax.ShapeDtypeStruct((rows, 6), np.float64))


# What a user may do with results.


def test_results_have_the_leading_axes_of_all_arguments(rj, rt):
    """Also dq/dt of a robot without quaternions, which is its velocity."""
    q, qd = np.ones((2, 1, 6)), np.ones((3, 6))
    assert rj.coordinate_rate(q, qd).shape == (2, 3, 6)
    assert rt.coordinate_rate(torch.tensor(q), torch.tensor(qd)).shape == (2, 3, 6)
    assert rt.coordinate_rate(torch.tensor(q), torch.tensor(qd[0])).shape == (2, 1, 6)


@pytest.mark.parametrize("engine", [pytest.param("cpu", marks=pytest.mark.nightly), "reference"])
def test_results_may_be_written_to(engine):
    """No result shares memory with an argument, with another result, or with that of a later call."""
    for model in (rd.random_tree(2, seed=3), rd.random_tree(1, seed=1, joints=("spherical",))):
        rt = robodyn.torch.wrap(rd.Dynamics(model, engine=engine))
        for shape in ((), (2,)):
            arrays = {
                name: torch.ones((*shape, *own), dtype=torch.float64) for name, own in rt.dyn.argument_shapes.items()
            }
            for question in QUERIES.values():
                given = {name: arrays[name] for name in question.inputs}
                found, again = (asked(rt, question, given, 0 if question.of_link else None) for _ in range(2))
                for each, other in itertools.product(found, (*given.values(), *again)):
                    assert each is not other and not np.shares_memory(each.numpy(), other.numpy()), question.name
                for one, other in itertools.combinations(found, 2):
                    assert not np.shares_memory(one.numpy(), other.numpy()), question.name
                for each, kept in zip(found, again, strict=True):
                    assert torch.equal(each.add_(1.0), kept + 1.0)
            q, qd = arrays["q"], arrays["qd"]
            rt.unit_coordinates(q).add_(1.0)
            rt.coordinate_rate(q, qd).add_(1.0)
            assert (q == 1.0).all() and (qd == 1.0).all()


def test_what_was_overwritten_is_not_differentiated(rt):
    queries = ((rt.gravity_force, 1), (rt.forward_dynamics, 3), (rt.gravity_force_gradient, 1), (rt.coriolis_matrix, 2))
    for query, arguments in queries:
        given = 1.0 * numbers().requires_grad_()
        loss = query(*(given,) * arguments).sum()
        given.mul_(2.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_copies_and_pickles(arm, rj, rt):
    q, qd = numbers(), numbers(seed=1)
    wanted = arm.coriolis_matrix(q.numpy(), qd.numpy())
    for again in (pickle.loads(pickle.dumps(rt)), copy.deepcopy(rt), copy.copy(rt)):
        assert np.array_equal(again.coriolis_matrix(q, qd).numpy(), wanted)
    for query, given in ((rt.coriolis_matrix, (q, qd)), (rj.coriolis_matrix, (q.numpy(), qd.numpy()))):
        assert np.array_equal(np.asarray(pickle.loads(pickle.dumps(query))(*given)), wanted)


# Transformations and settings.


def test_jax_without_jit(arm, rj):
    q = np.ones((2, 6))
    with jax.disable_jit():
        assert np.array_equal(rj.gravity_force(q), arm.gravity_force(q))
        slope = jax.grad(lambda q: rj.inverse_dynamics(q, q, q).sum())(q)
        found = rj.gravity_force_gradient(q)
    assert np.array_equal(found, arm.gravity_force_gradient(q))
    np.testing.assert_allclose(slope, jax.grad(lambda q: rj.inverse_dynamics(q, q, q).sum())(q), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_jax_stops_at_nan_where_it_is_told_to(rj):
    q, huge = np.ones(6), np.full(6, 1e300)
    with jax.debug_nans(True):
        assert np.isfinite(rj.inverse_dynamics(q, q, q)).all()
        assert np.isfinite(jax.grad(lambda q: rj.inverse_dynamics(q, q, q).sum())(q)).all()
        for call in (
            lambda: rj.inverse_dynamics(q, huge, q),
            lambda: jax.jit(rj.inverse_dynamics)(q, huge, q),
            lambda: jax.grad(lambda q: rj.inverse_dynamics(q, huge, q).sum())(q),
            lambda: rj.inverse_dynamics(np.nan * q, q, q),
            lambda: rj.coriolis_matrix(np.nan * q, q),
        ):
            with pytest.raises(FloatingPointError):
                call()


SPLIT = """
import sys, warnings
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
from jax.sharding import Mesh, PartitionSpec as P
import robodyn as rd, robodyn.jax
dyn = rd.Dynamics(rd.load_urdf("models/arm6.urdf"))
rj = robodyn.jax.wrap(dyn)
rng = np.random.default_rng(0)
q, v = rng.standard_normal((8, 6)), rng.standard_normal(6)
mesh = Mesh(np.array(jax.devices()), ("i",))
assert len(jax.devices()) == 4

def close(got, wanted):
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-9, atol=1e-9 * np.abs(wanted).max())

def split(f, checked):
    specs = dict(in_specs=(P("i"), P()), out_specs=P("i"))
    if hasattr(jax, "shard_map"):
        return jax.shard_map(f, mesh=mesh, check_vma=checked, **specs)
    from jax.experimental.shard_map import shard_map
    return shard_map(f, mesh=mesh, check_rep=False, **specs)

for checked in (True, False):
    for f in (lambda a, b: rj.forward_dynamics(a, b, b), lambda a, b: rj.coriolis_matrix(a, b)):
        g, h = split(f, checked), jax.vmap(lambda b, f=f: f(q, b))
        close(jax.jit(g)(q, v), f(q, v))
        for wrt in (0, 1):
            loss = lambda f: (lambda a, b: (f(a, b) ** 2).sum())
            close(jax.jit(jax.grad(loss(g), wrt))(q, v), jax.jit(jax.grad(loss(f), wrt))(q, v))
            inside = split(jax.grad(loss(f), 0), checked)
            close(jax.jit(inside)(q, v), jax.jit(jax.grad(loss(f), 0))(q, v))
    loss = lambda f: (lambda b: f(q, b).sum())
    close(jax.jit(jax.hessian(loss(split(lambda a, b: rj.forward_dynamics(a, b, b), checked))))(v),
          jax.jit(jax.hessian(loss(lambda a, b: rj.forward_dynamics(a, b, b))))(v))
if hasattr(jax, "shard_map"):
    try:
        jax.jit(jax.shard_map(rj.gravity_force, mesh=mesh, in_specs=P("i"), out_specs=P()))(q)
    except ValueError as error:
        assert "out_specs" in str(error)
    else:
        raise AssertionError("rows of one device were taken for those of all")
placed = jax.device_put(q, jax.sharding.NamedSharding(mesh, P("i")))
close(rj.gravity_force(placed), dyn.gravity_force(q))
print("held")
"""


def run_alone(*command, **environment):
    """Python in a process of its own; what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.nightly
def test_states_split_among_devices():
    found = run_alone("-c", SPLIT, XLA_FLAGS="--xla_force_host_platform_device_count=4", JAX_PLATFORMS="cpu")
    assert "held" in found


def test_many_threads_at_once():
    """The first calls of a robot, which compile and fill what is kept."""
    model = rd.random_tree(2, seed=9, joints=("revolute", "spherical"))
    dyn, rng = rd.Dynamics(model), np.random.default_rng(0)
    rt, rj = robodyn.torch.wrap(dyn), robodyn.jax.wrap(dyn)
    q, qd = model.random_configuration(rng, (3,)), rng.standard_normal((3, model.nv))
    found, failed, start = [], [], threading.Barrier(6)

    def work():
        try:
            start.wait()
            leaf = torch.tensor(q, requires_grad=True)
            (rt.bias_force(leaf, torch.tensor(qd)) ** 2).sum().backward()
            slope = jax.grad(lambda q: (rj.bias_force(q, qd) ** 2).sum())(q)
            found.append(
                (leaf.grad.numpy(), np.asarray(slope), rt.coriolis_matrix(torch.tensor(q), torch.tensor(qd)).numpy())
            )
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed and len(found) == 6
    for slopes in found:
        close(slopes[0], slopes[1], ROADS)
        assert all(np.array_equal(one, other) for one, other in zip(slopes, found[0], strict=True))


def test_what_is_compiled_outlives_its_robot():
    """And robots do not outlive their last use: what stays is machine code that XLA may call."""
    dyn, q = rd.Dynamics(rd.random_tree(2, seed=77)), np.ones((3, 2))
    rj, wanted = robodyn.jax.wrap(dyn), dyn.inverse_dynamics(q, q, q)
    compiled = jax.jit(lambda q: rj.inverse_dynamics(q, q, q)).lower(q).compile()
    jax.grad(lambda q: rj.inverse_dynamics(q, q, q).sum())(q)
    rj.gravity_force_gradient(q)
    gone = [weakref.ref(dyn), weakref.ref(rj), weakref.ref(dyn.engine)]
    dyn = rj = None
    gc.collect()
    assert np.array_equal(compiled(q), wanted)
    assert [each() for each in gone] == [None] * 3


PROCESSES = """
import multiprocessing, sys, warnings
import numpy as np, torch
import robodyn as rd, robodyn.torch

class Rows(torch.utils.data.Dataset):
    def __init__(self, rt):
        self.rt = rt
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return self.rt.gravity_force(torch.full((6,), float(i), dtype=torch.float64))

def large(rt):
    q = torch.from_numpy(np.ones((20_000, 6)))  # large batches of PyTorch itself hang in a forked process
    return float(rt.gravity_force(q)[-1, 1])

if __name__ == "__main__":
    rt = robodyn.torch.wrap(rd.Dynamics(rd.load_urdf("models/arm6.urdf"), threads=2))
    wanted = torch.stack([Rows(rt)[i] for i in range(4)])
    value = large(rt)
    for how in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(
            Rows(rt), batch_size=4, num_workers=1, multiprocessing_context=how, timeout=100
        )
        assert torch.equal(next(iter(loader)), wanted), how
        with multiprocessing.get_context(how).Pool(1) as pool:
            assert pool.map_async(large, [rt]).get(100) == [value], how
            (found,) = pool.map_async(rt.gravity_force_gradient, [wanted]).get(100)
            assert torch.equal(found, rt.gravity_force_gradient(wanted)), how
    print("held")
"""


@pytest.mark.nightly
def test_other_processes(tmp_path):
    script = tmp_path / "processes.py"  # spawned processes import it
    script.write_text(PROCESSES)
    assert "held" in run_alone(str(script))

"""robodyn.jax on a GPU: kernels that XLA launches. Without a GPU its place is taken by a fake device, to which
XLA's processor comes through the very handlers, and handlers are called by hand."""

from __future__ import annotations

import ctypes
import os
import subprocess
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from conftest import relative
from ffi_frames import STRUCTS, Caller
from gpu_host import missing
from gpu_host.cases import touching
from gpu_host.device import HostDevice
from robots import own

import robodyn as rd
from robodyn.engines.gpu import GpuOptions, engine

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # tests are not alone on a GPU
jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)  # half the time to compile, which is most of the time here
jax.config.update("jax_default_device", jax.devices("cpu")[0])  # what runs on a GPU says so

import jax.numpy as jnp  # noqa: E402

from robodyn.api.autodiff.calls import QueryCall  # noqa: E402
from robodyn.compile.loops.language import NULL, Address, Array, array, variable  # noqa: E402
from robodyn.engines.query_table import QUERIES  # noqa: E402
from robodyn.jax import cuda_handler, primitives, wrap  # noqa: E402
from robodyn.jax.interface import Frame, Handlers, interface_minor  # noqa: E402

pytestmark = pytest.mark.extras
on_host = pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
STREAM = 0x5EED


def states(model, shape=(), seed=0):
    rng = np.random.default_rng(seed)
    return model.random_configuration(rng, shape), *rng.standard_normal((2, *shape, model.nv))


@pytest.fixture(scope="module")
def arm():
    return rd.random_tree(3, seed=5, joints=("revolute", "prismatic"), armature=True)


@pytest.fixture(scope="module")
def ball():
    """A ball joint under a floating base: quaternions."""
    return rd.random_tree(1, seed=1, joints=("spherical",), base="floating")


@pytest.fixture(scope="module")
def hand():
    """Joints that follow others: forward dynamics is several kernels if it is split."""
    return rd.load_urdf(own("gripper"))


@pytest.fixture
def device(monkeypatch):
    """The device of every engine made in a test; what is registered for it, XLA does not find."""
    found = HostDevice()
    monkeypatch.setattr(engine, "default_device", lambda: found)
    monkeypatch.setattr(cuda_handler, "HANDLERS", Handlers("nowhere"))
    return found


# The handler by itself.


@on_host
def test_structs_are_those_of_the_header(tmp_path):
    facts = []
    for each in STRUCTS:
        name = each.__name__
        for field, *_ in each._fields_:
            facts.append(f"static_assert(offsetof({name}, {field}) == {getattr(each, field).offset});")
            facts.append(f"static_assert(sizeof((({name}*)0)->{field}) == {getattr(each, field).size});")
    facts.append("static_assert(XLA_FFI_ExecutionStage_EXECUTE == 3 && XLA_FFI_Extension_Metadata == 1);")
    facts.append("static_assert(XLA_FFI_DataType_F32 == 11 && XLA_FFI_DataType_F64 == 12);")
    facts.append("static_assert(XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE == 1);")
    facts.append("static_assert(XLA_FFI_Error_Code_INVALID_ARGUMENT == 3 && XLA_FFI_Error_Code_INTERNAL == 13);")
    header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h")
    if "XLA_FFI_InternalExtension" in header.read_text():  # names since JAX 0.12
        facts.insert(0, "#define XLA_FFI_Extension_Base XLA_FFI_InternalExtension")
        facts.insert(1, "#define XLA_FFI_Error_GetMessage XLA_FFI_Error_GetDetails")
    text = tmp_path / "facts.cpp"
    text.write_text('#include "xla/ffi/api/c_api.h"\n' + "\n".join(facts))
    command = ["g++", "-std=c++17", "-fsyntax-only", f"-I{jax.ffi.include_dir()}", str(text)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def a_launch(model, query, rows, options):
    """The one kernel of a query, and its columns."""
    dyn = rd.Dynamics(model, engine="gpu", gpu=options)
    gpu = dyn.engine
    call = primitives.Operation(QueryCall(dyn, QUERIES[query], QUERIES[query].plain))
    (launch,) = gpu.plan(call.call.task, gpu.variant(call.call.task, rows)).launches
    shapes = {**call.inputs, **call.outputs}
    source = launch.kernel.source
    columns = [int(np.prod(shapes[name])) for name in (*source.inputs, *source.outputs)]
    return launch, tuple(columns), source.inputs


def address_of(handler, way):
    """A function that does what the handler does, as machine code or as Python."""
    if way == "machine code":
        return handler.address
    variable(Array[cuda_handler.Context], "context")[0] = ctypes.addressof(handler._context)
    handler.python = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(
        lambda frame: int(cuda_handler.handler(array(Frame, frame)))
    )
    return ctypes.cast(handler.python, ctypes.c_void_p).value


ways = pytest.mark.parametrize("way", ["machine code", "Python"])


@on_host
@ways
@pytest.mark.parametrize("kernel", ["unrolled", "thread", "warp"])
def test_a_handler_launches_the_kernel(kernel, way, arm, device):
    launch, columns, names = a_launch(arm, "inverse_dynamics", 70, GpuOptions(kernel))
    handler, caller = cuda_handler.CudaHandler([(device, launch)], columns), Caller(STREAM)
    address = address_of(handler, way)
    x = dict(zip(("q", "qd", "qdd"), states(arm, (70,)), strict=True))
    tau, shape = np.full((70, 3), np.nan), cuda_handler.scratch_shape(launch, 70)
    assert (shape is None) == (kernel != "thread")
    room = [] if shape is None else [np.full(shape, np.nan)]
    given = [x[name] for name in names]
    assert caller.call(address, given, [tau, *room]) is None
    assert relative(tau, rd.Dynamics(arm).inverse_dynamics(*x.values())) < 1e-11
    assert device.launches == [(launch.kernel.source.name, 70)] and device.streams == [STREAM]
    if room:  # fewer blocks than the kernel would like will do
        tau[...] = np.nan
        assert caller.call(address, given, [tau, room[0][:1]]) is None
        assert relative(tau, rd.Dynamics(arm).inverse_dynamics(*x.values())) < 1e-11
    none = [np.empty((0, 3))] * 3
    assert caller.call(address, none, [np.empty((0, 3)), *room]) is None
    assert len(device.launches) == 1 + len(room) and not caller.errors
    assert caller.described(address) == (0, interface_minor(), 1)


@on_host
@ways
def test_a_handler_refuses_what_is_not_its_kernels(way, arm, device):
    launch, columns, _ = a_launch(arm, "inverse_dynamics", 5, GpuOptions("thread"))
    handler, caller = cuda_handler.CudaHandler([(device, launch)], columns), Caller(STREAM)
    address = address_of(handler, way)
    good, room = np.zeros((5, 3)), np.zeros(cuda_handler.scratch_shape(launch, 5))
    wrong = {
        "too few arguments": ([good] * 2, [good, room]),
        "too few results": ([good] * 3, [good]),
        "too many results": ([good] * 3, [good, room, room]),
        "rows": ([good, good[:4], good], [good, room]),
        "one row": ([good, good[:1], good], [good, room]),
        "columns": ([good, np.zeros((5, 4)), good], [good, room]),
        "rank": ([good, np.zeros(5), good], [good, room]),
        "dtype": ([good, np.zeros((5, 3), np.float32), good], [good, room]),
        "result": ([good] * 3, [good[0], room]),
        "room": ([good] * 3, [good, room[:0]]),
        "width of room": ([good] * 3, [good, room[:, 1:].copy()]),
    }
    for name, (given, left) in wrong.items():
        assert caller.call(address, given, left) == 0xBAD, name
        assert caller.errors.pop() == ("robodyn: the buffers are not those of the query", 3), name
    assert not device.launches


@on_host
@ways
def test_a_handler_passes_errors_on(way, arm, device):
    launch, columns, _ = a_launch(arm, "gravity_force", 2, GpuOptions("unrolled"))
    handler = cuda_handler.CudaHandler([(device, launch)], columns)
    address, q = address_of(handler, way), np.zeros((2, 3))
    caller = Caller(STREAM, error=0xE)
    assert caller.call(address, [q], [q.copy()]) == 0xE
    caller, device.result = Caller(STREAM), 400
    assert caller.call(address, [q], [q.copy()]) == 0xBAD
    ((message, code),) = caller.errors
    assert code == 13 and "does not launch kernel, a kernel loaded on GPU 0 (host)" in message


@on_host
def test_names_of_kernels_are_the_same_for_the_same_kernel(arm, device):
    names = {}
    for query in ("gravity_force", "bias_force"):
        for options in (GpuOptions("unrolled"), GpuOptions("thread"), GpuOptions("unrolled")):
            launch, columns, _ = a_launch(arm, query, 2, options)
            names.setdefault((query, options.kernel), set()).add(
                cuda_handler.target_name("t", launch.kernel.source, columns)
            )
    assert all(len(each) == 1 for each in names.values()) and len(set.union(*names.values())) == 4


# Through XLA.


_HOST, _HANDLERS = HostDevice(), Handlers("cpu")  # XLA keeps the addresses of handlers


def no_stream(frame: Array[Frame], found: Array[Address]) -> Address:
    """In the place of `find_stream`."""
    found[0] = NULL
    return NULL


@pytest.fixture
def host(monkeypatch):
    """XLA's processor takes queries for kernels of a fake device; it has no stream."""
    monkeypatch.setattr(cuda_handler, "find_stream", no_stream)
    text = cuda_handler.handler_text.__wrapped__()
    monkeypatch.setattr(engine, "default_device", lambda: _HOST)
    monkeypatch.setattr(primitives.Operation, "run_native", primitives.Operation.run_cuda)
    monkeypatch.setattr(cuda_handler, "HANDLERS", _HANDLERS)
    monkeypatch.setattr(cuda_handler, "handler_text", lambda: text)
    return _HOST


@on_host
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_kernels_answer_inside_of_what_jax_compiles(dtype, arm, host):
    rj, dyn = wrap(rd.Dynamics(arm, dtype=dtype)), rd.Dynamics(arm)
    for shape in ((), (5,), (0,), (2, 3)):
        q, qd, qdd = states(arm, shape)
        launches = len(host.launches)
        for query, x in {
            "inverse_dynamics": (q, qd, qdd),
            "forward_dynamics": (q, qd, qdd),
            "mass_matrix": (q,),
        }.items():
            got, wanted = getattr(rj, query)(*x), getattr(dyn, query)(*x)
            assert got.shape == wanted.shape and got.dtype == dtype
            assert relative(np.asarray(got), wanted) < (1e-9 if dtype == "float64" else 1e-3)
        assert len(host.launches) == launches + (3 if 0 not in shape else 0)
    text = rj.inverse_dynamics.lower(q, qd, qdd).as_text()
    assert "custom_call @robodyn_rnea_" in text and "callback" not in text
    assert not host.uploads and not host.downloads and set(host.streams) == {0}


@on_host
def test_kernels_under_every_transformation(ball, host):
    dyn, x = rd.Dynamics(ball), states(ball, (3,))
    rj, rc = wrap(rd.Dynamics(ball, engine="gpu")), _beside(ball)

    def cost(f, *x):
        return jnp.sin(f(*x)).sum()

    for query in ("inverse_dynamics", "forward_dynamics"):
        f, g = getattr(rj, query), getattr(rc, query)
        for change in (
            partial(jax.grad, argnums=(0, 1, 2)),
            lambda h: jax.vmap(jax.grad(h), (0, None, None)),
        ):
            given = x if change.__class__ is partial else (x[0], x[1][0], x[2][0])
            found, wanted = jax.jit(change(partial(cost, f)))(*given), change(partial(cost, g))(*given)
            for got, each in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
                assert relative(got, each) < 1e-9
    found = jax.jit(jax.vmap(jax.jacfwd(rj.inverse_dynamics, 1)))(*x)
    assert relative(found, dyn.inverse_dynamics_gradient(*x)[1]) < 1e-9
    curved = jax.jit(jax.hessian(partial(cost, rj.inverse_dynamics)))(*(each[0] for each in x))
    wanted = jax.hessian(partial(cost, rc.inverse_dynamics))(*(each[0] for each in x))
    assert relative(curved, wanted) < 1e-9


def _beside(model):
    """The same functions by calls of Python."""
    return wrap(rd.Dynamics(model, engine="reference"))


@on_host
def test_contacts_are_kernels_inside_of_what_jax_compiles(host):
    model, x = touching()
    rj, launches = wrap(model), len(host.launches)
    found = jax.jit(rj.contact_forward_dynamics)(*x)
    assert len(host.launches) == launches + 1
    for got, wanted in zip(found, rd.Dynamics(model).contact_forward_dynamics(*x), strict=True):
        assert relative(np.asarray(got), wanted) < 1e-9


@on_host
def test_kernels_in_a_loop(arm, host):
    q, qd, tau = states(arm)

    def end(rj, qd):
        def step(state, _):
            q, qd = state
            qd = qd + 1e-2 * rj.forward_dynamics(q, qd, tau)
            return (q + 1e-2 * qd, qd), None

        return jax.lax.scan(step, (jnp.asarray(q), qd), None, length=5)[0][0].sum()

    rj = wrap(arm)
    assert relative(jax.jit(jax.grad(partial(end, rj)))(qd), jax.grad(partial(end, _beside(arm)))(qd)) < 1e-9


@on_host
@pytest.mark.parametrize("fusion", ["complete", "fused", "split"])
def test_a_query_of_several_kernels(fusion, hand, host):
    """What one leaves to the next is an array of XLA's."""
    dyn = rd.Dynamics(hand, engine="gpu", gpu=GpuOptions("warp", fusion))
    q, qd, tau = states(hand, (4,))
    launches = len(host.launches)
    got = wrap(dyn).forward_dynamics(q, qd[:1], tau[0])
    assert relative(got, rd.Dynamics(hand).forward_dynamics(q, qd[:1], tau[0])) < 1e-9
    task = dyn.plain_task("forward_dynamics")
    count = len(dyn.engine.sources(task, dyn.engine.variant(task, 4)))
    assert len(host.launches) == launches + count and (count > 1) == (fusion == "split")
    written = [name for source in dyn.engine.sources(task, dyn.engine.variant(task, 4)) for name in source.outputs]
    assert len(written) == len(set(written))


@on_host
def test_kernels_are_on_every_gpu_of_jax(arm, host, monkeypatch):
    """XLA compiles once for all; which one a call is for says the context that is current."""
    second, other = HostDevice(), HostDevice()
    second.number, other.number, other.name = 2, 1, "another kind"
    found = {each.number: each for each in (second, other)}

    @contextmanager
    def selected(number):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "default_device", lambda: found[number])
            yield

    monkeypatch.setattr("robodyn.engines.gpu.device.selected", selected)
    monkeypatch.setattr(cuda_handler, "gpu_numbers", lambda: [0, 1, 2])
    rj, (q, qd, _) = wrap(rd.Dynamics(arm, gpu=GpuOptions("block"))), states(arm, (2,))
    wanted = rd.Dynamics(arm).bias_force(q, qd)
    for number, used in ((0, host), (2, second)):
        monkeypatch.setattr(HostDevice, "current", number)
        launches = len(used.launches)
        assert relative(rj.bias_force(q, qd), wanted) < 1e-11 and len(used.launches) == launches + 1
    for number in (1, 3, -1):
        monkeypatch.setattr(HostDevice, "current", number)
        with pytest.raises(
            Exception, match=r"does not launch .*, a kernel loaded on GPU 0, 2 \(host\); wanted arrays there"
        ):
            jax.block_until_ready(rj.bias_force(q, qd))
    assert not other.kernels


@on_host
def test_refused_launches_are_errors(arm, host):
    rj, q = wrap(arm), np.zeros(3)
    rj.gravity_force(q)
    host.result = 400
    try:
        with pytest.raises(Exception, match="robodyn: the driver does not launch kernel"):
            jax.block_until_ready(rj.gravity_force(q))
    finally:
        host.result = 0


# Lowered for a device that is not there.


def lowered(query, *x):
    return query.trace(*x).lower(lowering_platforms=("cuda",)).as_text()


@pytest.fixture
def python(monkeypatch):
    """What stands in the text where Python is called, which JAX does not lower for a device that is not there."""

    def called(query, *arrays):
        return [jnp.full((*query.leading(arrays), *own), 12.5) for own in query.outputs.values()]

    monkeypatch.setattr(primitives.Operation, "run_python", called)
    return "1.250000e+01"


def test_cuda_devices_without_a_gpu_engine_call_python(arm, python, monkeypatch):
    def absent():
        raise rd.UnavailableError("engine 'gpu': no CuPy")

    monkeypatch.setattr(engine, "default_device", absent)
    with pytest.warns(RuntimeWarning, match="no CuPy; Python is called instead, on the processor"):
        text = lowered(wrap(arm).inverse_dynamics, *states(arm, (3,)))
    assert python in text and "@robodyn" not in text


@on_host
def test_cuda_devices_whose_interface_is_not_known_call_python(arm, device, python, monkeypatch):
    def refused(*_, **__):
        raise ValueError("version 7.1")

    monkeypatch.setattr(jax.ffi, "register_ffi_target", refused)
    query = wrap(rd.Dynamics(arm, gpu=GpuOptions("thread"))).mass_matrix_inverse
    with pytest.warns(RuntimeWarning, match=r"XLA refuses kernels, Python is called instead: version 7\.1"):
        assert python in lowered(query, np.zeros((7, 3)))


@on_host
def test_cuda_devices_launch_kernels(arm, device, python):
    text = lowered(wrap(arm).inverse_dynamics, *states(arm, (3,)))
    assert "custom_call @robodyn_rnea_" in text and python not in text
    still = rd.build_model(rd.description.RobotDescription("still", (rd.description.Link("a"),), ()))
    assert python in lowered(wrap(still).potential_energy, np.empty((2, 0)))
    asked = rd.Dynamics(arm, engine="gpu", gpu=GpuOptions("warp"))
    device.refused = (32,)
    with pytest.raises(rd.UnavailableError, match="cannot compile"):
        lowered(wrap(asked).gravity_force, np.zeros(3))


# On a GPU.


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["arm7", "quadruped", "gripper"])
def test_gpu_answers_are_those_of_the_processor(name, dtype):
    options = {"base": "floating"} if name == "quadruped" else {}
    model = rd.load_urdf(own(name), **options)
    here, there = _devices()
    rj, tolerance = wrap(rd.Dynamics(model, dtype=dtype)), 1e-9 if dtype == "float64" else 1e-3
    for shape in ((), (5,), (1000,)):
        x = (*states(model, shape), np.random.default_rng(1).standard_normal((*shape, model.n_bodies, 6)))
        near, far = (jax.device_put([each.astype(dtype) for each in x], place) for place in (here, there))
        for query in ("inverse_dynamics", "forward_dynamics"):

            def function(q, qd, last, f_ext, query=query):
                return getattr(rj, query)(q, qd, last, f_ext=f_ext)

            slope = jax.jit(jax.grad(lambda *x, f=function: jnp.square(f(*x)).sum(), (0, 1, 2, 3)))
            got, wanted = (function(*far), *slope(*far)), (function(*near), *slope(*near))
            for one, other in zip(got, wanted, strict=True):
                assert one.devices() == {there} and relative(np.asarray(one), np.asarray(other)) < tolerance


@pytest.mark.gpu
def test_gpu_transformations_are_those_of_the_processor(ball):
    here, there = _devices()
    rj, x = wrap(ball), states(ball, (6,))
    near, far = jax.device_put(x, here), jax.device_put(x, there)
    for change in (
        jax.vmap(jax.jacfwd(rj.forward_dynamics, (0, 1, 2))),
        jax.vmap(jax.jacrev(rj.inverse_dynamics, (0, 1, 2))),
        jax.vmap(jax.hessian(lambda *x: jnp.sin(rj.forward_dynamics(*x)).sum())),
        lambda *x: jax.lax.scan(lambda qd, _: (qd + 1e-3 * rj.forward_dynamics(x[0], qd, x[2]), None), x[1], None, 50)[
            0
        ],
    ):
        for one, other in zip(jax.tree.leaves(jax.jit(change)(*far)), jax.tree.leaves(change(*near)), strict=True):
            assert one.devices() == {there} and relative(np.asarray(one), np.asarray(other)) < 1e-8


@pytest.mark.gpu
@pytest.mark.parametrize("fusion", ["complete", "split"])
@pytest.mark.parametrize("kernel", ["thread", "warp", "block"])
def test_gpu_kernels_with_scratch_memory(kernel, fusion, hand):
    _, there = _devices()
    dyn, x = rd.Dynamics(hand, engine="gpu", gpu=GpuOptions(kernel, fusion)), states(hand, (500,))
    got = wrap(dyn).forward_dynamics(*jax.device_put(x, there))
    assert relative(np.asarray(got), rd.Dynamics(hand).forward_dynamics(*x)) < 1e-9


def _devices():
    """One of the processor and one GPU."""
    try:
        return jax.devices("cpu")[0], jax.devices("cuda")[0]
    except RuntimeError:
        pytest.skip("this JAX has no CUDA")

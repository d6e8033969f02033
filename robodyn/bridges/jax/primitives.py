"""Primitives of JAX: a query of robodyn, a smooth function and a linear map with derivatives of their own.

They are primitives, where `jax.custom_jvp` could be thought of, because they keep their rules when JAX takes a loop
apart to differentiate it in reverse, and because the transpose of a linear map has a rule too.

All take and give arrays whose leading axes are equally many and broadcast. Under vmap they get one more in front.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import PartitionSpec

from robodyn.api.autodiff.calls import Call
from robodyn.api.autodiff.rules import Arrays, LinearMap, Smooth
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import UnavailableError

if TYPE_CHECKING:
    from robodyn.engines.cpu.engine import CpuEngine
    from robodyn.engines.gpu.engine import GpuEngine, Launch


class Operation:
    """A computation of robodyn as an operation on arrays of JAX; its arguments, all of them arrays, in order.

    On processors and on CUDA devices it runs inside of what JAX compiles, where an engine has machine code or kernels
    for it. Otherwise, and on other devices, JAX calls Python, which takes a tenth of a millisecond.

    Args:
        call: the computation.
    """

    def __init__(self, call: Call) -> None:
        self.call, self.dyn, self.inputs, self.outputs = call, call.dyn, call.inputs, call.outputs

    @cached_property
    def compiled(self) -> Any:
        """The operation as a function that is compiled for the shapes it meets."""
        return jax.jit(partial(bind, call_p, operation=self))

    def leading(self, arrays: Sequence[Any]) -> tuple[int, ...]:
        """The common leading axes of arguments."""
        return self.call.leading(arrays)

    def run_native(self, *arrays: Any) -> Any:
        """The query inside of what JAX compiles."""
        leading = self.leading(arrays)
        target = self._target(prod(leading) == 1)
        if target is None:
            return self.run_python(*arrays)
        owns = self.inputs.values()
        given = [_rows(array, len(own), leading) for array, own in zip(arrays, owns, strict=True)]
        wanted = [jax.ShapeDtypeStruct((prod(leading), prod(own)), self.dyn.dtype) for own in self.outputs.values()]
        found = jax.ffi.ffi_call(target, wanted)(*given)
        return [array.reshape((*leading, *own)) for array, own in zip(found, self.outputs.values(), strict=True)]

    def _target(self, single: bool) -> str | None:
        """The name that XLA knows the query's machine code by, or None where there is none."""
        if not self.dyn.engine.native or self.dyn.model.n_bodies == 0:
            return None
        from robodyn.bridges.jax.handler import register  # LLVM, which the reference engine does without

        engine = cast("CpuEngine", self.dyn.engine)
        try:
            kernel = engine.kernel(self.call.task, self.call.base, self.call.link, single=single)
        except UnavailableError as error:
            if self.call.does_without_program:
                return None
            if not engine.lenient:
                raise
            warnings.warn(f"{error}; the reference engine answers instead", RuntimeWarning, stacklevel=2)
            return None
        try:
            return register(engine, kernel, tuple(map(prod, (*self.inputs.values(), *self.outputs.values()))))
        except (RuntimeError, ValueError) as error:  # an interface of a version that is not known here
            warnings.warn(f"XLA refuses machine code, Python is called instead: {error}", RuntimeWarning, stacklevel=2)
            return None

    def run_cuda(self, *arrays: Any) -> Any:
        """The query inside of what JAX compiles for CUDA devices: kernels, one after another."""
        leading = self.leading(arrays)
        rows = prod(leading)
        kernels = self._kernels(rows)
        if kernels is None:
            return self.run_python(*arrays)
        from robodyn.bridges.jax.cuda_handler import scratch_shape

        launches, shapes = kernels
        found = {
            name: _rows(array, len(own), leading, every=True)
            for (name, own), array in zip(self.inputs.items(), arrays, strict=True)
        }
        for target, launch in launches:
            source = launch.kernel.source
            wanted = [(rows, prod(shapes[name])) for name in source.outputs]
            scratch = scratch_shape(launch, rows)
            results = [jax.ShapeDtypeStruct(shape, self.dyn.dtype) for shape in (*wanted, *filter(None, (scratch,)))]
            left = jax.ffi.ffi_call(target, results)(*(found[name] for name in source.inputs))
            found.update(zip(source.outputs, left, strict=False))
        return [found[name].reshape((*leading, *own)) for name, own in self.outputs.items()]

    @cached_property
    def _engines(self) -> list[GpuEngine]:
        """The GPU engine, and its like on other GPUs that JAX has: XLA compiles once for all of them."""
        from robodyn.bridges.jax.cuda_handler import gpu_numbers
        from robodyn.engines.gpu.device import selected

        found = [self.dyn._gpu]
        for number in gpu_numbers():
            if number != found[0].device.number:
                with selected(number):
                    found.append(self.dyn.variant(engine="gpu")._gpu)
        return [engine for engine in found if engine.device.name == found[0].device.name]

    def _kernels(self, rows: int) -> tuple[list[tuple[str, Launch]], dict[str, tuple[int, ...]]] | None:
        """What answers n rows on a CUDA device: kernels with the names that XLA knows them by, in order, and the
        shapes of all their arrays for one state; None where JAX has to call Python."""
        options = self.dyn._options
        if not options.takes_gpu or self.dyn.model.n_bodies == 0:
            return None
        from robodyn.bridges.jax.cuda_handler import register

        try:
            asked = self.call.task, self.call.base, self.call.link
            variant = self._engines[0].variant(asked[0], max(1, rows), *asked[1:])
            plans = [engine.plan(asked[0], variant, *asked[1:]) for engine in self._engines]
        except UnavailableError as error:
            if self.call.does_without_program:
                return None
            if not options.chooses:
                raise
            warnings.warn(f"{error}; Python is called instead, on the processor", RuntimeWarning, stacklevel=2)
            return None
        shapes = {**self.inputs, **self.outputs, **plans[0].between}
        devices, found = [engine.device for engine in self._engines], []
        try:
            for launches in zip(*(plan.launches for plan in plans), strict=True):
                source = launches[0].kernel.source
                columns = tuple(prod(shapes[name]) for name in (*source.inputs, *source.outputs))
                target = register(self.call.task.name, list(zip(devices, launches, strict=True)), columns)
                found.append((target, launches[0]))
        except (RuntimeError, ValueError, OSError) as error:
            warnings.warn(f"XLA refuses kernels, Python is called instead: {error}", RuntimeWarning, stacklevel=2)
            return None
        return found, shapes

    def run_python(self, *arrays: Any) -> Any:
        """The query as a call of Python from what JAX compiles."""
        leading = self.leading(arrays)
        wanted = [jax.ShapeDtypeStruct((*leading, *own), self.dyn.dtype) for own in self.outputs.values()]
        return jax.pure_callback(self._answer, wanted, *arrays)

    def _answer(self, *arrays: Any) -> list[Any]:
        return [np.asarray(array) for array in self.call.answers(*map(np.asarray, arrays))]


def _rows(array: Any, trailing: int, leading: tuple[int, ...], *, every: bool = False) -> Any:
    """The array as rows: one for each state, or only one where they are all the same and `every` row is not needed."""
    own, axes = array.shape[len(array.shape) - trailing :], array.shape[: len(array.shape) - trailing]
    if axes != leading and (every or prod(axes) != 1):
        array, axes = jnp.broadcast_to(array, (*leading, *own)), leading
    return array.reshape((prod(axes), prod(own)))


def _in_front(arrays: Sequence[Any], axes: Sequence[int | None]) -> list[Any]:
    """Arrays with their mapped axes in front; those that have none get one of length 1."""
    return [
        jnp.expand_dims(array, 0) if axis is None else jnp.moveaxis(array, axis, 0)
        for array, axis in zip(arrays, axes, strict=True)
    ]


def _varying(kind: Any) -> frozenset[Any]:
    """Axes of a mesh along which arrays of this kind differ between devices, inside of `jax.shard_map`.

    JAX has had several names for it.
    """
    found = getattr(kind, "vma", None)
    return getattr(getattr(kind, "mat", None), "varying", frozenset()) if found is None else found


def bind(primitive: Primitive, *arrays: Any, **parameters: Any) -> Any:
    """Apply one of the primitives below to arrays, all of which vary along the same axes of a mesh."""
    own = [_varying(jax.typeof(array)) for array in arrays]
    every = frozenset().union(*own)
    if any(each != every for each in own):
        cast_to = partial(jax.lax.pcast, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary
        arrays = tuple(cast_to(array, tuple(every - each)) for array, each in zip(arrays, own, strict=True))
    return primitive.bind(*arrays, **parameters)


def _result(like: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """The kind of a result that varies between devices as an argument does."""
    if not _varying(like):
        return jax.core.ShapedArray(shape, dtype)
    sharding = like.sharding.update(spec=PartitionSpec(*[None] * len(shape)))
    return like.update(shape=shape, dtype=dtype, weak_type=False, sharding=sharding)


call_p = Primitive("robodyn_call")
"""An `Operation`."""
call_p.multiple_results = True


def _run_call(*arrays: Any, operation: Operation) -> Any:
    """Compiled also where JAX runs all else operation by operation, to find NaN or because it is told to: what is
    compiled there is this very call."""
    with jax.disable_jit(False), jax.debug_nans(False), jax.debug_infs(False):
        found = operation.compiled(*arrays)
    for wanted, what, test in (
        (jax.config.jax_debug_nans, "NaN", jnp.isnan),
        (jax.config.jax_debug_infs, "inf", jnp.isinf),
    ):
        if wanted and any(bool(test(each).any()) for each in found):
            raise FloatingPointError(f"{what} in results of {operation.call.name} of {operation.dyn.model.name!r}")
    return found


def _call_shapes(*arrays: Any, operation: Operation) -> Any:
    leading = operation.leading(arrays)
    return [_result(arrays[0], (*leading, *own), operation.dyn.dtype) for own in operation.outputs.values()]


def _map_call(arrays: Sequence[Any], axes: Sequence[int | None], *, operation: Operation) -> Any:
    found = bind(call_p, *_in_front(arrays, axes), operation=operation)
    return found, [0] * len(found)


def _refuse(*_: Any, operation: Operation, **__: Any) -> Any:
    raise UnavailableError(
        f"derivatives of {operation.call.name} of {operation.dyn.model.name!r} of this order are not there: those of "
        "first and second order are"
    )


call_p.def_impl(_run_call)
call_p.def_abstract_eval(_call_shapes)
batching.primitive_batchers[call_p] = _map_call
ad.primitive_jvps[call_p] = _refuse
for _platform, _run in ((None, "run_python"), ("cpu", "run_native"), ("cuda", "run_cuda")):
    _lowered = mlir.lower_fun(lambda *arrays, operation, run=_run: getattr(operation, run)(*arrays), True)
    mlir.register_lowering(call_p, _lowered, platform=_platform)


smooth_p = Primitive("robodyn_smooth")
"""A `Smooth` function."""


def _run_smooth(*x: Any, function: Smooth) -> Any:
    return function.value(*x)


def _smooth_shape(*x: Any, function: Smooth) -> Any:
    found = jax.eval_shape(function.value, *x)
    return _result(x[0], found.shape, found.dtype)


def _map_smooth(x: Sequence[Any], axes: Sequence[int | None], *, function: Smooth) -> Any:
    return bind(smooth_p, *_in_front(x, axes), function=function), 0


def _smooth_rate(x: Arrays, tangents: Arrays, *, function: Smooth) -> Any:
    y = bind(smooth_p, *x, function=function)
    rates = [None if type(each) is ad.Zero else each for each in tangents]
    return y, jnp.broadcast_to(function.tangent(tuple(x), y, rates), y.shape)


smooth_p.def_impl(_run_smooth)
smooth_p.def_abstract_eval(_smooth_shape)
batching.primitive_batchers[smooth_p] = _map_smooth
ad.primitive_jvps[smooth_p] = _smooth_rate
mlir.register_lowering(smooth_p, mlir.lower_fun(_run_smooth, False))


linear_p = Primitive("robodyn_linear")
"""A `LinearMap`: arrays are its points, of which there are as many as `points` says, and its vectors."""
linear_p.multiple_results = True


def _run_linear(*arrays: Any, linear: LinearMap, points: int) -> Any:
    return list(linear.apply(arrays[:points], arrays[points:]))


def _linear_shapes(*arrays: Any, linear: LinearMap, points: int) -> Any:
    found = jax.eval_shape(linear.apply, arrays[:points], arrays[points:])
    return [_result(arrays[0], each.shape, each.dtype) for each in found]


def _map_linear(arrays: Sequence[Any], axes: Sequence[int | None], **parameters: Any) -> Any:
    found = bind(linear_p, *_in_front(arrays, axes), **parameters)
    return found, [0] * len(found)


def _linear_rates(primals: Arrays, tangents: Arrays, *, linear: LinearMap, points: int) -> Any:
    """Derivatives with respect to points and vectors."""
    at, vectors, moved, directions = primals[:points], primals[points:], tangents[:points], tangents[points:]
    found = bind(linear_p, *primals, linear=linear, points=points)
    rates = [jnp.zeros_like(each) for each in found]
    if any(type(each) is not ad.Zero for each in directions):
        full = [ad.instantiate_zeros(each) for each in directions]
        rates = bind(linear_p, *at, *full, linear=linear, points=points)
    if any(type(each) is not ad.Zero for each in moved):
        changes = [None if type(each) is ad.Zero else each for each in moved]
        rates = [one + other for one, other in zip(rates, linear.tangent(at, vectors, changes), strict=True)]
    return found, [jnp.broadcast_to(rate, each.shape) for rate, each in zip(rates, found, strict=True)]


def _transpose_linear(weights: Sequence[Any], *arrays: Any, linear: LinearMap, points: int) -> Sequence[Any]:
    if all(type(each) is ad.Zero for each in weights):
        return [None] * len(arrays)
    full = [ad.instantiate_zeros(each) for each in weights]
    found = bind(linear_p, *arrays[:points], *full, linear=linear.transposed, points=points)
    back = [
        _summed(each, vector.aval.shape) if ad.is_undefined_primal(vector) else None
        for each, vector in zip(found, arrays[points:], strict=True)
    ]
    return [None] * points + back


def _summed(array: Any, shape: tuple[int, ...]) -> Any:
    """The sum over axes along which an array of this shape was repeated."""
    axes = tuple(i for i, (long, short) in enumerate(zip(array.shape, shape, strict=True)) if long != short)
    return array.sum(axes, keepdims=True) if axes else array


linear_p.def_impl(_run_linear)
linear_p.def_abstract_eval(_linear_shapes)
batching.primitive_batchers[linear_p] = _map_linear
ad.primitive_jvps[linear_p] = _linear_rates
ad.primitive_transposes[linear_p] = _transpose_linear
mlir.register_lowering(linear_p, mlir.lower_fun(_run_linear, True))

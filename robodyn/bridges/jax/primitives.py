"""JAX primitives for a query of robodyn, a `Smooth` function and a `LinearMap`, with their derivative rules.

They are primitives instead of `jax.custom_jvp` functions for two reasons. Primitives keep their rules when JAX
partially evaluates a loop for reverse mode. The transpose of a linear map needs a rule of its own, too.

Arguments and results have equally many leading axes, which broadcast. `vmap` adds one axis in front.
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
    """A computation of robodyn as an operation on JAX arrays, which are its arguments in order.

    On CPUs and CUDA devices the operation is part of JAX's compiled code, if an engine has machine code or kernels for
    it. Otherwise JAX calls Python, which takes about 0.1 ms.

    Args:
        call: the computation.
    """

    def __init__(self, call: Call) -> None:
        self.call, self.dyn, self.inputs, self.outputs = call, call.dyn, call.inputs, call.outputs

    @cached_property
    def compiled(self) -> Any:
        """The operation as a function that JAX compiles for each combination of shapes."""
        return jax.jit(partial(bind, call_p, operation=self))

    def leading(self, arrays: Sequence[Any]) -> tuple[int, ...]:
        """The broadcast leading axes of arguments."""
        return self.call.leading(arrays)

    def run_native(self, *arrays: Any) -> Any:
        """The query as machine code in JAX's compiled code."""
        leading = self.leading(arrays)
        target = self._target(prod(leading) == 1)
        if target is None:
            return self.run_python(*arrays)
        owns = self.inputs.values()
        rows = [_rows(array, len(own), leading) for array, own in zip(arrays, owns, strict=True)]
        result_types = [
            jax.ShapeDtypeStruct((prod(leading), prod(own)), self.dyn.dtype) for own in self.outputs.values()
        ]
        results = jax.ffi.ffi_call(target, result_types)(*rows)
        return [array.reshape((*leading, *own)) for array, own in zip(results, self.outputs.values(), strict=True)]

    def _target(self, single: bool) -> str | None:
        """The XLA target name of the query's machine code, or None if there is none."""
        if not self.dyn.engine.native or self.dyn.model.n_bodies == 0:
            return None
        from robodyn.bridges.jax.handler import register  # imports LLVM, which the reference engine does not need

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
        except (RuntimeError, ValueError) as error:  # an unknown version of the interface
            warnings.warn(f"XLA refuses machine code, Python is called instead: {error}", RuntimeWarning, stacklevel=2)
            return None

    def run_cuda(self, *arrays: Any) -> Any:
        """The query as a sequence of kernels in JAX's compiled code for CUDA devices."""
        leading = self.leading(arrays)
        rows = prod(leading)
        kernels = self._kernels(rows)
        if kernels is None:
            return self.run_python(*arrays)
        from robodyn.bridges.jax.cuda_handler import scratch_shape

        launches, shapes = kernels
        buffers = {
            name: _rows(array, len(own), leading, every=True)
            for (name, own), array in zip(self.inputs.items(), arrays, strict=True)
        }
        for target, launch in launches:
            source = launch.kernel.source
            result_shapes = [(rows, prod(shapes[name])) for name in source.outputs]
            scratch = scratch_shape(launch, rows)
            results = [
                jax.ShapeDtypeStruct(shape, self.dyn.dtype) for shape in (*result_shapes, *filter(None, (scratch,)))
            ]
            outputs = jax.ffi.ffi_call(target, results)(*(buffers[name] for name in source.inputs))
            buffers.update(zip(source.outputs, outputs, strict=False))
        return [buffers[name].reshape((*leading, *own)) for name, own in self.outputs.items()]

    @cached_property
    def _engines(self) -> list[GpuEngine]:
        """The GPU engine, and engines on JAX's other GPUs of the same model: XLA compiles once for all of them."""
        from robodyn.bridges.jax.cuda_handler import gpu_numbers
        from robodyn.engines.gpu.device import selected

        engines = [self.dyn._gpu]
        for number in gpu_numbers():
            if number != engines[0].device.number:
                with selected(number):
                    engines.append(self.dyn.variant(engine="gpu")._gpu)
        return [engine for engine in engines if engine.device.name == engines[0].device.name]

    def _kernels(self, rows: int) -> tuple[list[tuple[str, Launch]], dict[str, tuple[int, ...]]] | None:
        """The kernels for n rows on a CUDA device, in order, with their XLA target names, and the shapes of all their
        arrays for one state. None if JAX must call Python."""
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
        devices, targets = [engine.device for engine in self._engines], []
        try:
            for launches in zip(*(plan.launches for plan in plans), strict=True):
                source = launches[0].kernel.source
                columns = tuple(prod(shapes[name]) for name in (*source.inputs, *source.outputs))
                target = register(self.call.task.name, list(zip(devices, launches, strict=True)), columns)
                targets.append((target, launches[0]))
        except (RuntimeError, ValueError, OSError) as error:
            warnings.warn(f"XLA refuses kernels, Python is called instead: {error}", RuntimeWarning, stacklevel=2)
            return None
        return targets, shapes

    def run_python(self, *arrays: Any) -> Any:
        """The query as a callback to Python from JAX's compiled code."""
        leading = self.leading(arrays)
        result_types = [jax.ShapeDtypeStruct((*leading, *own), self.dyn.dtype) for own in self.outputs.values()]
        return jax.pure_callback(self._answer, result_types, *arrays)

    def _answer(self, *arrays: Any) -> list[Any]:
        return [np.asarray(array) for array in self.call.answers(*map(np.asarray, arrays))]


def _rows(array: Any, trailing: int, leading: tuple[int, ...], *, every: bool = False) -> Any:
    """Flatten an array to rows, one for each state. Unless `every`, an array shared by all states stays one row."""
    own, axes = array.shape[len(array.shape) - trailing :], array.shape[: len(array.shape) - trailing]
    if axes != leading and (every or prod(axes) != 1):
        array, axes = jnp.broadcast_to(array, (*leading, *own)), leading
    return array.reshape((prod(axes), prod(own)))


def _in_front(arrays: Sequence[Any], axes: Sequence[int | None]) -> list[Any]:
    """Move mapped axes to the front; arrays without one get an axis of length 1."""
    return [
        jnp.expand_dims(array, 0) if axis is None else jnp.moveaxis(array, axis, 0)
        for array, axis in zip(arrays, axes, strict=True)
    ]


def _varying(kind: Any) -> frozenset[Any]:
    """Mesh axes along which arrays of this type vary between devices inside `jax.shard_map`.

    The attribute's name depends on the version of JAX.
    """
    axes = getattr(kind, "vma", None)
    return getattr(getattr(kind, "mat", None), "varying", frozenset()) if axes is None else axes


def bind(primitive: Primitive, *arrays: Any, **parameters: Any) -> Any:
    """Apply one of the primitives below to arrays, after making all of them vary along the same mesh axes."""
    varying = [_varying(jax.typeof(array)) for array in arrays]
    mesh_axes = frozenset().union(*varying)
    if any(each != mesh_axes for each in varying):
        cast_to = partial(jax.lax.pcast, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary
        arrays = tuple(cast_to(array, tuple(mesh_axes - each)) for array, each in zip(arrays, varying, strict=True))
    return primitive.bind(*arrays, **parameters)


def _result(like: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Abstract value of a result that varies between devices like an argument."""
    if not _varying(like):
        return jax.core.ShapedArray(shape, dtype)
    sharding = like.sharding.update(spec=PartitionSpec(*[None] * len(shape)))
    return like.update(shape=shape, dtype=dtype, weak_type=False, sharding=sharding)


call_p = Primitive("robodyn_call")
"""Primitive that runs an `Operation`."""
call_p.multiple_results = True


def _run_call(*arrays: Any, operation: Operation) -> Any:
    """Run the compiled operation even under `jax.disable_jit` and `jax.debug_nans`, because compiling the operation
    calls this function again. NaN and infinity are checked afterwards."""
    with jax.disable_jit(False), jax.debug_nans(False), jax.debug_infs(False):
        results = operation.compiled(*arrays)
    for enabled, label, test in (
        (jax.config.jax_debug_nans, "NaN", jnp.isnan),
        (jax.config.jax_debug_infs, "inf", jnp.isinf),
    ):
        if enabled and any(bool(test(each).any()) for each in results):
            raise FloatingPointError(f"{label} in results of {operation.call.name} of {operation.dyn.model.name!r}")
    return results


def _call_shapes(*arrays: Any, operation: Operation) -> Any:
    leading = operation.leading(arrays)
    return [_result(arrays[0], (*leading, *own), operation.dyn.dtype) for own in operation.outputs.values()]


def _map_call(arrays: Sequence[Any], axes: Sequence[int | None], *, operation: Operation) -> Any:
    results = bind(call_p, *_in_front(arrays, axes), operation=operation)
    return results, [0] * len(results)


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
"""Primitive that evaluates a `Smooth` function."""


def _run_smooth(*x: Any, function: Smooth) -> Any:
    return function.value(*x)


def _smooth_shape(*x: Any, function: Smooth) -> Any:
    result = jax.eval_shape(function.value, *x)
    return _result(x[0], result.shape, result.dtype)


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
"""Primitive that applies a `LinearMap`. Its arrays are the points (their number is `points`), then the vectors."""
linear_p.multiple_results = True


def _run_linear(*arrays: Any, linear: LinearMap, points: int) -> Any:
    return list(linear.apply(arrays[:points], arrays[points:]))


def _linear_shapes(*arrays: Any, linear: LinearMap, points: int) -> Any:
    results = jax.eval_shape(linear.apply, arrays[:points], arrays[points:])
    return [_result(arrays[0], each.shape, each.dtype) for each in results]


def _map_linear(arrays: Sequence[Any], axes: Sequence[int | None], **parameters: Any) -> Any:
    results = bind(linear_p, *_in_front(arrays, axes), **parameters)
    return results, [0] * len(results)


def _linear_rates(primals: Arrays, tangents: Arrays, *, linear: LinearMap, points: int) -> Any:
    """Derivatives with respect to points and vectors."""
    at, vectors, moved, directions = primals[:points], primals[points:], tangents[:points], tangents[points:]
    results = bind(linear_p, *primals, linear=linear, points=points)
    rates = [jnp.zeros_like(each) for each in results]
    if any(type(each) is not ad.Zero for each in directions):
        full = [ad.instantiate_zeros(each) for each in directions]
        rates = bind(linear_p, *at, *full, linear=linear, points=points)
    if any(type(each) is not ad.Zero for each in moved):
        changes = [None if type(each) is ad.Zero else each for each in moved]
        rates = [one + other for one, other in zip(rates, linear.tangent(at, vectors, changes), strict=True)]
    return results, [jnp.broadcast_to(rate, each.shape) for rate, each in zip(rates, results, strict=True)]


def _transpose_linear(weights: Sequence[Any], *arrays: Any, linear: LinearMap, points: int) -> Sequence[Any]:
    if all(type(each) is ad.Zero for each in weights):
        return [None] * len(arrays)
    full = [ad.instantiate_zeros(each) for each in weights]
    gradients = bind(linear_p, *arrays[:points], *full, linear=linear.transposed, points=points)
    back = [
        _summed(each, vector.aval.shape) if ad.is_undefined_primal(vector) else None
        for each, vector in zip(gradients, arrays[points:], strict=True)
    ]
    return [None] * points + back


def _summed(array: Any, shape: tuple[int, ...]) -> Any:
    """Sum over axes along which an array of this shape was broadcast."""
    axes = tuple(i for i, (long, short) in enumerate(zip(array.shape, shape, strict=True)) if long != short)
    return array.sum(axes, keepdims=True) if axes else array


linear_p.def_impl(_run_linear)
linear_p.def_abstract_eval(_linear_shapes)
batching.primitive_batchers[linear_p] = _map_linear
ad.primitive_jvps[linear_p] = _linear_rates
ad.primitive_transposes[linear_p] = _transpose_linear
mlir.register_lowering(linear_p, mlir.lower_fun(_run_linear, True))

"""Primitives of JAX: a query of robodyn, a smooth function and a linear map with derivatives of their own.

They are primitives, where `jax.custom_jvp` could be thought of, because they keep their rules when JAX takes a loop
apart to differentiate it in reverse, and because the transpose of a linear map has a rule too.

All take and give arrays whose leading axes are equally many and broadcast. Under vmap they get one more in front.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from robodyn.autodiff.rules import Arrays, LinearMap, Smooth
from robodyn.chains import Units
from robodyn.dynamics import Dynamics
from robodyn.errors import UnavailableError
from robodyn.sweeps import Algorithm
from robodyn.tracing.unrolled import input_shapes, output_shape

if TYPE_CHECKING:
    from robodyn.engines.cpu.engine import CpuEngine


class Query:
    """A query of a Dynamics as an operation on arrays of JAX; its arguments, all of them arrays, in order.

    On processors it runs inside of what JAX compiles, where the engine has machine code for it. Otherwise, and on other
    devices, JAX calls Python, which takes a tenth of a millisecond.
    """

    def __init__(self, dyn: Dynamics, name: str, arguments: int) -> None:
        self.dyn, self.name = dyn, name
        self.task = dyn.plain_task(name)
        if len(self.task.inputs) > arguments:  # a vector that is left out stands for every unit vector
            assert isinstance(self.task, Algorithm)
            self.task = Units(self.task, "vector")
        self.inputs = tuple(input_shapes(dyn.model, self.task).values())
        self.outputs = tuple(output_shape(dyn.model, output) for output in self.task.outputs.values())

    @cached_property
    def compiled(self) -> Any:
        """The query as a function that is compiled for the shapes it meets."""
        return jax.jit(partial(query_p.bind, query=self))

    def leading(self, arrays: Sequence[Any]) -> tuple[int, ...]:
        """The common leading axes of arguments."""
        shapes = [array.shape[: len(array.shape) - len(own)] for array, own in zip(arrays, self.inputs, strict=True)]
        return np.broadcast_shapes(*shapes)

    def run_native(self, *arrays: Any) -> Any:
        """The query inside of what JAX compiles."""
        leading = self.leading(arrays)
        target = self._target(prod(leading) == 1)
        if target is None:
            return self.run_python(*arrays)
        given = [self._rows(array, len(own), leading) for array, own in zip(arrays, self.inputs, strict=True)]
        wanted = [jax.ShapeDtypeStruct((prod(leading), prod(own)), self.dyn.dtype) for own in self.outputs]
        found = jax.ffi.ffi_call(target, wanted)(*given)
        return [array.reshape((*leading, *own)) for array, own in zip(found, self.outputs, strict=True)]

    def _target(self, single: bool) -> str | None:
        """The name that XLA knows the query's machine code by, or None where there is none."""
        if self.dyn.engine.name != "cpu" or self.dyn.model.n_bodies == 0:
            return None
        from robodyn.jax.handler import register  # LLVM, which the reference engine does without

        engine = cast("CpuEngine", self.dyn.engine)
        try:
            kernel = engine.kernel(self.task, single=single)
        except UnavailableError as error:
            if not engine.lenient:
                raise
            warnings.warn(f"{error}; the reference engine answers instead", RuntimeWarning, stacklevel=2)
            return None
        try:
            return register(engine, kernel, tuple(prod(shape) for shape in (*self.inputs, *self.outputs)))
        except (RuntimeError, ValueError) as error:  # an interface of a version that is not known here
            warnings.warn(f"XLA refuses machine code, Python is called instead: {error}", RuntimeWarning, stacklevel=2)
            return None

    @staticmethod
    def _rows(array: Any, trailing: int, leading: tuple[int, ...]) -> Any:
        """The array as rows: one, or one for each state."""
        own, axes = array.shape[len(array.shape) - trailing :], array.shape[: len(array.shape) - trailing]
        if prod(axes) != 1 and axes != leading:
            array, axes = jnp.broadcast_to(array, (*leading, *own)), leading
        return array.reshape((prod(axes), prod(own)))

    def run_python(self, *arrays: Any) -> Any:
        """The query as a call of Python from what JAX compiles."""
        leading = self.leading(arrays)
        wanted = [jax.ShapeDtypeStruct((*leading, *own), self.dyn.dtype) for own in self.outputs]
        return jax.pure_callback(self._answer, wanted, *arrays)

    def _answer(self, *arrays: Any) -> list[Any]:
        found = getattr(self.dyn, self.name)(*(np.asarray(array) for array in arrays))
        return [np.asarray(array) for array in (found if isinstance(found, tuple) else (found,))]


def _in_front(arrays: Sequence[Any], axes: Sequence[int | None]) -> list[Any]:
    """Arrays with their mapped axes in front; those that have none get one of length 1."""
    return [
        jnp.expand_dims(array, 0) if axis is None else jnp.moveaxis(array, axis, 0)
        for array, axis in zip(arrays, axes, strict=True)
    ]


query_p = Primitive("robodyn_query")
"""A `Query`."""
query_p.multiple_results = True


def _run_query(*arrays: Any, query: Query) -> Any:
    return query.compiled(*arrays)


def _query_shapes(*arrays: Any, query: Query) -> Any:
    leading = query.leading(arrays)
    return [jax.core.ShapedArray((*leading, *own), query.dyn.dtype) for own in query.outputs]


def _map_query(arrays: Sequence[Any], axes: Sequence[int | None], *, query: Query) -> Any:
    found = query_p.bind(*_in_front(arrays, axes), query=query)
    return found, [0] * len(found)


def _refuse(*_: Any, query: Query, **__: Any) -> Any:
    raise UnavailableError(
        f"derivatives of {query.name} of {query.dyn.model.name!r} of this order are not there: those of first and "
        "second order are"
    )


query_p.def_impl(_run_query)
query_p.def_abstract_eval(_query_shapes)
batching.primitive_batchers[query_p] = _map_query
ad.primitive_jvps[query_p] = _refuse
mlir.register_lowering(query_p, mlir.lower_fun(lambda *arrays, query: query.run_python(*arrays), True))
mlir.register_lowering(query_p, mlir.lower_fun(lambda *arrays, query: query.run_native(*arrays), True), platform="cpu")


smooth_p = Primitive("robodyn_smooth")
"""A `Smooth` function."""


def _run_smooth(*x: Any, function: Smooth) -> Any:
    return function.value(*x)


def _smooth_shape(*x: Any, function: Smooth) -> Any:
    found = jax.eval_shape(function.value, *x)
    return jax.core.ShapedArray(found.shape, found.dtype)


def _map_smooth(x: Sequence[Any], axes: Sequence[int | None], *, function: Smooth) -> Any:
    return smooth_p.bind(*_in_front(x, axes), function=function), 0


def _smooth_rate(x: Arrays, tangents: Arrays, *, function: Smooth) -> Any:
    y = smooth_p.bind(*x, function=function)
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
    return [jax.core.ShapedArray(each.shape, each.dtype) for each in found]


def _map_linear(arrays: Sequence[Any], axes: Sequence[int | None], **parameters: Any) -> Any:
    found = linear_p.bind(*_in_front(arrays, axes), **parameters)
    return found, [0] * len(found)


def _linear_rates(primals: Arrays, tangents: Arrays, *, linear: LinearMap, points: int) -> Any:
    """Derivatives with respect to points and vectors."""
    at, vectors, moved, directions = primals[:points], primals[points:], tangents[:points], tangents[points:]
    found = linear_p.bind(*primals, linear=linear, points=points)
    rates = [jnp.zeros_like(each) for each in found]
    if any(type(each) is not ad.Zero for each in directions):
        full = [ad.instantiate_zeros(each) for each in directions]
        rates = linear_p.bind(*at, *full, linear=linear, points=points)
    if any(type(each) is not ad.Zero for each in moved):
        changes = [None if type(each) is ad.Zero else each for each in moved]
        rates = [one + other for one, other in zip(rates, linear.tangent(at, vectors, changes), strict=True)]
    return found, [jnp.broadcast_to(rate, each.shape) for rate, each in zip(rates, found, strict=True)]


def _transpose_linear(weights: Sequence[Any], *arrays: Any, linear: LinearMap, points: int) -> Sequence[Any]:
    if all(type(each) is ad.Zero for each in weights):
        return [None] * len(arrays)
    full = [ad.instantiate_zeros(each) for each in weights]
    found = linear_p.bind(*arrays[:points], *full, linear=linear.transposed, points=points)
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

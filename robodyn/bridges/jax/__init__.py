"""robodyn in JAX: queries as functions that `jit`, `vmap`, `grad` and other transformations accept.

import robodyn.jax

rj = robodyn.jax.wrap(dyn)
jax.grad(lambda q: rj.inverse_dynamics(q, qd, qdd) @ weights)(q)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import update_wrapper
from inspect import signature
from typing import Any, cast

import numpy as np

from robodyn.api.autodiff.calls import Call, QueryCall
from robodyn.api.autodiff.functions import OF_SHAPES, STATIC, WITH_RULES, DifferentiableDynamics
from robodyn.api.autodiff.rules import Arrays, Body, LinearMap, Smooth
from robodyn.api.autodiff.steps import STATIC_OF_STEPS, STEPS, as_static
from robodyn.api.dynamics import Dynamics
from robodyn.api.motion.robot import dynamics_of
from robodyn.api.queries.core import checked_choice, links_of
from robodyn.core.model import Model
from robodyn.engines.query_table import FLAGS, QuerySpec, every_query
from robodyn.internals.arguments import Array, as_array
from robodyn.internals.errors import ArgumentError, RobodynError, UnavailableError
from robodyn.internals.messages import brief, install

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise UnavailableError(
        f"robodyn.jax needs JAX, which cannot be imported here ({error}): {install('jax')}"
    ) from error

from robodyn.bridges.jax.primitives import Operation, bind, call_p, linear_p, smooth_p

__all__ = ["JaxDynamics", "wrap"]


class _Jax:
    """See `robodyn.api.autodiff.rules.Library`."""

    xp: Any = jnp

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self._unchecked: dict[Dynamics, Dynamics] = {}
        self._calls: dict[tuple[Dynamics, str, int], Call] = {}
        self._operations: dict[Call, Operation] = {}

    def constant(self, array: Array) -> Any:
        """A NumPy array: JAX moves it to the device that needs it."""
        return array if array.dtype.kind in "iu" else array.astype(self.dtype)

    def fixed(self, array: Any) -> Any:
        return jax.lax.stop_gradient(array)

    def call(self, dyn: Dynamics, query: str, *arrays: Any) -> Arrays:
        key = dyn, query, len(arrays)
        if key not in self._calls:
            question = every_query()[query]
            self._calls[key] = QueryCall(self.asked(dyn), question, question.plain[: len(arrays)])
        return self.run(self._calls[key], *arrays)

    def asked(self, dyn: Dynamics) -> Dynamics:
        if dyn not in self._unchecked:
            self._unchecked[dyn] = dyn.variant(check=False)
        return self._unchecked[dyn]

    def run(self, call: Call, *arrays: Any) -> Arrays:
        if call not in self._operations:
            self._operations[call] = Operation(call)
        return tuple(bind(call_p, *arrays, operation=self._operations[call]))

    def smooth(self, function: Smooth, *x: Any) -> Any:
        return bind(smooth_p, *x, function=function)

    def linear(self, linear: LinearMap, points: Arrays, vectors: Arrays) -> Arrays:
        return tuple(bind(linear_p, *points, *vectors, linear=linear, points=len(points)))

    def scan(self, body: Body, state: Any, arrays: Mapping[str, Any], n: int) -> tuple[Any, Any]:
        return cast(tuple[Any, Any], jax.lax.scan(body, state, dict(arrays), length=n))

    def remade(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return cast(Callable[..., Any], jax.checkpoint(function))


class _Compiled:
    """A query compiled by JAX. If JAX refuses an argument, the error names it.

    Attributes such as `lower` are those of the function that `jax.jit` returns.
    """

    def __init__(self, query: Any, read: Callable[[str, Any], Any]) -> None:
        update_wrapper(self, query)
        static = [name for name in (*STATIC, *STATIC_OF_STEPS) if name in signature(query).parameters]
        self._compiled, self._query, self._read = jax.jit(query, static_argnames=static), query, read

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        try:
            return self._compiled(*arguments, **named)
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, RobodynError) or (read := self._readable(arguments, named)) is None:
                raise
        return self._compiled(**read)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle like a bound method."""
        return getattr, (self._query.__self__, self._query.__name__)

    def _readable(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any] | None:
        """Arguments by name, converted to JAX arrays: `jax.numpy.asarray` accepts more types than `jax.jit`. None if
        their number is wrong, which the call has reported.

        Raises:
            ArgumentError: one cannot be converted.
        """
        try:
            bound = signature(self._query).bind(*arguments, **named).arguments
        except TypeError:
            return None
        return {name: self._as_read(name, value) for name, value in bound.items()}

    def _as_read(self, name: str, value: Any) -> Any:
        if name in STATIC_OF_STEPS:
            return as_static(name, value)
        if value is not None and name in ("links", "relative_to"):
            model = self._query.__self__.model
            if name == "links":
                _, places = links_of(model, None, value, None)
                return None if places is None else places.links
            return checked_choice(model, "link", value)
        if name in STATIC:
            return None if value is None else checked_choice(self._query.__self__.model, name, value)
        return None if value is None else self._read(name, value)


class JaxDynamics(DifferentiableDynamics):
    """Queries of a robot as functions of JAX; made by `wrap`.

    Each is compiled by `jax.jit` and works under `jit`, `vmap`, `grad`, `jvp`, `jacfwd`, `jacrev`, `hessian` and in
    JAX's loops and conditions. Arguments are anything that `jax.numpy.asarray` takes, converted to the dtype of `dyn`.
    Values are not checked: NaN stays in its row.
    """

    def __init__(self, dyn: Dynamics | Model) -> None:
        dyn = dynamics_of(dyn, "robodyn.jax", "of the tree alone")
        super().__init__(dyn, _Jax(dyn.dtype))
        for name in (*WITH_RULES, *STEPS):
            if name not in OF_SHAPES:
                setattr(self, name, _Compiled(getattr(self, name), self._read))
        # These take dicts with names of links; what is left of them is arrays.
        self._distances = jax.jit(super()._distances, static_argnums=(0, 1))  # type: ignore[method-assign]

    def _generic(self, question: QuerySpec) -> Callable[..., Any]:
        """The query, compiled by JAX with link and frame as static arguments."""
        return _Compiled(super()._generic(question), self._read)

    def _read(self, name: str, value: Any) -> Any:
        if jax.dtypes.canonicalize_dtype(self.dyn.dtype) != self.dyn.dtype:
            raise ArgumentError(
                "dyn: got a Dynamics of dtype float64, while JAX is set to 32 bits; wanted "
                "jax.config.update('jax_enable_x64', True) before, or Dynamics(..., dtype='float32')"
            )
        wanted = self._wanted(name)
        if isinstance(value, np.ndarray):
            as_array(name, value, wanted)  # raises for masked arrays
        try:
            array = jnp.asarray(value)
        except FloatingPointError:  # from JAX's debug_nans
            raise
        except Exception as error:  # JAX, or a foreign object, may raise anything
            raise ArgumentError(f"{name}: got {brief(value)}; {wanted}") from error
        kinds = (jnp.floating, jnp.integer, *((jnp.bool_,) if name in FLAGS else ()))
        if not any(jnp.issubdtype(array.dtype, kind) for kind in kinds):
            raise ArgumentError(f"{name}: got an array of dtype {array.dtype}; {wanted}")
        if not all(isinstance(n, int) for n in array.shape):
            raise ArgumentError(f"{name}: got shape {array.shape} with axes of unknown length; wanted numbers")
        return array.astype(self.dyn.dtype)


def wrap(dyn: Dynamics | Model) -> JaxDynamics:
    """Queries of a robot as functions of JAX.

    Args:
        dyn: the robot's `Dynamics`, or its `Model`.

    Raises:
        ArgumentError: neither of the two.
    """
    return JaxDynamics(dyn)

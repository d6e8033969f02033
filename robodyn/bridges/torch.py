"""robodyn in PyTorch: queries as functions that autograd, `torch.func` and optimisers support.

from robodyn.bridges.torch import wrap

rt = wrap(dyn)
loss = rt.forward_dynamics(q, qd, tau).square().sum()
loss.backward()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, cast

import numpy as np

from robodyn.api.autodiff.calls import Call, QueryCall
from robodyn.api.autodiff.functions import WITH_RULES, DifferentiableDynamics
from robodyn.api.autodiff.rules import Arrays, Body, LinearMap, Smooth
from robodyn.api.autodiff.steps import STEPS
from robodyn.api.dynamics import Dynamics
from robodyn.api.motion.robot import dynamics_of
from robodyn.core.model import Model
from robodyn.engines.gpu.device import selected
from robodyn.engines.query_table import FLAGS, QuerySpec, every_query
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief, install

try:
    import torch
    from torch.utils.checkpoint import checkpoint
except ImportError as error:
    raise UnavailableError(
        f"robodyn.torch needs PyTorch, which cannot be imported here ({error}): {install('torch')}"
    ) from error

__all__ = ["TorchDynamics", "wrap"]


_RECORDER = torch._C._TorchDispatchModeKey.PROXY
"""Dispatch mode with which torch.fx records operations. It is not public in PyTorch; a test checks that it exists."""


class _Torch:
    """See `robodyn.api.autodiff.rules.Library`."""

    xp: Any = torch

    def __init__(self, dtype: np.dtype[Any], device: torch.device) -> None:
        self._dtype, self._device = dtype, device
        self._calls: dict[tuple[Dynamics, str, int], Call] = {}

    def constant(self, array: Array) -> Any:
        kind = np.int64 if array.dtype.kind in "iu" else self._dtype
        with torch.inference_mode(False):  # constants are cached and may be used with gradients later
            return torch.from_numpy(np.array(array, dtype=kind)).to(self._device)

    def fixed(self, array: Any) -> Any:
        return array.detach()

    def call(self, dyn: Dynamics, query: str, *arrays: Any) -> Arrays:
        key = dyn, query, len(arrays)
        if key not in self._calls:
            question = every_query()[query]
            self._calls[key] = QueryCall(dyn, question, question.plain[: len(arrays)])
        return self.run(self._calls[key], *arrays)

    def asked(self, dyn: Dynamics) -> Dynamics:
        return dyn

    def run(self, call: Call, *arrays: Any) -> Arrays:
        return tuple(_Call.apply(call, *arrays)) if _watched(arrays) else _answers(call, *arrays)

    def smooth(self, function: Smooth, *x: Any) -> Any:
        return _Smooth.apply(function, *x) if _watched(x) else function.value(*x)

    def linear(self, linear: LinearMap, points: Arrays, vectors: Arrays) -> Arrays:
        if _watched((*points, *vectors)):
            return tuple(_Linear.apply(linear, len(points), *points, *vectors))
        return linear.apply(points, vectors)

    def scan(self, body: Body, state: Any, arrays: Mapping[str, Any], n: int) -> tuple[Any, Any]:
        stacked = []
        for k in range(n):
            state, each = body(state, {name: array[k] for name, array in arrays.items()})
            stacked.append(each)
        return state, None if stacked[0] is None else tuple(map(torch.stack, zip(*stacked, strict=True)))

    def remade(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
            return function  # no gradients, or torch.func, which checkpoints do not support
        return partial(checkpoint, function, use_reentrant=False)


def _watched(arrays: Arrays) -> bool:
    """Whether PyTorch must record operations on these tensors: for gradients, `torch.func` or forward mode.

    Unrecorded calls take half the time. The tests for the last two are not public in PyTorch.
    """
    return (
        (torch.is_grad_enabled() and any(array.requires_grad for array in arrays))
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
    )


def _is_gpu(device: torch.device) -> bool:
    """Whether tensors on the device go to the GPU engine."""
    return str(device.type) == "cuda"


def _answers(call: Call, *arrays: Any) -> Arrays:
    """Results of a `Call`, which reads the tensors' memory directly."""
    if torch._C._get_tracing_state() is not None or torch._C._get_dispatch_mode(_RECORDER) is not None:
        raise UnavailableError(
            f"{call.name} cannot be recorded by torch.jit.trace, torch.fx and torch.func.linearize, which would take "
            "its results for constants; torch.compile works, and leaves the call out of its graphs"
        )
    if _is_gpu(arrays[0].device):
        return _answers_on_gpu(call, *arrays)
    results = call.answers(*(_numpy(name, array) for name, array in zip(call.inputs, arrays, strict=True)))
    return tuple(torch.from_numpy(np.asarray(each)) for each in results)


def _numpy(name: str, array: Any) -> Array:
    """NumPy view of a tensor's memory; raises an ArgumentError if the tensor has none."""
    try:
        return cast(Array, array.numpy(force=True))
    except RuntimeError as error:
        raise ArgumentError(
            f"{name}: got a {type(array).__name__} without numbers ({error}); wanted a tensor"
        ) from error


def _answers_on_gpu(call: Call, *arrays: Any) -> Arrays:
    """Results of a `Call` for tensors on a GPU. Kernels access the tensors' memory, asynchronously on PyTorch's current
    stream.

    PyTorch allocates the results, so that its allocator knows when, and on which stream, their memory is free again.
    """
    device, leading = arrays[0].device, call.leading(arrays)
    results = tuple(
        torch.empty((*leading, *own), dtype=arrays[0].dtype, device=device) for own in call.outputs.values()
    )
    if 0 not in leading:
        gpu = call.dyn._gpu.device
        stream = torch.cuda.current_stream(device)
        with torch.cuda.device_of(arrays[0]), gpu.selected(), gpu.foreign_stream(stream):
            inputs = [gpu.wrapped(_with_memory(array)) for array in arrays]
            call.answers(*inputs, out=tuple(map(gpu.wrapped, results)))
    return results


def _with_memory(array: Any) -> Any:
    """The tensor with its values in memory: PyTorch has lazily negated tensors and zero tensors without memory."""
    plain = array.detach().resolve_neg()
    return torch.zeros_like(plain, memory_format=torch.contiguous_format) if plain._is_zerotensor() else plain


def _in_front(axes: Sequence[int | None], arguments: Sequence[Any]) -> list[Any]:
    """Move mapped axes of tensors to the front; tensors without one get an axis of length 1."""
    return [
        argument
        if not isinstance(argument, torch.Tensor)
        else (argument.unsqueeze(0) if axis is None else argument.movedim(axis, 0))
        for axis, argument in zip(axes, arguments, strict=True)
    ]


def _summed(gradient: Any, like: Any) -> Any:
    """Sum a gradient over axes along which the tensor was broadcast."""
    return None if gradient is None else gradient.sum_to_size(like.shape)


def _refuse_nested_forward() -> None:
    """Raise in nested forward mode: PyTorch would treat the inner derivatives as constants.

    The interpreter stack is not public in PyTorch; a test checks that it exists.
    """
    stack = torch._C._functorch.get_interpreter_stack() or ()
    if sum(each.key().name == "Jvp" for each in stack) > 1:
        raise UnavailableError(
            "PyTorch does not differentiate forward mode of custom functions in forward mode once more; wanted reverse "
            "mode inside (torch.func.hessian, jacfwd of jacrev) or outside"
        )


class _Call(torch.autograd.Function):
    """Runs a `Call`. The results have no derivatives."""

    @staticmethod
    def forward(call: Call, *arrays: Any) -> Any:
        return _answers(call, *arrays)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.call = inputs[0]

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise UnavailableError(
            f"derivatives of {ctx.call.name} of {ctx.call.dyn.model.name!r} of this order are not there: those of first"
            " and second order are"
        )

    jvp = backward

    @staticmethod
    def vmap(info: Any, axes: Any, *arguments: Any) -> Any:
        results = _Call.apply(*_in_front(axes, arguments))
        return results, (0,) * len(results)


class _Smooth(torch.autograd.Function):
    """Evaluates a `Smooth` function on its arguments."""

    @staticmethod
    def forward(function: Smooth, *x: Any) -> Any:
        return function.value(*x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.function = inputs[0]
        ctx.save_for_backward(*inputs[1:], output)
        ctx.save_for_forward(*inputs[1:], output)

    @staticmethod
    def backward(ctx: Any, *weights: Any) -> Any:
        (*x, y), wanted = ctx.saved_tensors, ctx.needs_input_grad[1:]
        gradients = ctx.function.pullback(tuple(x), y, weights[0], wanted)
        return None, *(
            _summed(each, like) if want else None for each, like, want in zip(gradients, x, wanted, strict=True)
        )

    @staticmethod
    def jvp(ctx: Any, *rates: Any) -> Any:
        _refuse_nested_forward()
        *x, y = ctx.saved_tensors
        return ctx.function.tangent(tuple(x), y, rates[1:]).broadcast_to(y.shape)

    @staticmethod
    def vmap(info: Any, axes: Any, *arguments: Any) -> Any:
        return _Smooth.apply(*_in_front(axes, arguments)), 0


class _Linear(torch.autograd.Function):
    """Applies a `LinearMap`. Arguments: the map, its number of points, the points, the vectors."""

    @staticmethod
    def forward(linear: LinearMap, points: int, *arrays: Any) -> Any:
        return linear.apply(arrays[:points], arrays[points:])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.linear, ctx.points = inputs[:2]
        ctx.shapes = [each.shape for each in output]
        ctx.save_for_backward(*inputs[2:])
        ctx.save_for_forward(*inputs[2:])

    @staticmethod
    def _parts(ctx: Any) -> tuple[Arrays, Arrays]:
        arrays = ctx.saved_tensors
        return arrays[: ctx.points], arrays[ctx.points :]

    @staticmethod
    def backward(ctx: Any, *weights: Any) -> Any:
        points, vectors = _Linear._parts(ctx)
        wanted = ctx.needs_input_grad[2:]
        back: Arrays = (None,) * len(vectors)
        if any(wanted[ctx.points :]):
            back = _Linear.apply(ctx.linear.transposed, ctx.points, *points, *weights)
        by_point: Arrays = (None,) * len(points)
        if any(wanted[: ctx.points]):
            by_point = ctx.linear.pullback(points, vectors, weights)
        gradients = zip((*by_point, *back), (*points, *vectors), wanted, strict=True)
        return None, None, *(_summed(each, like) if want else None for each, like, want in gradients)

    @staticmethod
    def jvp(ctx: Any, *rates: Any) -> Any:
        _refuse_nested_forward()
        points, vectors = _Linear._parts(ctx)
        moved, directions = rates[2 : 2 + ctx.points], rates[2 + ctx.points :]
        total: list[Any] = [0.0] * len(ctx.shapes)
        if any(each is not None for each in directions):
            full = [torch.zeros_like(v) if d is None else d for v, d in zip(vectors, directions, strict=True)]
            total = list(_Linear.apply(ctx.linear, ctx.points, *points, *full))
        if any(each is not None for each in moved):
            changes = ctx.linear.tangent(points, vectors, moved)
            total = [one + other for one, other in zip(total, changes, strict=True)]
        return tuple(each.broadcast_to(shape) for each, shape in zip(total, ctx.shapes, strict=True))

    @staticmethod
    def vmap(info: Any, axes: Any, *arguments: Any) -> Any:
        results = _Linear.apply(*_in_front(axes, arguments))
        return results, (0,) * len(results)


class TorchDynamics(DifferentiableDynamics):
    """Queries of a robot as functions of PyTorch; made by `wrap`.

    They work with `backward`, also twice, with forward mode, and under `torch.func` (`grad`, `vmap`, `jacrev`,
    `jacfwd`, `hessian`). Arguments are tensors of the dtype of `dyn`. All tensors of a call are on one device, the CPU
    or a GPU. On a GPU the GPU engine answers, and results stay there. Tensors with contiguous rows are read in place.
    Values are checked as `dyn` says: by default NaN raises for single states on the CPU, and stays in its row
    otherwise.
    """

    def __init__(self, dyn: Dynamics | Model, device: torch.device | None = None) -> None:
        dyn = dynamics_of(dyn, "robodyn.torch", "of the tree alone")
        self._dtype: torch.dtype = getattr(torch, dyn.dtype.name)
        self._device = torch.device("cpu") if device is None else device
        self._on_gpus: dict[torch.device, TorchDynamics] = {}
        super().__init__(dyn, _Torch(dyn.dtype, self._device))

    def _on(self, device: torch.device) -> TorchDynamics:
        """The queries for tensors on a device. Each GPU has its own constants and engine."""
        if not _is_gpu(device):
            return self
        if device not in self._on_gpus:
            options = self.dyn._options
            if not options.takes_gpu:
                raise ArgumentError(
                    f"dyn: got a Dynamics of engine {options.engine!r} for tensors on '{device}'; wanted engine 'auto' "
                    "or 'gpu', or tensors on 'cpu'"
                )
            with selected(device.index):
                self._on_gpus[device] = TorchDynamics(self.dyn.variant(engine="gpu"), device)
        return self._on_gpus[device]

    def _answer(self, question: QuerySpec, given: dict[str, Any]) -> Any:
        """Answer on the device of the first tensor."""
        return super(TorchDynamics, self._for(given.values()))._answer(question, given)

    def _for(self, arguments: Iterable[Any]) -> TorchDynamics:
        """The queries for the device of the first tensor among the arguments."""
        first = next((each for each in arguments if isinstance(each, torch.Tensor)), None)
        return self if first is None else self._on(first.device)

    def _distances(self, name: str, near: tuple[int, ...], q: Any, arrays: Mapping[str, Any]) -> Any:
        if arrays and _is_gpu(q.device):
            raise UnavailableError("obstacles: got q on a GPU; wanted tensors on 'cpu', for which they are answered")
        return super()._distances(name, near, q, arrays)

    def _unit(self, q: Any) -> Any:
        # Queries normalise quaternions themselves; only derivatives need normalised ones in advance.
        return super()._unit(q) if _watched((q,)) else q

    def _read(self, name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            raise ArgumentError(f"{name}: got {brief(value)}; wanted a torch.Tensor of dtype {self._dtype}")
        if name in FLAGS and value.dtype == torch.bool:
            value = value.to(self._dtype)
        if value.dtype != self._dtype:
            raise ArgumentError(
                f"{name}: got a tensor of dtype {value.dtype}; wanted {self._dtype}, which this Dynamics computes in "
                "(Dynamics(..., dtype=...), or tensor.to)"
            )
        if value.is_nested:
            raise ArgumentError(f"{name}: got a nested tensor; wanted one whose rows all have the same shape")
        if value.device != self._device or value.layout != torch.strided:
            raise ArgumentError(
                f"{name}: got a tensor on device '{value.device}' of layout {value.layout}; wanted strided tensors on "
                "'cpu' or on a GPU, all of a call on one device (tensor.to copies it there, and gradients find their "
                "way back)"
            )
        return value


def _on_its_device(query: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a query so that it runs on the device of its first tensor."""

    @wraps(query)
    def ask(self: TorchDynamics, *arguments: Any, **named: Any) -> Any:
        return query(self._for((*arguments, *named.values())), *arguments, **named)

    return ask


for _name in (*WITH_RULES, *STEPS):
    setattr(TorchDynamics, _name, _on_its_device(getattr(DifferentiableDynamics, _name)))


def wrap(dyn: Dynamics | Model) -> TorchDynamics:
    """Queries of a robot as functions of PyTorch.

    Args:
        dyn: the robot's `Dynamics`, or its `Model`.

    Raises:
        ArgumentError: neither of the two.
    """
    return TorchDynamics(dyn)

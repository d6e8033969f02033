"""robodyn in PyTorch: queries that autograd, `torch.func` and optimisers can work with.

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
from robodyn.engines.query_table import QUERIES, QuerySpec
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief

try:
    import torch
    from torch.utils.checkpoint import checkpoint
except ImportError as error:
    raise UnavailableError(
        f"robodyn.torch needs PyTorch, which cannot be imported here ({error}): pip install 'robodyn[torch]'"
    ) from error

__all__ = ["TorchDynamics", "wrap"]


_RECORDER = torch._C._TorchDispatchModeKey.PROXY
"""What torch.fx records operations with; not part of PyTorch's public interface, as tests notice."""


class _Torch:
    """See `robodyn.api.autodiff.rules.Library`."""

    xp: Any = torch

    def __init__(self, dtype: np.dtype[Any], device: torch.device) -> None:
        self._dtype, self._device = dtype, device
        self._calls: dict[tuple[Dynamics, str, int], Call] = {}

    def constant(self, array: Array) -> Any:
        kind = np.int64 if array.dtype.kind in "iu" else self._dtype
        with torch.inference_mode(False):  # constants are kept, also for calls with gradients
            return torch.from_numpy(np.array(array, dtype=kind)).to(self._device)

    def fixed(self, array: Any) -> Any:
        return array.detach()

    def call(self, dyn: Dynamics, query: str, *arrays: Any) -> Arrays:
        key = dyn, query, len(arrays)
        if key not in self._calls:
            question = QUERIES[query]
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
        kept = []
        for k in range(n):
            state, each = body(state, {name: array[k] for name, array in arrays.items()})
            kept.append(each)
        return state, None if kept[0] is None else tuple(map(torch.stack, zip(*kept, strict=True)))

    def remade(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
            return function  # nothing is kept, or what transforms of functions keep is not known to checkpoints
        return partial(checkpoint, function, use_reentrant=False)


def _watched(arrays: Arrays) -> bool:
    """Whether PyTorch has to know what is done to tensors: a graph is made, or `torch.func` or forward mode is at work.

    Calls that it need not know of take half the time. The last two are not part of its public interface.
    """
    return (
        (torch.is_grad_enabled() and any(array.requires_grad for array in arrays))
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
    )


def _is_gpu(device: torch.device) -> bool:
    """Whether tensors of a device are for the GPU engine."""
    return str(device.type) == "cuda"


def _answers(call: Call, *arrays: Any) -> Arrays:
    """Results of a query of robodyn, computed on the tensors' own memory."""
    if torch._C._get_tracing_state() is not None or torch._C._get_dispatch_mode(_RECORDER) is not None:
        raise UnavailableError(
            f"{call.name} cannot be recorded by torch.jit.trace, torch.fx and torch.func.linearize, which would take "
            "its results for constants; torch.compile works, and leaves the call out of its graphs"
        )
    if _is_gpu(arrays[0].device):
        return _answers_on_gpu(call, *arrays)
    found = call.answers(*(_numpy(name, array) for name, array in zip(call.inputs, arrays, strict=True)))
    return tuple(torch.from_numpy(np.asarray(each)) for each in found)


def _numpy(name: str, array: Any) -> Array:
    """A tensor's own memory as an array, where it has any."""
    try:
        return cast(Array, array.numpy(force=True))
    except RuntimeError as error:
        raise ArgumentError(
            f"{name}: got a {type(array).__name__} without numbers ({error}); wanted a tensor"
        ) from error


def _answers_on_gpu(call: Call, *arrays: Any) -> Arrays:
    """Results of a query for tensors on a GPU: kernels read and write their memory, in the order of PyTorch's current
    stream, and nothing waits.

    Memory of results is PyTorch's own, so that it knows, also of streams, when to use it again.
    """
    device, leading = arrays[0].device, call.leading(arrays)
    results = tuple(
        torch.empty((*leading, *own), dtype=arrays[0].dtype, device=device) for own in call.outputs.values()
    )
    if 0 not in leading:
        gpu = call.dyn._gpu.device
        stream = torch.cuda.current_stream(device)
        with torch.cuda.device_of(arrays[0]), gpu.selected(), gpu.foreign_stream(stream):
            given = [gpu.wrapped(_with_memory(array)) for array in arrays]
            call.answers(*given, out=tuple(map(gpu.wrapped, results)))
    return results


def _with_memory(array: Any) -> Any:
    """The same numbers as a plain tensor, whose memory holds them: PyTorch has tensors that it only remembers to be
    negated, or zero."""
    plain = array.detach().resolve_neg()
    return torch.zeros_like(plain, memory_format=torch.contiguous_format) if plain._is_zerotensor() else plain


def _in_front(axes: Sequence[int | None], arguments: Sequence[Any]) -> list[Any]:
    """Arguments whose tensors have their mapped axes in front; tensors that have none get one of length 1."""
    return [
        argument
        if not isinstance(argument, torch.Tensor)
        else (argument.unsqueeze(0) if axis is None else argument.movedim(axis, 0))
        for axis, argument in zip(axes, arguments, strict=True)
    ]


def _summed(gradient: Any, like: Any) -> Any:
    """The gradient with respect to a tensor that may have been repeated along axes of length 1."""
    return None if gradient is None else gradient.sum_to_size(like.shape)


def _refuse_nested_forward() -> None:
    """Raise in forward mode inside of forward mode: PyTorch would take the inner derivatives for constants.

    What is looked at is not part of PyTorch's public interface; a test holds that it is there.
    """
    stack = torch._C._functorch.get_interpreter_stack() or ()
    if sum(each.key().name == "Jvp" for each in stack) > 1:
        raise UnavailableError(
            "PyTorch does not differentiate forward mode of custom functions in forward mode once more; wanted reverse "
            "mode inside (torch.func.hessian, jacfwd of jacrev) or outside"
        )


class _Call(torch.autograd.Function):
    """Results of a query of robodyn. They have no derivatives."""

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
        found = _Call.apply(*_in_front(axes, arguments))
        return found, (0,) * len(found)


class _Smooth(torch.autograd.Function):
    """A `Smooth` function, and its arguments."""

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
        found = ctx.function.pullback(tuple(x), y, weights[0], wanted)
        return None, *(_summed(each, like) if want else None for each, like, want in zip(found, x, wanted, strict=True))

    @staticmethod
    def jvp(ctx: Any, *rates: Any) -> Any:
        _refuse_nested_forward()
        *x, y = ctx.saved_tensors
        return ctx.function.tangent(tuple(x), y, rates[1:]).broadcast_to(y.shape)

    @staticmethod
    def vmap(info: Any, axes: Any, *arguments: Any) -> Any:
        return _Smooth.apply(*_in_front(axes, arguments)), 0


class _Linear(torch.autograd.Function):
    """A `LinearMap`, how many points it has, its points and its vectors."""

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
        found = zip((*by_point, *back), (*points, *vectors), wanted, strict=True)
        return None, None, *(_summed(each, like) if want else None for each, like, want in found)

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
        found = _Linear.apply(*_in_front(axes, arguments))
        return found, (0,) * len(found)


class TorchDynamics(DifferentiableDynamics):
    """Queries of a robot as functions of PyTorch; made by `wrap`.

    They work with `backward`, also twice, with forward mode, and under `torch.func` (`grad`, `vmap`, `jacrev`,
    `jacfwd`, `hessian`). Arguments are tensors of the dtype of `dyn`, all of a call on one device: in the processor's
    memory, or on a GPU, where the GPU engine answers and results stay. They are read in place where rows are
    contiguous. Values are checked as `dyn` says: by default NaN raises in single states in the processor's memory, and
    stays in its row elsewhere.
    """

    def __init__(self, dyn: Dynamics | Model, device: torch.device | None = None) -> None:
        dyn = dynamics_of(dyn, "robodyn.torch", "of the tree alone")
        self._dtype: torch.dtype = getattr(torch, dyn.dtype.name)
        self._device = torch.device("cpu") if device is None else device
        self._on_gpus: dict[torch.device, TorchDynamics] = {}
        super().__init__(dyn, _Torch(dyn.dtype, self._device))

    def _on(self, device: torch.device) -> TorchDynamics:
        """The same queries for tensors of a device: constants lie there, and a GPU has an engine of its own."""
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
        """The query looks at its first tensor for the device to run on."""
        return super(TorchDynamics, self._for(given.values()))._answer(question, given)

    def _for(self, arguments: Iterable[Any]) -> TorchDynamics:
        """The same queries for the device of the first tensor among arguments."""
        first = next((each for each in arguments if isinstance(each, torch.Tensor)), None)
        return self if first is None else self._on(first.device)

    def _unit(self, q: Any) -> Any:
        # Queries scale quaternions themselves; only derivatives need them scaled before.
        return super()._unit(q) if _watched((q,)) else q

    def _read(self, name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            raise ArgumentError(f"{name}: got {brief(value)}; wanted a torch.Tensor of dtype {self._dtype}")
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
    """A query that looks at its first tensor for the device to run on."""

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

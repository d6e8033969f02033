"""Base class of all query classes of a `Dynamics`."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from robodyn.api.queries.call import Call
from robodyn.api.queries.singularity import InertiaJudge, singularity, singularity_of_held
from robodyn.core.constraints.refusals import require_whole_vectors
from robodyn.core.model import Model
from robodyn.core.sweeps import POINT
from robodyn.engines.make import judging_engine, make_gpu_engine
from robodyn.engines.options import Options
from robodyn.engines.protocol import Engine
from robodyn.engines.query_table import FORCE_AXES, FRAMES, LinkSelection, QuerySpec, find
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, as_array, flag, one_of, rows_named
from robodyn.internals.array_library import NUMPY, Library, require_one_place
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError, NumericalError, SingularError
from robodyn.internals.messages import brief

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics
    from robodyn.engines.gpu.engine import GpuEngine

_CHOICES = ("frame", "classical", "axes")
"""Arguments of queries besides arrays and links."""


class Core(ABC):
    """Attributes of a `Dynamics` and methods that several queries share."""

    model: Model
    dtype: np.dtype[Any]
    engine: Engine
    check: bool | None
    threads: int | None
    joint_forces: tuple[str, ...]
    argument_shapes: dict[str, tuple[int, ...]]
    _options: Options

    # A call, from its arguments to its answer.

    def _ask(self, name: str, given: Mapping[str, Any]) -> Any:
        """Answer a query: one array, or a tuple of several.

        Args:
            name: name of the query in `robodyn.engines.query_table`.
            given: the method's arguments by name (its `locals()`): arrays, None for omitted ones, and other choices.
                Missing names have their defaults.
        """
        question = find(name)
        assert question is not None
        method = self._method(question, given.get("method", "auto"))
        choices = {each: checked_choice(self.model, each, given[each]) for each in _CHOICES if each in given}
        number = None
        shapes: dict[str, tuple[int, ...]] = {}
        if question.of_link:
            number, places = links_of(self.model, given.get("link"), given.get("links"), given.get("relative_to"))
            if places is not None:
                choices["places"] = places
                shapes = point_shapes(places)
        call = self._call(question, given, shapes)
        return call.finish(self._results(question, call, method, number, **choices))

    def _call(
        self, question: QuerySpec, given: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> Call:
        """The `Call` for a query, from the arguments of its method."""
        arrays = {each: given[each] for each in question.arrays if each in given}
        return Call(self, arrays, question.optional, given.get("out"), shapes=shapes)

    def _results(
        self, question: QuerySpec, call: Call, method: str = "auto", link: int | None = None, **choices: Any
    ) -> dict[str, Array]:
        """The results of a call (B, ...), by name."""
        if not {"inverse", "held"}.isdisjoint(question.needs):
            self._require_regular(call, "held" in question.needs)
        if "mass" in question.needs:
            self._require_mass(call)
        self._require_loads(question, call.inputs)
        if self.joint_forces:
            choices["damping"] = "damping" in self.joint_forces
            self._take_joint_forces(question, call)
        results = call.results(question.shapes(self.model, call.inputs, choices.get("places")))
        call.answer(question, results, method, link, **choices)
        if self.joint_forces:
            self._add_joint_forces(question, call, results)
        return results

    def _method(self, question: QuerySpec, method: str) -> str:
        """The checked method name; raises if the engine does not have it for this query and model."""
        if not question.methods:
            return method
        name = self.engine.name
        method = one_of("method", method, ("auto", *question.methods_on(name)))
        possible = ("auto", *question.possible(self.model, name))
        if method not in possible:
            allowed = ", ".join(map(repr, possible))
            raise ArgumentError(f"method: got {method!r} for a model whose joints mimic others; allowed: {allowed}")
        return method

    # Engines.

    def _engine_for(self, given: Mapping[str, Any]) -> tuple[Engine, Library]:
        """The engine for the arguments of a call, and their array library. Arrays on a GPU go to the GPU engine."""
        if not require_one_place(given):
            return self.engine, NUMPY
        on_device = (self._gpu if self._options.chooses else self.engine).on_device()
        if on_device is not None:
            return on_device
        name = next(name for name, value in given.items() if value is not None)
        raise ArgumentError(
            f"{name}: got {brief(given[name])} on the GPU; engine {self.engine.name!r} wants NumPy arrays, "
            "engine='gpu' and engine='scan' take it"
        )

    @cached_property
    def _gpu(self) -> GpuEngine:
        """The GPU engine. With engine "auto" it answers calls on GPU arrays."""
        from robodyn.engines.gpu.engine import GpuEngine

        if isinstance(self.engine, GpuEngine):
            return self.engine
        return make_gpu_engine(self.model, self.dtype, self._options)

    # Damping and friction.

    def _joint_force(self, call: Call) -> Array | float:
        """Generalised force of damping and friction, which the drives must supply."""
        force: Array | float = 0.0
        qd = call.inputs["qd"]
        if "damping" in self.joint_forces:
            force = force + self._damping(call) * qd
        if "friction" in self.joint_forces:
            force = force + call.library.constant(self.model.friction.astype(self.dtype)) * np.sign(qd)
        return force

    def _damping(self, call: Call) -> Array:
        """Damping coefficients (nv,), on the device of the call's arrays."""
        return call.library.constant(self.model.damping.astype(self.dtype))

    def _take_joint_forces(self, question: QuerySpec, call: Call) -> None:
        """Subtract damping and friction from inputs that are generalised forces."""
        with np.errstate(all="ignore"):
            for name in question.joint_forces:
                if name in call.inputs:
                    call.inputs[name] = call.inputs[name] - self._joint_force(call)

    def _add_joint_forces(self, question: QuerySpec, call: Call, results: Mapping[str, Array]) -> None:
        """Add damping and friction, or their derivatives, to results."""
        with np.errstate(all="ignore"):
            for name, part in question.joint_forces.items():
                if name not in results:
                    continue
                array = results[name]
                if part == "force":
                    array += self._joint_force(call)
                elif "damping" not in self.joint_forces:  # friction has slope zero
                    continue
                elif part == "slope":
                    nv = self.model.nv
                    diagonals = array.reshape(call.batch, nv * nv)[:, :: nv + 1]  # a view: results are contiguous
                    diagonals += self._damping(call)
                else:
                    array += self._damping(call) * call.inputs["vector"]

    # Errors that hold at every state.

    def _require_mass(self, call: Call | None = None) -> None:
        """Raise if no moving body has mass. For the `inertia` of an unchecked call mark the rows instead."""
        if call is None or call.inertia is None:
            if self.model.total_mass == 0.0:
                raise NumericalError(
                    f"model {self.model.name!r}: nothing that moves has mass, so it has no centre of mass"
                )
        elif call.checked or not call.library.on_device:
            nothing = call.library.to_numpy(call.inertia)[..., 0].sum(axis=-1) == 0.0
            call.singular = np.broadcast_to(nothing, call.leading).reshape(call.batch)
            if call.checked and nothing.any():
                where = f" {rows_named(nothing, 0)}" if nothing.ndim else ""
                raise NumericalError(f"inertia: nothing that moves has mass{where}, so there is no centre of mass")

    def singularity(self) -> str | None:
        """Why the mass matrix is singular at every state, naming the body; None if it is regular.

        Forward dynamics, the inverse mass matrix and gradients of forward dynamics raise a `SingularError` with this
        message. Inverse dynamics does not need the inverse and still works.
        """
        return self._singular

    def _require_possible(self, question: QuerySpec) -> None:
        """Raise if the query has no answer at any state of the model."""
        if "inverse" in question.needs and self._singular is not None:
            raise SingularError(self._singular)
        if "held" in question.needs and self._loose is not None:
            raise SingularError(self._loose)
        if "mass" in question.needs:
            self._require_mass()

    def _require_loads(self, question: QuerySpec, given: Iterable[str]) -> None:
        """Raise if a query needs all forces on bodies, the model's constraints hold links, and `f_ext` is missing.

        `given`: names of the call's arrays."""
        if question.of_loads and "f_ext" not in given and self.model.constraints:
            from robodyn.algorithms.constraints.wrenches import holds_links

            if holds_links(self.model):
                raise ArgumentError(
                    f"f_ext: got None for {question.name} of {self.model.name!r}, whose constraints hold links: their "
                    "forces go through joints, too; wanted constraint_wrenches(q, lam), with lam of "
                    "constrained_forward_dynamics or constrained_inverse_dynamics, and what else acts on bodies. "
                    "Dynamics(model, constraints=()) answers for the tree alone"
                )

    def _require_regular(self, call: Call, held: bool = False) -> None:
        """Raise if the mass matrix is singular at every state; with `held` only if the constraints do not hold what has
        no mass. For the `inertia` of an unchecked call mark the rows instead."""
        if call.inertia is None:
            reason = self._loose if held else self._singular
            if reason is not None:
                raise SingularError(reason)
            return
        if held and self._singular is not None:
            return  # kernels of such models give NaN where constraints do not hold what has no mass
        if call.singular is not None or (call.library.on_device and not call.checked):
            return  # the rows are known already, or reading them would wait for the device
        inertia = call.library.to_numpy(call.inertia).astype(np.float64, copy=False)
        leading = inertia.shape[:-2]
        rows = self._judge.singular(inertia.reshape(prod(leading), *inertia.shape[-2:])).reshape(leading)
        if call.checked and rows.any():
            where = f" {rows_named(rows, 0)}" if leading else ""
            raise SingularError(
                f"inertia: the joint-space inertia matrix of {self.model.name!r} is singular at every state{where}; "
                f"{self._culprit(inertia, rows)}wanted bodies with mass and inertia that every joint, or its armature, "
                "can feel"
            )
        call.singular = np.broadcast_to(rows, call.leading).reshape(call.batch)

    def _require_regular_with(self, armature: Array) -> None:
        """Raise if the mass matrix is singular at every state with an armature (nv,) instead of the model's."""
        model = self.model
        if self.singularity() is None and (armature >= model.armature).all():
            return
        independent = (model.mimics < 0).repeat(np.diff([*model.v_start.tolist(), model.nv_tree]))
        rotors = np.where(independent, armature[model.v_source], 0.0)
        bare = cast("Dynamics", self).variant(replace(model, tree_armature=rotors))
        reason = bare._loose if model.constraints and self.singularity() is not None else bare.singularity()
        if reason is not None:
            raise SingularError(reason)

    def _culprit(self, inertia: Array, rows: Array) -> str:
        """Part of an error message: the body without inertia in the first singular row."""
        first = tuple(map(int, np.argwhere(rows)[0]))
        body = self._judge.body(inertia[first])
        if body is None:
            return ""
        row = f" of row {first[0] if len(first) == 1 else first}" if first else ""
        name, joint = self.model.body_names[body], self.model.joint_names[body]
        return f"body {name!r}{row} has no inertia that its joint {joint!r} could move; "

    @cached_property
    def _singular(self) -> str | None:
        return singularity(self.model)

    @cached_property
    def _loose(self) -> str | None:
        return None if self._singular is None else singularity_of_held(self.model)

    @cached_property
    def _judge(self) -> InertiaJudge:
        return InertiaJudge(self.model, judging_engine(self.engine, self.threads), self.dtype)


def checked_choice(model: Model, name: str, value: Any) -> Any:
    """Check the argument `link` (returned as its number), `frame`, `classical` or `axes` of a query.

    Raises:
        ArgumentError: the value is not allowed.
    """
    if name == "link":
        return model.link_index(value)
    if name == "axes":
        if one_of("axes", value, FORCE_AXES) == "world":
            require_whole_vectors(model)
        return value
    return one_of("frame", value, FRAMES) if name == "frame" else flag("classical", value)


def links_of(model: Model, link: Any, links: Any, relative_to: Any) -> tuple[int | None, LinkSelection | None]:
    """(index of the single link, None), or (None, selection) for several links or a relative motion.

    Raises:
        ArgumentError: not exactly one of `link` and `links`, or unknown links.
    """
    if (link is None) == (links is None):
        got = "neither of them" if link is None else f"{brief(link)} and {brief(links)}"
        raise ArgumentError(f"link, links: got {got}; wanted a link's name or index, or links=[...] of several")
    base = None if relative_to is None else _named("relative_to", model, relative_to)
    if links is None:
        number = checked_choice(model, "link", link)
        return (number, None) if base is None else (None, LinkSelection((number,), False, base))
    wanted = "wanted a list of names or indices"
    if strict_types.is_a(links, np.ndarray) and (array := as_array("links", links, wanted)).ndim == 1:
        links = array.tolist()
    if not strict_types.is_a(links, list, tuple):
        raise ArgumentError(f"links: got {brief(links)}; {wanted}")
    numbers = tuple(_named(f"links[{k}]", model, each) for k, each in enumerate(strict_types.members(links)))
    if not numbers:
        raise ArgumentError("links: got an empty list; wanted at least one name or index")
    return None, LinkSelection(numbers, True, base)


def _named(name: str, model: Model, link: Any) -> int:
    try:
        return model.link_index(link)
    except ArgumentError as error:
        raise ArgumentError(f"{name}{str(error).removeprefix('link')}") from None


def point_shapes(places: LinkSelection) -> dict[str, tuple[int, ...]]:
    """Shape of the argument `point` of a call with several links; empty for a single link."""
    return {"point": (len(places.links), POINT)} if places.several else {}


def require_model(model: Any) -> None:
    """Raise an ArgumentError unless `model` is a `Model`."""
    if not strict_types.is_a(model, Model):
        raise ArgumentError(f"model: got {strict_types.type_name(model)}; wanted a robodyn.Model (robodyn.load_urdf)")

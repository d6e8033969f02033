"""Views of bodies, fields, the world and links that steps get on the reference engine. Their scalars are arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.joints import JointKind
from robodyn.core.spatial import IDENTITY, ZERO_FORCE, Force, Inertia, Motion, Transform
from robodyn.engines.reference_groups import Constants, Where, columns, scalars
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property

if TYPE_CHECKING:
    from robodyn.engines.reference import Run


class Bodies:
    """Bodies of one joint kind as a step's `body` (`robodyn.core.sweeps.Body`). Values are computed on first access."""

    def __init__(self, run: Run, constants: Constants) -> None:
        self.run, self.constants, self.joint = run, constants, constants.joint

    @property
    def S(self) -> tuple[Motion, ...]:
        """Columns of the motion subspace."""
        return self.constants.S

    @property
    def pitch(self) -> Any:
        """Pitch of helical joints."""
        return self.constants.pitch

    @property
    def Xtree(self) -> Transform:
        """From the parents' frames to the joints'."""
        return self.constants.Xtree

    @property
    def dofs(self) -> Array:
        """(m, nv) indices of the joints' tree velocities."""
        return self.constants.dofs

    @cached_property
    def inertia(self) -> Inertia:
        """Inertias of the bodies: the input, or the model's."""
        entries = self._rows("inertia")
        return Inertia(entries[0], entries[1:4], entries[4:]) if entries else self.constants.inertia

    @cached_property
    def armature(self) -> tuple[Any, ...]:
        """One scalar per degree of freedom: the input, or the model's."""
        is_input = "armature" in self.run.algorithm.inputs
        return self.run.tree_input("armature", self.dofs) if is_input else self.constants.armature

    @cached_property
    def q(self) -> tuple[Any, ...]:
        """One scalar per coordinate."""
        return self.run.tree_input("q", self.constants.coordinates)

    @cached_property
    def qd(self) -> tuple[Any, ...]:
        """One scalar per degree of freedom."""
        return self.run.tree_input("qd", self.dofs)

    @cached_property
    def qdd(self) -> tuple[Any, ...]:
        """One scalar per degree of freedom."""
        return self.run.tree_input("qdd", self.dofs)

    @cached_property
    def tau(self) -> tuple[Any, ...]:
        """One scalar per degree of freedom."""
        return self.run.tree_input("tau", self.dofs)

    @cached_property
    def vector(self) -> tuple[Any, ...]:
        """One scalar per degree of freedom."""
        return self.run.tree_input("vector", self.dofs)

    @cached_property
    def f_ext(self) -> Force:
        """External forces, in world coordinates."""
        components = self._rows("f_ext")
        return Force(components[:3], components[3:]) if components else ZERO_FORCE

    def _rows(self, name: str) -> tuple[Any, ...]:
        """An input with one row per body as scalars (m, 1, B); empty if the algorithm does not list it."""
        if name not in self.run.algorithm.inputs:
            return ()
        return tuple(scalars(self.run.inputs[name][:, self.constants.bodies].transpose(2, 1, 0)[:, :, None, :]))

    @cached_property
    def unit(self) -> tuple[Array, ...]:
        """(m, lanes, 1): 1 in the lane of the degree of freedom, 0 in all others."""
        lanes = np.arange(self.run.model.nv_tree)
        return tuple((self.dofs[:, c, None] == lanes)[:, :, None].astype(self.run.dtype) for c in range(self.joint.nv))


class WorldValues:
    """Base motion and gravity, as steps of `World` sweeps see them."""

    def __init__(self, run: Run) -> None:
        x, y, z = run.model.gravity.astype(run.dtype).tolist()
        self.gravity = (x, y, z)
        self.V0, self.dV0 = run.base_motion("V0"), run.base_motion("dV0")


class LinkValues:
    """Poses of links in the frames of their bodies."""

    def __init__(self, run: Run, links: Array) -> None:
        entries = columns(run.model.link_X[links], run.dtype)
        self.X = Transform(entries[:9], entries[9:])
        if "point" in run.algorithm.inputs:
            at = tuple(run.inputs["point"].T[:, None, None, :])
            self.X = Transform(IDENTITY.E, at).after(self.X)


class FieldView:
    """Fields of some bodies as attributes, restricted to those that the sweep declares."""

    def __init__(self, run: Run, names: tuple[str, ...], where: Where, kind: JointKind | None) -> None:
        self._run, self._names, self._where, self._kind = run, names, where, kind

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._names:
            raise AttributeError(f"the sweep does not declare the field {name!r}; it declares {self._names}")
        value = self._run.read(name, self._where, self._kind)
        setattr(self, name, value)
        return value


class Carried:
    """The carried values of an `Ancestors` sweep as attributes."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)

"""What steps see on the reference engine: bodies, fields, the world and links, whose scalars are arrays."""

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
    """Bodies of one joint kind: what a step sees of them (`robodyn.sweeps.Body`), made when it is looked at."""

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
        """(m, nv) tree velocities of the joints."""
        return self.constants.dofs

    @cached_property
    def inertia(self) -> Inertia:
        """The model's, or given for each state."""
        given = self._rows("inertia")
        return Inertia(given[0], given[1:4], given[4:]) if given else self.constants.inertia

    @cached_property
    def armature(self) -> tuple[Any, ...]:
        """One scalar per degree of freedom: the model's, or given for each state."""
        given = "armature" in self.run.algorithm.inputs
        return self.run.tree_input("armature", self.dofs) if given else self.constants.armature

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
        given = self._rows("f_ext")
        return Force(given[:3], given[3:]) if given else ZERO_FORCE

    def _rows(self, name: str) -> tuple[Any, ...]:
        """An input with a row for each body as (m, 1, B) scalars; nothing where the algorithm does not list it."""
        if name not in self.run.algorithm.inputs:
            return ()
        return tuple(scalars(self.run.inputs[name][:, self.constants.bodies].transpose(2, 1, 0)[:, :, None, :]))

    @cached_property
    def unit(self) -> tuple[Array, ...]:
        """(m, lanes, 1): 1 in the lane of that degree of freedom, 0 in all others."""
        lanes = np.arange(self.run.model.nv_tree)
        return tuple((self.dofs[:, c, None] == lanes)[:, :, None].astype(self.run.dtype) for c in range(self.joint.nv))


class WorldValues:
    """Base motion and gravity, as a step of the world sees them."""

    def __init__(self, run: Run) -> None:
        x, y, z = run.model.gravity.astype(run.dtype).tolist()
        self.gravity = (x, y, z)
        self.V0, self.dV0 = run.base_motion("V0"), run.base_motion("dV0")


class LinkValues:
    """Where links sit on their bodies."""

    def __init__(self, run: Run, links: Array) -> None:
        entries = columns(run.model.link_X[links], run.dtype)
        self.X = Transform(entries[:9], entries[9:])
        if "point" in run.algorithm.inputs:
            at = tuple(run.inputs["point"].T[:, None, None, :])
            self.X = Transform(IDENTITY.E, at).after(self.X)


class FieldView:
    """Fields of some bodies as attributes; only those that the sweep declares."""

    def __init__(self, run: Run, names: tuple[str, ...], where: Where, kind: JointKind | None) -> None:
        self._run, self._names, self._where, self._kind = run, names, where, kind

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._names:
            raise AttributeError(f"the sweep does not declare the field {name!r}; it declares {self._names}")
        value = self._run.read(name, self._where, self._kind)
        setattr(self, name, value)
        return value


class Carried:
    """What an `Ancestors` sweep carries along, as attributes."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)

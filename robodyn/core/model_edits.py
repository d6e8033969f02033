"""Methods of `Model` that derive other models, write files and export; other modules implement each of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from robodyn.internals.provided import provided

if TYPE_CHECKING:
    from robodyn.core.contacts.kinds import Contact
    from robodyn.core.model import Model
    from robodyn.core.shapes import Shape
    from robodyn.io.editing.writer_common import RobotText


class Edits:
    """Edits of a `Model`. Models never change: every edit returns a new one, with the findings of the old one.

    Constraints and contacts are kept. Those whose links or joints are gone, and those whose two frames or shapes are
    now on one body, are left out and reported. `attach`, `subtree` and `reroot` refuse robots with contacts. Named
    configurations are kept, with the coordinates of the remaining joints.
    """

    def with_frames(self, frames: dict[str, tuple[str | int, Any]]) -> Model:
        """A model with additional named frames. A frame is a link without inertia and can be used wherever a link can.

        Args:
            frames: names to (link, pose): the link, or frame, that each is fixed to, and its pose there: None, three
                numbers (m), a homogeneous matrix (4, 4), or a `robodyn.description.Pose`. A frame may be fixed to an
                earlier one.

        Raises:
            ArgumentError: a name that is taken, no such link, or an invalid pose.
            NumericalError: NaN or infinity in a pose.
        """
        model: Model = provided("with_frames")(self, frames)
        return model

    def with_shapes(
        self,
        shapes: Sequence[Shape],
        pairs: str | Sequence[tuple[Any, Any]] = "auto",
        srdf: str | bytes | os.PathLike[str] | None = None,
    ) -> Model:
        """A model with these shapes for distances, instead of its geometries for collisions.

        Args:
            shapes: `robodyn.Sphere`, `Capsule`, `Box`, `Cylinder` and `Plane`.
            pairs: those that distances are about: a list of pairs of shapes, or of links, which stand for all of their
                shapes. A shape is named by itself, its name or its index in `shapes`. "auto": all pairs, except those
                on one body or on neighbouring ones (links that fixed joints hold are one body), those that touch at
                the reference (zeros, clipped into limits), those that touch in at least 95 % of 1,000 random
                configurations, and those that an MJCF excludes. The report names each that is left out.
            srdf: a path, or text, of an SRDF: with it "auto" are all pairs of different bodies but those that it
                disables.

        Raises:
            ArgumentError: unknown links or names, or other objects, such as meshes.
            UnavailableError: there is no formula: height fields, and pairs of planes; or more than 2,000 shapes with
                "auto".
            LoadError: no usable SRDF.
        """
        model: Model = provided("with_shapes")(self, shapes, pairs, srdf)
        return model

    def with_contacts(
        self,
        contacts: Sequence[Contact],
        *,
        cone: str = "pyramidal",
        impratio: float = 1.0,
        limits: bool = True,
        dry_friction: bool = True,
        iterations: int | None = None,
        max_contacts: int | None = None,
        refsafe: bool = True,
    ) -> Model:
        """A model with these contacts instead of its own, which `contact_forward_dynamics`, steps and rollouts obey.

        Contacts are soft, as in MuJoCo. So are limits, dry friction and the model's constraints, which act with them.
        The softness of each row is scaled by the robot's inertia at its neutral configuration; the model keeps these
        numbers, whatever becomes of it.

        Args:
            contacts: `robodyn.Contact` of two shapes each.
            cone: "pyramidal" or "elliptic".
            impratio: ratio of the impedance of friction to that of the normal, above 0.
            limits: whether joints have limits of position.
            dry_friction: whether joints have the model's `friction`.
            iterations: of Newton's method at most. None: 8 for pyramids, 12, 20 or 24 for elliptic cones with impratio
                up to 1, 10 or more.
            max_contacts: how many slots can act at once, the deepest ones; None for all.
            refsafe: whether time constants are at least two time steps, as in MuJoCo.

        Raises:
            ArgumentError: other objects or numbers, unknown links, or two shapes on one body.
            SingularError: the mass matrix is singular at the neutral configuration.
        """
        model: Model = provided("with_contacts")(
            self, contacts, cone, impratio, limits, dry_friction, iterations, max_contacts, refsafe
        )
        return model

    def with_inertia(
        self,
        link: str | int,
        mass: float | None = None,
        com: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
    ) -> Model:
        """A model in which a link has another inertia. Quantities that are omitted stay as they are.

        Args:
            link: name or index of the link; a frame can get an inertia, too.
            mass: kg.
            com: (3,) centre of mass in the link's frame, m.
            inertia: about the centre of mass in the link's axes, kg m^2: a symmetric matrix (3, 3), or xx, xy, xz, yy,
                yz, zz.

        Raises:
            ArgumentError: no such link, other shapes, or a mass or moments of inertia that loading refuses, too.
            NumericalError: NaN or infinity.
        """
        model: Model = provided("with_inertia")(self, link, mass, com, inertia)
        return model

    def lock(self, joints: dict[str | int, Any]) -> Model:
        """A model in which joints do not move: the links that they carry are merged into the body before them.

        Links, frames and all other joints stay as they are, with their armature, damping, friction and limits. Joints
        that mimic a locked one are locked at the position that follows. Coordinates of the others keep their order.
        Terms of a locked joint in a `Coupling` are added to its offset.

        Args:
            joints: names, or indices in `joint_names`, to coordinates: a number, as many numbers as the joint has, or
                None for neutral. Position limits are ignored.

        Raises:
            ArgumentError: no such joint, one that mimics another, or invalid coordinates.
            NumericalError: NaN or infinity.
        """
        model: Model = provided("lock")(self, joints)
        return model

    def attach(self, other: Model, link: str | int, pose: Any = None, prefix: str = "") -> Model:
        """A model of two robots: the world of another one is fixed to a link of this one.

        Links that are fixed to the other's world, such as its root link, become part of the link's body with their
        mass. A floating base moves relative to the link, so load the other with `base="fixed"`. Coordinates are this
        robot's, then the other's. Gravity is this robot's. Constraints of the other to its world become constraints to
        the link.

        Args:
            other: the robot to attach.
            link: name or index of the link that carries it.
            pose: of the other's world in that link's frame, as in `with_frames`; None: the link's frame.
            prefix: put before all names of the other.

        Raises:
            ArgumentError: names that both have, no such link, an invalid pose or model.
            NumericalError: NaN or infinity in the pose.
        """
        model: Model = provided("attach")(self, other, link, pose, prefix)
        return model

    def subtree(self, link: str | int) -> Model:
        """The part of the robot below a link, with the link as its root, fixed to the world.

        Args:
            link: name or index of the link. Links that are fixed to it and nearer to the root are left out.

        Raises:
            ArgumentError: no such link, or a joint of the part mimics one that is left out.
        """
        model: Model = provided("subtree")(self, link)
        return model

    def reroot(self, link: str | int) -> Model:
        """The same robot with another root link: fixed to the world, or floating if the base floats.

        The frame of the link becomes the world's, or the base's. Joints keep names and coordinates. Joints between the
        link and the old root are reversed: coordinates of spherical and planar joints become the pose of the old parent
        in the old child. Joints are renumbered, parents first. Gravity keeps its components, in the new world.

        Raises:
            ArgumentError: no such link, or a joint of several coordinates on the path has armature, damping or friction
                that has no equivalent after the reversal.
        """
        model: Model = provided("reroot")(self, link)
        return model

    def to_urdf(
        self,
        *,
        meshes: str = "auto",
        folder: str | os.PathLike[str] | None = None,
        package_dirs: Sequence[str | os.PathLike[str]] = (),
    ) -> RobotText:
        """The robot as URDF, to 17 digits: links with their names, inertias and shapes, joints, mimics, limits, frames,
        and elements of the URDF that was read and is not interpreted (transmissions, `<gazebo>`).

        A floating base that loading added is left out: read it with `base="floating"`. Numbers that are read back agree
        to rounding. The `report` of the text lists URDF that other programs do not know (helical, spherical and
        universal joints, armature), and properties that URDF cannot express (gravity, configurations, constraints other
        than loop joints).

        Args:
            meshes: how mesh files are named. "named": as in the robot's file, but relative names become relative to
                `folder`, or absolute without it. "paths": by their paths on this machine, for programs that do not know
                `package://`. "auto": as named if the file is found by that name from `folder`, or not at all, else by
                its path.
            folder: the folder of the text.
            package_dirs: folders that hold packages, for meshes named `package://NAME/...`.

        Raises:
            ArgumentError: names that XML or URDF cannot hold, armature, damping or friction that differs among the
                coordinates of a joint, or a body with no mass whose centre of mass is not at its origin.
        """
        text: RobotText = provided("to_urdf")(self, meshes, folder, package_dirs)
        return text

    def to_mjcf(self, *, package_dirs: Sequence[str | os.PathLike[str]] = ()) -> RobotText:
        """The robot as MJCF for MuJoCo, to 17 digits: links as bodies with their shapes as geoms, frames without
        inertia as sites, joints with armature, damping, friction and limits, mimics and constraints as equalities,
        gravity, configurations as keyframes, and elements of the MJCF that was read and is not interpreted (actuators,
        sensors).

        `load_mjcf(text, equality="mimic")` reads it back. Planar joints become two slides and a hinge. Meshes are named
        by their paths on this machine. The `report` of the text lists properties that MuJoCo does not have or refuses.

        Args:
            package_dirs: folders that hold packages, for meshes named `package://NAME/...`.

        Raises:
            ArgumentError: as in `to_urdf`.
            UnavailableError: MuJoCo has no such joint: helical ones, and floating ones that are not at the world.
        """
        text: RobotText = provided("to_mjcf")(self, package_dirs)
        return text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file of NumPy's .npz format, which `Model.load` reads back bit for bit.

        Raises:
            ArgumentError: not a file name, or the path is not that of a regular file.
            OSError: it cannot be written.
        """
        provided("save")(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """The model in a file that `save` wrote. Loading runs no code of a file, and its size bounds the memory.

        Raises:
            ArgumentError: not a file name.
            LoadError: no such file, damaged, or written by a later version.
        """
        model: Model = provided("load")(cls, path)
        return model

    def graph(self) -> Any:
        """The robot as a `networkx.DiGraph`: links are nodes, joints, fixed ones included, edges from parent to child.

        Nodes have `body` (index, -1 for the world), `mass` (kg), `com` (m) and `inertia` (xx, xy, xz, yy, yz, zz about
        the centre of mass, kg m^2), in the link's axes. Edges have `joint` (name), `type`, `origin` (4, 4) the pose of
        the child's frame at zero in the parent's, `axis` in the child's frame, `index` (in `joint_names`, -1 for fixed
        ones), `lower`, `upper`, `effort`, `velocity`, `armature`, `damping`, `friction`, `pitch` and `mimic`. Bodies
        without a link get a node with their name.

        Raises:
            UnavailableError: networkx is not installed (the extra `graph`).
        """
        return provided("graph")(self)

    def plot_tree(self) -> Any:
        """The robot's links and joints as a figure: a row for each link, below its parent. Needs the extra `plot`.

        Colours are types of joints, areas of dots are masses; dotted lines are constraints between links.

        Returns:
            matplotlib.figure.Figure, which is not shown.

        Raises:
            ArgumentError: more than 500 links.
            UnavailableError: Matplotlib, or networkx, is not installed (the extra `plot`).
        """
        return provided("plot_tree")(self)

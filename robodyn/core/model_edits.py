"""The methods of `Model` that make other models of it, write it, and hand it on; each is done by a file beside this."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from robodyn.internals.provided import provided

if TYPE_CHECKING:
    from robodyn.core.model import Model
    from robodyn.io.editing.writer_common import RobotText


class Edits:
    """What a `Model` can be made into. Models never change: every edit returns a new one, and reports carry over.

    Constraints go along. Those whose links or joints are gone, and those whose frames have become one body's, are left
    out and reported. Named configurations go along, too: their coordinates with the joints.
    """

    def with_frames(self, frames: dict[str, tuple[str | int, Any]]) -> Model:
        """A model with more named frames, which are found wherever a link is asked for: links without inertia.

        Args:
            frames: names to (link, pose): the link, or frame, that each is fixed to, and its pose there: None, three
                numbers (m), a homogeneous matrix (4, 4), or a `robodyn.description.Pose`. A frame may stand on one
                before it.

        Raises:
            ArgumentError: a name that is taken, no such link, or what is no pose.
            NumericalError: NaN or infinity in a pose.
        """
        found: Model = provided("with_frames")(self, frames)
        return found

    def with_inertia(
        self,
        link: str | int,
        mass: float | None = None,
        com: ArrayLike | None = None,
        inertia: ArrayLike | None = None,
    ) -> Model:
        """A model in which a link has another inertia. What is not given stays as it is.

        Args:
            link: name or place of the link; a frame may become heavy too.
            mass: kg.
            com: (3,) centre of mass in the link's frame, m.
            inertia: about the centre of mass in the link's axes, kg m^2: a symmetric matrix (3, 3), or xx, xy, xz, yy,
                yz, zz.

        Raises:
            ArgumentError: no such link, other shapes, or a mass or moments of inertia that are refused in a file, too.
            NumericalError: NaN or infinity.
        """
        found: Model = provided("with_inertia")(self, link, mass, com, inertia)
        return found

    def lock(self, joints: dict[str | int, Any]) -> Model:
        """A model in which joints do not move: what they carry is merged into the body before them.

        Links, frames and all other joints stay as they are, with their armature, damping, friction and limits; joints
        that follow a locked one are locked where it puts them. Coordinates of the others keep their order. What a
        `Coupling` has of a locked joint goes into its offset.

        Args:
            joints: names, or places in `joint_names`, to coordinates: a number, as many numbers as the joint has, or
                None at neutral. Position limits are not looked at.

        Raises:
            ArgumentError: no such joint, one that follows another, or no coordinates.
            NumericalError: NaN or infinity.
        """
        found: Model = provided("lock")(self, joints)
        return found

    def attach(self, other: Model, link: str | int, pose: Any = None, prefix: str = "") -> Model:
        """A model of two robots: the world of another one is fixed to a link of this one.

        What was fixed to the other's world, such as its root link, becomes part of the link's body with its mass; a
        floating base floats against the link, so load the other with `base="fixed"`. Coordinates are this robot's, then
        the other's. Gravity is this robot's. What the other's constraints held to its world they hold to the link.

        Args:
            other: the robot to attach.
            link: name or place of the link that carries it.
            pose: of the other's world in that link's frame, as in `with_frames`; None: where the link is.
            prefix: put before all names of the other.

        Raises:
            ArgumentError: names that both have, no such link, what is no pose or no model.
            NumericalError: NaN or infinity in the pose.
        """
        found: Model = provided("attach")(self, other, link, pose, prefix)
        return found

    def subtree(self, link: str | int) -> Model:
        """The part of the robot that hangs on a link, with the link as its root, fixed to the world.

        Args:
            link: name or place of the link. Links that are fixed to it and nearer to the root stay behind.

        Raises:
            ArgumentError: no such link, or a joint of the part follows one that stays behind.
        """
        found: Model = provided("subtree")(self, link)
        return found

    def reroot(self, link: str | int) -> Model:
        """The same robot, hung on another link: fixed to the world by it, or floating on it where the base floats.

        The frame of the link is the world's, or the base's. Joints keep names and coordinates; those between the link
        and the old root are passed from the other side, which turns the coordinates of spherical and planar joints
        around: they are the pose of the old parent in the old child. Joints are numbered anew, parents first. Gravity
        keeps its numbers, in the new world.

        Raises:
            ArgumentError: no such link, or a joint of several coordinates on the way has armature, damping or friction
                that would not be such when it is turned around.
        """
        found: Model = provided("reroot")(self, link)
        return found

    def to_urdf(
        self,
        *,
        meshes: str = "auto",
        folder: str | os.PathLike[str] | None = None,
        package_dirs: Sequence[str | os.PathLike[str]] = (),
    ) -> RobotText:
        """The robot as URDF, to 17 digits: links with their names, inertias and shapes, joints, mimics, limits, frames,
        and what was kept of the URDF that was read (transmissions, `<gazebo>`).

        A floating base that loading has made is left out: read it with `base="floating"`. Numbers read back agree to
        roundings. What other programs do not know of URDF (helical, spherical and universal joints, armature), and what
        URDF has no words for (gravity, configurations, constraints that are no loop joints), stands in the `report` of
        the text.

        Args:
            meshes: how files of meshes are named. "named": as in the robot's file, but that names relative to it
                become relative to `folder`, or absolute if that is not given; "paths": by where they are found on this
                machine, which programs read that know no `package://`; "auto": as named where the file is found so
                from `folder`, or not at all, else by where it is.
            folder: where the text will stand.
            package_dirs: folders that hold packages, for meshes named `package://NAME/...`.

        Raises:
            ArgumentError: names that XML or URDF cannot hold, armature, damping or friction that differs among the
                coordinates of a joint, or a body with no mass whose centre of mass is not at its origin.
        """
        found: RobotText = provided("to_urdf")(self, meshes, folder, package_dirs)
        return found

    def to_mjcf(self, *, package_dirs: Sequence[str | os.PathLike[str]] = ()) -> RobotText:
        """The robot as MJCF for MuJoCo, to 17 digits: links as bodies with their shapes as geoms, mere frames as sites,
        joints with armature, damping, friction and limits, mimics and constraints as equalities, gravity,
        configurations as keyframes, and what was kept of the MJCF that was read (actuators, sensors).

        `load_mjcf(text, equality="mimic")` reads it back. Planar joints become two slides and a hinge. Meshes are named
        by where they are found on this machine. What MuJoCo does not have, or refuses, stands in the `report` of the
        text.

        Args:
            package_dirs: folders that hold packages, for meshes named `package://NAME/...`.

        Raises:
            ArgumentError: as in `to_urdf`.
            UnavailableError: MuJoCo has no such joint: helical ones, and floating ones that are not at the world.
        """
        found: RobotText = provided("to_mjcf")(self, package_dirs)
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file of NumPy's .npz format, which `Model.load` reads back bit for bit.

        Raises:
            ArgumentError: no name of a file, or something is there that is no regular file.
            OSError: it cannot be written.
        """
        provided("save")(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """The model in a file that `save` wrote. Nothing in a file is run, and memory is bounded by its size.

        Raises:
            ArgumentError: no name of a file.
            LoadError: no such file, damaged, or written by a later version.
        """
        found: Model = provided("load")(cls, path)
        return found

    def graph(self) -> Any:
        """The robot as a `networkx.DiGraph`: links are nodes, joints, fixed ones included, edges from parent to child.

        Nodes have `body` (place, -1 for the world), `mass` (kg), `com` (m) and `inertia` (xx, xy, xz, yy, yz, zz about
        the centre of mass, kg m^2), in the link's axes. Edges have `joint` (name), `type`, `origin` (4, 4) the pose of
        the child's frame at zero in the parent's, `axis` in the child's frame, `index` (place in `joint_names`, -1 for
        fixed ones), `lower`, `upper`, `effort`, `velocity`, `armature`, `damping`, `friction`, `pitch` and `mimic`.
        Bodies without a link have one of their name.

        Raises:
            UnavailableError: networkx is not installed: pip install 'robodyn[graph]'.
        """
        return provided("graph")(self)

    def plot_tree(self) -> Any:
        """The robot's links and joints as a figure: a row for each link, below the one that carries it. Needs the extra
        `plot`.

        Colours are types of joints, areas of dots masses; dotted lines are constraints between links.

        Returns:
            matplotlib.figure.Figure, which is not shown.

        Raises:
            ArgumentError: more than 500 links.
            UnavailableError: Matplotlib, or networkx, is not installed: pip install 'robodyn[plot]'.
        """
        return provided("plot_tree")(self)

"""Keyframes of a mjModel as configurations of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robodyn.core.findings import Notes
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.model_fields import Configurations
from robodyn.internals.arguments import Array
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.io.builders.check_joints import Coupling
from robodyn.io.builders.mjmodel import MjArrays
from robodyn.io.conventions.converter import converter

INITIAL = "qpos0"
"""Name of the configuration in which MuJoCo begins."""
MOST_KEYFRAMES = 10_000
"""Largest number of keyframes that are read."""
_CLOSE = 1e-6
"""Largest difference between a mimicking joint's coordinate in a keyframe and its coupling, relative to the larger of
the coordinate and 1."""


def configurations(
    arrays: MjArrays,
    names: Sequence[str],
    joints: Mapping[str, int],
    model: Model,
    couplings: Mapping[str, Coupling],
    notes: Notes,
    initial: bool,
) -> Configurations:
    """Converts keyframes, and where MuJoCo begins, to configurations of a model.

    Args:
        arrays: arrays of the mjModel.
        names: names of the first keyframes, at most `MOST_KEYFRAMES`.
        joints: index of the first coordinate in qpos of each joint, by its name in the model.
        model: the model that was made from the mjModel.
        couplings: resolved mimics of the model's joints.
        notes: collects findings on omitted data.
        initial: True to have `INITIAL` among the configurations, unless a keyframe has this name.

    Raises:
        LoadError: two keyframes have the same name.
    """
    keys, initial = names, initial and INITIAL not in names
    if not (names or initial):
        return Configurations()
    if len(set(names)) < len(names):
        raise LoadError("the mjModel: keyframes have one name, as after an edit")
    if len(names) < arrays.size("nkey"):
        message = f"{arrays.size('nkey')} of them; the first {len(names)} are read"
        notes.gather("mjcf-keyframe", "keyframes", message, severity="warning")
    qpos = np.array(arrays["key_qpos"][: len(names)] if names else [], dtype=np.float64)
    if initial:
        first = np.array(arrays["qpos0"], dtype=np.float64)[None]
        names, qpos = [*names, INITIAL], np.concatenate([qpos, first]) if names else first
    valid = np.asarray(np.isfinite(qpos).all(axis=1))
    for start in _quaternions(model, joints):
        valid = valid & (qpos[:, start : start + 4] != 0.0).any(axis=1)
    for name in [name for name, kept in zip(names, valid.tolist(), strict=True) if not kept]:
        message = "its qpos is no configuration: it is not finite, or has a quaternion of length 0; left out"
        notes.gather("mjcf-keyframe", _key(name), message, severity="warning")
    kept, qpos = [name for name, good in zip(names, valid.tolist(), strict=True) if good], qpos[valid]
    state_converter = converter(model, "mujoco")
    sizes = {name: KINDS[kind].nq for name, kind in zip(model.joint_names, model.joint_kind.tolist(), strict=True)}
    columns = [joints[name] + np.arange(sizes[name]) for name in state_converter.joint_names]
    q = state_converter.q_from(qpos[:, np.concatenate([np.empty(0, np.intp), *columns]).astype(np.intp)])
    _report_followers(kept, qpos, q, joints, model, couplings, notes)
    if keys:
        _report_other_parts(arrays, keys, notes)
    return Configurations(kept, q)


def _quaternions(model: Model, joints: Mapping[str, int]) -> list[int]:
    """Indices of the first element of each quaternion in qpos."""
    kinds = [(name, KINDS[kind]) for name, kind in zip(model.joint_names, model.joint_kind.tolist(), strict=True)]
    return [joints[name] + kind.quaternion for name, kind in kinds if kind.quaternion is not None]


def _report_followers(
    names: Sequence[str],
    qpos: Array,
    q: Array,
    joints: Mapping[str, int],
    model: Model,
    couplings: Mapping[str, Coupling],
    notes: Notes,
) -> None:
    """Report joints whose coordinate in a keyframe contradicts their coupling. The model uses the coupling."""
    tree = model.tree_coordinates(q)
    starts = dict(zip(model.joint_names, model.q_start.tolist(), strict=True))
    for joint, coupling in couplings.items():
        ours = tree[:, starts[joint]] if joint in starts else np.full(len(names), coupling.offset)
        theirs = qpos[:, joints[joint]]
        off = np.abs(ours - theirs) > _CLOSE * np.maximum(1.0, np.abs(theirs))
        for k in np.flatnonzero(off).tolist():
            message = f"it has joint {quoted(joint)} elsewhere than what it follows leads it, where it is put"
            notes.gather("mjcf-keyframe", _key(names[k]), message, severity="warning")


def _report_other_parts(arrays: MjArrays, names: Sequence[str], notes: Notes) -> None:
    """Report data of keyframes other than configurations."""
    parts = (("time", "key_time"), ("velocities", "key_qvel"), ("activations", "key_act"), ("controls", "key_ctrl"))
    parts_present = [(what, np.any(arrays[name].reshape(arrays.size("nkey"), -1), axis=1)) for what, name in parts]
    parts_present.append(("poses of mocap bodies", np.full(len(names), arrays.size("nmocap") > 0)))
    for k, name in enumerate(names):
        if present := [what for what, has_part in parts_present if has_part[k]]:
            notes.gather("mjcf-keyframe", _key(name), f"its {', '.join(present)} have no part in the model")


def _key(name: str) -> str:
    return f"key {quoted(name)}"

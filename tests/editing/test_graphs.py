"""Graphs of links and joints, for networkx's questions."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from edited import EVERY, loaded, name
from robots import own

import robodyn as rd

networkx = pytest.importorskip("networkx")


@pytest.mark.some(of=8, rest="matrix")
@pytest.mark.parametrize("path", EVERY, ids=name)
def test_every_robot_is_a_tree_of_its_links(path):
    """Poses at neutral follow along the edges, and masses add up."""
    model = loaded(path)
    graph = model.graph()
    assert networkx.is_arborescence(graph) and set(model.link_names) <= set(graph)
    joints = {data["joint"] for *_, data in graph.edges(data=True)}
    assert set(model.joint_names) <= joints and len(joints) == graph.number_of_edges()
    still = model.lock(dict.fromkeys(model.joint_names[b] for b in range(model.n_bodies) if model.mimics[b] < 0))
    poses = dict(zip(model.link_names, rd.Dynamics(still, engine="reference").forward_kinematics([]), strict=True))
    if not model.has_mimic:  # followers stand elsewhere when their leaders are at zero
        placed = {next(iter(networkx.topological_sort(graph))): np.eye(4)}
        for parent, child in networkx.bfs_edges(graph, next(iter(placed))):
            placed[child] = placed[parent] @ graph.edges[parent, child]["origin"]
        for link, pose in poses.items():
            np.testing.assert_allclose(placed[link], pose, atol=1e-12 * max(1.0, np.abs(pose).max()))
    mass = sum(data["mass"] for _, data in graph.nodes(data=True) if data["body"] >= 0)
    assert mass == pytest.approx(model.total_mass)


def test_paths_and_data():
    model = rd.load_urdf(own("arm6")).attach(rd.load_urdf(own("gripper")), "tool0", prefix="g_")
    graph = model.graph()
    path = networkx.shortest_path(graph, "base", "g_palm")
    assert path[0] == "base" and "tool0" in path
    below = networkx.descendants(graph, "g_palm")
    assert below and all(link.startswith("g_") for link in below)
    b = model.joint_index("elbow")
    (edge,) = [data for *_, data in graph.edges(data=True) if data["joint"] == "elbow"]
    assert edge["index"] == b and edge["type"] == "revolute"
    assert (edge["lower"], edge["upper"]) == (model.tree_lower[b], model.tree_upper[b])
    followers = [data for *_, data in graph.edges(data=True) if data["mimic"] is not None]
    assert {each["mimic"].joint for each in followers} == {
        model.joint_names[leader] for leader in model.mimics[model.mimics >= 0]
    }


def test_without_networkx(monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(rd.UnavailableError, match=r"\.\[graph\]"):
        rd.load_urdf(own("arm6")).graph()

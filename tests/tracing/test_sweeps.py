"""Algorithms are texts over scalars of any kind: run body by body on opaque scalars, in random valid orders.

The walker below is a second, naive engine. Its scalars carry a float but refuse comparison, truth and conversion, so a
step that looked at a value would fail; it hands steps only the fields that the sweep declares, and insists that they
write exactly those they declare.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from algorithm_table import ALGORITHMS, needs_own_coordinates
from conftest import random_states, relative

import robodyn as rd
from robodyn.algorithms import kinematics
from robodyn.description import JOINT_TYPES
from robodyn.engines.reference import ReferenceEngine
from robodyn.joints import KINDS
from robodyn.spatial import IDENTITY, Force, Inertia, Motion, Transform, select
from robodyn.sweeps import (
    PER_VELOCITY,
    Algorithm,
    Ancestors,
    BodyOutput,
    ColumnOutput,
    DofOutput,
    FieldOutput,
    Inward,
    LinkColumnOutput,
    LinkOutput,
    Links,
    Outward,
    PairOutput,
    World,
    WorldOutput,
    flatten,
)


class Opaque:
    """A scalar that can be computed with and not looked at."""

    __slots__ = ("value",)
    __hash__ = None

    def __init__(self, value):
        self.value = float(value)

    def _refuse(self, *_):
        raise AssertionError("a step looked at the value of a scalar")

    __bool__ = __float__ = __int__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __index__ = _refuse

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        assert method == "__call__" and not kwargs
        return Opaque(ufunc(*(bare(x) for x in args)))

    def select(self, positive, otherwise):
        return Opaque(select(self.value, bare(positive), bare(otherwise)))

    def __add__(self, other):
        return Opaque(self.value + bare(other))

    def __radd__(self, other):
        return Opaque(bare(other) + self.value)

    def __sub__(self, other):
        return Opaque(self.value - bare(other))

    def __rsub__(self, other):
        return Opaque(bare(other) - self.value)

    def __mul__(self, other):
        return Opaque(self.value * bare(other))

    def __rmul__(self, other):
        return Opaque(bare(other) * self.value)

    def __truediv__(self, other):
        return Opaque(self.value / bare(other))

    def __rtruediv__(self, other):
        return Opaque(bare(other) / self.value)

    def __neg__(self):
        return Opaque(-self.value)


def bare(x):
    return x.value if isinstance(x, Opaque) else x


def opaque(values):
    return tuple(Opaque(x) for x in values)


class Walker:
    """Runs an algorithm on one state, body by body."""

    def __init__(self, model, algorithm: Algorithm, inputs, rng, link=None):
        self.model, self.algorithm, self.inputs, self.rng, self.link = model, algorithm, inputs, rng, link
        self.fields = {}
        self.pairs = []
        for sweep in algorithm.sweeps:
            {
                World: self.world,
                Outward: self.outward,
                Inward: self.inward,
                Ancestors: self.ancestors,
                Links: self.links,
            }[type(sweep)](sweep)

    def order(self):
        """A random order with parents first."""
        key = {-1: 0.0}
        for i in range(self.model.n_bodies):
            key[i] = key[int(self.model.parent[i])] + self.rng.random()
        return sorted(range(self.model.n_bodies), key=key.__getitem__)

    def body(self, i, lane=None):
        m = self.model
        kind = KINDS[m.joint_kind[i]]
        q, v = m.q_start[i], m.v_start[i]
        tree = {
            "q": m.tree_coordinates(self.inputs["q"])[q : q + kind.nq],
            **{
                name: (self.inputs[name][m.v_source] * m.v_multiplier)[v : v + kind.nv]
                for name in PER_VELOCITY
                if name in self.algorithm.inputs
            },
        }
        pitch = Opaque(m.pitch[i])
        X = opaque(m.Xtree[i])
        I = opaque(self.inputs["inertia"][i] if "inertia" in self.algorithm.inputs else m.inertia[i])
        tree.setdefault("armature", m.tree_armature[v : v + kind.nv])
        given = {name: opaque(tree[name]) if name in tree else (0.0,) * kind.nv for name in ("q", *PER_VELOCITY)}
        force = opaque(self.inputs["f_ext"][i]) if "f_ext" in self.algorithm.inputs else (0.0,) * 6
        return SimpleNamespace(
            joint=kind,
            S=kind.subspace(pitch),
            Xtree=Transform(X[:9], X[9:]),
            inertia=Inertia(I[0], I[1:4], I[4:]),
            pitch=pitch,
            f_ext=Force(force[:3], force[3:]),
            unit=tuple(Opaque(lane == v + c) for c in range(kind.nv)),
            **given,
        )

    def nv(self, i):
        return KINDS[self.model.joint_kind[i]].nv if i >= 0 else 0

    def get(self, name, i, lane):
        if (name, i, lane) in self.fields:
            return self.fields[name, i, lane]
        if (name, i, None) in self.fields:
            return self.fields[name, i, None]
        return self.algorithm.fields[name].build(iter([0.0] * 100), self.nv(i))

    def view(self, names, i, lane=None):
        return SimpleNamespace(**{name: self.get(name, i, lane) for name in names})

    def put(self, declared, written, i, lane=None):
        assert set(written) == set(declared)
        for name, value in written.items():
            wanted = self.algorithm.fields[name].size(self.nv(i))
            assert len(flatten(value)) == wanted, name
            self.fields[name, i, lane] = value

    def lanes(self, sweep):
        return range(self.model.nv_tree) if sweep.lanes else [None]

    def world(self, sweep):
        V0, dV0 = (opaque(self.inputs[name]) for name in ("V0", "dV0"))
        world = SimpleNamespace(
            V0=Motion(V0[:3], V0[3:]), dV0=Motion(dV0[:3], dV0[3:]), gravity=opaque(self.model.gravity)
        )
        self.put(sweep.writes, sweep.step(world, self.view(sweep.reads, -1)), -1)

    def outward(self, sweep):
        for lane in self.lanes(sweep):
            for i in self.order():
                own, parent = self.view(sweep.reads, i, lane), self.view(sweep.carries, int(self.model.parent[i]), lane)
                self.put(sweep.writes, sweep.step(self.body(i, lane), own, parent), i, lane)

    def inward(self, sweep):
        for lane in self.lanes(sweep):
            for i in reversed(self.order()):
                written, given = sweep.step(self.body(i, lane), self.view(sweep.reads, i, lane))
                self.put(sweep.writes, written, i, lane)
                assert set(given) == set(sweep.gives)
                parent = int(self.model.parent[i])
                for name, value in given.items():
                    total = [a + b for a, b in zip(flatten(self.get(name, parent, lane)), flatten(value), strict=True)]
                    field = self.algorithm.fields[name]
                    self.fields[name, parent, lane] = field.build(iter(total), self.nv(parent))

    def link_constants(self, link):
        row = opaque(self.model.link_X[link])
        X = Transform(row[:9], row[9:])
        if "point" in self.algorithm.inputs:
            X = Transform(IDENTITY.E, opaque(self.inputs["point"])).after(X)
        return SimpleNamespace(X=X)

    def ancestors(self, sweep):
        links = [self.link] if sweep.of_link else range(len(self.model.link_names)) if sweep.of_links else None
        starts = [(i, i) for i in self.order()]
        if links is not None:
            starts = [(link, int(self.model.link_body[link])) for link in links if self.model.link_body[link] >= 0]
        for origin, i in starts:
            own_i, link = self.view(sweep.reads, i), None if links is None else self.link_constants(origin)
            carry = sweep.start(self.body(i), own_i, link)
            j = i
            while j >= 0:
                assert set(carry) == set(sweep.carries)
                step = sweep.visit(
                    self.body(j), self.view(sweep.visits, j), self.body(i), own_i, SimpleNamespace(**carry)
                )
                written, carry = step
                assert set(written) == set(sweep.writes)
                if sweep.of_link:
                    self.put(sweep.writes, written, j)
                else:
                    self.pairs.append((origin, j, written))
                j = int(self.model.parent[j])

    def links(self, sweep):
        for link in [self.link] if sweep.of_link else range(len(self.model.link_names)):
            own = self.view(sweep.reads, int(self.model.link_body[link]))
            written = sweep.step(self.link_constants(link), own)
            assert set(written) == set(sweep.writes)
            for name, value in written.items():
                self.fields[name, f"link {link}", None] = value

    def output(self, name):
        output, m = self.algorithm.outputs[name], self.model
        G = m.coupling()
        if isinstance(output, WorldOutput):
            return np.array([bare(x) for x in flatten(self.get(output.field, -1, None))]).reshape(output.shape)
        if isinstance(output, LinkOutput):
            chosen = [self.link] if output.of_link else range(len(m.link_names))
            values = [[bare(x) for x in flatten(self.fields[output.field, f"link {k}", None])] for k in chosen]
            return np.array(values).reshape(*([] if output.of_link else [len(values)]), *output.shape)
        if isinstance(output, FieldOutput):
            values = [[bare(x) for x in flatten(self.get(output.field, i, None))] for i in range(m.n_bodies)]
            return np.array(values).reshape((-1,) if output.flat else (m.n_bodies, *output.shape))
        if isinstance(output, PairOutput):
            tree = np.zeros((m.nv_tree, m.nv_tree, output.rows or 1))
            for i, j, written in self.pairs:
                rows, columns = (slice(m.v_start[b], m.v_start[b] + self.nv(b)) for b in (j, i))
                for blocks in output.blocks:
                    if i != j or blocks.diagonal:
                        block = np.array(
                            [[[bare(x) for x in flatten(entry)] for entry in row] for row in written[blocks.field]]
                        )
                        at = (columns, rows) if blocks.transposed else (rows, columns)
                        tree[at] = block.swapaxes(0, 1) if blocks.transposed else block
            given = output.diagonal in self.algorithm.inputs
            if output.diagonal is not None and not given:
                tree[:, :, 0] += np.diag(getattr(m, f"tree_{output.diagonal}"))
            matrices = np.einsum("ya,yzp,zb->pab", G, tree, G)
            matrices[0] += np.diag(self.inputs[output.diagonal]) if given else 0.0
            return matrices[0] if output.rows is None else matrices
        if isinstance(output, LinkColumnOutput):
            tree = np.zeros((len(m.link_names), output.rows, m.nv_tree))
            for link, j, written in self.pairs:
                for r, row in enumerate(written[output.field]):
                    tree[link, :, m.v_start[j] + r] = [bare(x) for x in row]
            return tree @ G
        if isinstance(output, BodyOutput):
            tree = np.zeros((m.nv_tree, m.n_bodies, output.width))
            for i, j, written in self.pairs:
                for r, row in enumerate(written[output.field]):
                    tree[m.v_start[j] + r, i] = [bare(x) for x in row]
            whole = np.einsum("ya,yic->aic", G, tree)
            return whole.reshape(m.nv, -1) if output.flat else whole
        lanes = range(m.nv_tree) if isinstance(output, DofOutput) and output.lanes else [None]
        per = output.rows if isinstance(output, ColumnOutput) else 1
        tree = np.zeros((m.nv_tree, per, len(lanes)))
        for c, lane in enumerate(lanes):
            for i in range(m.n_bodies):
                scalars = [bare(x) for x in flatten(self.get(output.field, i, lane))]
                tree[m.v_start[i] : m.v_start[i] + self.nv(i), :, c] = np.reshape(scalars, (self.nv(i), per))
        total = np.einsum("tv,tpl->vpl", G, tree)
        if isinstance(output, ColumnOutput):
            return total[:, :, 0] if output.transposed else total[:, :, 0].T
        return total[:, 0] @ G if lanes[0] is not None else total[:, 0, 0]


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("mimic", [0.0, 0.6])
@pytest.mark.some(of=3, rest="matrix")
def test_every_algorithm_runs_on_opaque_scalars(name, mimic):
    algorithm = ALGORITHMS[name]
    model = rd.random_tree(9, seed=21, joints=JOINT_TYPES, mimic=mimic, armature=True, base="floating")
    assert model.has_mimic == (mimic > 0)
    if mimic and needs_own_coordinates(algorithm):
        pytest.skip("solves for accelerations of every joint: for models without mimicking joints")
    rng = np.random.default_rng(1)
    q, qd, qdd = random_states(model, seed=2)
    inputs = {"q": q, "qd": qd, "qdd": qdd, "tau": qdd, "vector": qd[::-1], "armature": np.abs(qd)}
    inputs["f_ext"] = rng.standard_normal((model.n_bodies, 6))
    inputs["inertia"] = model.inertia * rng.uniform(0.8, 1.2, (model.n_bodies, 1))
    inputs["point"] = rng.standard_normal(3)
    inputs |= {"V0": rng.standard_normal(6), "dV0": rng.standard_normal(6)}
    link = model.link_index(model.link_names[-1])
    walker = Walker(model, algorithm, inputs, rng, link)
    wanted = {output: walker.output(output) for output in algorithm.outputs}
    got = {output: np.full((1, *value.shape), np.nan) for output, value in wanted.items()}
    engine = ReferenceEngine(model, np.dtype(np.float64))
    engine.run(algorithm, {key: value[None] for key, value in inputs.items()}, got, link=link)
    for output, value in wanted.items():
        assert relative(got[output][0], value) < 1e-13, output
        assert np.abs(value).max() > 0


def test_a_step_sees_only_what_its_sweep_declares():
    def greedy(body, own, parent):
        return {"v": own.secret}

    algorithm = Algorithm("greedy", ("q",), {"v": kinematics.MOTION}, (Outward(greedy, reads=("v",), writes=("v",)),))
    model = rd.auto_tree(1)
    with pytest.raises(AttributeError, match=r"does not declare the field 'secret'; it declares \('v',\)"):
        ReferenceEngine(model, np.dtype(float)).run(algorithm, {"q": np.zeros((1, 1))}, {"v": np.zeros((1, 6))})

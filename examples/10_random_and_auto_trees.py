"""Trees without a file: regular and random ones of every joint kind, and the identities that hold for all of them."""

import numpy as np

import robodyn as rd
from robodyn.description import JOINT_TYPES

# Featherstone's regular trees: a binary tree of 15 tubes, each joint's axis turned against the one before.
tree = rd.auto_tree(15, branching=2, skew=0.5)
H_tree = rd.Dynamics(tree).mass_matrix(tree.random_configuration(0))
print(f"{tree!r}\nparents: {tree.parent}")

# H is sparse where the tree branches: joints i and j are coupled only if one carries the other.
print("\nnon-zero entries of its mass matrix:")
for row in H_tree:
    print("  " + " ".join("x" if entry else "." for entry in row))
print(f"{np.count_nonzero(H_tree)} of {H_tree.size} entries")

# Random trees: any joint kinds and shapes, inertias that real bodies could have, the same for the same seed.
print(f"\njoint types: {', '.join(JOINT_TYPES)}")
model = rd.random_tree(14, seed=10, joints=JOINT_TYPES, armature=True)
dyn = rd.Dynamics(model)
print(model)

rng = np.random.default_rng(10)
q = model.random_configuration(rng)
qd, qdd = rng.uniform(-1.0, 1.0, (2, model.nv))
H, C, g = dyn.mass_matrix(q), dyn.coriolis_matrix(q, qd), dyn.gravity_force(q)
tau = dyn.inverse_dynamics(q, qd, qdd)


def rate(function, h=1e-5):
    """Time derivative of function(q, qd) while tau acts, by central differences on the manifold."""

    def at(t):
        return function(model.integrate(q, qd + 0.5 * t * qdd, t), qd + t * qdd)

    return (at(h) - at(-h)) / (2.0 * h)


N = rate(lambda q, qd: dyn.mass_matrix(q)) - 2.0 * C

# Check: what must hold for every robot. Roundings grow along fourteen bodies; differences at 1e-5 leave 1e-10.
exact, by_differences = 1e-12, 1e-7
identities = {
    "kinetic energy = qd' H qd / 2": (dyn.kinetic_energy(q, qd), 0.5 * qd @ H @ qd, exact),
    "C qd + g = bias": (C @ qd + g, dyn.bias_force(q, qd), exact),
    "H qdd + bias = tau": (H @ qdd + dyn.bias_force(q, qd), tau, exact),
    "forward dynamics undoes inverse": (dyn.forward_dynamics(q, qd, tau), qdd, 1e-9),
    "ABA = mass matrix and L'DL": (
        dyn.forward_dynamics(q, qd, tau, method="aba"),
        dyn.forward_dynamics(q, qd, tau, method="crba"),
        1e-9,
    ),
    "Hdot - 2C is skew": (N, -N.T, by_differences),
    "g' qd = dU/dt": (g @ qd, rate(lambda q, qd: dyn.potential_energy(q)), by_differences),
    "tau' qd = d(K + U)/dt": (
        tau @ qd,
        rate(lambda q, qd: dyn.kinetic_energy(q, qd) + dyn.potential_energy(q)),
        by_differences,
    ),
}
for name, (left, right, tolerance) in identities.items():
    error = np.abs(left - right).max() / max(1.0, np.abs(right).max())
    print(f"{name:<34} off by {error:.1e}")
    assert error < tolerance, f"{name}: off by {error:.1e}, allowed {tolerance:.1e}"

related = np.eye(15, dtype=bool)
for body in range(15):
    ancestor = tree.parent[body]
    while ancestor >= 0:
        related[body, ancestor] = related[ancestor, body] = True
        ancestor = tree.parent[ancestor]
assert np.array_equal(H_tree != 0.0, related), "the mass matrix is not sparse where the tree branches"
assert rd.random_tree(14, seed=10, joints=JOINT_TYPES, armature=True) == model, "the same seed gave another robot"

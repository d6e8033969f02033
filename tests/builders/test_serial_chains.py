"""Serial chains of Denavit-Hartenberg tables and of screws, against products of the textbooks' matrices."""

import numpy as np
import pytest
from scipy.linalg import expm

import robodyn as rd


def turn(axis, angle, shift):
    i, j = (axis + 1) % 3, (axis + 2) % 3
    T = np.eye(4)
    T[[i, i, j, j], [i, j, i, j]] = np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)
    T[axis, 3] = shift
    return T


def hat(S):
    (x, y, z), v = S[:3], S[3:]
    return np.vstack([np.column_stack([[[0, -z, y], [z, 0, -x], [-y, x, 0]], v]), np.zeros(4)])


@pytest.mark.parametrize("convention", ["standard", "modified"])
@pytest.mark.parametrize("seed", range(4))
def test_tables(convention, seed):
    rng = np.random.default_rng(seed)
    n = 6
    table = {name: rng.uniform(-2, 2, n) for name in ("a", "alpha", "d", "theta")}
    kinds = "".join(rng.choice(["R", "P"], n))
    com, mass, B = rng.normal(size=(n, 3)), rng.uniform(1, 2, n), rng.normal(size=(n, 3, 3))
    inertia = np.einsum("nij,nkj->nik", B, B)
    inertia = np.eye(3) * np.trace(inertia, axis1=1, axis2=2)[:, None, None] - inertia  # of masses in space
    upper = np.where(rng.random(n) < 0.5, np.inf, 1.0)
    model = rd.from_dh(
        **table,
        kinds=kinds,
        convention=convention,
        mass=mass,
        com=com,
        inertia=inertia,
        damping=0.5,
        lower=-1,
        upper=upper,
    )
    dyn, q = rd.Dynamics(model, engine="reference"), rng.uniform(-2, 2, n)
    T, moment, about = np.eye(4), 0.0, 0.0
    for k, kind in enumerate(kinds):
        along = turn(2, table["theta"][k] + q[k] * (kind == "R"), table["d"][k] + q[k] * (kind == "P"))
        across = turn(0, table["alpha"][k], table["a"][k])
        T = T @ (along @ across if convention == "standard" else across @ along)
        np.testing.assert_allclose(dyn.link_pose(q, f"link{k + 1}"), T, atol=1e-12)
        moment = moment + mass[k] * (T[:3, :3] @ com[k] + T[:3, 3])
        c, R = T[:3, :3] @ com[k] + T[:3, 3], T[:3, :3]
        about = about + R @ inertia[k] @ R.T + mass[k] * (c @ c * np.eye(3) - np.outer(c, c))
    com, IG = moment / mass.sum(), dyn.centroidal_inertia(q)[:3, :3]
    np.testing.assert_allclose(dyn.center_of_mass(q), com, atol=1e-12)
    np.testing.assert_allclose(IG, about - mass.sum() * (com @ com * np.eye(3) - np.outer(com, com)), atol=1e-10)
    assert (model.damping == 0.5).all() and (model.upper == upper).all()


@pytest.mark.parametrize("seed", range(4))
def test_screws(seed):
    rng = np.random.default_rng(seed)
    n, screws = 6, []
    for kind in rng.choice(["revolute", "prismatic", "helical"], n):
        w, p = rng.normal(size=(2, 3))
        w /= np.linalg.norm(w)
        v = np.cross(p, w) + (0.3 * w if kind == "helical" else 0.0)
        screws.append(np.r_[np.zeros(3), w] if kind == "prismatic" else np.r_[w, v])
    home = expm(hat(rng.normal(size=6)))
    model = rd.from_screws(screws, home)
    q, T = rng.uniform(-2, 2, n), np.eye(4)
    for S, angle in zip(screws, q, strict=True):
        T = T @ expm(hat(S) * angle)
    dyn = rd.Dynamics(model, engine="reference")
    np.testing.assert_allclose(dyn.link_pose(q, "tool"), T @ home, atol=1e-11)
    np.testing.assert_allclose(dyn.jacobian(0 * q, "tool", frame="world"), np.transpose(screws), atol=1e-12)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"a": [1.0, 2.0], "alpha": [0.0] * 3, "d": 0.0}, "^a: got columns of these lengths: a 2, alpha 3"),
        ({"a": [1.0, 2.0], "alpha": 0.0, "d": 0.0, "kinds": "RPR"}, "^a: got columns .* kinds 3"),
        ({"a": 1.0, "alpha": 0.0, "d": 0.0, "kinds": "X"}, "^kinds: got 'X'; wanted 1 letters R"),
        ({"a": 1.0, "alpha": 0.0, "d": [[0.0]]}, r"^d: got shape \(1, 1\)"),
        ({"a": 1.0, "alpha": np.nan, "d": 0.0}, "^alpha: "),
        ({"a": 1.0, "alpha": 0.0, "d": 0.0, "convention": "craig"}, "^convention: got 'craig'"),
        ({"a": 1.0, "alpha": 0.0, "d": 0.0, "masses": 1.0}, "^masses: no such argument; wanted any of mass"),
        ({"a": 1.0, "alpha": 0.0, "d": 0.0, "com": [0.0] * 3}, "^com: given without mass"),
        ({"a": [], "alpha": 0.0, "d": 0.0}, "^a: got columns of these lengths: a 0"),
    ],
)
def test_wrong_tables_are_refused(given, said):
    with pytest.raises((rd.ArgumentError, rd.NumericalError), match=said):
        rd.from_dh(**given)


@pytest.mark.parametrize(
    ("screws", "home", "said"),
    [
        ([[0, 0, 2, 0, 0, 0]], None, "^screws: the angular part of row 0 has length 2"),
        ([[0, 0, 0, 0, 0, 0]], None, "^screws: the linear part, the angular one being zero, of row 0 has length 0"),
        (np.zeros((2, 2, 6)), None, r"^screws: got shape \(2, 2, 6\)"),
        ([[0, 0, 1, 0, 0, np.inf]], None, "^screws: "),
        ([[0, 0, 1, 0, 0, 0]], 2 * np.eye(4), "^home: "),
    ],
)
def test_wrong_screws_are_refused(screws, home, said):
    with pytest.raises((rd.ArgumentError, rd.NumericalError), match=said):
        rd.from_screws(screws, home)

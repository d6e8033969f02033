"""A posture that reaches a point with little torque: Newton's method in JAX, an optimiser of PyTorch, one cost."""

from pathlib import Path
from time import perf_counter

import numpy as np

import robodyn as rd

np.set_printoptions(precision=4, suppress=True, linewidth=120)

try:
    import jax
except ImportError:
    jax = None
    print("JAX is not installed (pip install '.[jax]'): its part is left out")
try:
    import torch
except ImportError:
    torch = None
    print("PyTorch is not installed (pip install '.[torch]'): its part is left out")

MODELS = Path(__file__).resolve().parent.parent / "models"
model = rd.load_urdf(MODELS / "arm7.urdf")
dyn = rd.Dynamics(model)
tool = model.link_index("tool0")
target = np.array([0.45, 0.2, 0.5])
start = np.array([0.3, 0.6, -0.2, -1.3, 0.4, 0.9, 0.1])


def cost(queries, q, target=target):
    """Torques that hold the arm, in 10 N m, and the way to go, in cm. One text for NumPy, JAX and PyTorch."""
    holding = queries.gravity_force(q) / 10.0
    away = (queries.forward_kinematics(q)[..., tool, :3, 3] - target) / 0.01
    return (holding**2).sum(-1) + (away**2).sum(-1) + 0.01 * (q**2).sum(-1)


def by_newton():
    """Steps with the exact Hessian, damped as much as it takes for the cost to go down."""
    from robodyn.jax import wrap

    jax.config.update("jax_enable_x64", True)
    queries = wrap(dyn)

    def own_cost(q):
        return cost(queries, q)

    # One program: cost, gradient, and the Hessian, which takes second derivatives of the dynamics.
    step = jax.jit(lambda q: (own_cost(q), jax.grad(own_cost)(q), jax.hessian(own_cost)(q)))
    q, damping = np.array(start), 1.0
    value, slope, curvature = step(q)
    first = np.asarray(slope)
    steps = 0
    while np.abs(slope).max() > 1e-9 and steps < 100:
        steps += 1
        trial = q - np.linalg.solve(curvature + damping * np.eye(model.nv), slope)
        found = step(trial)
        if found[0] > value:
            damping *= 10.0
            continue
        damping, q = max(damping / 10.0, 1e-9), trial
        value, slope, curvature = found
    assert steps < 100, "Newton's method did not end"
    begin = perf_counter()
    jax.block_until_ready([step(q) for _ in range(100)])
    each = (perf_counter() - begin) / 100
    print(f"JAX: Newton's method ends after {steps} steps, {1e6 * each:.0f} us for cost, gradient and Hessian")
    return q, first


def by_quasi_newton():
    """L-BFGS, which needs gradients alone."""
    from robodyn.torch import wrap

    queries, point = wrap(dyn), torch.from_numpy(target)
    q = torch.tensor(start, requires_grad=True)
    first = torch.autograd.grad(cost(queries, q, point), q)[0].numpy()
    optimiser = torch.optim.LBFGS(
        [q], max_iter=500, tolerance_grad=1e-9, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimiser.zero_grad()
        value = cost(queries, q, point)
        value.backward()
        return value

    optimiser.step(closure)
    calls = optimiser.state[q]["func_evals"]
    # A batch is one call as well: the slope of the cost at a thousand postures.
    many = torch.from_numpy(model.random_configuration(0, (1000,))).requires_grad_()
    begin = perf_counter()
    cost(queries, many, point).sum().backward()
    print(f"PyTorch: L-BFGS ends after {calls} gradients; 1000 postures in {1e3 * (perf_counter() - begin):.1f} ms")
    return q.detach().numpy(), first


away = np.linalg.norm(dyn.forward_kinematics(start)[tool, :3, 3] - target)
print(f"at the start: cost {cost(dyn, start):.3f}, tool {1e3 * away:.0f} mm away")
found = {}
if jax is not None:
    found["JAX"] = by_newton()
if torch is not None:
    found["PyTorch"] = by_quasi_newton()
for name, (q, _) in found.items():
    away = np.linalg.norm(dyn.forward_kinematics(q)[tool, :3, 3] - target)
    print(f"{name:<8} cost {cost(dyn, q):.6f}, {1e3 * away:.2f} mm away, torques {dyn.gravity_force(q)} N m")

# Check. The gradient at the start against central differences, truncation of h^2 = 1e-12 and roundings of 1e-10; at
# the end, the slope by the same differences is flat.
h = 1e-6
steps = h * np.eye(model.nv)
for name, (q, first) in found.items():
    slope = (cost(dyn, start + steps) - cost(dyn, start - steps)) / (2.0 * h)
    error = np.abs(first - slope).max() / np.abs(slope).max()
    rest = np.abs(cost(dyn, q + steps) - cost(dyn, q - steps)).max() / (2.0 * h)
    print(f"{name:<8} gradient at the start off by {error:.1e} of it, slope at the end {rest:.1e}")
    assert error < 1e-6, f"{name}: the gradient is off by {error:.1e}"
    assert rest < 1e-3, f"{name}: the slope at the end is {rest:.1e}"
    assert cost(dyn, q) < 0.1 * cost(dyn, start), f"{name}: the cost did not go down enough"

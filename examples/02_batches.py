"""Many states in one call: leading axes broadcast as in NumPy, results go where `out=` says, float32 on demand."""

from pathlib import Path
from time import perf_counter

import numpy as np

import robodyn as rd

MODELS = Path(__file__).resolve().parent.parent / "models"
model = rd.load_urdf(MODELS / "arm7.urdf")
dyn = rd.Dynamics(model)
rng = np.random.default_rng(2)

# Leading axes are free and broadcast: 30 poses x 20 velocities, one acceleration for all.
q = model.random_configuration(rng, (30, 1))
qd = rng.uniform(-1.0, 1.0, (20, model.nv))
qdd = np.zeros(model.nv)
tau = dyn.inverse_dynamics(q, qd, qdd)
H = dyn.mass_matrix(q)
print(f"q {q.shape}, qd {qd.shape}, qdd {qdd.shape} -> tau {tau.shape}; q {q.shape} -> H {H.shape}")

# Results can be written into arrays of your own: the last axis of a bigger one, for instance.
log = np.full((30, 20, 2, model.nv), np.nan)
returned = dyn.inverse_dynamics(q, qd, qdd, out=log[..., 0, :])
dyn.bias_force(q, qd, out=log[..., 1, :])
gradients = (np.empty((30, 20, model.nv, model.nv)), np.empty((30, 20, model.nv, model.nv)))
dyn.inverse_dynamics_gradient(q, qd, qdd, out=gradients)
print(f"out=: wrote {log.shape} and two {gradients[0].shape}; the call returned the array itself")

# float32 halves the memory and, on engines that compile, the time. Everything is computed and returned in it.
single = rd.Dynamics(model, dtype="float32")
tau32 = single.inverse_dynamics(q, qd, qdd)
float32_error = np.abs(tau32 - tau).max() / np.abs(tau).max()
print(f"float32: {tau32.dtype}, relative difference from float64 {float32_error:.1e}")

# A bad state spoils its own row only. With check=True, or for single states, it raises and names the row.
spoiled = q.copy()
spoiled[7, 0, 3] = np.nan
bad_rows = np.flatnonzero(np.isnan(dyn.gravity_force(spoiled)).any(axis=(1, 2)))
print(f"a NaN in row 7 of q: rows with NaN in the result {bad_rows}")
try:
    rd.Dynamics(model, check=True).gravity_force(spoiled)
    raise SystemExit("check=True let a NaN pass")
except rd.NumericalError as error:
    print(f"with check=True: {error}")

# What batching buys. The first call of each kind is left out: engines may compile then.
count = 4000
states = (model.random_configuration(rng, (count,)), *rng.uniform(-1.0, 1.0, (2, count, model.nv)))


def rate(call, size):
    call()
    start = perf_counter()
    call()
    return size / (perf_counter() - start)


print(f"\nstates per second, {dyn}:")
print(f"{'query':<28}{'one by one':>12}{'batch':>12}{'batch, float32':>17}")
for query in ("inverse_dynamics", "forward_dynamics", "inverse_dynamics_gradient", "forward_dynamics_gradient"):
    ask, ask32 = getattr(dyn, query), getattr(single, query)
    one_by_one = rate(
        lambda ask=ask: [ask(*state) for state in zip(*(array[:10] for array in states), strict=True)], 10
    )
    batch = rate(lambda ask=ask: ask(*states), count)
    batch32 = rate(lambda ask=ask32: ask(*states), count)
    print(f"{query:<28}{one_by_one:>12,.0f}{batch:>12,.0f}{batch32:>17,.0f}")

# Check: every way of asking gives what single states give.
singly = np.array([[dyn.inverse_dynamics(a[0], b, qdd) for b in qd[:3]] for a in q[:5]])
batch_error = np.abs(tau[:5, :3] - singly).max() / np.abs(singly).max()
print(f"\nbatch and single calls differ by {batch_error:.1e} of the largest torque")
# The same arithmetic, perhaps in another order: a few roundings of 1.1e-16, grown along seven bodies.
assert batch_error < 1e-13, f"batch and single calls differ by {batch_error:.1e}"
assert np.shares_memory(returned, log), "out= did not return the array it was given"
assert np.array_equal(log[..., 0, :], tau), "out= holds other numbers than a plain call returns"
assert not np.isnan(log).any(), "out= left entries unwritten"
assert np.array_equal(gradients[0], dyn.inverse_dynamics_gradient(q, qd, qdd)[0]), "gradients in out= differ"
# Roundings of 6e-8, and sums of torques that cancel in part.
assert tau32.dtype == np.float32 and float32_error < 2e-5, f"float32 is off by {float32_error:.1e}"
assert list(bad_rows) == [7], f"a NaN in row 7 reached rows {bad_rows}"

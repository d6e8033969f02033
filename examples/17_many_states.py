"""Workspace and torques of a humanoid over any number of states, in blocks that nobody keeps (needs `dask`, `zarr`).

    python examples/17_many_states.py [STATES [ADDRESS]]

200,000 states on the threads of this process, unless told otherwise: 100000000, and the address of a Dask scheduler.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import robodyn as rd

try:
    import distributed
    import zarr  # noqa: F401 - map writes with it
except ImportError:
    print("Dask or zarr is not installed (pip install '.[dask]'): nobody to compute blocks")
    raise SystemExit(0) from None

STATES = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
CHUNK = max(1, min(100_000, STATES // 4))
SEEDS = range(-(-STATES // CHUNK))

model = rd.load_urdf(Path(__file__).parent.parent / "models" / "humanoid.urdf")
dyn = rd.Dynamics(model)
client = distributed.Client(sys.argv[2]) if len(sys.argv) > 2 else None

# Where the left hand gets to: boxes of 10 cm that were reached, of the block's poses T (n, 4, 4). No pose is kept.
reach = np.linspace(-1.2, 1.2, 25)
begin = time.perf_counter()
places = rd.distributed.map(
    dyn,
    "link_pose",
    SEEDS,
    "left_hand",
    chunk=CHUNK,
    client=client,
    reduce=rd.distributed.Histogram(lambda arrays: arrays["T"][:, :3, 3], [reach, reach, reach]),
)
reached = np.count_nonzero(places["counts"])
print(f"{places['counts'].sum():,} poses of the left hand reach {reached} boxes of a litre, {reached / 1e3:.2f} m^3")

# Torques at random speeds within limits, pelvis fixed, joints not accelerating; and how often the drives could not
# give them. Equal seeds draw equal configurations. What each block gives is kept in storage: to ask again costs
# nothing, and had this process died, the next one would have gone on.
with tempfile.TemporaryDirectory() as folder:

    def torques():
        limit = model.effort_limit
        return rd.distributed.map(
            dyn,
            "inverse_dynamics",
            SEEDS,
            qdd=np.zeros(model.nv),
            chunk=CHUNK,
            client=client,
            out=Path(folder) / "torques.zarr",
            reduce={
                "tau": rd.distributed.Statistics(),
                "beyond": rd.distributed.Statistics(of=lambda arrays: np.abs(arrays["tau"]) > limit),
            },
        )

    found = torques()
    seconds = time.perf_counter() - begin
    again = torques()

tau, beyond = found["tau"], found["beyond"]["mean"]
print(f"\n{'joint':22}{'mean':>9}{'std':>9}{'least':>9}{'largest':>9}  N m, beyond its limit")
for joint in np.argsort(-beyond)[:8]:
    numbers = "".join(f"{tau[name][joint]:9.1f}" for name in ("mean", "std", "minimum", "maximum"))
    print(f"{model.joint_names[joint]:22}{numbers}  {beyond[joint]:.2%}")
print(f"\n{len(SEEDS) * CHUNK:,} states, twice, in {seconds:.1f} s")

# Check: the first and the last block, drawn and asked here, lie within what was found; and storage gave the same bits.
for seed in (SEEDS[0], SEEDS[-1]):
    drawn = rd.distributed.random_inputs(model, "inverse_dynamics", np.random.default_rng(seed), CHUNK)
    one = dyn.inverse_dynamics(drawn["q"], drawn["qd"], np.zeros(model.nv))
    assert (one.min(axis=0) >= tau["minimum"]).all() and (one.max(axis=0) <= tau["maximum"]).all()
    inside = np.histogramdd(dyn.link_pose(drawn["q"], "left_hand")[:, :3, 3], bins=[reach, reach, reach])[0] > 0
    assert (places["counts"][inside] > 0).all()
assert (tau["count"] == len(SEEDS) * CHUNK).all() and not tau["not_finite"].any() and places["outside"] == 0
assert all((again["tau"][name] == tau[name]).all() for name in tau)
if client is not None:
    client.close()
print("the first and the last block agree with one call each, and storage with what was computed")

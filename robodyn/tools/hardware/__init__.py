"""Gradients as hardware: fixed-point datapaths for FPGAs, simulated bit by bit.

    d = rd.hardware.datapath(model, width=18, multipliers=64, box=rd.hardware.Box(qd=2.0, qdd=10.0))
    dqdd_dq, dqdd_dqd = d.evaluate(q, qd, qdd, Minv)
    d.write("folder")

A robot's gradient is traced into sums and products (`program`), cleaned (`passes`), given formats for the values in a
box of states (`ranges`, `formats`), scheduled (`schedule`) and printed (`verilog`); `model` computes in NumPy what the
circuit does, to the bit.
"""

from robodyn.tools.hardware.datapaths import Datapath, datapath
from robodyn.tools.hardware.ranges import Box
from robodyn.tools.hardware.simulate import SimulationReport
from robodyn.tools.hardware.synthesis import Resources

__all__ = ["Box", "Datapath", "Resources", "SimulationReport", "datapath"]

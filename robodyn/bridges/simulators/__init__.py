"""Bridges to simulators: one module each, imported on demand.

`robodyn.simulators.mujoco`, `pybullet`, `gymnasium` and `drake` need their libraries when they are used; `ros` needs
none, except for bags. robodyn itself needs none of them.
"""

"""Dynamics algorithms, each written once as sweeps over the tree (`robodyn.core.sweeps`)."""

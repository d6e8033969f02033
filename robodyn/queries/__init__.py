"""The queries of a Dynamics, by what they are about; `robodyn.dynamics` joins them."""

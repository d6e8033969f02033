"""The queries of a Dynamics, by what they are about; `robodyn.api.dynamics` joins them."""

"""The queries of a `Dynamics`, grouped by topic; `robodyn.api.dynamics` combines them in one class."""

"""The command `robodyn`; see `robodyn.tools.cli.app`."""

from __future__ import annotations

from robodyn.tools.cli.app import main, run

__all__ = ["main", "run"]

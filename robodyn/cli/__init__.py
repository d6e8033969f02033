"""The command `robodyn`; see `robodyn.cli.app`."""

from __future__ import annotations

from robodyn.cli.app import main, run

__all__ = ["main", "run"]

"""The command `view`: shows a robot in a browser, or writes an HTML page."""

from __future__ import annotations

import contextlib
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from robodyn.core.model import Model
from robodyn.internals.files import require_writable
from robodyn.internals.messages import printable
from robodyn.tools.cli.states import numbers
from robodyn.tools.viewer.show import show


def view(model: Model, q: str | None, package_dirs: Sequence[str], port: int, browser: bool, out: str | None) -> None:
    """Show a robot until Ctrl-C, or write the page `out`."""
    state = None if q is None else numbers("--q", q, model.coordinate_names)
    folders = [Path(each) for each in package_dirs]
    path = None if out is None else require_writable(out, "--out")
    with show(model, state, package_dirs=folders, port=port) as shown:
        for each in shown.left_out:
            print(f"left out: {printable(each)}")
        if path is not None:
            shown.save_html(path)
            print(f"wrote {printable(str(path))}")
            return
        with contextlib.suppress(KeyboardInterrupt):
            print(f"{printable(model.name)} is at {shown.url}, for this machine alone; Ctrl-C ends it", flush=True)
            if browser:
                webbrowser.open(shown.url)
            shown.wait()

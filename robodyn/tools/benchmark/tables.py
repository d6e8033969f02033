"""Tables of measurements, for the terminal and for documentation."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from robodyn.internals.records import dataclass
from robodyn.tools.benchmark.compare import Report, Result

HEADLINE = (
    "Nanoseconds for one state: the best and the median of many runs. A batch of 1 is one state a call, from a loop in "
    "Python; other batches are one call, results written to the same arrays every time. `any`: one state a call, "
    "whatever the batch. Before anything was timed, its answers were compared with robodyn's (`differs`: largest "
    "difference, relative to the largest entry)."
)
"""Explanation of the numbers."""
_REMARK_WIDTH = 48


@dataclass(frozen=True)
class Cells:
    """A table as text: title, columns (names of numeric columns end in a blank), and rows."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def filled(self) -> Cells:
        """The table without empty columns."""
        columns = [i for i in range(len(self.columns)) if any(row[i] for row in self.rows)]
        rows = [tuple(row[i] for i in columns) for row in self.rows]
        return Cells(self.title, tuple(self.columns[i] for i in columns), rows)

    def rich(self) -> Table:
        """The table for the terminal."""
        look = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0)}
        table = Table(title=self.title, **look)  # type: ignore[arg-type]
        for column in self.columns:
            table.add_column(column.strip(), justify="right" if column.endswith(" ") else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(cell, style="bold red" if cell.startswith("WRONG") else "") for cell in row))
        return table

    def markdown(self) -> list[str]:
        """The table as lines of Markdown."""
        names = [column.strip() for column in self.columns]
        rule = ["---:" if column.endswith(" ") else "---" for column in self.columns]
        lines = [_row(names), f"|{'|'.join(rule)}|"]
        return [*lines, *(_row([cell.replace("|", "\\|") for cell in row]) for row in self.rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def tables(report: Report) -> list[Cells]:
    """The table of our results and that of the peers' results; empty ones are omitted."""
    return [table for table in (_ours(report), _peers(report)) if table.rows]


def footnotes(report: Report) -> list[str]:
    """Long remarks with their numbers in the tables, and the report's notes."""
    return [*(f"[{n}] {text}" for n, text in enumerate(_long_remarks(report), start=1)), *report.notes]


def _long_remarks(report: Report) -> list[str]:
    return list(dict.fromkeys(each.problem for each in report.results if len(each.problem) > _REMARK_WIDTH))


def _remark(report: Report, result: Result) -> str:
    if len(result.problem) <= _REMARK_WIDTH:
        return result.problem
    return f"not measured [{_long_remarks(report).index(result.problem) + 1}]"


def _ours(report: Report) -> Cells:
    title = f"{report.robot}: {report.dof} degrees of freedom, robodyn's engine '{report.engine}', each state"
    numbers = ("threads ", "batch ", "best ns ", "median ns ", "states/s ", "GFLOP/s ")
    columns = ("query", "dtype", *numbers, "best peer", "its ns ", "ratio ", "remark")
    rows = []
    for result in report.results:
        if not result.ours:
            continue
        peer = report.best_peer(result)
        rate = ""
        if result.operations is not None and result.best_ns:
            rate = f"{result.operations / result.best_ns:.3g}"
        ratio, name, theirs = "", "", ""
        if peer is not None and peer.best_ns and result.best_ns:
            ratio, name, theirs = f"{peer.best_ns / result.best_ns:.3g} x", _label(peer), number(peer.best_ns)
        rows.append((result.query, result.dtype, *_numbers(result), rate, name, theirs, ratio, _remark(report, result)))
    return Cells(title, columns, rows).filled()


def _peers(report: Report) -> Cells:
    title = f"{report.robot}: {', '.join(report.peers)}, each state"
    numbers = ("threads ", "batch ", "best ns ", "median ns ", "states/s ", "differs ")
    columns = ("query", "peer", "dtype", *numbers, "remark")
    rows = []
    for result in report.results:
        if not result.ours:
            off_by = "" if result.off_by is None else f"{result.off_by:.0e}"
            rows.append((result.query, result.name, result.dtype, *_numbers(result), off_by, _remark(report, result)))
    return Cells(title, columns, rows).filled()


def _numbers(result: Result) -> tuple[str, ...]:
    batch = "any" if result.batch is None else str(result.batch)
    if result.best_ns is None or result.median_ns is None:
        return (str(result.threads), batch, "", "", "")
    return (str(result.threads), batch, *map(number, (result.best_ns, result.median_ns, 1e9 / result.best_ns)))


def _label(result: Result) -> str:
    return result.name if result.threads == 1 else f"{result.name}, {result.threads} threads"


def number(value: float) -> str:
    """A number with three significant digits and thousands separators."""
    if value >= 1000:
        digits = int(float(f"{value:.3g}"))
        return f"{digits:,}"
    return f"{value:.3g}"

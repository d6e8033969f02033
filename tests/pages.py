"""Pages whose tables are written by scripts, between a pair of comments for each."""

from __future__ import annotations

import robots

ACCURACY = robots.ROOT / "docs" / "accuracy.md"


def between(text: str, mark: str, new: str) -> str:
    """The text of a page with what stands between the two comments of a mark replaced."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{new}\n{end}{after}"

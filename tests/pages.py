"""Pages whose tables are written by scripts, between a pair of comments for each."""

from __future__ import annotations

import robots

PAGES = [robots.ROOT / "docs" / f"accuracy{part}.md" for part in ("", "_robots", "_engines")]


def between(text: str, mark: str, new: str) -> str:
    """The text of a page with what stands between the two comments of a mark replaced."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{new}\n{end}{after}"


def publish(tables: dict[str, str], *, write: bool) -> None:
    """Put tables where the pages on accuracy have their marks, or print them."""
    missing = set(tables)
    for page in PAGES:
        text = page.read_text()
        here = {mark: table for mark, table in tables.items() if f"<!-- {mark}: begin -->" in text}
        missing -= set(here)
        for mark, table in here.items():
            text = between(text, mark, table)
        if write:
            page.write_text(text)
        elif here:
            print(*here.values(), sep="\n\n")
    if missing:
        raise LookupError(f"no page has a place for {', '.join(sorted(missing))}")

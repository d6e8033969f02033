"""Tables that are made from the package stand in the pages as it makes them now."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_tables_in_pages_are_up_to_date(monkeypatch):
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    tables = __import__("generated_tables")
    pages = tables.pages_with_tables()
    assert {page.name for page in pages} >= {"errors.md", "export.md", "loading.md", "notation.md"}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert text == tables.filled(text), f"{page.name}: python docs/_ext/generated_tables.py --write"

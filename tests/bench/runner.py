"""Runs a page: measures, prints, and stores Markdown, pictures and JSON; or makes the page of what is stored again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template
from typing import Any

from rich.console import Console

from robodyn.core.tables import console
from robodyn.internals.errors import UnavailableError
from robodyn.tools.benchmark.compare import Settings
from robodyn.tools.benchmark.tables import Cells
from tests.bench import records
from tests.bench.drawing import pyplot
from tests.bench.points import Budget
from tests.bench.shared import FOLDER, bullets, facts, formatted, sections, titled, titleless

Pictures = dict[str, str]
"""Files of pictures by what they show."""
_TEXTS = Path(__file__).parent / "texts"


@dataclass(frozen=True)
class Run:
    """What a page is asked for.

    `words`: cases whose names contain all of them; `settings`: the time for each case, precisions, batches and threads;
    `limit`: seconds of the longest call; `largest`: most bodies of a tree; `whole`: everything there is; `fit`: the GPU
    engine is to choose by what is measured; `keep`: told what there is so far.
    """

    words: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)
    limit: float = 20.0
    largest: int = 4_000_000
    whole: bool = False
    fit: bool = False
    announce: Callable[[str], object] = console(stderr=True).print
    keep: Callable[[Any], object] = lambda found: None

    @property
    def seconds(self) -> float:
        return self.settings.seconds

    def selected(self, name: str) -> bool:
        return all(word in name for word in self.words)

    def chosen(self, name: str) -> bool:
        """The same; what is asked for is announced."""
        if self.selected(name):
            self.announce(name)
            return True
        return False

    def budget(self) -> Budget:
        return Budget(self.seconds, self.limit)


@dataclass(frozen=True)
class Page:
    """One page of docs/benchmarks.

    `found`: the data class of what is measured, which JSON files hold; `measure` fills it. The page is a text of
    `texts`, in which blocks take the place of $names: `facts`, `notes`, `tables`, and what `blocks` makes of what was
    found and of the pictures that `draw` writes to a folder. Tables whose only row is a format, after a comment that
    names the list of what has a row, are filled (`shared.formatted`). `merge`: what was found now, with what is stored
    of other cases. `apart`: facts that are told for each case.
    """

    name: str
    found: type
    measure: Callable[[Run], Any]
    tables: Callable[[Any], Iterable[Cells]] = lambda found: ()
    notes: Callable[[Any], Iterable[str]] = lambda found: ()
    blocks: Callable[[Any, Pictures], dict[str, str]] = lambda found, pictures: {}
    draw: Callable[[Any, Path], Pictures] = lambda found, folder: {}
    merge: Callable[[Any, Any, dict[str, str], dict[str, str]], Any] | None = None
    apart: tuple[str, ...] = ()
    seconds: float = 0.3
    limit: float = 20.0
    batches: tuple[int, ...] = (1, 16, 32, 64, 128, 4096, 65_536)

    def markdown(self, found: Any, about: dict[str, str], pictures: Pictures) -> str:
        """The page; `about`: what its figures hold for."""
        told = {key: word for key, word in about.items() if key not in self.apart}
        usual = {"facts": facts(told), "notes": bullets(self.notes(found)), "tables": sections(self.tables(found))}
        blocks = usual | self.blocks(found, pictures)
        texts = []
        for part in re.split(r"^(?=## )", self.text, flags=re.MULTILINE):
            names, tables = re.findall(r"\$(\w+)", part), formatted(part, found)
            # Sections are left out all of whose blocks and tables are empty.
            if any(blocks[name] for name in names) or any(tables.values()) or not (names or tables):
                text = Template(part).substitute(blocks)
                several = titled if part.startswith("## ") else sections
                for prototype, made in tables.items():
                    text = text.replace(prototype, (several if " by " in prototype else titleless)(made) + "\n")
                texts.append(text)
        return re.sub(r"\n{3,}", "\n\n", "".join(texts)).strip() + "\n"

    @property
    def text(self) -> str:
        return (_TEXTS / f"{self.name}.md").read_text()

    def all_tables(self, found: Any) -> list[Cells]:
        """Those of the text, then others, but those without rows."""
        mine = [table for made in formatted(self.text, found).values() for table in made]
        return [table for table in (*mine, *self.tables(found)) if table.rows]


def execute(page: Page, run: Run, about: dict[str, str], screen: Console, folder: Path | None) -> bool:
    """Measure, print, and store in a folder if there is one; whether there was something to measure."""
    try:
        found = page.measure(replace(run, keep=lambda found: _store(page, found, about, folder)))
    except UnavailableError as error:
        screen.print(f"{page.name}: not measured. {error}")
        return True
    parts = [value for name, value in vars(found).items() if name != "machine"]
    if not any(isinstance(part, list | dict) and part for part in parts):
        return False
    for table in page.all_tables(found):
        screen.print(table.rich())
    for note in page.notes(found):
        screen.print(f"- {note}")
    _store(page, found, about, folder)
    return True


def render(page: Page, folder: Path) -> None:
    """The page again, of what its folder holds."""
    about, found = records.load(folder / f"{page.name}.json", page.found)
    _write(page, found, about, folder)


def _store(page: Page, found: Any, about: dict[str, str], folder: Path | None) -> None:
    if folder is None:
        return
    path = folder / f"{page.name}.json"
    about = about | getattr(found, "machine", {})
    if page.merge is not None and path.exists():
        old_about, old = records.load(path, page.found)
        found = page.merge(found, old, about, old_about)
    _write(page, found, about, folder)
    records.save(path, {key: word for key, word in about.items() if key not in page.apart}, found)


def _write(page: Page, found: Any, about: dict[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = page.markdown(found, about, {} if pyplot() is None else page.draw(found, folder))
    (folder / f"{page.name}.md").write_text(_linked(text, folder))


def _linked(text: str, folder: Path) -> str:
    """A page with links that hold in a folder below that of all pages as well; to pages that are not beside it, too."""
    below = folder.resolve()
    if not below.is_relative_to(FOLDER) or below == FOLDER.resolve():
        return text
    up = "../" * len(below.relative_to(FOLDER).parts)
    text = text.replace("](../", f"]({up}../")
    for name in {each for each in re.findall(r"\]\(([\w-]+\.md)\)", text) if not (below / each).exists()}:
        text = text.replace(f"]({name})", f"]({up}{name})")
    return text

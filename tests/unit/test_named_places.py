"""Each file, module and function that ADRs, docs, comments and docstrings name is there under that name."""

from __future__ import annotations

import importlib
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = PROJECT / "include" / "rewind"
ROOTS = (PROJECT, PACKAGE, PROJECT / "include", PROJECT / "tests", PROJECT / "dags", PROJECT / "docs")
"""Where a path may begin."""
ROOMS = "|".join(sorted(p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name not in ("adr", "__pycache__")))
FILE = re.compile(r"(?<![\w/.<*-])((?:[\w.-]+/)+[\w-]+\.(?:py|md|sh|sql|toml|ya?ml|js|css))\b")
DOTTED = re.compile(rf"(?<![\w/.$-])((?:rewind\.)?(?:{ROOMS})(?:\.\w+)+)")
MADE_LATER = ("visits/", "pipelines/", "home/", "carts/", "main/", "<", "a/", "b/")
"""Folders of examples, and of what is made when something runs."""


def documents() -> list[Path]:
    folders = (PACKAGE / "adr", PROJECT / "docs")
    return sorted([*(p for folder in folders for p in folder.glob("*.md")), *PROJECT.glob("*.md")])


def sources() -> list[Path]:
    tops = (PROJECT / "include", *(PROJECT / name for name in ("dags", "jobs", "plugins", "examples", "scripts")))
    return sorted(p for top in tops for p in top.rglob("*.py") if "__pycache__" not in p.parts)


def words_of(path: Path) -> str:
    """Return comments and docstrings of a source, a whole document else."""
    text = path.read_text()
    if path.suffix != ".py":
        return re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    kinds = (tokenize.COMMENT, tokenize.STRING)
    return "\n".join(t.string for t in tokens if t.type in kinds and (t.type == tokenize.COMMENT or '"""' in t.string))


def resolves(dotted: str) -> bool:
    parts = [part for part in dotted.split(".") if part != "rewind"]
    for end in range(len(parts), 0, -1):
        place = PACKAGE.joinpath(*parts[:end])
        if place.is_dir() or place.with_suffix(".py").is_file():
            return end == len(parts) or _has(parts[:end], parts[end:])
    return False


def _has(module: list[str], names: list[str]) -> bool:
    found = importlib.import_module(".".join(("rewind", *module)))
    for name in names:
        if hasattr(found, name):
            found = getattr(found, name)
        elif name not in getattr(found, "__annotations__", {}):
            return False
    return True


def missing(path: Path) -> Iterator[str]:
    text = words_of(path)
    for name in FILE.findall(text):
        if not name.startswith(MADE_LATER) and not any((root / name).exists() for root in ROOTS):
            yield name
    for dotted in DOTTED.findall(text):
        if dotted.rsplit(".", 1)[-1] not in ("py", "html", "md", "yaml", "db") and not resolves(dotted):
            yield dotted


@pytest.mark.shows("house", show_1_places_of_documents_that_are_not_there=0)
@pytest.mark.parametrize("path", documents(), ids=lambda p: p.name)
def test_what_a_document_names_is_there(path):
    assert sorted(missing(path)) == []


@pytest.mark.shows("house", show_1_places_of_comments_that_are_not_there=0)
def test_what_comments_and_docstrings_name_is_there():
    assert {p.relative_to(PROJECT).as_posix(): found for p in sources() if (found := sorted(missing(p)))} == {}


def test_what_is_not_there_is_found(tmp_path):
    document = tmp_path / "sample.md"
    document.write_text(
        "`core/offsets.py`, `core/nowhere.py`, core.offsets.total, core.offsets.nothing, registry.gone\n"
    )
    assert sorted(missing(document)) == ["core.offsets.nothing", "core/nowhere.py", "registry.gone"]

"""Messages use the words of the field: what a person reads in an error, a log, a form or a help text.

A name that users type (a verb, a DAG's id, a key) is no message: it stays as it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
WORDS = {
    "report, show, list or say": r"\b(?:[Tt]ells?|[Tt]old|[Tt]elling)\b",
    "desired state": r"\b[Ww]ish(?:ed|es)?\b",
    "the plan is stale": r"\bworld (?:has )?moved",
    "fix": r"\b[Mm]end(?:ed|s|ing)?\b",
    "is not a …": r"\bis no (?:instant|SQL|JSON|YAML|number|whole|duration|date|position)|\bare no \w+\b",
    "end must be after start": r"\b[Ee]xchange them\b",
    "was recreated": r"\banother's topic\b|\bmade anew\b",
    "nightly replay": r"\b[Nn]ights?\b",
    "verify": r"\b[Pp]ro(?:ve|ves|ved|ven)\b",
    "dropped as late": r"\bleft out as late\b",
    "is standby": r"\bstands? by\b",
    "resumes from": r"\bgoe?s? on from\b",
    "again": r"\banew\b",
    "complete": r"\b[Ww]hole\b",
    "assumes": r"\brests on\b",
    "hint": r"\bcures?\b",
}
ALLOWED = {
    "say that a driver is dead, where nothing can prove it": "the verb means what it says",
    " is of the key, which tells rows apart": "tells apart is the field's word too",
    "Rename one: Spark does not tell names apart by case": "the same",
    ". Then see with `rewind prove --topic ": "the verb that a user types",
    "Both jobs are compared while the switch is observed. tell: new classes of differences are reported. "
    "roll_back: the old job is made live again by itself.": "the value that a user types",
}
"""Messages that keep such a word, each with the reason."""
MOST = 20


def messages() -> Iterator[tuple[str, str]]:
    for top in ("include/rewind", "dags", "jobs", "plugins", "examples"):
        for path in sorted((PROJECT / top).rglob("*.py")):
            if not {"migrations", "__pycache__"} & set(path.parts):
                yield from ((f"{path.relative_to(PROJECT)}:{line}", text) for line, text in texts(path.read_text()))


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Return the texts of a source that hold more than one word, those of docstrings and of pages left out."""
    tree = ast.parse(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            words = node.value.strip()
            yield from [(node.lineno, node.value)] if " " in words and "</" not in words else []


def found() -> list[tuple[str, str, str]]:
    return [(at, word, text) for at, text in messages() for word, old in WORDS.items() if re.search(old, text)]


CODE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)|(?<!\*)\*[^*\n]+\*(?!\*)", re.DOTALL)
"""What of a document is no prose: code, links' targets, and words of the product that it shows in italics."""
TEMPLATE = re.compile(r"`[^`\n]*`")


def prose() -> Iterator[tuple[str, str]]:
    """Return the lines of prose of README, CONTRIBUTING and docs, and the texts that the page shows."""
    for path in (*PROJECT.glob("[RC]*.md"), *sorted((PROJECT / "docs").glob("*.md"))):
        if path.name != "CHANGELOG.md":
            text = CODE.sub(lambda found: "\n" * found[0].count("\n"), path.read_text())
            yield from ((f"{path.name}:{line}", words) for line, words in enumerate(text.splitlines(), 1))
    for path in sorted((PROJECT / "include/rewind/web/assets").glob("*.js")):
        for line, words in enumerate(path.read_text().splitlines(), 1):
            templates = [re.sub(r"\$\{[^}]*\}", "", text) for text in TEMPLATE.findall(words)]
            plain = re.findall(r'"([^"\n]*)"', TEMPLATE.sub("", words))
            yield from (
                (f"{path.name}:{line}", text)
                for text in (*templates, *plain)
                if " " in text.strip() and "${" not in text
            )


@pytest.mark.shows("house", show_6_words_of_our_own_in_docs_and_page=0)
def test_documents_and_page_use_the_words_of_the_field():
    old = [(at, word, text) for at, text in prose() for word, pattern in WORDS.items() if re.search(pattern, text)]
    assert old == []


@pytest.mark.shows("house", show_6_words_of_our_own_in_messages=f"0, and {len(ALLOWED)} allowed")
def test_messages_use_the_words_of_the_field():
    assert [(at, f"say: {word}", text) for at, word, text in found() if text not in ALLOWED] == []


def test_what_is_allowed_is_there_and_little():
    assert ALLOWED.keys() <= {text for _, _, text in found()}
    assert len(ALLOWED) <= MOST

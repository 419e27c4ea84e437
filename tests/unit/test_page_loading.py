"""What a browser shows before any script has run: that the page is loading."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

ASSETS = Path(__file__).resolve().parents[2] / "include" / "rewind" / "web" / "assets"


class Read(HTMLParser):
    """The elements of a page in order, with the text that follows each."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append([tag, dict(attrs), ""])

    def handle_data(self, data):
        if self.elements:
            self.elements[-1][2] += data.strip()


PAGE = Read((ASSETS / "index.html").read_text()).elements
TAGS = [tag for tag, _, _ in PAGE]


def waits_for(tag, attributes):
    """Whether a browser shows nothing of what follows until it has fetched it."""
    script = tag == "script" and not {"type", "defer", "async"} & attributes.keys()
    return script or (tag == "link" and attributes.get("rel") == "stylesheet")


def test_the_first_thing_of_the_page_says_that_it_is_loading():
    tag, attributes, text = PAGE[TAGS.index("body") + 1]
    assert (tag, attributes, text) == ("p", {"id": "loading", "role": "status"}, "Rewind is loading…")


def test_nothing_has_to_be_fetched_before_that_is_shown():
    before = PAGE[: TAGS.index("body")]
    assert [(tag, attributes) for tag, attributes, _ in before if waits_for(tag, attributes)] == []
    assert {"name": "color-scheme", "content": "light dark"} in [attributes for _, attributes, _ in before]


def test_the_page_is_styled_before_the_rest_of_it_is_shown():
    waited = [a.get("href") or a.get("src") for tag, a, _ in PAGE if waits_for(tag, a)]
    assert waited == ["assets/page.css", "assets/theme.js"]
    order = [attributes.get("id") for _, attributes, _ in PAGE]
    assert order.index("loading") < TAGS.index("script") < TAGS.index("header")


def test_it_goes_with_the_first_answer_or_the_first_failure():
    main = (ASSETS / "main.js").read_text()
    assert main.count('place("loading")?.remove();') == 2


def test_the_modules_are_fetched_at_once_and_not_one_after_the_other():
    asked = [attributes["href"] for _, attributes, _ in PAGE if attributes.get("rel") == "modulepreload"]
    modules = {path.name for path in ASSETS.glob("*.js")} - {"main.js", "theme.js"}
    assert asked == [f"assets/{name}" for name in sorted(modules)]

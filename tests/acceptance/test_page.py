"""What the issue `page` asks of the Rewind page in a real browser; `make accept WHAT=page`.

It needs Debian's Chromium (`apt-get install chromium`). Without one it is skipped, but red where `CI` is set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import page as bench
from rewind.core.settings import Settings
from rewind.registry import database, rewinds
from rewind.registry.verdicts import Approval
from rewind.runtime import evidence_page
from tests.scenarios import page_load
from tests.scenarios.airflow_life import UPPER
from tests.scenarios.browser_life import NOTIFIER, live_in_a_browser
from tests.scenarios.shell_life import live_at_a_shell, quarantined_and_told
from tests.support import axe, browser, evidence_body, page_states
from tests.support.browser import Page
from tests.support.mailbox import mailbox
from tests.support.page_server import Site, id_of, serving
from tests.support.page_states import CANDIDATE, HOSTILE, LIVE, REWIND_ID
from tests.support.stage import Stage

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(browser.PROGRAM is None and not os.environ.get("CI"), reason="no Chromium is installed"),
]
PLACES = {
    "overview": "overview",
    "rewind": f"rewind/{REWIND_ID}",
    "generation": f"generation/{CANDIDATE}",
    "history": "history",
}
PATIENCE = 60.0
"""Seconds until a page must be there: a browser beside other work starts slowly."""
LOOKS = ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark"))


@pytest.fixture
def installation(make_settings, tmp_path) -> Settings:
    made = make_settings(REWIND_PIPELINES=str(tmp_path / "declared"))
    page_states.declare(made)
    page_states.declare(made, "orders")
    evidence, logs = made.evidence / REWIND_ID, made.home / "logs" / "streams" / LIVE
    for folder, name in ((evidence, "verdict-1.json"), (logs, "driver.log")):
        folder.mkdir(parents=True)
        (folder / name).write_text(HOSTILE)
    return made


@pytest.fixture
def site(installation: Settings) -> Iterator[Site]:
    with serving(installation) as made:
        yield made


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with browser.browser(tmp_path) as made:
        made.look(1280, "light")
        yield made
        assert made.errors == []


@pytest.fixture
def artefacts(project: Path) -> Path:
    folder = project / ".rewind" / "accept" / "page"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def show(page: Page, site: Site, place: str) -> None:
    page.open("about:blank")
    page.open(f"{site.url}#{place}")
    page.until("document.querySelector('main h1')", PATIENCE)


def click(page: Page, label: str, within: str = "main") -> None:
    page.run(f"[...document.querySelectorAll('{within} button')].find((b) => b.textContent === '{label}').click()")


def test_each_page_fits_in_light_dark_and_on_a_phone(installation, site, page, artefacts):
    page_states.seed(installation, "failed verdict")
    backgrounds = {}
    for width, scheme in LOOKS:
        page.look(width, scheme)
        for name, place in PLACES.items():
            show(page, site, place)
            page.shoot(artefacts / f"{name}-{width}-{scheme}.png")
            assert page.run("document.documentElement.scrollWidth <= innerWidth"), (name, width)
        backgrounds[scheme] = page.run("getComputedStyle(document.body).backgroundColor")
    assert backgrounds == {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 20, 24)"}


@pytest.mark.parametrize("state", page_states.STATES)
def test_axe_finds_nothing_serious(figure, installation, site, page, project, state):
    page_states.seed(installation, state)
    judge = axe.script(project / ".rewind" / "tools")
    begun = page_states.begun in page_states.STATES[state]
    found = {}
    for width, scheme in LOOKS:
        page.look(width, scheme)
        for name, place in PLACES.items():
            if begun or name in ("overview", "history"):
                show(page, site, place)
                found[f"{name} {width} {scheme}"] = axe.serious(page, judge)
    assert {place: problems for place, problems in found.items() if problems} == {}
    figure(f"serious_problems_by_axe_{state.replace(' ', '_')}_in_{len(found)}_views", 0)


def test_axe_finds_what_is_planted(installation, site, page, project):
    page_states.seed(installation, "deployed")
    show(page, site, "overview")
    page.run("void document.querySelector('main').append(document.createElement('button'))")
    assert [problem.partition(":")[0] for problem in axe.serious(page, axe.script(project / ".rewind" / "tools"))] == [
        "button-name"
    ]


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_axe_finds_nothing_serious_in_the_evidence(page, project, tmp_path, artefacts, width, scheme):
    path = tmp_path / "verdict-2.html"
    path.write_text(evidence_page.page(evidence_body.BODY, Approval(2, "approve", "ada", "known")))
    page.look(width, scheme)
    page.open(path.as_uri())
    page.until("document.querySelector('h1')")
    page.shoot(artefacts / f"evidence-{width}-{scheme}.png")
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert axe.serious(page, axe.script(project / ".rewind" / "tools")) == []


def test_3_first_data_within_a_second_and_polling_below_2_percent(make_settings, tmp_path, figure):
    settings = make_settings(REWIND_PIPELINES=str(tmp_path / "declared"))
    page_load.seed(settings, bench.LOAD)
    found = bench.measured(settings)
    for name, value in found.items():
        figure(name, round(value, 3))
    assert found["seconds to the first data"] < 1
    assert found["% of a core, quiet registry"] < 2
    assert found["% of a core, busy registry"] < 2


def test_airflows_own_theme_wins_over_the_systems(installation, site, page):
    page_states.seed(installation, "deployed")
    show(page, site, "overview")
    page.run("localStorage.setItem('theme', 'dark')")
    show(page, site, "overview")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(17, 20, 24)"


def test_texts_of_users_are_shown_as_text(installation, site, page):
    page_states.seed(installation, "failed verdict")
    show(page, site, PLACES["rewind"])
    assert HOSTILE in page.text()
    for name in ("verdict-1.json", "driver.log"):
        page.run(f"[...document.querySelectorAll('summary')].find((s) => s.textContent.startsWith('{name}')).click()")
    page.until("[...document.querySelectorAll('details[open] > pre')].filter((p) => p.textContent).length === 2")
    assert page.run("[...document.querySelectorAll('details > pre')].map((p) => p.textContent)") == [HOSTILE, HOSTILE]
    assert page.run("document.querySelectorAll('main img').length") == 0
    assert page.run("document.title") == f"Rewind {REWIND_ID} - Rewind"


@pytest.mark.parametrize("state", ["failed verdict", "standby", "aborted", "quarantined"])
def test_2_a_text_in_every_field_of_users_is_shown_as_text(installation, site, page, state):
    page_states.seed(installation, state)
    with database.writing(installation.registry_url) as connection:
        page_states.hostile(connection)
    for name, place in PLACES.items():
        show(page, site, place)
        assert HOSTILE in page.text() or name == "overview", name
        assert page.run("document.querySelectorAll('img, main script').length") == 0, name
        assert page.run("document.title").endswith(" - Rewind"), name


def test_big_numbers_are_exact(installation, site, page):
    page_states.seed(installation, "passed")
    show(page, site, PLACES["rewind"])
    assert "9,007,199,254,740,993" in page.text()


def test_an_update_changes_what_changed_and_keeps_the_focus(installation, site, page):
    page_states.seed(installation, "backfilling")
    show(page, site, PLACES["rewind"])
    page.run("void (window.kept = document.querySelector('main button'), kept.focus())")
    page.run("void (window.step = document.querySelector('.lifecycle .running'))")
    with database.writing(installation.registry_url) as connection:
        rewinds.end_step(connection, REWIND_ID, "backfill", 1, "failed", {"error": "a gap"})
    page.until("document.querySelector('.answer').textContent.includes('backfill failed')")
    assert page.run("step.isConnected && step.className") == "failed"
    page.until("document.getElementById('news').textContent.includes('backfill failed')")
    assert page.run("document.activeElement === kept && kept.textContent") == "Pause"


def test_an_action_asks_once_says_what_happens_and_is_done_by_airflow(installation, site, page, monkeypatch):
    monkeypatch.setattr(page_states, "REWIND_ID", id_of(site))
    page_states.seed(installation, "failed verdict")
    show(page, site, f"rewind/{id_of(site)}")
    click(page, "Approve")
    page.until("document.getElementById('question').open")
    assert "visits-g2 becomes live instead of visits-g1" in page.run("document.getElementById('question').innerText")
    click(page, "Approve", "dialog")
    # A failed verdict needs a reason: the browser holds the form back.
    assert site.calls == []
    page.run("void (document.querySelector('dialog textarea').value = 'known change')")
    click(page, "Approve", "dialog")
    page.until("!document.getElementById('question').open")
    path = "dags/rewind_visits/dagRuns/r1/taskInstances/approve/-1/hitlDetails"
    body = {"chosen_options": ["Approve"], "params_input": {"reason": "known change"}}
    assert site.calls == [("PATCH", path, body)]


def test_a_rollback_goes_back_to_the_job_that_stood_by(installation, site, page):
    page_states.seed(installation, "standby")
    show(page, site, PLACES["rewind"])
    click(page, "Roll back")
    click(page, "Cancel", "dialog")
    assert site.calls == []
    click(page, "Roll back")
    click(page, "Roll back", "dialog")
    page.until("!document.getElementById('question').open")
    conf = {"to": LIVE, "dry_run": False}
    assert site.calls == [("POST", "dags/rollback_visits/dagRuns", {"conf": conf, "logical_date": None})]


def test_who_may_not_act_finds_the_buttons_off(installation, site, page):
    page_states.seed(installation, "standby")
    site.acting = False
    show(page, site, PLACES["rewind"])
    assert page.run("[...document.querySelectorAll('main button')].map((b) => [b.textContent, b.disabled])") == [
        ["Finish now", True],
        ["Roll back", True],
    ]


def test_by_keyboard_alone(installation, site, page):
    page_states.seed(installation, "backfilling")
    show(page, site, "overview")
    stops = []
    for _ in range(12):
        page.press("Tab", windowsVirtualKeyCode=9)
        stops.append(page.run("document.activeElement.textContent.slice(0, 40)"))
        if stops[-1] == REWIND_ID:
            break
    assert stops[:3] == ["Skip to the content", "Overview", "History"]
    assert stops[-1] == REWIND_ID
    page.press("Enter", windowsVirtualKeyCode=13, text="\r")
    page.until(f"document.querySelector('main h1').textContent.includes('{REWIND_ID}')")
    # The focus goes to the new page, so that a screen reader reads it.
    page.until("document.activeElement.id === 'content'")


def test_the_history_is_searched(installation, site, page):
    page_states.seed(installation, "aborted")
    show(page, site, "history")
    search = "document.querySelector('input')"
    for words, rows in (("abort", 1), ("nobody", 0)):
        page.run(f"void ({search}.value = '{words}', {search}.dispatchEvent(new Event('input')))")
        assert page.run("document.querySelectorAll('tbody tr').length") == rows


def test_two_rewinds_are_chosen_in_the_history_and_compared(installation, site, page, artefacts, project):
    page_states.seed(installation, "aborted")
    with database.writing(installation.registry_url) as connection:
        rewinds.open_rewind(connection, "rw-other", page_states.plan(reason=HOSTILE))
    show(page, site, "history")
    for number in (0, 1):
        page.run(f"void document.querySelectorAll('main input[type=checkbox]')[{number}].click()")
    page.until("document.querySelector('main a[href^=\"#compare\"]')")
    page.run("void document.querySelector('main a[href^=\"#compare\"]').click()")
    page.until("document.querySelector('main h1').textContent.startsWith('Compare')", PATIENCE)
    assert HOSTILE in page.text()
    for width, scheme in LOOKS[:3]:
        page.look(width, scheme)
        page.shoot(artefacts / f"compare-{width}-{scheme}.png")
        assert page.run("document.documentElement.scrollWidth <= innerWidth"), width
        assert axe.serious(page, axe.script(project / ".rewind" / "tools")) == []


def test_the_tab_of_a_run_shows_its_rewind(installation, site, page, monkeypatch):
    monkeypatch.setattr(page_states, "REWIND_ID", id_of(site))
    page_states.seed(installation, "backfilling")
    page.open(f"{site.url}?dag_id=rewind_visits&run_id={site.run}")
    page.until(f"document.querySelector('main h1').textContent.includes('{id_of(site)}')")


def test_an_empty_registry_and_an_unknown_name_are_told_plainly(installation, site, page):
    show(page, site, "overview")
    assert "registry: there is none at" in page.text()
    page_states.seed(installation, "deployed")
    page.open("about:blank")
    page.open(f"{site.url}#rewind/rw-none")
    page.until("document.querySelector('main').textContent === 'There is nothing of that name.'")
    assert "rewind 'rw-none' is unknown" in page.text()
    # The browser notes each 404 of its own accord.
    page.errors = [error for error in page.errors if "404" not in error]


@pytest.mark.timeout(1_800)
def test_1_and_6_a_real_rewind_in_a_browser_and_at_a_shell(figure, page, jars, tmp_path, artefacts):
    declared = {"backfill": {"chunk_records": 250}, "compare": UPPER}
    stage = Stage(tmp_path / "home", jars, "shown", 2, environment=NOTIFIER, expectations=True, **declared)
    try:
        with mailbox() as box:
            found = live_in_a_browser(stage, page, box, artefacts)
            at_a_shell = live_at_a_shell(stage)
            told = quarantined_and_told(stage, box)
    finally:
        stage.down()
    for name, value in {**found, **at_a_shell, **told}.items():
        figure(name, value)
    assert at_a_shell["metrics_not_told"] == []

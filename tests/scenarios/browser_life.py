"""A rewind by a person at a browser: Airflow's own form, the Rewind page within Airflow, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rewind.declared import forms
from rewind.registry import verdicts
from rewind.registry.verdicts import Approval
from tests.scenarios.airflow_life import visit
from tests.support.browser import Page
from tests.support.mailbox import Mailbox
from tests.support.stage import RUN_SECONDS, Stage
from tests.support.workshop import wait_for

PATIENCE = 60.0
"""Seconds until a page of Airflow must be there: it comes in megabytes, beside drivers."""
RECORDS = 3_000
RATE = 200
"""Records a second of the backfill, so that it lasts for several looks of the page."""
LOOKS = ((1280, "light"), (1280, "dark"), (390, "light"))


class Desk:
    """A browser at an Airflow, with a person who has logged in."""

    def __init__(self, page: Page, stage: Stage) -> None:
        """Log in by Airflow's form."""
        self.page, self._stage = page, stage
        self._url = stage.stack.airflow_url
        user, password = stage.stack.user, stage.stack.password
        page.open(f"{self._url}/")
        page.until("document.querySelector('input[name=username]')", PATIENCE)
        self._type("document.querySelector('input[name=username]')", user)
        self._type("document.querySelector('input[name=password]')", password)
        page.until("!document.querySelector('button[type=submit]').disabled")
        page.press_mouse("document.querySelector('button[type=submit]')")
        page.until("location.pathname === '/'", PATIENCE)
        # Before a login Airflow's page asks for what it may not see yet.
        page.errors.clear()

    def trigger(self, dag_id: str, **fields: str | bool) -> str:
        """Fill the form of a DAG and send it; return the run's id."""
        self._send(dag_id, fields)
        self.page.until("location.pathname.includes('/runs/')", PATIENCE)
        return str(self.page.run("decodeURIComponent(location.pathname.split('/runs/')[1].split('/')[0])"))

    def refused(self, dag_id: str, **fields: str | bool) -> str:
        """Fill the form of a DAG and send it; return what is shown when it is not taken."""
        self._send(dag_id, fields)
        self.page.until("document.body.innerText.includes('Invalid input')", PATIENCE)
        # The browser notes each answer that is no success.
        self.page.errors.clear()
        return self.page.text()

    def _send(self, dag_id: str, fields: Mapping[str, str | bool]) -> None:
        page, named = self.page, _named("button", "Trigger")
        page.open(f"{self._url}/dags/{dag_id}")
        page.until(named, PATIENCE)
        page.press_mouse(named)
        page.until("document.querySelector('[name=element_from]')", PATIENCE)
        for name, value in fields.items():
            self._fill(name, value)
        page.press_mouse("document.querySelector('[data-testid=trigger-dag-submit]')")

    def _fill(self, name: str, value: str | bool) -> None:
        page, field = self.page, f"document.querySelector('[name=element_{name}]')"
        opens = f"{field}.closest('[data-part=item]').querySelector('[data-part=item-trigger]')"
        if page.run(f"{opens}.getAttribute('aria-expanded')") == "false":
            page.press_mouse(opens)
            page.until(f"{opens}.getAttribute('aria-expanded') === 'true'")
        if isinstance(value, bool):
            page.run(f"void ({field}.checked === {json.dumps(value)} || {field}.click())")
            page.until(f"{field}.checked === {json.dumps(value)}")
        else:
            self._type(field, value)

    def _type(self, field: str, text: str) -> None:
        self.page.until(f"({field}.focus(), {field}.select(), document.activeElement === {field})")
        self.page.call("Input.insertText", text=text)
        self.page.until(f"{field}.value === {json.dumps(text)}")

    def rewind_page(self) -> None:
        """Open the Rewind page where Airflow's navigation leads to."""
        self.page.open(f"{self._url}/plugin/rewind")
        self.until("document.querySelector('main h1')")

    def inside(self, expression: str) -> Any:
        """Return the value of an expression within the Rewind page, which Airflow embeds."""
        return self.page.run(_inside(expression))

    def until(self, expression: str, seconds: float = PATIENCE) -> None:
        """Wait until an expression within it is true."""
        self.page.until(_inside(expression), seconds)

    def alone(self, place: str) -> None:
        """Open a place of the Rewind page without Airflow's around it."""
        self.page.open("about:blank")
        self.page.open(f"{self._url}/rewind/#{place}")
        self.page.until("document.querySelector('main h1')", PATIENCE)

    def follow(self, text: str) -> None:
        """Follow a link within it."""
        found = _named("main a", text)
        self.until(found, RUN_SECONDS)
        self.page.press_mouse(_inside(found))

    def act(self, label: str, **fields: str) -> str:
        """Press a button, read what it will do, fill what it asks for, and confirm; return what was read."""
        button = _named("main button", label)
        self.until(button, RUN_SECONDS)
        self.page.press_mouse(_inside(button))
        self.until("document.getElementById('question').open")
        told = str(self.inside("document.getElementById('question').innerText"))
        for kind, value in fields.items():
            self.inside(f"void (document.querySelector('dialog {kind}').value = {json.dumps(value)})")
        self.page.press_mouse(_inside("document.querySelector('dialog button.main')"))
        self.until("!document.getElementById('question').open")
        return told


NOTIFIER = {
    "REWIND_NOTIFIER": "airflow.providers.smtp.notifications.smtp.SmtpNotifier",
    "REWIND_NOTIFIER_ARGS": json.dumps(
        {
            "from_email": "rewind@example.org",
            "to": "people@example.org",
            "subject": "{{ rewind_event }}",
            "html_content": "{{ rewind_text }} {{ rewind_link }}",
        }
    ),
    "REWIND_SPARK_HISTORY": "http://history.example",
}
"""Airflow's own notifier by mail, and a Spark history server."""


def live_in_a_browser(stage: Stage, page: Page, box: Mailbox, folder: Path) -> dict[str, Any]:
    """Dry run, apply its plan, watch the backfill, open the evidence, approve, see the switch, and roll back.

    Args:
        stage: A stack with a pipeline that declares what its edit changes, and with `NOTIFIER`.
        page: A browser's tab.
        box: Where the mails go.
        folder: Where the pictures go.
    """
    shop, name = stage.shop, stage.shop.pipeline
    for partition in range(len(shop.end())):
        shop.produce(*(visit(n) for n in range(RECORDS)), partition=partition)
    stage.deploy()
    shop.edit_logic('F.col("page").alias', 'F.upper("page").alias')
    box.connect(stage.api)
    desk = Desk(page, stage)
    before = len(stage.api.dag_runs(stage.rewind_dag))
    assert "param from" in desk.refused(stage.rewind_dag, **{"from": "abc"})
    page.shoot(folder / "live-form-refused.png")
    assert len(stage.api.dag_runs(stage.rewind_dag)) == before
    unknown = desk.trigger(stage.rewind_dag, apply_plan="0" * 12, dry_run=False)
    assert stage.ended(stage.rewind_dag, unknown) == "failed"
    wait_for("the mail of the failure", lambda: "plan of rewind_shown failed" in box.told("failure"))
    dry = desk.trigger(stage.rewind_dag, reason="pages in capitals", observe="PT5S")
    page.shoot(folder / "live-form-sent.png")
    stage.succeeded(stage.rewind_dag, dry)
    run_id = desk.trigger(stage.rewind_dag, apply_plan=stage.plan_of(dry), dry_run=False)
    rewind_id = forms.rewind_id(stage.rewind_dag, run_id)
    desk.rewind_page()
    desk.follow(rewind_id)
    assert "keeps to this limit" in desk.act("Throttle", input=str(RATE))
    shares = _watched(desk)
    _opened(desk, f"verdict-{_verdict(stage, rewind_id)}.html", folder)
    desk.rewind_page()
    desk.follow(rewind_id)
    link = f"{stage.stack.airflow_url}/rewind/#rewind/{rewind_id}"
    wait_for("the mail that asks", lambda: link in box.told("approval"))
    for task in ("plan", "backfill", "approve"):
        assert _links(stage, run_id, task)["Rewind page"] == link
    named = _links(stage, run_id, "validate")
    assert named["Evidence"].endswith(f"/rewind/api/rewinds/{rewind_id}/evidence/verdict-1.html")
    assert re.fullmatch(r"http://history\.example/history/local-\d+/", named["Spark history"])
    _approved(desk, stage, rewind_id)
    _shown_live(desk, f"{name}-g2, epoch 2")
    stage.succeeded(stage.rewind_dag, run_id)
    _pictures(desk, rewind_id, f"{name}-g2", folder)
    desk.rewind_page()
    desk.follow(rewind_id)
    back = desk.act("Roll back", textarea="shown")
    assert f"{name}-g1 becomes live again" in back
    _shown_live(desk, f"{name}-g1, epoch 3")
    assert stage.live() == f"{name}-g1"
    assert [mail["Subject"] for mail in box.mails] == ["failure", "approval"]
    return {"shares_of_the_backfill_seen": shares, "pictures": len(list(folder.glob("live-*.png"))), "mails": 2}


def _watched(desk: Desk) -> list[str]:
    """Return the shares of the backfill that were seen on the page, which was not loaded again meanwhile."""
    seen: list[str] = []
    shown = "document.querySelector('section[aria-label=Backfill] .bar')?.textContent.trim()"
    desk.inside("void (window.kept = 'not loaded again')")

    def over() -> bool:
        share = desk.inside(shown)
        if share and share not in seen[-1:]:
            seen.append(share)
        return seen[-1:] == ["100 %"]

    wait_for("the end of the backfill on the page", over, RUN_SECONDS)
    assert len(seen) >= 3, seen
    assert desk.inside("window.kept") == "not loaded again"
    return seen


def _approved(desk: Desk, stage: Stage, rewind_id: str) -> None:
    """Approve on the page, once more if Airflow lost an answer that came within the second of its question."""
    name = stage.shop.pipeline
    told = desk.act("Approve", textarea="as declared")
    assert f"{name}-g2 becomes live instead of {name}-g1" in told
    with suppress(AssertionError):
        wait_for("the answer", lambda: _answer(stage, rewind_id) is not None, PATIENCE)
    if _answer(stage, rewind_id) is None:
        desk.act("Approve", textarea="as declared")
        wait_for("the second answer", lambda: _answer(stage, rewind_id) is not None, PATIENCE)
    given = _answer(stage, rewind_id)
    assert given is not None
    assert (given.answer, given.person, given.reason) == ("approve", "admin", "as declared")


def _links(stage: Stage, run_id: str, task_id: str) -> dict[str, str]:
    """Return the extra links that Airflow shows of a task."""
    path = f"/api/v2/dags/{stage.rewind_dag}/dagRuns/{quote(run_id)}/taskInstances/{task_id}/links"
    return dict(stage.api.call("GET", path)["extra_links"])


def _answer(stage: Stage, rewind_id: str) -> Approval | None:
    with stage.shop.registry() as connection:
        return verdicts.approval(connection, rewind_id)


def _verdict(stage: Stage, rewind_id: str) -> int:
    found: list[int] = []

    def there() -> bool:
        with stage.shop.registry() as connection:
            verdict = verdicts.newest(connection, rewind_id)
        found[:] = [] if verdict is None else [verdict.attempt]
        return bool(found)

    wait_for("the verdict", there, RUN_SECONDS)
    return found[0]


def _opened(desk: Desk, name: str, folder: Path) -> None:
    """Open a page of evidence from the embedded page, which may not open a window by itself."""
    desk.follow(f"{name} (a page of its own)")
    opened: list[str] = []

    def there() -> bool:
        opened[:] = [tab for tab in desk.page.tabs() if tab.endswith(name)]
        return bool(opened)

    wait_for("a tab of its own", there, PATIENCE)
    desk.page.close(opened[0])
    desk.page.open(opened[0])
    desk.page.until("document.querySelector('h1')", PATIENCE)
    assert "expected" in desk.page.text()
    desk.page.shoot(folder / "live-verdict.png")


def _shown_live(desk: Desk, told: str) -> None:
    live = "[...document.querySelectorAll('main dt')].find((d) => d.textContent === 'Live now').nextElementSibling"
    desk.until(f"{live}.textContent === {json.dumps(told)}", RUN_SECONDS)


def _pictures(desk: Desk, rewind_id: str, job_id: str, folder: Path) -> None:
    places = {"overview": "overview", "rewind": f"rewind/{rewind_id}", "generation": f"generation/{job_id}"}
    for width, scheme in LOOKS:
        desk.page.look(width, scheme)
        for name, place in {**places, "history": "history"}.items():
            desk.alone(place)
            desk.page.shoot(folder / f"live-{name}-{width}-{scheme}.png")
    desk.page.look(1280, "light")


def _named(kind: str, text: str) -> str:
    return f"[...document.querySelectorAll('{kind}')].find((e) => e.textContent.trim() === {json.dumps(text)})"


def _inside(expression: str) -> str:
    frame = "window.document.querySelector('iframe')"
    return f"(() => {{ const f = {frame}, document = f.contentDocument; return ({expression}); }})()"

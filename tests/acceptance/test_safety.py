"""What the issue `safety` asks to be shown, at full length; `make accept WHAT=safety`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from rewind.control import supervise
from rewind.core.errors import RewindError
from rewind.core.settings import Settings
from rewind.local.broker import Broker as LocalBroker
from tests import postgres, standalone
from tests.crashes import ALL, HALF_DONE, Life, check
from tests.hostile import Land, race
from tests.machine import REACHED, Lifecycle
from tests.mutants import MUTANTS
from tests.observed import rolled_back_by_itself
from tests.races import pointer_race, start_race
from tests.stage import Stage
from tests.workshop import Workshop

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3_600)]

Figure = Callable[[str, object], None]
FULL = settings(
    max_examples=500, stateful_step_count=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(params=["sqlite", "postgresql"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty registry."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/registry.db"
    else:
        with postgres.server() as url:
            yield url


def test_shows_1_a_life_killed_at_every_side_effect(figure: Figure, workshop: Callable[..., Workshop]) -> None:
    life = Life(workshop("killed", 2), ALL)
    check(life, 300)
    for step, times in life.killed.items():
        figure(f"kills_{step}", times)
    figure("kills", sum(life.killed.values()))


def test_shows_2_the_pointer_has_one_winner_an_epoch(figure: Figure, registry: str) -> None:
    winners = pointer_race(registry, 4, 1_000)
    figure("single_winners", winners.count(1))
    assert winners == [1] * 1_000


def test_shows_2_a_start_has_one_winner_a_round(figure: Figure, registry: str) -> None:
    winners = start_race(registry, 8, 50)
    figure("single_winners", winners.count(1))
    assert winners == [1] * 50


def test_shows_3_the_state_machine_finds_no_violation(figure: Figure) -> None:
    REACHED.clear()
    run_state_machine_as_test(Lifecycle, settings=FULL)
    figure("reached", dict(REACHED))
    figure("violations", 0)


def test_shows_6_hostile_manifests_delete_nothing_of_others(figure: Figure, workshop: Callable[..., Workshop]) -> None:
    land = Land(workshop("job", 1))
    before = land.others()
    refused = 0
    for kind, name, resource_id in land.hostile():
        refused += land.collect(kind, name, resource_id)
        assert land.others() == before, f"{kind} {name}"
    figure("hostile_entries", len(land.hostile()))
    figure("refused", refused)
    figure("deletions_outside_the_manifest", 0)
    assert len(land.hostile()) >= 30
    assert refused == len(land.hostile())


def test_shows_6_a_race_with_a_rollback_never_deletes_a_standby(
    figure: Figure, make_settings: Callable[..., Settings], broker: LocalBroker
) -> None:
    ends = Counter(race(make_settings(broker.bootstrap), n) for n in range(20))
    figure("races", sum(ends.values()))
    figure("ends", dict(ends))
    assert set(ends) <= {"rolled back", "collected"}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_shows_3_a_missing_guard_is_noticed(figure: Figure, mutant: Callable) -> None:
    with mutant(), pytest.raises((AssertionError, RewindError)):
        run_state_machine_as_test(Lifecycle, settings=settings(FULL, phases=[Phase.generate]))
    figure("caught", mutant.__name__)


def test_shows_10_the_lifecycle_on_postgresql(
    figure: Figure, make_settings: Callable[..., Settings], broker: LocalBroker, tmp_path: Path
) -> None:
    with postgres.server() as url:
        live_on(make_settings, broker, tmp_path, "onpostgres", REWIND_REGISTRY_URL=url)
    figure("postgresql", "passed")


def test_shows_10_the_lifecycle_on_a_standalone_cluster(
    figure: Figure,
    make_settings: Callable[..., Settings],
    broker: LocalBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with standalone.cluster(tmp_path / "cluster") as (url, conf):
        monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
        live_on(make_settings, broker, tmp_path, "oncluster", REWIND_SPARK_MASTER=url)
    figure("standalone", "passed")


def test_differences_while_observing_are_rolled_back_by_themselves(figure: Figure, tmp_path: Path, jars: Path) -> None:
    stage = Stage(tmp_path / "home", jars, "guarded", 1)
    try:
        rolled_back_by_itself(stage)
    finally:
        stage.down()
    figure("rolled_back_by_itself", "passed")


def live_on(
    make_settings: Callable[..., Settings], broker: LocalBroker, folder: Path, name: str, **chosen: str
) -> None:
    """Live a whole life, from deploy to collection, without Airflow, on the chosen installation."""
    (folder / "pipelines").mkdir()
    chosen["REWIND_PIPELINES"] = str(folder / "pipelines")
    settings = make_settings(broker.bootstrap, **chosen)
    try:
        check(Life(Workshop(settings, name, 2), HALF_DONE), 300)
    finally:
        supervise.stop_all(settings, timeout=20)


@pytest.mark.xfail(strict=True, reason="not built yet: see CONTRIBUTING")
@pytest.mark.parametrize(
    "line",
    [
        "1: the trace finds 0 unnamed mutations and a planted one; 20 pairs of crashes; each step from a saved world",
        "2: 2 rounds of starts over REST",
        "4: soak of 100,000 events, 20 driver kills, 5 broker bounces",
        "5: a frozen writer at 10 points",
        "7: 20 consumers over a switch and a rollback",
        "8: broker, scheduler, registry, disk, clock and files fail, in backfill and in cut_over",
        "9: C06, C25 and C28 on a real scheduler",
        "10: Airflow on PostgreSQL, and a generation frozen before a migration",
    ],
)
def test_shows_that_are_missing(line: str) -> None:
    raise NotImplementedError(line)

"""What the issue `safety` asks to be shown, at full length; `make accept WHAT=safety`."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from pyspark.sql import SparkSession

from rewind.core.errors import RewindError
from rewind.core.settings import Settings
from rewind.local.broker import Broker as LocalBroker
from rewind.runtime.drivers import supervise
from tests.mutants.fault import Fault
from tests.mutants.here import OF_THE_MACHINE, planted_here
from tests.scenarios import (
    airflow_cases,
    airflow_faults,
    damage,
    faults,
    frozen_writer,
    readers,
    soak,
    step_cases,
    sweep,
)
from tests.scenarios.airflow_life import UPPER, live_once, visit
from tests.scenarios.crashes import HALF_DONE, Life, check
from tests.scenarios.hostile import Land, race
from tests.scenarios.machine import REACHED, Lifecycle
from tests.scenarios.mirroring import mirror_digests, topic_digests
from tests.scenarios.observed import rolled_back_by_itself
from tests.scenarios.races import pointer_race, start_race
from tests.support import postgres, standalone
from tests.support.ground import ground
from tests.support.stage import Stage
from tests.support.stub_stage import StubStage, stub_stage
from tests.support.stub_submit import HERE
from tests.support.workshop import PROJECT, Workshop

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3_600)]

Figure = Callable[[str, object], None]
SEED = int(os.environ.get("SEED") or 4)
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


@pytest.fixture(scope="module")
def swept(
    session: SparkSession, jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[sweep.Sweep, dict[str, sweep.Trace]]]:
    """A clean life of 300 records on a broker of its own, each step traced and the world before it saved."""
    folder = tmp_path_factory.mktemp("swept")
    with ground(folder, jars, "swept") as made:
        life = sweep.Sweep(made, folder / "saved", session)
        try:
            yield life, life.clean(300)
        finally:
            life.close()


def test_shows_1_a_trace_finds_no_unnamed_mutation(
    figure: Figure, swept: tuple[sweep.Sweep, dict[str, sweep.Trace]]
) -> None:
    made, traces = swept
    for step, trace in traces.items():
        figure(f"points_{step}", ", ".join(dict.fromkeys(trace.points)))
    unnamed = {step: trace.unnamed for step, trace in traces.items() if trace.unnamed}
    figure("unnamed_mutations", sum(map(len, unnamed.values())))
    assert unnamed == {}
    for kind, plant in sweep.PLANTS.items():
        made.restore("spin_up")
        trace = sweep.Trace(made.look)
        with plant(made):
            made.run("spin_up", trace)
        figure(f"planted_{kind}_found", len(trace.unnamed))
        assert any(line.startswith(kind) for line in trace.unnamed)


def test_shows_1_every_point_converges(figure: Figure, swept: tuple[sweep.Sweep, dict[str, sweep.Trace]]) -> None:
    made, _ = swept
    for step, points in made.points.items():
        for at in points:
            made.converges(step, at)
        figure(f"converged_{step}", f"{len(points)} of {len(points)}")
    figure("lost_repeated_orphans", "0, 0, 0")


def test_shows_1_drawn_pairs_converge(figure: Figure, swept: tuple[sweep.Sweep, dict[str, sweep.Trace]]) -> None:
    made, _ = swept
    rng = random.Random(SEED)
    steps = [step for step, points in made.points.items() if points]
    for _ in range(20):
        step = rng.choice(steps)
        made.converges(step, *(rng.choice(made.points[step]) for _ in range(2)))
    figure("pairs_converged", "20 of 20")


def test_shows_1_drawn_kills_converge(figure: Figure, swept: tuple[sweep.Sweep, dict[str, sweep.Trace]]) -> None:
    made, _ = swept
    rng = random.Random(SEED)
    first = [(step, at) for step, points in made.points.items() for at in points if at[1] == 1]
    for n, (step, at) in enumerate(rng.sample(first, 10)):
        made.killed(step, at, ("jvm", "python", "group")[n % 3])
        figure(f"killed_{n}", f"{step} {at[0]} {('jvm', 'python', 'group')[n % 3]}")


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


def test_shows_4_a_soak(figure: Figure, jars: Path, tmp_path: Path) -> None:
    with ground(tmp_path, jars, "soaked") as made:
        counts = soak.soak(soak.Soak(made, random.Random(SEED)), 100_000, 20, 5)
    for name, value in soak.figures(counts):
        figure(name, value)
    figure("lost", 0)
    figure("out_of_order", 0)
    assert (counts["events"], counts["kills"], counts["bounces"]) == (100_000, 20, 5)


def test_shows_5_a_frozen_stream(
    figure: Figure, workshop: Callable[..., Workshop], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = workshop("woken", 2)
    life = frozen_writer.Life(shop, shop.deploy(), monkeypatch)
    for point in frozen_writer.STREAM:
        batches = life.through(point)
        figure(f"batches_after_waking_{point.replace(' ', '_')}", batches)
        assert batches <= 2
    life.check()
    figure("points", len(frozen_writer.STREAM))


def test_shows_5_a_frozen_mirror(
    figure: Figure, workshop: Callable[..., Workshop], monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    shop = workshop("wokenmirror", 2)
    life = frozen_writer.Life(shop, shop.mirror, monkeypatch)
    for point in frozen_writer.MIRROR:
        life.through(point)
    mirrored = mirror_digests(shop, spark)
    assert len(mirrored) == len(set(mirrored)) == life.produced
    assert set(mirrored) == topic_digests(shop)
    figure("points", len(frozen_writer.MIRROR))


def test_shows_5_a_frozen_live_job_and_a_switch(figure: Figure, workshop: Callable[..., Workshop]) -> None:
    frozen_writer.over_a_switch(workshop("wokenlive", 2), 300)
    figure("points", 1)


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


def test_shows_7_consumers_over_a_switch_and_a_rollback(figure: Figure, workshop: Callable[..., Workshop]) -> None:
    found = readers.check(Life(workshop("readers", 3), (readers.MOVED,)), readers=20, records=600, seed=7)
    figure("consumers", found["groups"])
    figure("source_records_missed", 0)
    figure("repeats_as_reported", found["repeats"])
    figure("left_out_and_listed", found["left_out"])
    assert found["groups"] == 20


@pytest.mark.parametrize("fault", OF_THE_MACHINE, ids=lambda fault: fault.name)
def test_shows_3_a_missing_guard_is_noticed(figure: Figure, fault: Fault) -> None:
    with planted_here(fault), pytest.raises((AssertionError, RewindError)):
        run_state_machine_as_test(Lifecycle, settings=settings(FULL, phases=[Phase.generate]))
    figure("caught", fault.name)


def test_shows_8_damaged_files(
    figure: Figure, swept: tuple[sweep.Sweep, dict[str, sweep.Trace]], spark: SparkSession
) -> None:
    made, _ = swept
    for step in ("backfill", "cut_over"):
        for find in damage.FILES:
            for harm in damage.DAMAGES:
                figure(f"{find.__name__}_{harm.__name__}_in_{step}", damage.taken(made, spark, step, find, harm))
    for log in ("offsets", "commits"):
        for harm in damage.DAMAGES:
            figure(f"checkpoint_{log}_{harm.__name__}", damage.checkpoint(made, log, harm))


def test_shows_8_faults_of_machines(figure: Figure, jars: Path, tmp_path: Path) -> None:
    with faults.small_disk(tmp_path / "disk") as disk, ground(tmp_path, jars, "troubled", disk / "home") as made:
        life = soak.Soak(made, random.Random(SEED))
        with soak.loaded(life) as start:
            load = start(lambda: life.produce(1_000_000, 20))
            troubles = faults.Troubles(life)
            for fault in faults.FAULTS:
                for step, seen in troubles.through(fault).items():
                    told = f"{seen.outcome}; live's longest gap {seen.gap_seconds:.1f} s"
                    figure(f"{fault.__name__}_in_{step}", told)
            life.over.set()
            load.result()
        live = len(faults.FAULTS) + 1
        made.shop.start(f"troubled-g{live}")
        made.shop.caught_up(f"troubled-g{live}")
        life.check([live])
    figure("lost", 0)


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
    hidden = [PROJECT / "include", PROJECT / "jobs", tmp_path / "pipelines"]
    (tmp_path / "pipelines").mkdir()
    with standalone.cluster(tmp_path / "cluster", hidden) as (url, conf):
        monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
        live_on(make_settings, broker, tmp_path, "oncluster", REWIND_SPARK_MASTER=url)
    figure("standalone", "passed, with include/ out of the workers' reach")


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
    (folder / "pipelines").mkdir(exist_ok=True)
    chosen["REWIND_PIPELINES"] = str(folder / "pipelines")
    settings = make_settings(broker.bootstrap, **chosen)
    try:
        check(Life(Workshop(settings, name, 2), HALF_DONE), 300)
    finally:
        supervise.stop_all(settings, timeout=20)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, jars: Path) -> Iterator[StubStage]:
    """A real scheduler and API server, with a deployed pipeline."""
    with stub_stage(tmp_path_factory.mktemp("cases") / "home", jars, "acted", 2, impatient=True) as made:
        made.shop.produce(*(visit(n) for n in range(100)))
        made.deploy()
        yield made


@pytest.fixture
def real(stage: StubStage) -> StubStage:
    """The stage, its submits going to the real spark-submit."""
    stage.connect(HERE)
    stage.stub.forget()
    return stage


def test_shows_9_c06_a_retry_replaces_the_driver(figure: Figure, stage: StubStage) -> None:
    step_cases.c06_a_retry_replaces_the_driver(stage)
    figure("rows_once", len(stage.stub.rows()))


def test_shows_9_c06_a_retry_follows_the_driver_in_the_cluster(figure: Figure, stage: StubStage) -> None:
    step_cases.c06_a_retry_follows_the_driver_in_the_cluster(stage)
    figure("drivers", len(stage.stub.calls("start")))


@pytest.mark.parametrize(
    ("code", "driver", "task"),
    [(0, "FAILED", "failed"), (0, "KILLED", "failed"), (0, "UNKNOWN", "failed"), (1, "FINISHED", "success")],
)
def test_shows_9_c18_the_end_of_the_driver_decides(stage: StubStage, code: int, driver: str, task: str) -> None:
    assert step_cases.c18_follows_the_driver(stage, code, driver) == task


@pytest.mark.parametrize("name", ["failed", "timeout", "deleted"])
def test_shows_9_c25_a_driver_ends_with_its_task(figure: Figure, stage: StubStage, name: str) -> None:
    step_cases.c25_confirmed(stage, name)
    figure("kills", len(stage.stub.calls("kill")))


@pytest.mark.parametrize("name", ["kill-refused", "relaunching"])
def test_shows_9_c25_an_orphan_lets_nothing_start(figure: Figure, stage: StubStage, name: str) -> None:
    step_cases.c25_orphan(stage, name)
    figure("kills", len(stage.stub.calls("kill")))


@pytest.mark.parametrize("how", ["failed", "cleared", "deleted"])
def test_shows_9_a_lost_supervisor_leaves_its_driver(figure: Figure, real: StubStage, how: str) -> None:
    airflow_cases.supervisor_lost(real, real.live(), how)
    figure("drivers_lost", 0)


def test_shows_9_c28_the_backfill_cleared(real: StubStage) -> None:
    airflow_cases.c28_backfill_cleared(real)


def test_shows_9_c28_the_start_and_the_cut_over_cleared(real: StubStage) -> None:
    airflow_cases.c28_start_and_cut_over_cleared(real)


def test_shows_9_c28_a_collection_cleared_twice(real: StubStage) -> None:
    airflow_cases.c28_collection_cleared(real)


def test_shows_9_c10_a_cut_over_that_was_only_marked(real: StubStage) -> None:
    airflow_cases.c10_cut_over_only_marked(real)


def test_shows_2_two_rounds_of_starts_over_rest(figure: Figure, real: StubStage) -> None:
    winners = [airflow_cases.starts_at_once(real) for _ in range(2)]
    figure("winners_over_rest", winners)
    assert winners == [1, 1]


def test_shows_9_c04_a_topic_recreated(real: StubStage) -> None:
    real.shop.produce(*(visit(n) for n in range(100, 500)))
    airflow_cases.c04_topic_recreated(real)


def test_shows_10_airflow_on_postgresql(figure: Figure, jars: Path, tmp_path: Path) -> None:
    with postgres.server() as url:
        databases = {"REWIND_REGISTRY_URL": url, "REWIND_AIRFLOW_DATABASE": postgres.another(url, "airflow")}
        stage = Stage(tmp_path / "home", jars, "ridden", 2, environment=databases, compare=UPPER)
        try:
            live_once(stage, 150)
        finally:
            stage.down()
    assert not (tmp_path / "home" / "airflow" / "airflow.db").exists()
    figure("airflow_on_postgresql", "passed")


def test_shows_8_scheduler_and_api_server_killed(figure: Figure, jars: Path, tmp_path: Path) -> None:
    stage = Stage(tmp_path / "home", jars, "served", 2)
    try:
        for partition in range(2):
            stage.shop.produce(*(visit(n) for n in range(2_000)), partition=partition)
        stage.deploy()
        for step, (attempts, gap) in airflow_faults.killed_in(stage, 20).items():
            figure(f"servers_killed_in_{step}", f"survived in {attempts} attempts; live's longest gap {gap:.1f} s")
    finally:
        stage.down()

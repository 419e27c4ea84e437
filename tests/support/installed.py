"""An installation with a rewind that waits for its answer: for commands that read a registry and talk to Airflow."""

from __future__ import annotations

from dataclasses import asdict, replace

from sqlalchemy import insert

from rewind.core import lifecycle
from rewind.core.model import Batch, Generation
from rewind.core.pipeline import Pipeline
from rewind.core.planning.plan import Plan, Request, sealed
from rewind.core.planning.stages import REWIND
from rewind.core.settings import from_environment
from rewind.declared import forms
from rewind.registry import database, generations, manifest, progress, rewinds, schema, streams, verdicts
from rewind.registry.leases import Holder, Process
from rewind.registry.verdicts import Verdict
from rewind.runtime import announce
from rewind.runtime.drivers import bundle, supervise

PIPELINE = Pipeline("visits_converter", "visits", "page STRING", "visits_converted")
CHANGED = Pipeline("visits_converter", "visits", "page STRING", "visits_converted", max_offsets=50_000)
LIVE, CANDIDATE, OVER = (f"visits_converter-g{number}" for number in (2, 3, 1))
DAG = "rewind_visits_converter"
RUN, DRY_RUN = "manual__1", "manual__2"
REWIND_ID = forms.rewind_id(DAG, RUN)
BIG = 9_007_199_254_740_993
HOLDER = Holder("another-host", "boot", (Process(17, 1), Process(18, 2)), 17)

OLD_LOGIC = "def transform(visits):\n    return visits\n"
NEW_LOGIC = "def transform(visits):\n    return visits.distinct()\n"


def environment(folder):
    """Return the variables of an installation below a folder."""
    return {
        "REWIND_HOME": str(folder / "home"),
        "REWIND_KAFKA_BOOTSTRAP": "127.0.0.1:1",
        "REWIND_PIPELINES": str(folder / "pipelines"),
        "REWIND_JOBS": str(folder / "jobs"),
        "REWIND_REGISTRY_URL": "",
        "REWIND_DATA": "",
        "REWIND_AIRFLOW_URL": "",
    }


def seed(folder, verdict="pass", reason=""):
    """Make an installation: g2 live, g3 its candidate with a verdict, g1 aborted and not yet collected."""
    settings = from_environment(environment(folder))
    (folder / "jobs").mkdir()
    (folder / "jobs" / "stream.py").write_text("main\n")
    home = settings.pipelines / "visits_converter"
    home.mkdir(parents=True)
    (settings.pipelines / "__init__.py").touch()
    (home / "__init__.py").touch()
    (home / "pipeline.yaml").write_text("source: {topic: visits, schema: 'page STRING'}\noutput: {topic: out}\n")
    settings.home.mkdir()
    database.upgrade(settings.registry_url)
    frozen = {LIVE: _freeze(settings, LIVE, OLD_LOGIC), CANDIDATE: _freeze(settings, CANDIDATE, NEW_LOGIC)}
    with database.writing(settings.registry_url) as connection:
        _history(connection, frozen)
        rewinds.open_rewind(connection, REWIND_ID, plan())
        rewinds.end_step(
            connection, REWIND_ID, "validate", rewinds.begin_step(connection, REWIND_ID, "validate"), "done", {}
        )
        verdicts.store(connection, REWIND_ID, made_verdict(verdict, reason))
        streams.wish(connection, "mirror-visits", streams.MIRROR, streams.RUN)
    return settings


def _freeze(settings, job_id, logic):
    (settings.pipelines / "visits_converter" / "logic.py").write_text(logic)
    made = bundle.build(settings, "visits_converter")
    return bundle.freeze(made, supervise.generation_folder(settings, job_id) / "bundle").hash


def _history(connection, frozen):
    generations.create(connection, generation(OVER, "gone", PIPELINE), None)
    generations.move(connection, OVER, lifecycle.ABORTED)
    generations.create(connection, generation(LIVE, frozen[LIVE], PIPELINE), None)
    generations.set_first(connection, LIVE)
    announce.prepare(connection, "visits_converter", 1, None, LIVE)
    generations.create(connection, generation(CANDIDATE, frozen[CANDIDATE], CHANGED), REWIND_ID)
    for job, output in ((OVER, "visits_converted-g1"), (LIVE, "visits_converted-g2")):
        manifest.name(connection, job, manifest.TOPIC, output)
        streams.wish(connection, job, streams.GENERATION, streams.RUN)
    manifest.made(connection, LIVE, manifest.TOPIC, "visits_converted-g2", "id-2")
    progress.record(connection, LIVE, 1, Batch(1, {0: BIG}, {0: BIG + 2}, 2, database.now()))
    values = {"owner": LIVE, "token": 4, "holder": asdict(HOLDER), "renewed_at": database.now()}
    connection.execute(insert(schema.leases).values(**values))


def generation(job_id, code, pipeline):
    """Return a candidate of a pipeline."""
    output = f"visits_converted-{job_id.rpartition('-')[2]}"
    return Generation(
        job_id=job_id,
        pipeline="visits_converter",
        state=lifecycle.CANDIDATE,
        topic_id="id-1",
        bundle=code,
        frozen={"config": pipeline.frozen(), "versions": {"pyspark": "4.2.0" if pipeline is CHANGED else "4.1.1"}},
        start={0: 0},
        handoff={0: 5},
        output_topic=output,
        dead_letter_topic=f"{output}-dead",
    )


def plan(**changes):
    """Return the plan of the rewind, with some fields changed."""
    return sealed(
        replace(
            Plan(
                kind=REWIND,
                request=Request("visits_converter"),
                job_id=CANDIDATE,
                live_job_id=LIVE,
                epoch=1,
                topic="visits",
                topic_id="id-1",
                start={0: 0},
                end={0: BIG},
                mirror_version=0,
                records=BIG,
                bytes=90,
                chunks=1,
                estimate_seconds=0.1,
                differences=(),
                config=CHANGED.frozen(),
                bundle="b1",
                output_schema="page STRING",
                output_topic="visits_converted-g3",
                dead_letter_topic="visits_converted-g3-dead",
            ),
            **changes,
        )
    )


def made_verdict(word, reason):
    """Return a verdict over nine rows."""
    counts = {"rows": BIG, "equal": BIG - 1, "changed": 1 if word == "fail" else 0}
    return Verdict(1, 0, word, {0: 0}, {0: 9}, counts, [{"class": "changed", "offset": 3}], reason, database.now())


class FakeAirflow:
    """An Airflow that has one question, plans at once, and carries out what it is told."""

    def __init__(self, settings):
        self.settings, self.runs, self.answers, self.asks, self.ended = settings, [], [], True, []
        self.lost, self.state, self.plan_evidence = 0, "success", {"plan_id": plan().id}

    def trigger(self, dag_id, conf):
        self.runs.append((dag_id, dict(conf)))
        if dag_id.startswith("rewind_") and conf["dry_run"]:
            self._plan(forms.rewind_id(dag_id, DRY_RUN))
        return {"dag_run_id": DRY_RUN}

    def _plan(self, rewind_id):
        if self.plan_evidence is None:
            return
        with database.writing(self.settings.registry_url) as connection:
            attempt = rewinds.begin_step(connection, rewind_id, "plan")
            rewinds.end_step(connection, rewind_id, "plan", attempt, "done", self.plan_evidence)

    def dag_runs(self, dag_id):
        return [{"dag_run_id": RUN, "state": "running"}, {"dag_run_id": "another", "state": "running"}]

    def task_instances(self, dag_id, run_id):
        return [{"task_id": "backfill", "state": "running"}, {"task_id": "plan", "state": "success"}]

    def end_task(self, dag_id, run_id, task_id):
        self.ended.append((run_id, task_id))

    def dag_run(self, dag_id, run_id):
        return {"state": self.state}

    def hitl_pending(self, dag_id):
        other = {"task_instance": {"dag_run_id": "another", "task_id": "approve"}}
        mine = {"task_instance": {"dag_run_id": RUN, "task_id": "approve"}}
        return [other, mine] if self.asks else [other]

    def hitl_answer(self, dag_id, run_id, task_id, options, params):
        self.answers.append((dag_id, run_id, task_id, tuple(options), dict(params)))
        if len(self.answers) <= self.lost:
            return
        given = "approve" if options == ["Approve"] else "reject"
        with database.writing(self.settings.registry_url) as connection:
            verdicts.answer(connection, REWIND_ID, given, "ada", params["reason"])

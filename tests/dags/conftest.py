"""Fixtures of the DAG tests: an Airflow without a database, a registry, and a spark-submit that is told its end."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
DAGS = PROJECT / "dags"

# Before Airflow is imported: it reads its home then. As its dag-processor does, put the DAG folder on the path.
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="rewind-airflow-")
sys.path.insert(0, str(DAGS))

from types import SimpleNamespace  # noqa: E402

from rewind_airflow import run  # noqa: E402

from rewind.core import lifecycle  # noqa: E402
from rewind.core.model import Generation  # noqa: E402
from rewind.core.planning.plan import Plan, Request, sealed  # noqa: E402
from rewind.declared import pipelines  # noqa: E402
from rewind.registry import database, generations, rewinds, verdicts  # noqa: E402
from rewind.registry.database import now, writing  # noqa: E402
from rewind.runtime.drivers import bundle  # noqa: E402
from tests.support.airflow_page import airflow, client, fresh, page, site  # noqa: E402, F401

PIPELINE = "visits"
YAML = """\
source: {topic: clicks, schema: "a STRING"}
output: {topic: visits_out}
gates: {lag_records: 100}
"""


@pytest.fixture
def declare(tmp_path):
    """Declare a pipeline: `declare("visits", yaml)`; returns the folder of all."""

    def make(name, yaml=YAML):
        folder = tmp_path / "pipelines"
        (folder / name).mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / name / "__init__.py").write_text("")
        (folder / name / "logic.py").write_text("def transform(frame):\n    return frame\n")
        (folder / name / "pipeline.yaml").write_text(yaml)
        return folder

    return make


@pytest.fixture
def pipelines_folder(declare):
    """A folder with one declared pipeline, `visits`."""
    return declare(PIPELINE)


@pytest.fixture
def installation(make_settings, pipelines_folder, monkeypatch):
    """Settings of an installation with a registry, which its tasks find in their environment."""
    made = make_settings(REWIND_PIPELINES=str(pipelines_folder))
    for key, value in made.environment().items():
        monkeypatch.setenv(key, value)
    database.upgrade(made.registry_url)
    return made


@pytest.fixture
def context():
    """What a task of run `r1` of `rewind_visits` is given."""
    never = {"get_first_reschedule_date": lambda _: None}
    ti = SimpleNamespace(dag_id="rewind_visits", run_id="r1", try_number=1, stats_tags={}, **never)
    return {"ti": ti, "dag_run": SimpleNamespace(conf={}), "params": {}, "run_id": "r1"}


@pytest.fixture
def rewind_id(context):
    """Id of the rewind that the context's run carries out."""
    return run.rewind_id(context)


@pytest.fixture
def opened(installation, rewind_id):
    """Open the run's rewind and return its plan: `opened(kind="repair", auto_approve=True)`."""

    def make(kind="rewind", **asked):
        code = bundle.build(installation, PIPELINE)
        plan = sealed(
            Plan(
                kind=kind,
                request=Request(PIPELINE, **asked),
                job_id="visits-r1" if kind == "repair" else "visits-g2",
                live_job_id="visits-g1",
                epoch=1,
                topic="clicks",
                topic_id="t",
                start={0: 0},
                end={0: 10},
                mirror_version=1,
                records=10,
                bytes=10,
                chunks=1,
                estimate_seconds=1,
                differences=(),
                config=pipelines.load(installation.pipelines, PIPELINE).frozen(),
                bundle=code.hash,
                output_schema="a STRING",
                output_topic="visits_out-g2",
                dead_letter_topic="visits_out-g2-dead",
            )
        )
        with writing(installation.registry_url) as connection:
            _generation(connection, 1)
            generations.set_first(connection, "visits-g1")
            rewinds.open_rewind(connection, rewind_id, plan)
            if kind != "repair":
                _generation(connection, 2, rewind_id)
        return plan

    return make


def _generation(connection, number, made_by=None):
    job = f"visits-g{number}"
    frozen = {"config": {"source_topic": "clicks", "output_topic": "visits_out"}}
    made = Generation(
        job, PIPELINE, lifecycle.CANDIDATE, "t", "b", frozen, {0: 0}, {0: 0}, f"visits_out-g{number}", f"dead-{number}"
    )
    generations.create(connection, made, made_by)


@pytest.fixture
def judged(installation, rewind_id):
    """Store a verdict on the run's rewind: `judged("fail")`."""

    def make(verdict):
        made = verdicts.Verdict(1, 1, verdict, {0: 0}, {0: 10}, {"equal": 9, "changed": 1}, [{"a": "`"}], "why", now())
        with writing(installation.registry_url) as connection:
            verdicts.store(connection, rewind_id, made)

    return make


STUB = """\
#!{python}
import os, sqlite3, sys
state = os.environ["STUB_DRIVER"]
if "--status" in sys.argv:
    sys.exit(print('"submissionId" : "driver-1-1",', '"driverState" : "%s",' % state, sep="\\n"))
open(os.environ["STUB_LOG"], "a").write(repr(sys.argv[1:]) + "\\n")
open(os.environ["STUB_LOG"] + ".environment", "w").write(repr(dict(os.environ)))
print("driver-20250904070000-0001" if state else "the field: is bad. Fix it")
sum(range(2_000_000))
if os.environ["STUB_MARK"]:
    with sqlite3.connect(os.environ["REWIND_REGISTRY_URL"].removeprefix("sqlite:///")) as registry:
        registry.execute("INSERT INTO steps VALUES (?, ?, 1, 'done', '2025-09-04 07:00:00', NULL, NULL, NULL)",
            os.environ["STUB_MARK"].split())
sys.exit(int(os.environ["STUB_EXIT"]))
"""


@pytest.fixture
def spark_submit(tmp_path, monkeypatch):
    """Put a stub before the real spark-submit: `spark_submit(exit_code, driver=..., mark="rw-… step")`.

    Returns the arguments of each submit as text.
    """
    path, log = tmp_path / "bin" / "spark-submit", tmp_path / "submits"
    path.parent.mkdir()
    path.write_text(STUB.format(python=sys.executable))
    path.chmod(0o755)
    log.write_text("")
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("STUB_LOG", str(log))
    monkeypatch.setenv("REWIND_DRIVER_ENVIRONMENT", "STUB_*")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type":"spark","host":"local[2]"}')

    def behave(exit_code=0, driver="", mark=""):
        monkeypatch.setenv("STUB_EXIT", str(exit_code))
        monkeypatch.setenv("STUB_DRIVER", driver)
        monkeypatch.setenv("STUB_MARK", mark)
        return log.read_text

    return behave

"""Which run of which DAG supervises a stream: one run a start, named `<owner>.<n>`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from http import HTTPStatus
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.types import RuntimeTaskInstanceProtocol

from rewind.core import names
from rewind.declared import forms
from rewind.registry import streams
from rewind.registry.database import reading, writing
from rewind.registry.streams import Stream
from rewind_airflow import notify, run
from rewind_airflow.reactions import reactions

POOL = "streams"
ACTIVE = ["queued", "running"]
# A stream that was started more often under one supervisor gets a second one: they do not hurt each other.
LOOK_BACK = 50


def stream_dag(pipeline: str) -> str:
    """Return the id of the DAG that supervises the generations of a pipeline."""
    return f"stream_{pipeline}"


def mirror_dag(topic: str) -> str:
    """Return the id of the DAG that supervises the mirror of a topic."""
    return f"mirror_{topic}"


def dag_of(stream: Stream) -> str:
    """Return the id of the DAG that supervises a stream."""
    if stream.kind == streams.MIRROR:
        return mirror_dag(stream.owner.removeprefix(names.mirror_owner("")))
    return stream_dag(names.parse_job_id(stream.owner)[0])


def supervised(ti: RuntimeTaskInstanceProtocol, stream: Stream) -> bool:
    """Return whether a run that supervises a stream is queued or running."""
    if stream.kind == streams.MIRROR:
        # Its DAG is about this stream alone, and a person may have started the run.
        return ti.get_dr_count(dag_id=dag_of(stream), states=ACTIVE) > 0
    numbers = range(max(1, stream.starts - LOOK_BACK), stream.starts + 2)
    run_ids = [f"{stream.owner}.{number}" for number in numbers]
    return ti.get_dr_count(dag_id=dag_of(stream), run_ids=run_ids, states=ACTIVE) > 0


def trigger(ti: RuntimeTaskInstanceProtocol, stream: Stream) -> dict[str, Any]:
    """Return the arguments that make a TriggerDagRunOperator start a supervisor of a stream."""
    number = stream.starts + 1
    while ti.get_dr_count(dag_id=dag_of(stream), run_ids=[f"{stream.owner}.{number}"]) > 0:
        number += 1
    run_id = f"{stream.owner}.{number}"
    # The DAG of a mirror is about one stream, and takes no parameters.
    conf = {} if stream.kind == streams.MIRROR else {"owner": stream.owner}
    return {"trigger_dag_id": dag_of(stream), "trigger_run_id": run_id, "conf": conf}


def unsupervised(ti: RuntimeTaskInstanceProtocol, **context: Any) -> list[dict[str, Any]]:
    """Return a trigger for each stream that should run and that nobody supervises; tell of DAGs that were paused.

    A paused DAG looks supervised: its run stays *running*, and no task of it is scheduled.
    """
    run.nothing_asked(ti=ti, **context)
    with reactions(), reading(run.settings().registry_url) as connection:
        wanted = [s for s in streams.all_of(connection) if s.wish == streams.RUN and s.quarantined_at is None]
    paused = {dag_id for dag_id in sorted({dag_of(stream) for stream in wanted}) if _is_paused(ti, dag_id)}
    _note(wanted, paused, {**context, "ti": ti})
    going = [stream for stream in wanted if dag_of(stream) not in paused]
    return [trigger(ti, stream) for stream in going if not supervised(ti, stream)]


def _is_paused(ti: RuntimeTaskInstanceProtocol, dag_id: str) -> bool:
    try:
        return bool(ti.get_dag(dag_id).is_paused)
    except AirflowRuntimeError as problem:
        if (problem.error.detail or {}).get("status_code") != HTTPStatus.NOT_FOUND:
            raise
        # Its folder is gone or cannot be read, which is told elsewhere.
        return False


def _note(wanted: Sequence[Stream], paused: Collection[str], context: Any) -> None:
    """Record which streams a paused DAG leaves alone, and tell once of each DAG that was not paused before."""
    found = {stream.owner: dag_of(stream) if dag_of(stream) in paused else None for stream in wanted}
    changed = [stream for stream in wanted if stream.paused_dag != found[stream.owner]]
    if not changed:
        return
    with reactions(), writing(run.settings().registry_url) as connection:
        for stream in changed:
            streams.note_pause(connection, stream.owner, found[stream.owner])
    known = {stream.paused_dag for stream in wanted}
    for dag_id in sorted(set(paused) - known):
        owners = ", ".join(stream.owner for stream in wanted if found[stream.owner] == dag_id)
        notify.tell(context, notify.PAUSED, f"{owners}: {streams.paused(dag_id)}")


def wish_mirror(topic: str, **context: Any) -> None:
    """Wish that the mirror of a topic runs; nothing changes when it should already."""
    run.nothing_asked(**context)
    with reactions(), writing(run.settings().registry_url) as connection:
        wish_running(connection, names.mirror_owner(topic), streams.MIRROR)


def wish_running(connection: Any, owner: str, kind: str) -> Stream:
    """Wish that a stream runs and return it.

    A stream that runs keeps its count of failures: a supervisor that was started anew is no reason to forgive.
    """
    found = streams.read(connection, owner)
    if found is None or found.wish != streams.RUN or found.quarantined_at is not None:
        streams.wish(connection, owner, kind, streams.RUN)
    return streams.needed(connection, owner)


def asked_owner(context: Context) -> str:
    """Return the stream that a run was asked to supervise; empty when none was named.

    Raises:
        RefusedError: The run has another parameter, or this one is no job.
    """
    return run.asked(context, forms.STREAM)["owner"] or ""

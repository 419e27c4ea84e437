"""Make what a generation owns, each thing named in the registry before it exists."""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from rewind.adapters import delta_output
from rewind.adapters.session import session
from rewind.core import lifecycle, names
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError, RetryError
from rewind.core.model import Generation, Topic
from rewind.core.pipeline import DELTA, Pipeline
from rewind.core.planning import preflight
from rewind.core.settings import Settings
from rewind.registry import generations, manifest, owners
from rewind.registry.database import reading, writing
from rewind.runtime import rights, tables
from rewind.runtime.drivers import bundle, supervise
from rewind.runtime.drivers.bundle import Bundle
from rewind.runtime.kafka.broker import Broker
from rewind.steps.generation.logic import empty_records, empty_stream, load_logic
from rewind.transforms.logic import contract
from rewind.transforms.values import quoting


@dataclass(frozen=True)
class Examined:
    """What a pipeline's logic was seen to do on empty frames.

    Attributes:
        schema: DDL of the columns it gives.
        delay: How far its watermark lags behind event time, in milliseconds; 0 for none.
        state: What state it keeps (`contract.state_shape`).
    """

    schema: str
    delay: int = 0
    state: tuple[str, ...] = ()


def examined(spark: SparkSession, pipeline: Pipeline) -> Examined:
    """Run the pipeline's logic on empty frames.

    Raises:
        RefusedError: The logic breaks the contract.
    """
    logic = load_logic(pipeline)
    made = contract.examine(logic, pipeline, empty_records(spark))
    schema = ", ".join(f"{quoting.quoted(field.name)} {quoting.ddl(field.dataType)}" for field in made.schema.fields)
    contract.check_lazy(logic, pipeline, empty_stream(spark))
    if not pipeline.stateful:
        return Examined(schema)
    delay = contract.watermark_delay(logic, pipeline, empty_stream(spark)) or timedelta(0)
    state = contract.state_shape(logic, pipeline, empty_stream(spark))
    return Examined(schema, int(delay.total_seconds() * 1000), tuple(state))


def frozen_configuration(
    settings: Settings,
    pipeline: Pipeline,
    seen: Examined,
    source: Topic,
    epoch: int,
    trusted_from: int | None = None,
) -> dict[str, Any]:
    """Return what a generation freezes beside its code: settings, output columns, versions.

    Args:
        settings: The installation.
        pipeline: The pipeline.
        seen: What its logic was seen to do.
        source: Source topic, whose partition count the spans of a stateful pipeline keep.
        epoch: The pointer's epoch at which the generation is, or is to be, live: the first part of its versions.
        trusted_from: From when on its results are whole (`Plan.trusted_from`).
    """
    versions = {name: metadata.version(name) for name in ("pyspark", "delta-spark", "kafka-python", "sqlalchemy")}
    jars = sorted(path.name for path in Path(settings.jars / "spark").glob("*.jar"))
    return {
        "config": pipeline.frozen(),
        "output_schema": seen.schema,
        "state": list(seen.state),
        "partitions": len(source.latest),
        "epoch": epoch,
        "trusted_from": trusted_from,
        "versions": {**versions, "python": platform.python_version()},
        "jars": jars,
    }


def refuse_leftovers(settings: Settings, generation: Generation) -> None:
    """Check that nothing of a generation's name exists yet.

    Raises:
        RefusedError: A topic, table, folder or consumer group of that name exists, and is not this generation's.
    """
    broker = Broker(settings)
    outputs, job = (generation.output_topic, generation.dead_letter_topic), generation.job_id
    taken = {*broker.topics(), *tables.all_names(settings)}
    names.checked_new(outputs, taken, "output.topic")
    names.checked_new([job], (place.name for place in settings.generations.glob("*")), "job_id")
    preflight.refuse_group_in_use(job, broker)
    there = [name for name in outputs if name in taken]
    folder = supervise.generation_folder(settings, job)
    there += [str(folder)] if folder.exists() else []
    if there:
        raise RefusedError("job_id", f"{', '.join(there)} exists already", "Delete what is left there, then try again")


def make(settings: Settings, generation: Generation, code: Bundle, source: Topic, like: Topic) -> None:
    """Make the topics or tables and the folder of a recorded generation; again is harmless.

    Args:
        settings: The installation.
        generation: The generation, recorded already.
        code: Its code.
        source: Source topic, whose partition count the dead letters take.
        like: Topic whose limits and partition count an output topic takes: live's output, or the source.

    Raises:
        RefusedError: It was aborted meanwhile; what was made since is gone again. Or a name of it is another's, or
            something stands under it that nobody of ours has made.
    """
    folder = supervise.generation_folder(settings, generation.job_id)
    job_id, pipeline = generation.job_id, generation.declared
    kind = manifest.TABLE if pipeline.output_format == DELTA else manifest.TOPIC
    _roots(settings)
    with side_effect("manifest.name"), writing(settings.registry_url) as connection:
        if generations.read(connection, job_id).state in lifecycle.OVER:
            raise _aborted(job_id)
        manifest.name(connection, job_id, manifest.FOLDER, str(folder))
        manifest.name(connection, job_id, kind, generation.output_topic)
        manifest.name(connection, job_id, kind, generation.dead_letter_topic)
        manifest.name(connection, job_id, manifest.GROUP, job_id)
    bundle.freeze(code, folder / "bundle")
    _made(settings, job_id, manifest.FOLDER, str(folder), None)
    if kind == manifest.TABLE:
        _tables(settings, generation, pipeline)
    else:
        _topic(settings, job_id, generation.output_topic, like, len(like.latest))
        _topic(settings, job_id, generation.dead_letter_topic, source, len(source.latest))
        rights.when_made(Broker(settings), (generation.output_topic, generation.dead_letter_topic))
    _made(settings, job_id, manifest.GROUP, job_id, None)


def record(settings: Settings, generation: Generation, rewind_id: str | None) -> Generation:
    """Record a generation, after checking that nothing of its name is there, unless it is recorded already.

    Raises:
        RefusedError: Leftovers of its name, or another candidate.
    """
    with reading(settings.registry_url) as connection:
        known = generations.find(connection, generation.job_id)
    if known is None:
        refuse_leftovers(settings, generation)
    with side_effect("generation.record"), writing(settings.registry_url) as connection:
        return generations.create(connection, generation, rewind_id)


def _roots(settings: Settings) -> None:
    """Make the folders below which folders and tables lie: where they are missing later, their disk is.

    Raises:
        RetryError: They were there, and are not.
    """
    for kind, root in ((manifest.FOLDER, settings.generations), (manifest.TABLE, settings.tables)):
        with writing(settings.registry_url) as connection:
            known = manifest.any_made(connection, kind)
        if known and not root.is_dir():
            raise RetryError(f"{root} is not there, and holds what is recorded: is its disk mounted?")
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RetryError(f"{root} cannot be made: {error}; is its disk mounted?") from error


def _topic(settings: Settings, job_id: str, name: str, like: Topic, partitions: int) -> None:
    with writing(settings.registry_url) as connection:
        known = next(e for e in manifest.read(connection, job_id) if (e.kind, e.name) == (manifest.TOPIC, name))
    broker = Broker(settings)
    refuse_foreign(name, known.resource_id, broker.topic(name))
    with side_effect("topic.create"):
        topic_id = broker.create_topic(name, like, partitions, cleanup="delete")
    _made(settings, job_id, manifest.TOPIC, name, topic_id)


def refuse_foreign(name: str, topic_id: str | None, found: Topic | None) -> None:
    """Check that a topic that is to be made, and is there, is what an attempt before this one left.

    Args:
        name: The topic.
        topic_id: Its id as it was recorded; None when its maker died before that, and so wrote nothing into it.
        found: What stands under the name.

    Raises:
        RefusedError: It is another's.
    """
    if found is None or found.id == topic_id:
        return
    if topic_id is not None:
        raise RefusedError(
            "output.topic", f"{name} was recreated by somebody: its id is {found.id}", "Look whose it is"
        )
    if any(found.latest.values()):
        raise RefusedError("output.topic", f"{name} holds records, and its id is not recorded", "Look whose it is")


def _tables(settings: Settings, generation: Generation, pipeline: Pipeline) -> None:
    spark = session(f"make {generation.job_id}", pipeline.session_time_zone)
    for name in (generation.output_topic, generation.dead_letter_topic):
        with side_effect("table.create"):
            table_id = table(spark, settings, generation, name)
        _made(settings, generation.job_id, manifest.TABLE, name, table_id)


def table(spark: SparkSession, settings: Settings, generation: Generation, name: str) -> str:
    """Make a generation's table of results or of dead letters, unless it is there, and return its id."""
    place = str(tables.path(settings, name))
    if name == generation.dead_letter_topic:
        table_id = delta_output.create_dead(spark, place)
    else:
        table_id = delta_output.create(spark, place, generation.output_schema)
    tables.mark(settings, name, table_id)
    return table_id


def _made(settings: Settings, job_id: str, kind: str, name: str, resource_id: str | None) -> None:
    with side_effect("manifest.made"), writing(settings.registry_url) as connection:
        wanted = manifest.made(connection, job_id, kind, name, resource_id)
        own = kind == manifest.FOLDER or owners.may_delete(connection, job_id, kind, name)
    if not wanted and not own:
        # Collected meanwhile, and the name is another's since.
        raise _aborted(job_id)
    if not wanted:
        # Whoever aborted it has deleted what there was; this came later, and nobody else knows of it.
        with side_effect("manifest.take_back"):
            if kind == manifest.TABLE:
                tables.delete(settings, name, resource_id)
            elif resource_id is not None:
                Broker(settings).delete_topic(name, resource_id)
            elif kind == manifest.FOLDER:
                shutil.rmtree(name, ignore_errors=True)
        raise _aborted(job_id)


def _aborted(job_id: str) -> RefusedError:
    return RefusedError("job_id", f"{job_id} was aborted while it was made", "Trigger a new run")

"""Make the shared output of a pipeline, once: it outlives all of its jobs."""

from __future__ import annotations

from rewind.adapters import shared_table
from rewind.adapters.session import session
from rewind.core import names
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError
from rewind.core.model import Generation, Topic
from rewind.core.pipeline import DELTA, Pipeline
from rewind.core.settings import Settings
from rewind.registry import manifest, shared_outputs
from rewind.registry.database import reading, writing
from rewind.runtime import tables
from rewind.runtime.kafka.broker import Broker
from rewind.steps.generation import allocate


def refuse_leftover(settings: Settings, pipeline: Pipeline) -> None:
    """Check that nothing stands under the name of a shared output that is to be made.

    Raises:
        RefusedError: A topic or table of that name exists, and is not this pipeline's.
    """
    name = names.shared_output(pipeline.output_topic)
    with reading(settings.registry_url) as connection:
        mine = shared_outputs.find(connection, pipeline.name)
        others = shared_outputs.names(connection)
    if mine is not None and mine.name == name:
        return
    taken = {*Broker(settings).topics(), *tables.all_names(settings), *others}
    names.checked_new([name], taken, "output.shared")
    if name in taken:
        raise RefusedError("output.shared", f"{name} exists already", "Delete what is left there, or rename the output")


def make(settings: Settings, generation: Generation, pipeline: Pipeline, like: Topic) -> None:
    """Make the shared output of a pipeline; again is harmless.

    Args:
        settings: The installation.
        generation: The pipeline's first generation, whose columns a table takes.
        pipeline: The pipeline.
        like: Topic whose limits and partition count a topic takes.
    """
    name = names.shared_output(pipeline.output_topic)
    kind = manifest.TABLE if pipeline.output_format == DELTA else manifest.TOPIC
    with side_effect("shared.name"), writing(settings.registry_url) as connection:
        shared_outputs.name(connection, pipeline.name, kind, name)
        found = shared_outputs.find(connection, pipeline.name)
    if found is not None and found.resource_id is not None:
        # Made anew it would lack what was published into it.
        return
    with side_effect("shared.create"):
        made = _table(settings, generation, pipeline, name) if kind == manifest.TABLE else _topic(settings, name, like)
    with side_effect("shared.made"), writing(settings.registry_url) as connection:
        shared_outputs.made(connection, pipeline.name, made)


def _table(settings: Settings, generation: Generation, pipeline: Pipeline, name: str) -> str:
    spark = session(f"share {pipeline.name}", pipeline.session_time_zone)
    table_id = shared_table.create(spark, str(tables.path(settings, name)), generation.output_schema)
    tables.mark(settings, name, table_id)
    return table_id


def _topic(settings: Settings, name: str, like: Topic) -> str:
    broker = Broker(settings)
    allocate.refuse_foreign(name, None, broker.topic(name))
    # Kafka keeps at least the last record of every key, and that is what the topic is for.
    return broker.create_topic(name, like, len(like.latest), cleanup="compact")

"""The state of a streaming query as a frame, through Spark's own reader of state stores.

The reader takes the number of shuffle partitions from the offset log of the batch, where Spark 4.2 writes it only once
a query was restarted: for a batch of its first run it fails (`None.get` in `StateDataSource`). So what is read is not
the checkpoint itself but a view of it: a folder with copies of the two small files of the batch, fixed where that is
missing, and a link to the state. Nothing is ever written into the checkpoint of a job.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from rewind.core.errors import IntegrityError

_SHUFFLE = "spark.sql.shuffle.partitions"


@dataclass(frozen=True)
class Operator:
    """An operator with state of a query.

    Attributes:
        id: Its number in the plan.
        name: What Spark calls its kind.
        store: Name of one of its stores.
        partitions: How many partitions its state has.
    """

    id: int
    name: str
    store: str
    partitions: int

    def __str__(self) -> str:
        """Return how it is told apart from others of the query."""
        return f"{self.id}-{self.name}" + ("" if self.store == "default" else f"-{self.store}")


def operators(spark: SparkSession, checkpoint: str) -> list[Operator]:
    """Return the operators with state of the query that owns a checkpoint."""
    # One row a store.
    rows = spark.read.format("state-metadata").load(checkpoint).collect()
    found = {(row["operatorId"], row["stateStoreName"]): row for row in rows}
    return [Operator(n, row["operatorName"], store, row["numPartitions"]) for (n, store), row in sorted(found.items())]


def view(checkpoint: str, batch: int, partitions: int, folder: Path) -> str:
    """Make the view of a committed batch of a checkpoint in a folder that executors see too; return its path.

    Raises:
        IntegrityError: The log of the batch is not as Spark writes it.
        FileNotFoundError: The batch is not in the logs.
    """
    shutil.rmtree(folder, ignore_errors=True)
    source = Path(checkpoint)
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    shutil.copyfile(source / "metadata", folder / "metadata")
    shutil.copyfile(source / "commits" / str(batch), folder / "commits" / str(batch))
    log = (source / "offsets" / str(batch)).read_text()
    (folder / "offsets" / str(batch)).write_text(_mended(log, partitions))
    (folder / "state").symlink_to(source.absolute() / "state")
    return str(folder)


def read(spark: SparkSession, viewed: str, batch: int, operator: Operator) -> DataFrame:
    """Return the state of an operator after a batch: the structs `key` and `value`.

    Args:
        spark: The session.
        viewed: A view of the batch (`view`).
        batch: The batch.
        operator: One of the query's.
    """
    # Its executors tell the coordinator of states which snapshot they load, and Spark 4.2 makes that with the manager
    # of streams: a session that never had a stream has none (`RpcEndpointNotFoundException`).
    len(spark.streams.active)
    options = {"batchId": str(batch), "operatorId": str(operator.id), "storeName": operator.store}
    return spark.read.format("statestore").options(**options).load(viewed).select("key", "value")


def _mended(log: str, partitions: int) -> str:
    form, metadata, *sources = log.split("\n")
    try:
        body = json.loads(metadata)
        body["conf"].setdefault(_SHUFFLE, str(partitions))
    except (ValueError, LookupError, TypeError) as error:
        raise IntegrityError(f"checkpoint: its offset log is torn or changed ({error})") from error
    return "\n".join([form, json.dumps(body), *sources])

"""The ids of DAGs, of their tasks and of what they tell other DAGs stay: schedules, runs and bookmarks name them."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag

from rewind.core.planning import stages
from tests.support import outside

DAGS = Path(__file__).resolve().parents[2] / "dags"


@pytest.mark.shows("house", show_7_ids_of_dags_that_differ_and_are_not_listed=0)
def test_ids_of_dags_tasks_and_assets_are_as_they_were(installation):
    bag = DagBag(str(DAGS))
    assert bag.import_errors == {}
    found = set()
    for dag in bag.dags.values():
        found |= {f"dag {dag.dag_id}", *(f"dag {dag.dag_id} task {task.task_id}" for task in dag.tasks)}
        found |= {f"dag {dag.dag_id} tag {tag}" for tag in dag.tags}
        found |= {f"dag asset {asset.name}" for task in dag.tasks for asset in [*task.outlets, *task.inlets]}
    assert outside.changed("dag", found) == ([], [])


def test_a_plan_knows_all_tasks_of_its_dag_and_no_other(installation):
    dag = DagBag(str(DAGS)).dags["rewind_visits"]
    assert sorted(task.task_id for task in dag.tasks) == sorted(stages.TASKS)
    # In an order in which they can run.
    places = {task: number for number, task in enumerate(stages.TASKS)}
    late = {"roll_back", "abort"}
    assert [
        (task.task_id, below)
        for task in dag.tasks
        for below in task.downstream_task_ids
        if below not in late and places[task.task_id] > places[below]
    ] == []

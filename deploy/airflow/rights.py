"""The users and roles of the team's Airflow, in its FAB auth manager: run by `init`, again for pipelines that came.

Each pipeline has two roles, `rewind_<pipeline>_viewer` and `rewind_<pipeline>_operator`. What they lack is added, and
nothing is taken from them: what a team grants them besides stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder
from airflow.providers.fab.www.security import permissions as fab

from rewind.core.pipeline import Pipeline
from rewind.core.settings import from_environment
from rewind.declared import pipelines

KINDS = ("abort", "consumers", "deploy", "nightly_replay", "rewind", "rollback", "stream")
"""The kinds of DAG that each pipeline has, as `<kind>_<pipeline>`."""
READ, EDIT, CREATE, MENU = fab.ACTION_CAN_READ, fab.ACTION_CAN_EDIT, fab.ACTION_CAN_CREATE, fab.ACTION_CAN_ACCESS_MENU
# Airflow asks for these beside the right on the DAG, so they open nothing of other DAGs.
LOOKS = (
    (READ, fab.RESOURCE_WEBSITE),
    (READ, fab.RESOURCE_DAG_RUN),
    (READ, fab.RESOURCE_DAG_VERSION),
    (READ, fab.RESOURCE_TASK_INSTANCE),
    (READ, fab.RESOURCE_TASK_LOG),
    (READ, fab.RESOURCE_HITL_DETAIL),
    # Without it Airflow's navigation does not show the page.
    (READ, fab.RESOURCE_PLUGIN),
    (READ, fab.RESOURCE_MY_PROFILE),
    (READ, fab.RESOURCE_MY_PASSWORD),
    (EDIT, fab.RESOURCE_MY_PASSWORD),
    (MENU, fab.RESOURCE_DAG),
    (MENU, fab.RESOURCE_HITL_DETAIL),
)
ACTS = (
    (CREATE, fab.RESOURCE_DAG_RUN),
    (EDIT, fab.RESOURCE_DAG_RUN),
    (EDIT, fab.RESOURCE_TASK_INSTANCE),
    (EDIT, fab.RESOURCE_HITL_DETAIL),
)
USERS = {"admin": "Admin", "viewer": "Viewer"}
"""Role by user; their passwords stand in `AIRFLOW_<USER>_PASSWORD`."""


def roles(pipeline: Pipeline) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Return the roles of a pipeline, each with its permissions: an action and what it is done to."""
    dags = [fab.resource_name(f"{kind}_{pipeline.name}", fab.RESOURCE_DAG) for kind in KINDS]
    mirror = fab.resource_name(f"mirror_{pipeline.source_topic}", fab.RESOURCE_DAG)
    looks = [*LOOKS, *((READ, dag) for dag in (*dags, mirror))]
    yield f"rewind_{pipeline.name}_viewer", looks
    # A mirror is shared by all pipelines on its topic, so to act on it takes a right of its own.
    yield f"rewind_{pipeline.name}_operator", [*looks, *ACTS, *((EDIT, dag) for dag in dags)]


def main() -> None:
    """Make what is missing of users and roles, and set the users' passwords."""
    declared, broken = pipelines.load_all(from_environment(os.environ).pipelines)
    for each in broken:
        print(f"{each.name} gets no roles: {each.problem}")
    with get_application_builder() as builder:
        manager = builder.sm
        manager.sync_roles()
        for name, role in USERS.items():
            password = os.environ[f"AIRFLOW_{name.upper()}_PASSWORD"]
            found = manager.find_user(username=name)
            if found is None:
                manager.add_user(name, name, "of Rewind", f"{name}@rewind.invalid", manager.find_role(role), password)
            else:
                manager.reset_password(found.id, password)
        for pipeline in declared:
            for name, permissions in roles(pipeline):
                made = manager.add_role(name)
                for action, resource in permissions:
                    manager.add_permission_to_role(made, manager.create_permission(action, resource))


if __name__ == "__main__":
    main()

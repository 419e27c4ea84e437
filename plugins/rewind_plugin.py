"""The Rewind page in Airflow: the one file that touches Airflow's web internals (ADR 0023)."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin
from fastapi import HTTPException

from rewind.airflow_api.in_process import AirflowPort
from rewind.core.settings import Settings, from_environment
from rewind.web.access import Access
from rewind.web.app import build
from rewind.web.state import State

PREFIX = "/rewind"


def _closed() -> None:
    raise HTTPException(403, "Airflow's access control could not be loaded, so this page is closed")


def _access() -> Access:
    """Return Airflow's own rules; when they cannot be loaded, nobody may do anything."""
    try:
        from airflow.api_fastapi.app import get_auth_manager
        from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
        from airflow.api_fastapi.core_api.security import GetUserDep
        from airflow.models.dag import DagModel
    except ImportError:
        logging.getLogger(__name__).exception("the page of Rewind is closed")
        return Access(_closed, lambda _person, _dag_ids: (), lambda _person, _dag_id: False, lambda _person: "")

    def person(user: GetUserDep) -> Any:
        return user

    # The names of a function's annotations are looked up in its module, where these are not.
    person.__annotations__ = {"user": GetUserDep, "return": Any}

    def may(user: Any, method: str, dag_ids: Collection[str], entity: DagAccessEntity | None = None) -> set[str]:
        manager, teams = get_auth_manager(), DagModel.get_dag_id_to_team_name_mapping(list(dag_ids))
        found = {dag_id: DagDetails(id=dag_id, team_name=teams.get(dag_id)) for dag_id in dag_ids}
        asked = {"method": method, "access_entity": entity, "user": user}
        return {dag_id for dag_id, details in found.items() if manager.is_authorized_dag(details=details, **asked)}

    def may_run(user: Any, dag_id: str) -> bool:
        return bool(may(user, "POST", [dag_id], DagAccessEntity.RUN))

    return Access(person, lambda user, dag_ids: may(user, "GET", dag_ids), may_run, lambda user: str(user.get_name()))


def _airflow() -> Any:
    from airflow.api_fastapi.app import cached_app

    # With the arguments of Airflow's own main, so that it is the app that serves us.
    return cached_app(apps=os.environ.get("AIRFLOW_API_APPS", "all"))


def _settings() -> Settings:
    return from_environment(os.environ)


def _view(name: str, destination: str, route: str, query: str = "") -> dict[str, str]:
    base = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
    icons = {"icon": f"{base}{PREFIX}/assets/icon.svg", "icon_dark_mode": f"{base}{PREFIX}/assets/icon-dark.svg"}
    return {"name": name, "href": f"{base}{PREFIX}/{query}", "destination": destination, "url_route": route, **icons}


class RewindPlugin(AirflowPlugin):
    """The page, in the navigation and as a tab of a DAG run."""

    name = "rewind"
    fastapi_apps = [  # noqa: RUF012 - the form of Airflow's plugins
        {"name": "rewind", "url_prefix": PREFIX, "app": build(State(_settings), _access(), AirflowPort(_airflow))}
    ]
    external_views = [  # noqa: RUF012
        {**_view("Rewind", "nav", "rewind"), "nav_top_level": True},
        _view("Rewind", "dag_run", "rewind_run", "?dag_id={DAG_ID}&run_id={RUN_ID}"),
    ]

"""Fixtures: our page within a real Airflow API app, and clients of it with a role."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from airflow import settings as airflow_settings
from airflow.api_fastapi import app as airflow_app
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi.testclient import TestClient
from starlette.routing import Mount

from tests.support import page_states

PLUGIN = Path(__file__).resolve().parents[2] / "plugins" / "rewind_plugin.py"
ROLES = ("viewer", "user", "op", "admin")


def load_plugin():
    spec = importlib.util.spec_from_file_location("rewind_plugin_of_test", PLUGIN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="package")
def airflow():
    """Airflow's own API app with our plugin, loaded by Airflow from its folder."""
    from airflow import plugins_manager
    from airflow.models import import_all_models
    from airflow.models.base import Base

    with pytest.MonkeyPatch.context() as patch:
        users = ",".join(f"{role}:{role}" for role in ROLES)
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", users)
        patch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "s" * 64)
        patch.setattr(airflow_settings, "PLUGINS_FOLDER", str(PLUGIN.parent))
        for kept in (plugins_manager._get_plugins, plugins_manager._get_ui_plugins):
            kept.cache_clear()
        import_all_models()
        Base.metadata.create_all(airflow_settings.engine)
        airflow_app.cached_app.cache_clear()
        yield airflow_app.cached_app(apps="all")
        for kept in (plugins_manager._get_plugins, plugins_manager._get_ui_plugins, airflow_app.cached_app):
            kept.cache_clear()


@pytest.fixture(scope="package")
def page(airflow):
    """Our app, as Airflow has mounted it."""
    return next(route.app for route in airflow.routes if isinstance(route, Mount) and route.path == "/rewind")


@pytest.fixture
def client(airflow, fresh):
    """A client with a role, or without one: `client("viewer")`."""

    def make(role=None):
        made = TestClient(airflow, base_url="http://airflow.test")
        if role:
            user = SimpleAuthManagerUser(username=role, role=role)
            token = airflow_app.get_auth_manager().generate_jwt(user)
            made.headers["Authorization"] = f"Bearer {token}"
        return made

    return make


@pytest.fixture
def site(make_settings, tmp_path, monkeypatch, page):
    """An installation of the test's own, which the mounted page finds in its environment."""
    made = make_settings(REWIND_PIPELINES=str(tmp_path / "declared"))
    page_states.declare(made)
    for key, value in made.environment().items():
        monkeypatch.setenv(key, value)
    return made


@pytest.fixture
def fresh(monkeypatch):
    """Let each request look anew."""
    monkeypatch.setattr("rewind.web.state.FRESH_SECONDS", -1.0)
    monkeypatch.setattr("rewind.web.state.STILL_SECONDS", -1.0)
    monkeypatch.setattr("rewind.web.state.LONGEST_SECONDS", -1.0)

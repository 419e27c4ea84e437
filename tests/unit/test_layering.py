"""Imports point one way (DESIGN.md, "Boundaries"), those inside functions too."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
INCLUDE = PROJECT / "include"

# What a room may import of ours, beside itself. A room is a folder; the modules directly in `rewind` belong to none.
CORE = {"core", "core.planning"}
REGISTRY = {"registry", "registry.mirrors"}
RUNTIME = {"runtime.secrets", "runtime.kafka", "runtime.drivers", "runtime"}
TRANSFORMS = {"transforms", "transforms.values", "transforms.logic", "transforms.records", "transforms.comparing"}
BELOW_STEPS = {*CORE, *REGISTRY, *RUNTIME, "declared", *TRANSFORMS, "adapters"}
STATE = {*CORE, *REGISTRY, *RUNTIME, "declared", "views"}
ROOMS = {
    "core": set(),
    "core.planning": {"core"},
    "declared": CORE,
    "registry": CORE,
    "registry.mirrors": {*CORE, "registry"},
    "runtime.secrets": CORE,
    "runtime.kafka": {*CORE, "runtime.secrets"},
    "runtime.drivers": {*CORE, *REGISTRY},
    "runtime": {*CORE, *REGISTRY, "runtime.secrets", "runtime.kafka", "runtime.drivers"},
    "views": {*CORE, *REGISTRY, *RUNTIME, "declared"},
    "transforms": set(),
    "transforms.values": CORE,
    "transforms.logic": {*CORE, "transforms.values"},
    "transforms.records": {*CORE, "transforms.values", "transforms.logic"},
    "transforms.comparing": {*CORE, "transforms.values", "transforms.logic", "transforms.records"},
    "adapters": {*CORE, *REGISTRY, *RUNTIME, *TRANSFORMS},
    "steps": set(),
    "steps.base": BELOW_STEPS,
    "steps.generation": {*BELOW_STEPS, "steps.base"},
    "steps.feed": {*BELOW_STEPS, "steps.base", "steps.generation"},
    "steps.streaming": {*BELOW_STEPS, "steps.base", "steps.generation", "steps.feed"},
    "steps.mirroring": {*BELOW_STEPS, "steps.base", "steps.streaming"},
    "steps.compare": {*BELOW_STEPS, "steps.base", "steps.generation", "steps.feed"},
    "steps.replays": {
        *BELOW_STEPS,
        *("steps.base", "steps.generation", "steps.feed", "steps.streaming", "steps.compare"),
    },
    "steps.lifecycle": {
        *BELOW_STEPS,
        *("steps.base", "steps.generation", "steps.feed", "steps.streaming", "steps.mirroring", "steps.compare"),
    },
    "airflow_api": {*CORE, "declared"},
    "web": {*STATE, "airflow_api"},
    "parsing": {"core"},
    "local": {*STATE, "airflow_api"},
    "cli": {*STATE, "airflow_api", "local"},
}
MOST_MODULES = 20
"""So many beside each other in one room at most."""
SPARK = {"pyspark", "delta", "py4j"}
HEAVY = {*SPARK, "great_expectations", "airflow"}
# What the rooms of a package may import of others. None stands for anything but what is forbidden below.
OTHERS = {
    "core": set(),
    "declared": {"yaml", "jsonschema"},
    "registry": {"sqlalchemy", "alembic"},
    "runtime": {"sqlalchemy", "jinja2", "kafka", "cryptography"},
    "views": {"sqlalchemy"},
    "transforms": {"pyspark"},
    "airflow_api": {"fastapi", "httpx"},
    "parsing": {"airflow", "sqlalchemy"},
    "web": {"sqlalchemy", "fastapi", "starlette", "pydantic", "httpx"},
}
FORBIDDEN = {
    "adapters": {"airflow"},
    "steps": {"airflow"},
    "local": HEAVY,
    "cli": HEAVY,
}


def imported(path: Path, package: str = "") -> set[str]:
    """Return the full names of all modules that a file imports, wherever in it, relative ones resolved."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            # `from rewind.runtime.kafka import broker` imports rewind.runtime.kafka.broker.
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
        elif is_import_call(node):
            found.add(node.args[0].value)
    return found


def is_import_call(node: ast.AST) -> bool:
    called = getattr(node, "func", None)
    name = getattr(called, "attr", getattr(called, "id", ""))
    first = node.args[0] if isinstance(node, ast.Call) and node.args else None
    return name in ("import_module", "__import__") and isinstance(getattr(first, "value", None), str)


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py") if "__pycache__" not in p.parts)


def folder_of(room: str) -> Path:
    return INCLUDE.joinpath("rewind", *room.split("."))


def modules_of(room: str) -> list[Path]:
    """Return the files directly in a room; those of migrations belong to the registry's."""
    own = sorted(folder_of(room).glob("*.py"))
    return own + (files(folder_of(room) / "migrations") if room == "registry" else [])


def room_files():
    for room in ROOMS:
        for path in modules_of(room):
            yield pytest.param(room, path, id=path.relative_to(INCLUDE).as_posix())


def room_of(module: str) -> str:
    """Return the room that a module lies in; empty for what is none of ours, or lies in no room."""
    parts = module.split(".")
    if parts[0] != "rewind":
        return ""
    names = [".".join(parts[1:end]) for end in range(len(parts), 1, -1)]
    return next((name for name in names if name in ROOMS), "")


def package_of(room: str) -> str:
    return room.split(".", maxsplit=1)[0]


def roots(modules: set[str]) -> set[str]:
    return {module.split(".")[0] for module in modules if module}


@pytest.mark.parametrize(("room", "path"), list(room_files()))
def test_a_room_imports_only_what_lies_below_it(room, path):
    modules = imported(path, ".".join(path.relative_to(INCLUDE).parent.parts))
    # The package of an import from it is no module that is used.
    used = {module for module in modules if not any(other.startswith(f"{module}.") for other in modules)}
    ours = {room_of(module) for module in used} - {"", room}
    others = roots(modules) - {"rewind", "__future__"} - set(sys.stdlib_module_names)
    package = package_of(room)

    assert ours <= ROOMS[room]
    if package in OTHERS:
        assert others <= OTHERS[package]
    assert not others & FORBIDDEN.get(package, set())


def test_every_folder_of_the_package_is_a_room():
    homes = {path.parent.relative_to(INCLUDE / "rewind") for path in files(INCLUDE / "rewind")}
    found = {".".join(home.parts) for home in homes if home.parts and "migrations" not in home.parts}
    assert found == set(ROOMS) | {package_of(room) for room in ROOMS}


@pytest.mark.shows("house", show_1_arrows_up_or_cycles=0)
def test_no_room_is_imported_by_one_below_it():
    """The rooms have an order: what may be imported never leads back."""
    done: set[str] = set()
    while len(done) < len(ROOMS):
        ready = {name for name, below in ROOMS.items() if name not in done and below <= done}
        assert ready
        done |= ready


@pytest.mark.shows("house", show_1_most_modules_of_a_room=MOST_MODULES)
@pytest.mark.parametrize("room", ROOMS)
def test_no_room_is_too_full_to_find_a_module_in(room):
    assert len([path for path in folder_of(room).glob("*.py") if path.name != "__init__.py"]) <= MOST_MODULES


NO_STEP_OF_ITS_OWN = {"go_on", "start_candidate", "catch_up", "approve", "announce", "observe", "roll_back", "ended"}
"""Tasks of the lifecycle's DAG that submit nothing to Spark: they wait, ask or start another DAG."""


@pytest.mark.shows("house", show_1_steps_that_are_no_file_of_their_task=0)
def test_each_step_of_the_lifecycle_is_a_file_named_as_its_task():
    source = (PROJECT / "dags" / "rewinds.py").read_text()
    tasks = set(re.findall(r'task_id="(\w+)"', source)) - NO_STEP_OF_ITS_OWN
    steps = {path.stem for path in folder_of("steps.lifecycle").glob("*.py")} - {"__init__"}
    assert tasks <= steps
    mains = {path.stem for path in (PROJECT / "jobs").glob("*.py")}
    assert steps - mains == {"consumer_groups"}


@pytest.mark.parametrize("path", files(PROJECT / "jobs"), ids=lambda path: path.name)
def test_a_main_composes_steps_and_never_imports_airflow(path):
    modules = imported(path)
    assert not roots(modules) & {"airflow", "great_expectations"}
    assert {package_of(room_of(module)) for module in modules} <= {"", "steps", "core"}


@pytest.mark.parametrize("path", files(PROJECT / "dags"), ids=lambda p: p.relative_to(PROJECT / "dags").as_posix())
def test_a_dag_file_needs_no_spark(path):
    modules = imported(path)
    assert not roots(modules) & {*SPARK, "great_expectations"}
    assert {package_of(room_of(module)) for module in modules} <= {
        "",
        "core",
        "declared",
        "registry",
        "runtime",
        "views",
    }


@pytest.mark.parametrize("path", files(INCLUDE / "pipelines"), ids=lambda p: p.relative_to(INCLUDE).as_posix())
def test_a_pipeline_is_a_function_over_frames(path):
    modules = imported(path, ".".join(path.relative_to(INCLUDE).parent.parts))
    assert not roots(modules) & {"airflow", "kafka", "delta", "sqlalchemy"}
    assert not {package_of(room_of(module)) for module in modules} - {"", "transforms"}


def of_tests(path: Path) -> set[str]:
    """Return the modules of ours below `tests/` that one of them imports."""
    package = ".".join(path.relative_to(PROJECT).parent.parts)
    return {module for module in imported(path, package) if module.split(".")[0] == "tests"}


@pytest.mark.parametrize("path", files(PROJECT / "tests"), ids=lambda p: p.relative_to(PROJECT).as_posix())
def test_no_test_is_imported_by_another_module(path):
    """What two of them share lies in `tests/support` or `tests/scenarios`."""
    assert [module for module in of_tests(path) if any(part.startswith("test_") for part in module.split("."))] == []


@pytest.mark.parametrize("path", files(PROJECT / "tests" / "support"), ids=lambda p: p.name)
def test_support_knows_no_scenario_and_no_tier(path):
    assert {module.split(".")[1] for module in of_tests(path) if "." in module} <= {"support"}


PROBE = """
import importlib, pkgutil, sys
before = set(sys.modules)
import rewind
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if "migrations" not in module.name:
            importlib.import_module(module.name)
roots = {name.split(".")[0] for name in set(sys.modules) - before}
print(*sorted(roots - set(sys.stdlib_module_names) - {"rewind"}))
"""


def loaded(*packages: str) -> set[str]:
    """Return what a process loads beside the standard library when it really imports all modules of packages."""
    command = [sys.executable, "-c", PROBE, *packages]
    environment = {"PYTHONPATH": str(INCLUDE)}
    return set(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split())


def test_the_package_and_its_core_load_the_standard_library_alone():
    assert loaded("rewind.core") == set()


def test_what_acts_and_what_is_shown_loads_nothing_heavy():
    assert not loaded("rewind.declared", "rewind.registry", "rewind.runtime", "rewind.views") & HEAVY


SAMPLE = """
import os.path
from rewind.runtime.kafka import broker
from ..local import stack
from . import names
def late():
    import pyspark.sql as sql
    from importlib import import_module
    import_module("delta.tables")
"""


def test_imports_are_found_wherever_they_hide(tmp_path):
    (tmp_path / "sample.py").write_text(SAMPLE)
    found = imported(tmp_path / "sample.py", "rewind.core")
    assert found >= {
        "os.path",
        "rewind.runtime.kafka.broker",
        "rewind.local.stack",
        "rewind.core.names",
        "pyspark.sql",
        "delta.tables",
    }
    assert {room_of(module) for module in found} == {"", "runtime.kafka", "local", "core"}


def test_imports_of_tests_are_found_however_they_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PROJECT", tmp_path)
    folder = tmp_path / "tests" / "unit"
    folder.mkdir(parents=True)
    for line in ("from tests.unit import test_b", "import tests.unit.test_b", "from . import test_b"):
        (folder / "test_a.py").write_text(line)
        assert "tests.unit.test_b" in of_tests(folder / "test_a.py")

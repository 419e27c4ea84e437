"""Imports point one way (DESIGN.md, "Boundaries"), those inside functions too."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
INCLUDE = PROJECT / "include"

# What a layer may import of ours. Itself is understood.
LAYERS = {
    "core": set(),
    "control": {"core"},
    "transforms": {"core"},
    "adapters": {"core", "control", "transforms"},
    "steps": {"core", "control", "transforms", "adapters"},
    "web": {"core", "control"},
    "parsing": {"core"},
    "local": {"core", "control", "cli"},
    "cli": {"core", "control", "local"},
}
SPARK = {"pyspark", "delta", "py4j"}
HEAVY = {*SPARK, "great_expectations", "airflow"}
# What a layer may import of others. None stands for anything but what is forbidden below.
OTHERS = {
    "core": set(),
    "control": {"sqlalchemy", "alembic", "yaml", "jsonschema", "jinja2", "kafka", "cryptography"},
    "transforms": {"pyspark"},
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
            # `from rewind.control import broker` imports rewind.control.broker.
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


def layer_files():
    for layer in LAYERS:
        for path in files(INCLUDE / "rewind" / layer):
            yield pytest.param(layer, path, id=path.relative_to(INCLUDE).as_posix())


def layer_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if parts[0] == "rewind" and len(parts) > 1 and parts[1] in LAYERS else ""


def roots(modules: set[str]) -> set[str]:
    return {module.split(".")[0] for module in modules if module}


@pytest.mark.parametrize(("layer", "path"), list(layer_files()))
def test_a_layer_imports_only_what_lies_below_it(layer, path):
    modules = imported(path, ".".join(path.relative_to(INCLUDE).parent.parts))
    ours = {layer_of(module) for module in modules} - {"", layer}
    others = roots(modules) - {"rewind", "__future__"} - set(sys.stdlib_module_names)

    assert ours <= LAYERS[layer]
    if layer in OTHERS:
        assert others <= OTHERS[layer]
    assert not others & FORBIDDEN.get(layer, set())


def test_every_folder_of_the_package_is_a_layer():
    folders = {p.name for p in (INCLUDE / "rewind").iterdir() if p.is_dir() and files(p)}
    assert folders == set(LAYERS)


def test_no_layer_is_imported_by_its_own_below():
    """The layers have an order: what may be imported never leads back, but for the two outermost."""
    done: list[str] = []
    while len(done) < len(LAYERS) - 2:
        ready = [n for n, below in LAYERS.items() if n not in done and below <= set(done)]
        assert ready
        done += ready
    assert set(LAYERS) - set(done) == {"cli", "local"}


@pytest.mark.parametrize("path", files(PROJECT / "jobs"), ids=lambda path: path.name)
def test_a_main_composes_steps_and_never_imports_airflow(path):
    modules = imported(path)
    assert not roots(modules) & {"airflow", "great_expectations"}
    assert not {layer_of(module) for module in modules} & {"cli", "local"}


@pytest.mark.parametrize("path", files(PROJECT / "dags"), ids=lambda p: p.relative_to(PROJECT / "dags").as_posix())
def test_a_dag_file_needs_no_spark(path):
    modules = imported(path)
    assert not roots(modules) & {*SPARK, "great_expectations"}
    assert {layer_of(module) for module in modules} <= {"", "core", "control"}


@pytest.mark.parametrize("path", files(INCLUDE / "pipelines"), ids=lambda p: p.relative_to(INCLUDE).as_posix())
def test_a_pipeline_is_a_function_over_frames(path):
    modules = imported(path, ".".join(path.relative_to(INCLUDE).parent.parts))
    assert not roots(modules) & {"airflow", "kafka", "delta", "sqlalchemy"}
    assert not {layer_of(module) for module in modules} - {"", "transforms"}


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
    for module in pkgutil.iter_modules(package.__path__, name + "."):
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


def test_control_loads_nothing_heavy():
    assert not loaded("rewind.control") & HEAVY


SAMPLE = """
import os.path
from rewind.control import broker
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
        "rewind.control.broker",
        "rewind.local.stack",
        "rewind.core.names",
        "pyspark.sql",
        "delta.tables",
    }
    assert {layer_of(module) for module in found} == {"", "control", "local", "core"}


def test_imports_of_tests_are_found_however_they_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PROJECT", tmp_path)
    folder = tmp_path / "tests" / "unit"
    folder.mkdir(parents=True)
    for line in ("from tests.unit import test_b", "import tests.unit.test_b", "from . import test_b"):
        (folder / "test_a.py").write_text(line)
        assert "tests.unit.test_b" in of_tests(folder / "test_a.py")

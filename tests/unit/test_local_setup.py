"""What set-up refuses: a missing Java, and jars that are not those of the list."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from rewind.control import jvm
from rewind.core.errors import RefusedError


@pytest.fixture
def setup(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a folder of two jars that its list describes."""
    spec = importlib.util.spec_from_file_location("setup_script", project / "scripts" / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "JARS", tmp_path / "jars")
    monkeypatch.setattr(module, "JAR_SUMS", tmp_path / "jars.sha256")
    for name in ("spark/a.jar", "kafka/b.jar"):
        path = tmp_path / "jars" / name
        path.parent.mkdir(parents=True)
        path.write_text(name)
    sums = module.present_sums()
    (tmp_path / "jars.sha256").write_text("".join(f"{value}  {name}\n" for name, value in sums.items()))
    return module


def test_the_listed_jars_pass(setup: ModuleType) -> None:
    setup.check_jars()


def test_a_missing_jar_is_named(setup: ModuleType) -> None:
    (setup.JARS / "spark" / "a.jar").unlink()

    with pytest.raises(SystemExit, match=r"the jar spark/a\.jar is missing\. Remove .* and run `make setup` again"):
        setup.check_jars()


def test_a_changed_jar_is_named(setup: ModuleType) -> None:
    (setup.JARS / "kafka" / "b.jar").write_text("tampered")

    with pytest.raises(SystemExit, match=r"the jar kafka/b\.jar has another sha256"):
        setup.check_jars()


def test_an_unlisted_jar_is_named(setup: ModuleType) -> None:
    (setup.JARS / "spark" / "c.jar").write_text("new")

    with pytest.raises(SystemExit, match=r"the jar spark/c\.jar is not listed"):
        setup.check_jars()


def test_no_usable_java_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jvm, "_candidates", lambda: [tmp_path])
    jvm.find_java.cache_clear()
    try:
        with pytest.raises(RefusedError, match=r"JAVA_HOME: no Java 17 or later .*Install openjdk-17-jre-headless"):
            jvm.java_home()
    finally:
        jvm.find_java.cache_clear()


@pytest.mark.parametrize(
    ("listing", "usable"),
    [
        ("java.base@17.0.15\njdk.incubator.vector@17.0.15", True),
        ("java.base@21\njdk.incubator.vector@21", True),
        ("java.base@17.0.15\njava.sql@17.0.15", False),
        ("java.base@11.0.2\njdk.incubator.vector@11.0.2", False),
    ],
)
def test_a_java_needs_version_and_module(tmp_path: Path, listing: str, *, usable: bool) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nprintf '{listing}'\n")
    program.chmod(0o755)

    assert jvm.is_usable(tmp_path) is usable


def test_the_class_path_has_one_order_and_no_other_jars(tmp_path: Path) -> None:
    folder = tmp_path / "spark"
    folder.mkdir()
    for name in ("b.jar", "a.jar", "notes.txt"):
        (folder / name).touch()

    assert jvm.spark_class_path(tmp_path) == f"{folder}/a.jar:{folder}/b.jar"


def test_a_missing_jar_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"REWIND_JARS: there is no jar in .* Run `make setup`"):
        jvm.spark_class_path(tmp_path)


def test_options_name_the_archive_only_when_it_is_there(tmp_path: Path) -> None:
    assert jvm.driver_java_options(tmp_path, short=False) == ""
    (tmp_path / jvm.ARCHIVE).touch()

    assert jvm.driver_java_options(tmp_path, short=True) == (
        f'"-XX:SharedArchiveFile={tmp_path}/{jvm.ARCHIVE}" -XX:TieredStopAtLevel=1'
    )

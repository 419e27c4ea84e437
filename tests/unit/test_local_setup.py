"""What set-up refuses: a missing Java, and jars that are not those of the list."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from provision import jars
from provision.failures import SetupError

from rewind.core.errors import RefusedError
from rewind.runtime.drivers import jvm


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two jars that its list describes."""
    made = tmp_path / "jars"
    monkeypatch.setattr(jars, "JARS", made)
    monkeypatch.setattr(jars, "CACHE", tmp_path / "ivy")
    monkeypatch.setattr(jars, "JAR_SUMS", tmp_path / "jars.sha256")
    for conf, name in (("spark", "a.jar"), ("kafka", "b.jar")):
        (made / conf).mkdir(parents=True)
        (made / conf / name).write_text(name)
        (made / conf / ".stamp").write_text(jars.digest(jars.JAR_MODULES))
    jars.lock()
    return made


def test_the_listed_jars_pass(folder: Path) -> None:
    jars.check(folder, "spark")
    jars.check(folder, "kafka")
    assert jars.is_right("spark")
    assert jars.is_right("kafka")


def test_a_missing_jar_is_named(folder: Path) -> None:
    (folder / "spark" / "a.jar").unlink()

    assert not jars.is_right("spark")
    assert jars.is_right("kafka")
    with pytest.raises(
        SetupError, match=r"the jar spark/a\.jar is missing\. It was not installed\. Run `make setup` again"
    ):
        jars.check(folder, "spark")


def test_a_changed_jar_is_named_and_its_cache_let_go(folder: Path, tmp_path: Path) -> None:
    (folder / "kafka" / "b.jar").write_text("tampered")
    (tmp_path / "ivy").mkdir()

    with pytest.raises(SetupError, match=r"the jar kafka/b\.jar has another sha256"):
        jars.check(folder, "kafka")
    assert not (tmp_path / "ivy").exists()


def test_an_unlisted_jar_is_named(folder: Path) -> None:
    (folder / "spark" / "c.jar").write_text("new")

    with pytest.raises(SetupError, match=r"the jar spark/c\.jar is not listed"):
        jars.check(folder, "spark")


def test_another_list_of_modules_retrieves_again(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jars, "JAR_MODULES", tmp_path / "jars.xml")
    (tmp_path / "jars.xml").write_text("<ivy-module/>")

    assert not jars.is_right("spark")


def test_ivy_is_copied_out_of_the_verified_source(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "cache" / "sdists-v9" / "pypi" / "pyspark" / "4.2.0" / "id" / "src" / "deps" / "jars"
    source.mkdir(parents=True)
    assert jars.unpacked_ivy(tmp_path / "cache", "4.2.0") is None
    (source / "ivy-2.5.3.jar").write_text("ivy")

    found = jars.unpacked_ivy(tmp_path / "cache", "4.2.0")
    shutil.rmtree(tmp_path / "cache")

    assert found is not None
    assert found.read_text() == "ivy"


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

"""Frozen code: what a bundle holds, and that no byte of it can change unseen."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from rewind.core import crash
from rewind.core.errors import IntegrityError, RefusedError
from rewind.core.settings import from_environment
from rewind.runtime.drivers import bundle

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def settings(tmp_path):
    """An installation with two mains and one pipeline of its own."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "stream.py").write_text("print('stream')\n")
    (tmp_path / "jobs" / "plan.py").write_text("print('plan')\n")
    package = tmp_path / "pipelines"
    (package / "visits" / "more" / "__pycache__").mkdir(parents=True)
    for file in ("__init__.py", "visits/__init__.py", "visits/more/__init__.py", "visits/more/__pycache__/x.py"):
        (package / file).write_text("")
    (package / "visits" / "logic.py").write_text("ANSWER = 1\n")
    (package / "visits" / "pipeline.yaml").write_text("a: 1\n")
    places = {"REWIND_HOME": tmp_path / "home", "REWIND_JOBS": tmp_path / "jobs", "REWIND_PIPELINES": package}
    return from_environment({"REWIND_KAFKA_BOOTSTRAP": "none:1"} | {k: str(v) for k, v in places.items()})


@pytest.fixture
def made(settings):
    return bundle.build(settings, "visits")


def test_a_bundle_holds_mains_package_and_one_pipeline(made):
    assert sorted(p.name for p in made.folder.iterdir()) == ["bundle.json", "main", "rewind.zip"]
    assert made.main("stream").read_text() == "print('stream')\n"
    with zipfile.ZipFile(made.zip) as packed:
        names = packed.namelist()
    assert sorted(n for n in names if n.startswith("pipelines/")) == [
        "pipelines/",
        "pipelines/__init__.py",
        "pipelines/visits/",
        "pipelines/visits/__init__.py",
        "pipelines/visits/logic.py",
        "pipelines/visits/more/",
        "pipelines/visits/more/__init__.py",
        "pipelines/visits/pipeline.yaml",
    ]
    assert "rewind/core/planning/plan.py" in names
    assert not [n for n in names if n.startswith("rewind/local") or "__pycache__" in n]
    assert set(made.files) == {n for n in names if not n.endswith("/")} | {"main/plan.py", "main/stream.py"}


def test_every_folder_in_the_zip_is_a_regular_package_with_an_entry(made):
    with zipfile.ZipFile(made.zip) as packed:
        names = set(packed.namelist())
    folders = {f"{parent}/" for n in names for parent in Path(n).parents if parent.name}
    assert folders <= names
    assert {f"{folder}__init__.py" for folder in folders} <= names


def test_no_time_of_day_is_in_the_zip(made):
    with zipfile.ZipFile(made.zip) as packed:
        assert {entry.date_time for entry in packed.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_the_same_code_is_the_same_bundle_byte_for_byte(settings, made):
    first = {p.relative_to(made.folder): p.read_bytes() for p in made.folder.rglob("*") if p.is_file()}
    shutil.rmtree(settings.data)
    for path in settings.pipelines.rglob("*.py"):
        os.utime(path, (1, 1))
    again = bundle.build(settings, "visits")

    assert again == made
    assert {p.relative_to(made.folder): p.read_bytes() for p in again.folder.rglob("*") if p.is_file()} == first


@pytest.mark.parametrize("file", ["pipelines/visits/logic.py", "pipelines/visits/pipeline.yaml", "jobs/stream.py"])
def test_any_other_code_is_another_bundle(settings, made, tmp_path, file):
    with (tmp_path / file).open("a") as source:
        source.write("\n")
    assert bundle.build(settings, "visits").hash != made.hash


def test_a_bundle_without_pipeline_holds_none(settings, made):
    bare = bundle.build(settings, None)
    assert not [name for name in bare.files if name.startswith("pipelines")]
    assert bare.hash != made.hash


def test_a_pipeline_that_is_not_there_is_refused(settings):
    with pytest.raises(RefusedError, match="'carts' has no folder"):
        bundle.build(settings, "carts")


def test_a_checkout_below_a_folder_named_local_is_packed_whole(settings, monkeypatch, tmp_path):
    include = tmp_path / "usr" / "local" / "include"
    for file in ("rewind/runtime/drivers/bundle.py", "rewind/local/stack.py"):
        (include / file).parent.mkdir(parents=True)
        (include / file).write_text("")
    monkeypatch.setattr(bundle, "__file__", str(include / "rewind" / "runtime" / "drivers" / "bundle.py"))
    packed = {name for name in bundle.build(settings, None).files if name.startswith("rewind/")}
    assert packed == {"rewind/runtime/drivers/bundle.py"}


SEEN_BY_PEOPLE_ALONE = (
    "rewind/views/metrics.py",
    "rewind/views/status.py",
    "rewind/web/app.py",
    "rewind/web/assets/dom.js",
    "rewind/cli/render.py",
    "rewind/airflow_api/client.py",
    "rewind/local/stack.py",
    "rewind/parsing/dag_bundle.py",
    "rewind/adr/0001-layers.md",
)
READ_BY_DRIVERS = (
    "rewind/steps/lifecycle/validate.py",
    "rewind/steps/streaming/stream.py",
    "rewind/core/offsets.py",
    "rewind/runtime/drivers/guard.py",
)
SAMPLES = sorted(p.parent.name for p in (PROJECT / "include" / "pipelines").glob("*/pipeline.yaml"))


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A copy of the product, of which bundles are made."""
    include = tmp_path / "checkout" / "include"
    shutil.copytree(PROJECT / "include", include, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(bundle, "__file__", str(include / "rewind" / "runtime" / "drivers" / "bundle.py"))
    return include


def changed_by(settings, checkout, name):
    """Return the sample pipelines whose bundles are others after a file got one more line."""
    before = {sample: bundle.build(settings, sample).hash for sample in SAMPLES}
    with (checkout / name).open("a") as file:
        file.write("\n# One more line.\n")
    return [sample for sample in SAMPLES if bundle.build(settings, sample).hash != before[sample]]


@pytest.mark.shows("house", show_2_bundles_changed_by_what_only_people_see=0)
def test_what_only_people_see_changes_no_bundle(settings, checkout):
    settings = replace(settings, pipelines=checkout / "pipelines")
    assert [name for name in SEEN_BY_PEOPLE_ALONE if changed_by(settings, checkout, name)] == []
    assert [name for name in READ_BY_DRIVERS if changed_by(settings, checkout, name) != SAMPLES] == []
    assert {name: changed_by(settings, checkout, f"pipelines/{name}/logic.py") for name in SAMPLES} == {
        name: [name] for name in SAMPLES
    }


def test_a_bundle_is_not_made_from_within_a_bundle(settings, made, monkeypatch):
    monkeypatch.setattr(bundle, "__file__", str(made.zip / "rewind" / "runtime" / "drivers" / "bundle.py"))
    with pytest.raises(IntegrityError, match="a bundle is made from a checkout"):
        bundle.build(settings, "visits")


def test_a_bundle_that_another_process_made_meanwhile_is_taken(settings, made, monkeypatch):
    shutil.copytree(made.folder, settings.data / "kept")
    shutil.rmtree(made.folder)
    original = bundle._write

    def late(folder, *rest):
        shutil.copytree(settings.data / "kept", folder)
        original(folder, *rest)

    monkeypatch.setattr(bundle, "_write", late)
    assert bundle.build(settings, "visits") == made
    assert [p.name for p in made.folder.parent.iterdir()] == [made.hash], "no staging is left"


# --- freezing


def test_freezing_copies_and_is_harmless_again(made, tmp_path):
    target = tmp_path / "generations" / "visits-g1" / "bundle"
    frozen = bundle.freeze(made, target)
    assert (frozen.folder, frozen.hash, frozen.files) == (target, made.hash, made.files)
    shutil.rmtree(made.folder)
    assert bundle.freeze(made, target) == frozen
    assert [p.name for p in target.parent.iterdir()] == ["bundle"]


def test_a_freeze_that_cannot_be_put_in_place_says_why(made, tmp_path):
    (tmp_path / "bundle").write_text("a file is in the way")
    with pytest.raises(NotADirectoryError):
        bundle.freeze(made, tmp_path / "bundle")
    assert not list(tmp_path.glob(".staging-*"))


FREEZE = """
import os, sys
from pathlib import Path
from rewind.runtime.drivers import bundle
folder, target, expected = sys.argv[1:]
bundle.freeze(bundle.verified(Path(folder), expected), Path(target))
"""


@pytest.mark.parametrize("point", ["before:bundle.freeze", "after:bundle.freeze"])
def test_a_freeze_that_was_killed_is_done_again(made, tmp_path, project, point):
    target = tmp_path / "bundle"
    command = [sys.executable, "-c", FREEZE, str(made.folder), str(target), made.hash]
    environment = {"PYTHONPATH": str(project / "include"), crash.VARIABLE: point}
    assert subprocess.run(command, env=environment, check=False).returncode == -9
    assert bundle.freeze(made, target).folder == target


# --- no byte changes unseen


def rezip(folder, change):
    """Write the zip anew after `change` had its files by name."""
    with zipfile.ZipFile(folder / "rewind.zip") as packed:
        files = {name: packed.read(name) for name in packed.namelist()}
    change(files)
    with zipfile.ZipFile(folder / "rewind.zip", "w") as packed:
        for name, content in files.items():
            packed.writestr(name, content)


def edit_main(folder):
    (folder / "main" / "stream.py").write_text("print('Stream')\n")


def edit_zip(folder):
    rezip(folder, lambda files: files.update({"pipelines/visits/logic.py": b"ANSWER = 2\n"}))


def drop_from_zip(folder):
    rezip(folder, lambda files: files.pop("pipelines/visits/logic.py"))


def add_to_zip(folder):
    rezip(folder, lambda files: files.update({"json.py": b""}))


def add_main(folder):
    (folder / "main" / "json.py").write_text("")


def add_package_beside_main(folder):
    (folder / "main" / "rewind").mkdir()
    (folder / "main" / "rewind" / "__init__.py").write_text("")


def add_library_beside_main(folder):
    (folder / "main" / "json.so").write_bytes(b"")


def drop_main(folder):
    (folder / "main" / "plan.py").unlink()


CHANGES = {
    edit_main: "main/stream.py",
    edit_zip: "pipelines/visits/logic.py",
    drop_from_zip: "pipelines/visits/logic.py",
    add_to_zip: "json.py",
    add_main: "main/json.py",
    add_package_beside_main: "main/rewind/__init__.py",
    add_library_beside_main: "main/json.so",
    drop_main: "main/plan.py",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_bundle_is_refused_by_the_name_of_the_file(made, change):
    assert bundle.verified(made.folder, made.hash) == made
    change(made.folder)
    with pytest.raises(IntegrityError, match=f"changed since it was frozen: {CHANGES[change]}$"):
        bundle.verified(made.folder, made.hash)
    with pytest.raises(IntegrityError):
        bundle.running(made.main("stream"))


# The name, the time and the check sum in the first entry's header, its content, the directory, the very end.
@pytest.mark.parametrize("place", [4, 10, 14, 32, 0.25, 0.5, 0.75, -30, -1])
def test_one_changed_byte_anywhere_in_the_zip_is_refused(made, place):
    content = bytearray(made.zip.read_bytes())
    content[int(place * len(content)) if isinstance(place, float) else place] ^= 1
    made.zip.write_bytes(content)
    with pytest.raises(IntegrityError):
        bundle.verified(made.folder, made.hash)


def test_another_bundle_is_refused(made):
    with pytest.raises(IntegrityError, match="is not 0000000000000000"):
        bundle.verified(made.folder, "0" * 16)


def test_a_list_of_hashes_that_was_changed_with_the_file_is_another_bundle(made):
    body = json.loads((made.folder / "bundle.json").read_text())
    body["files"]["main/stream.py"] = "0" * 64
    (made.folder / "bundle.json").write_text(json.dumps(body))
    with pytest.raises(IntegrityError, match=f"is not {made.hash}"):
        bundle.verified(made.folder, made.hash)


@pytest.mark.parametrize("content", [None, "{", "{}", "[]", "null"])
def test_a_bundle_without_readable_list_is_refused(made, content):
    listing = made.folder / "bundle.json"
    listing.unlink() if content is None else listing.write_text(content)
    with pytest.raises(IntegrityError, match=r"bundle\.json cannot be read"):
        bundle.verified(made.folder, made.hash)
    with pytest.raises(IntegrityError, match="was not submitted from a bundle"):
        bundle.running(made.main("stream"))


@pytest.mark.parametrize("content", [None, b"", b"not a zip"])
def test_a_zip_that_cannot_be_read_is_refused(made, content):
    made.zip.unlink() if content is None else made.zip.write_bytes(content)
    with pytest.raises(IntegrityError, match=r"rewind\.zip cannot be read"):
        bundle.verified(made.folder, made.hash)


def test_the_running_bundle_is_found_from_its_main(made):
    assert bundle.running(made.main("stream")) == made


def test_a_main_of_the_checkout_is_no_bundle(settings):
    with pytest.raises(IntegrityError, match="was not submitted from a bundle"):
        bundle.running(settings.jobs / "stream.py")


def test_caches_beside_a_main_are_no_change(made):
    (made.folder / "main" / "__pycache__").mkdir()
    (made.folder / "main" / "__pycache__" / "stream.pyc").write_bytes(b"x")
    assert bundle.verified(made.folder, made.hash) == made


# --- where modules came from


def module(file):
    return SimpleNamespace(__file__=file)


@pytest.fixture
def loaded(tmp_path):
    """Modules as a driver has them: of a bundle's zip, and of the copy that Spark made of it."""
    for folder, content in (("b", b"ours"), ("spark", b"ours"), ("other", b"another's")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rewind.zip").write_bytes(content)
    return {
        "rewind": module(f"{tmp_path}/b/rewind.zip/rewind/__init__.py"),
        "pipelines.visits.logic": module(f"{tmp_path}/spark/rewind.zip/pipelines/visits/logic.py"),
        "json": module("/usr/lib/python3/json/__init__.py"),
        "rewinder": module("/elsewhere/rewinder.py"),
    }


def test_modules_from_the_zip_are_ours_wherever_spark_put_it(loaded, tmp_path):
    bundle.check_origin(loaded, tmp_path / "b")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("rewind.core.planning.plan", "/checkout/include/rewind/core/plan.py"),
        ("pipelines.visits", "/checkout/include/pipelines/visits/__init__.py"),
        ("pipelines", None),
        ("rewind.x", "{}/b/rewind.zip.d/rewind/x.py"),
        ("rewind.x", "{}/b/not-rewind.zip/rewind/x.py"),
        ("rewind.x", "{}/other/rewind.zip/rewind/x.py"),
        ("rewind.x", "{}/gone/rewind.zip/rewind/x.py"),
    ],
)
def test_a_module_from_elsewhere_is_refused_by_name_and_file(loaded, tmp_path, name, file):
    place = file and file.format(tmp_path)
    with pytest.raises(IntegrityError, match=f"{name} from {place}"):
        bundle.check_origin(loaded | {name: module(place)}, tmp_path / "b")


def test_no_module_of_ours_is_no_proof():
    with pytest.raises(IntegrityError, match="rewind"):
        bundle.check_origin({"json": module("/usr/lib/json.py")}, Path("/b"))


ORIGIN = """
import sys
from pathlib import Path
import rewind.runtime.drivers.bundle as bundle
bundle.check_origin(sys.modules, Path(sys.argv[1]))
print("ours")
"""


def test_a_process_that_runs_from_the_zip_passes_and_from_the_checkout_does_not(made, project):
    def ran(path):
        command = [sys.executable, "-c", ORIGIN, str(made.folder)]
        return subprocess.run(command, env={"PYTHONPATH": str(path)}, capture_output=True, text=True, check=False)

    assert ran(made.zip).stdout == "ours\n"
    assert "IntegrityError: not loaded from the bundle" in ran(project / "include").stderr

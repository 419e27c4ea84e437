"""Bundles: the code of a generation, frozen with hashes.

A bundle is a folder `<hash>/` with `main/*.py` (the spark-submit mains), `rewind.zip` (the packages `rewind`
and `pipelines`) and `bundle.json` (the hash of every file, and of the zip as it lies there). The zip holds
regular packages with directory entries: a namespace package in a zip would lose silently to one in a checkout.
"""

from __future__ import annotations

import filecmp
import hashlib
import io
import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rewind.core.crash import side_effect
from rewind.core.errors import IntegrityError, RefusedError
from rewind.core.settings import Settings

# Any fixed instant will do: the zip of equal files must be equal, and zip knows no earlier year.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_NOT_SHIPPED = (
    *(f"rewind/{room}/" for room in ("views", "web", "cli", "airflow_api", "local", "parsing")),
    "rewind/__main__.py",
)


@dataclass(frozen=True)
class Bundle:
    """A frozen bundle on disk.

    Attributes:
        folder: Its folder.
        hash: Hash over the hashes of its files.
        files: SHA-256 of every file, by its path within the bundle's source.
    """

    folder: Path
    hash: str
    files: Mapping[str, str]

    @property
    def zip(self) -> Path:
        """The packages, for `py_files`."""
        return self.folder / "rewind.zip"

    def main(self, job: str) -> Path:
        """Return the main of a job, for `application`."""
        return self.folder / "main" / f"{job}.py"


def build(settings: Settings, pipeline: str | None) -> Bundle:
    """Return the bundle of the code as it is now with one pipeline in it (or none), made unless it is there.

    Raises:
        RefusedError: The pipeline's folder is missing.
    """
    if pipeline is not None and not (settings.pipelines / pipeline / "logic.py").is_file():
        raise RefusedError("pipeline", f"{pipeline!r} has no folder with a logic.py", "Add include/pipelines/<name>/")
    sources = _sources(settings, pipeline)
    files = {name: _hash(path.read_bytes()) for name, path in sources.items()}
    whole = _hash(json.dumps(files, sort_keys=True).encode())
    folder = settings.data / "bundles" / whole[:16]
    if not (folder / "bundle.json").is_file():
        _write(folder, sources, files, whole)
    return Bundle(folder, whole[:16], files)


def running(main: Path) -> Bundle:
    """Return the bundle that a main was submitted from, each byte checked.

    Args:
        main: Path of the main, `<bundle>/main/<job>.py`.

    Raises:
        IntegrityError: It does not lie in a bundle, or the bundle was changed.
    """
    folder = main.resolve().parent.parent
    try:
        whole = str(json.loads((folder / "bundle.json").read_text())["hash"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{main} was not submitted from a bundle ({error})") from None
    return verified(folder, whole[:16])


def freeze(made: Bundle, target: Path) -> Bundle:
    """Copy a bundle into a generation's folder; harmless when it is there already."""
    if not (target / "bundle.json").is_file():
        with side_effect("bundle.freeze"), _beside(target) as staging:
            shutil.copytree(made.folder, staging, dirs_exist_ok=True)
    return verified(target, made.hash)


def listed(folder: Path) -> tuple[dict[str, str], str]:
    """Return what a bundle's folder says of itself, unchecked: the hashes of its files by path, and that of its zip.

    Raises:
        IntegrityError: It cannot be read.
    """
    try:
        body = json.loads((folder / "bundle.json").read_text())
        return dict(body["files"]), str(body["zip"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"bundle {folder}: bundle.json cannot be read ({error}); rewind with same_code") from None


def verified(folder: Path, expected: str) -> Bundle:
    """Return the bundle of a folder after checking each of its bytes.

    Raises:
        IntegrityError: A file is missing, unlisted or changed, or it is another bundle.
    """
    files, packed_hash = listed(folder)
    if _hash(json.dumps(files, sort_keys=True).encode())[:16] != expected:
        raise IntegrityError(f"bundle {folder} is not {expected}; rewind with same_code to make a new generation")
    # All of it: spark-submit puts the main's folder first on the path.
    mains = (p for p in (folder / "main").rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    found = {p.relative_to(folder).as_posix(): _hash(p.read_bytes()) for p in mains}
    try:
        content = (folder / "rewind.zip").read_bytes()
        found |= _packed(content)
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise IntegrityError(f"bundle {folder}: rewind.zip cannot be read ({error})") from None
    changed = sorted(name for name in files.keys() | found.keys() if files.get(name) != found.get(name))
    if not changed and _hash(content) != packed_hash:
        changed = ["rewind.zip"]
    if changed:
        raise IntegrityError(f"bundle {folder}: changed since it was frozen: {', '.join(changed)}")
    return Bundle(folder, expected, files)


def text(made: Bundle, name: str) -> str:
    """Return one file of a bundle as text; empty when it has none of that name."""
    if name not in made.files:
        return ""
    if name.startswith("main/"):
        return (made.folder / name).read_text()
    with zipfile.ZipFile(made.zip) as packed:
        return packed.read(name).decode()


def _packed(content: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        return {i.filename: _hash(packed.read(i)) for i in packed.infolist() if not i.is_dir()}


def check_origin(modules: Mapping[str, object], bundle: Path) -> None:
    """Check that all loaded modules of ours come from a bundle.

    Args:
        modules: `sys.modules`.
        bundle: Folder of the bundle.

    Raises:
        IntegrityError: One was loaded from elsewhere.
    """
    ours = {
        name: str(getattr(module, "__file__", None))
        for name, module in modules.items()
        if name.split(".")[0] in ("rewind", "pipelines")
    }
    own = {place: _same_zip(Path(place), bundle) for place in {_zip_of(file) for file in ours.values()}}
    strangers = sorted(f"{name} from {file}" for name, file in ours.items() if not own[_zip_of(file)])
    if strangers or not ours:
        raise IntegrityError(f"not loaded from the bundle {bundle}: {'; '.join(strangers) or 'rewind'}")


def _zip_of(file: str) -> str:
    """Return the path of the zip that a module was loaded from; empty when it comes from none of that name."""
    zip_path, found, _ = file.partition(f"{os.sep}rewind.zip{os.sep}")
    return f"{zip_path}{os.sep}rewind.zip" if found else ""


def _same_zip(place: Path, bundle: Path) -> bool:
    # Spark may copy py_files into a folder of its own: by its bytes it is known there.
    own = bundle / "rewind.zip"
    return place.name == own.name and place.is_file() and filecmp.cmp(place, own, shallow=False)


def _sources(settings: Settings, pipeline: str | None) -> dict[str, Path]:
    include = Path(__file__).resolve().parents[3]
    if not include.is_dir():
        raise IntegrityError(f"{include}: a bundle is made from a checkout, not from within a bundle")
    packages = {p.relative_to(include).as_posix(): p for p in _package_files(include / "rewind")}
    # What no driver needs must not make a generation differ from the one before.
    sources = {name: path for name, path in packages.items() if not name.startswith(_NOT_SHIPPED)}
    if pipeline is not None:
        sources["pipelines/__init__.py"] = settings.pipelines / "__init__.py"
        folder = settings.pipelines / pipeline
        files = [*_package_files(folder), folder / "pipeline.yaml"]
        sources |= {f"pipelines/{pipeline}/{p.relative_to(folder).as_posix()}": p for p in files}
    return sources | {f"main/{p.name}": p for p in sorted(settings.jobs.glob("*.py"))}


def _package_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py") if "__pycache__" not in p.parts)


def _write(folder: Path, sources: Mapping[str, Path], files: Mapping[str, str], whole: str) -> None:
    with _beside(folder) as staging:
        (staging / "main").mkdir()
        packed = {n: p for n, p in sources.items() if not n.startswith("main/")}
        with zipfile.ZipFile(staging / "rewind.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for directory in sorted({f"{parent}/" for n in packed for parent in Path(n).parents if parent.name}):
                archive.writestr(zipfile.ZipInfo(directory, _EPOCH), b"")
            for name in sorted(packed):
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), packed[name].read_bytes(), zipfile.ZIP_DEFLATED)
        for name in sources.keys() - packed.keys():
            shutil.copyfile(sources[name], staging / name)
        body = {"hash": whole, "files": dict(files), "zip": _hash((staging / "rewind.zip").read_bytes())}
        (staging / "bundle.json").write_text(json.dumps(body, indent=1, sort_keys=True))


class _beside:  # noqa: N801 - reads as the step it is in a with statement
    """A staging folder that becomes `target` in one rename when the body succeeds."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __enter__(self) -> Path:
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._staging = Path(tempfile.mkdtemp(prefix=".staging-", dir=self._target.parent))
        return self._staging

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._staging.chmod(0o755)
                self._staging.rename(self._target)
        except OSError:
            # Another process was first: a folder that is not empty is never replaced.
            if not self._target.is_dir():
                raise
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

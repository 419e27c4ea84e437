"""Frozen means frozen: edits of the checkout reach no generation, and a changed bundle starts none."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rewind.core.errors import IntegrityError
from rewind.runtime.drivers import supervise
from tests.support.workshop import PROJECT, Workshop, wait_for

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(600)]

VISIT = {"event_id": "click-1", "visit_id": 1, "event_time": "2025-09-04T07:00:00", "page": "home"}


def in_tree(tree: Path, shop: Workshop, call: str) -> str:
    """Call the product from another copy of the code, as its own checkout would."""
    script = f"import os; from rewind.core.settings import from_environment; s = from_environment(os.environ); {call}"
    environment = {**os.environ, **shop.settings.environment(), "PYTHONPATH": str(tree / "include")}
    environment |= {"REWIND_JOBS": str(tree / "jobs"), "REWIND_PIPELINES": str(tree / "include" / "pipelines")}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.shows("lifecycle", edits_that_reached_a_generation=0)
def test_edits_reach_no_generation_and_a_changed_bundle_is_refused(
    workshop: Callable[..., Workshop], tmp_path: Path
) -> None:
    shop = workshop("frozen", 1)
    tree = tmp_path / "tree"
    for part in ("include", "jobs"):
        shutil.copytree(PROJECT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(shop.settings.pipelines / "frozen", tree / "include" / "pipelines" / "frozen")
    live = shop.deploy()
    look = f"from rewind.runtime.drivers import supervise; print(supervise.look(s, {live!r}).state)"
    wait_for("the first driver", lambda: in_tree(tree, shop, look) == supervise.RUNNING)
    shop.produce((b"k", json.dumps(VISIT).encode()))
    wait_for("the first answer", lambda: len(shop.read("frozen-out-g1")) == 1)

    logic = tree / "include" / "pipelines" / "frozen" / "logic.py"
    logic.write_text(logic.read_text().replace('F.col("page")', 'F.upper("page")'))
    module = tree / "include" / "rewind" / "core" / "coordinates.py"
    module.write_text(module.read_text().replace('"rewind-job"', '"edited-job"'))
    (tree / "jobs" / "stream.py").write_text("raise SystemExit('edited')\n")
    holder = shop.holder(live)
    assert holder is not None
    os.killpg(holder.group, signal.SIGKILL)
    wait_for("the driver's end", lambda: shop.holder(live) is None)
    wait_for("its successor", lambda: in_tree(tree, shop, look) == supervise.RUNNING)
    shop.produce((b"k", json.dumps(VISIT).encode()))
    wait_for("the second answer", lambda: len(shop.read("frozen-out-g1")) == 2)
    first, second = shop.read("frozen-out-g1")
    assert second.value == first.value
    assert {**second.headers, "rewind-token": "1", "rewind-source": first.headers["rewind-source"]} == first.headers
    assert second.headers["rewind-token"] == "2"

    shop.stop(live)
    main = supervise.generation_folder(shop.settings, live) / "bundle" / "main" / "stream.py"
    main.write_bytes(main.read_bytes() + b"\n")
    shop.wish(live)
    with pytest.raises(IntegrityError, match=r"changed since it was frozen: main/stream\.py"):
        supervise.look(shop.settings, live)
    assert shop.holder(live) is None

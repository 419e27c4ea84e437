"""Measure: `make bench`, `make bench QUICK=1`, `make bench WHAT=<name>`.

Each figure is what one thing took as a multiple of another, both run in turn on the same data. What a whole run finds
is written to `benchmarks/record.json` and `docs/performance.md` with `--record`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from benchmarks.places import PAGE, RECORD, WORK
from benchmarks.rounds import Ratio

FIGURES = {
    "backfill": "a backfill of 1,000,000 records by spark-submit, cold start and all, beside a confluent-kafka script",
    "registry": "fifty processes that record batches in SQLite, beside a connection a batch and SQLite's own wait",
    "long_log": "one more commit of a mirror at 100,000 commits, beside one at 1,000",
}
"""What is measured, by module."""
BAR = 40
"""Characters of the longest bar of the chart."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure Rewind beside what one would use instead.")
    parser.add_argument("--what", choices=FIGURES, help="measure this alone")
    parser.add_argument("--quick", action="store_true", help="less data and fewer rounds: to see that it works")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name} and {PAGE.name} from what is found")
    asked = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    for name in [asked.what] if asked.what else FIGURES:
        print(f"{name}: {FIGURES[name]}", flush=True)
        ratios: list[Ratio] = importlib.import_module(f"benchmarks.{name}").measure(asked.quick)
        found[name] = [asdict(ratio) for ratio in ratios]
        for line in lines(found[name]):
            print(line, flush=True)
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / "last.json").write_text(json.dumps(found, indent=1))
    if asked.record and not asked.quick:
        keep(found)


def keep(found: dict[str, list[dict[str, Any]]]) -> None:
    """Write what was found into the record, beside what else stands there, and the page from the record."""
    before = json.loads(RECORD.read_text())["figures"] if RECORD.exists() else {}
    record = {
        "at": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "figures": {**before, **found},
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    PAGE.write_text(page(record))


def lines(ratios: Iterable[dict[str, Any]]) -> list[str]:
    """Return figures as a table with a chart: a bar of `#` as long as the ratio, against a bar of `-` for 1."""
    listed = list(ratios)
    scale = BAR / max(1.0, *(ratio["value"] for ratio in listed))
    made = []
    for ratio in listed:
        bar = "#" * max(1, round(ratio["value"] * scale))
        made.append(f"  {ratio['name']:36} {ratio['value']:7.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})  {bar}")
    return [*made, f"  {'1':36} {1:7.2f} {'':17} {'-' * round(scale)}"]


def page(record: dict[str, Any]) -> str:
    """Return the page of a record."""
    how = (
        f"Measured by `make bench ARGS=--record` on {record['at']} ({record['machine']}). Each figure is what one "
        "thing took as a multiple of another, run in turn on the same data in one run: the median of five rounds, the "
        "first dropped, with the lowest and the highest."
    )
    parts = ["# Performance", "", how]
    for name, ratios in record["figures"].items():
        parts += ["", f"## {name}", "", f"{FIGURES[name][0].upper()}{FIGURES[name][1:]}.", ""]
        parts += ["| figure | ratio | range | seconds (CPU seconds) |", "| --- | --- | --- | --- |"]
        for ratio in ratios:
            took = "; ".join(f"{side} {s['wall']:.3g} ({s['cpu']:.3g})" for side, s in ratio["spent"].items())
            parts.append(
                f"| {ratio['name']} | {ratio['value']:.2f} | {ratio['least']:.2f} to {ratio['most']:.2f} | {took} |"
            )
        parts += ["", "```", *(line.strip() for line in lines(ratios)), "```"]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    main()

"""The evidence of a failed check, with texts of users that a browser would run."""

from __future__ import annotations

import json

HOSTILE = "<script>alert(1)</script>"
BIG = 2**53 + 1


def value(**fields):
    return {"kind": "row", "key": "k", "value": json.dumps(fields), "reason": None}


BODY = {
    "about": {"pipeline": "visits", "rewind_id": "rw-1", "live": "visits-g1", "candidate": "visits-g2", "topic": "in"},
    "verdict": "fail",
    "reason": f"1 changed {HOSTILE}",
    "at": "2026-01-01 00:00:00",
    "attempt": 2,
    "floor": {"0": 5, "10": 0, "2": 1},
    "ceiling": {"0": 7, "10": BIG, "2": 1},
    "counts": {"rows": 1_000_000, "equal": 999_999, "changed": 1, "missing": 0},
    "fields": {"changed": {"price": 1}},
    "sample": [
        {
            "partition": 10,
            "offset": BIG,
            "row": 0,
            "class": "changed",
            "fields": ["price"],
            "live": {**value(name=HOSTILE, n=BIG), "value": f'{{"name":"{HOSTILE}","price":0.10000000000000000001}}'},
            "candidate": {**value(), "value": f'{{"name":"{HOSTILE}","price":2}}'},
        },
        {"key": "0xff", "class": "extra", "fields": [], "live": None, "candidate": value(a=1)},
    ],
    "null_shares": {"price": {"live": 0.0, "candidate": 0.5}},
    "late_records": {"visits-g1": 3, "visits-g2": 0},
}

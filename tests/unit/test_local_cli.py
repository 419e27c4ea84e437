"""What `make up` says of DAG files that cannot be imported."""

from __future__ import annotations

from rewind.local import cli

FRAMES = """Traceback (most recent call last):
  File "<frozen importlib._bootstrap>", line 241, in _call_with_frames_removed
  File "/opt/rewind/dags/checks.py", line 15, in <module>
    raise ImportError("\\n".join(problems))
"""


def test_each_broken_folder_is_a_line_below_the_frames():
    told = "ImportError: pipelines/a: a/pipeline.yaml:1: is no YAML\npipelines/b: b/pipeline.yaml:2: x"
    assert cli._error_of({"stack_trace": f"{FRAMES}{told}\n"}) == told


def test_an_error_without_frames_is_told_whole():
    assert cli._error_of({"stack_trace": "DagBag import timeout\n"}) == "DagBag import timeout"

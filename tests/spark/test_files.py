"""Names in a folder, as they come from Hadoop's client in one text."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from rewind.adapters import files


def test_names_are_told_as_they_are_and_hidden_ones_are_not(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("b.json", "a b%20=\n.x", "ü", ".hidden"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    assert files.names(spark, str(tmp_path)) == ["a b%20=\n.x", "b.json", "folder", "ü"]
    assert files.names(spark, str(tmp_path / "folder")) == []
    assert files.names(spark, str(tmp_path / "none")) == []
    assert files.exists(spark, str(tmp_path / "ü"))
    assert not files.exists(spark, str(tmp_path / "none"))

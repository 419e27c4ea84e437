"""Cut a wave of history into chunks, each bounded and contiguous in every partition."""

from __future__ import annotations

from collections.abc import Mapping

from rewind.core.offsets import OffsetRange, Ranges, total


def cut(ranges: Mapping[int, OffsetRange], size: int) -> list[Ranges]:
    """Return the ranges in chunks of about `size` offsets, in order, none empty.

    Each chunk takes the same share of every partition, so that partitions advance together and the
    chunk's tasks are alike in size.
    """
    offsets = total(ranges)
    count = -(-offsets // size) if offsets else 0
    return [chunk for n in range(count) if total(chunk := _share(ranges, n, count))]


def _share(ranges: Mapping[int, OffsetRange], number: int, count: int) -> Ranges:
    return {
        p: OffsetRange(r.start + len(r) * number // count, r.start + len(r) * (number + 1) // count)
        for p, r in ranges.items()
    }

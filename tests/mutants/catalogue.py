"""All faults."""

from __future__ import annotations

from tests.mutants.faults import collection, core, leases, lifecycle, nothing, outside, runtime, spark, steps

FAULTS = (
    *core.FAULTS,
    *leases.FAULTS,
    *lifecycle.FAULTS,
    *collection.FAULTS,
    *runtime.FAULTS,
    *spark.FAULTS,
    *steps.FAULTS,
    *nothing.FAULTS,
    *outside.FAULTS,
)

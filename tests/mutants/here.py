"""A fault in the running process: for a test that looks for faults itself, as the lifecycle's state machine does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from unittest import mock

from tests.mutants.fault import Fault, compiled
from tests.mutants.faults.collection import ORPHAN_LEFT, WITHIN_GRACE
from tests.mutants.faults.lifecycle import NOT_ANNOUNCED, TWO_ACTIVE, UNANSWERED

ROOT = Path(__file__).resolve().parents[2]

OF_THE_MACHINE = (WITHIN_GRACE, UNANSWERED, NOT_ANNOUNCED, TWO_ACTIVE, ORPHAN_LEFT)
"""What the state machine of the lifecycle must notice by itself."""
SOON_NOTICED = (UNANSWERED, NOT_ANNOUNCED, TWO_ACTIVE)
"""Those that some tens of examples suffice for."""


@contextmanager
def planted_here(fault: Fault) -> Iterator[None]:
    """Replace a function of a module, which others call by the module's name, by one with a fault."""
    place, source = compiled(ROOT, fault)
    module_name, _, name = place.function.rpartition(".")
    module = import_module(module_name)
    with mock.patch.object(module, name):
        exec(compile(source, place.path, "exec"), vars(module))
        yield

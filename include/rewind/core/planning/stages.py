"""What a kind of plan does, and what each task of its DAG will do: run, wait, or be skipped.

This is the one place that tells the kinds of plans apart. DAG, steps, `explain`, status and page ask a kind's `Shape`
for what they need to know, and a plan for its `stages`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rewind.core import comparing, lifecycle

REWIND, REPAIR, RELEASE = "rewind", "repair", "release"

RUNS, WAITS, SKIPPED, IF_NEEDED = "runs", "waits", "skipped", "if needed"
"""What a task does: it works, waits for the world or for a person, is skipped, or runs only after a failure."""


@dataclass(frozen=True)
class Shape:
    """What tells one kind of plan from the others.

    Attributes:
        kind: Its name.
        bounded: Whether its range has an end that was asked for; else it goes on to the end of what can be read.
        reads_history: Whether it is fed from the mirror.
        takes_over: Whether its job goes on from Kafka, is compared while it runs, and becomes live: the pointer moves.
        made_as: State of what it makes, before its end.
        own_number: Whether it counts as a generation of its own (`g`), or as a repair (`r`).
    """

    kind: str
    bounded: bool
    reads_history: bool
    takes_over: bool
    made_as: str
    own_number: str

    @property
    def repairs(self) -> bool:
        """Whether its rows go into the output of the job that stays live."""
        return not self.takes_over

    @property
    def steps(self) -> tuple[str, ...]:
        """The tasks that status and page show, in their order: those that are recorded as steps."""
        return tuple(task for task in RECORDED if task not in self.skipped)

    @property
    def skipped(self) -> frozenset[str]:
        """The tasks of the DAG that it does not have."""
        return frozenset({"merge"}) if self.takes_over else TAKING_OVER


TASKS = (
    *("plan", "go_on", "spin_up", "backfill", "start_candidate", "catch_up", "validate", "approve"),
    *("cut_over", "announce", "observe", "roll_back", "merge", "ended", "abort"),
)
"""All tasks of the lifecycle's DAG, in their order."""
TAKING_OVER = frozenset({"start_candidate", "catch_up", "cut_over", "announce", "observe", "recheck", "roll_back"})
"""Those that only a plan has whose job becomes live; `recheck` is what `observe` submits from time to time."""
UNRECORDED = frozenset({"go_on", "announce", "roll_back", "ended", "abort"})
"""Those that leave no step in the registry."""
RECORDED = tuple(task for task in TASKS if task not in UNRECORDED)

SHAPES = {
    REWIND: Shape(
        REWIND, bounded=False, reads_history=True, takes_over=True, made_as=lifecycle.CANDIDATE, own_number="g"
    ),
    RELEASE: Shape(
        RELEASE, bounded=False, reads_history=False, takes_over=True, made_as=lifecycle.CANDIDATE, own_number="g"
    ),
    REPAIR: Shape(
        REPAIR, bounded=True, reads_history=True, takes_over=False, made_as=lifecycle.STAGING, own_number="r"
    ),
}


def asked_for(start: str, end: str) -> Shape:
    """Return the shape of what is asked for: an end makes it a repair, `live` as the start a release."""
    return SHAPES[REPAIR if end else RELEASE if start.strip() == "live" else REWIND]


@dataclass(frozen=True)
class Stage:
    """What one task of the DAG will do.

    Attributes:
        task: Its id.
        does: `RUNS`, `WAITS`, `SKIPPED` or `IF_NEEDED`.
        until: What ends a wait, or when it is needed; empty else.
    """

    task: str
    does: str
    until: str = ""


def stages(
    shape: Shape, *, lag_gate: int, observe_seconds: int, compare: str, auto_approve: bool, on_difference: str
) -> tuple[Stage, ...]:
    """Return what each task of the DAG will do once the plan is applied.

    Args:
        shape: That of its kind.
        lag_gate: Records behind the end at which a candidate is close enough.
        observe_seconds: How long a switch is observed.
        compare: What is compared (`core.comparing`).
        auto_approve: Whether a passing verdict needs no person.
        on_difference: What is done when differences appear after the switch.
    """
    alone = auto_approve and compare != comparing.NONE
    waits = {
        "catch_up": f"the candidate is at most {lag_gate:,} records behind",
        "approve": "a person answers, unless the verdict is a pass" if alone else "a person answers",
        "observe": f"{observe_seconds:,} s have passed since the switch",
    }
    needed = {
        "roll_back": "differences appear after the switch" if on_difference == "roll_back" else "",
        "abort": "a task before the switch fails" if shape.takes_over else "a task fails",
    }
    return tuple(_stage(task, shape, waits, needed) for task in TASKS)


def _stage(task: str, shape: Shape, waits: dict[str, str], needed: dict[str, str]) -> Stage:
    if task in shape.skipped or needed.get(task) == "":
        return Stage(task, SKIPPED)
    if task in needed:
        return Stage(task, IF_NEEDED, needed[task])
    return Stage(task, WAITS, waits[task]) if task in waits else Stage(task, RUNS)


def explained(found: tuple[Stage, ...]) -> list[str]:
    """Return the stages as lines for a person: what runs, what it waits for, what is skipped."""
    runs = [stage.task for stage in found if stage.does in (RUNS, WAITS)]
    lines = [f"  tasks    {', '.join(runs)}"]
    lines += [f"  waits    {stage.task} until {stage.until}" for stage in found if stage.does == WAITS]
    lines += [f"  if       {stage.until}: {stage.task}" for stage in found if stage.does == IF_NEEDED]
    if skipped := [stage.task for stage in found if stage.does == SKIPPED]:
        lines.append(f"  skipped  {', '.join(skipped)}")
    return lines

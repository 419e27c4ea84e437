"""The trigger forms: the schemas of `rewind.declared.forms`, with words for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG, Param
from airflow.sdk.definitions.param import ParamsDict

from rewind.declared.forms import CONSUMERS, PARAMETERS, ROLLBACK

WHAT, HOW, GATES, RUN = "What to rewind", "What changes", "Gates and periods", "How to run"
READERS = "Consumer groups"

MOVES: dict[str, tuple[str, str, str]] = {
    "consumer_groups": (
        READERS,
        "Consumer groups",
        (
            "One a line: groups that read the output. Each resumes in the new output where it was in the old one. "
            "Stop their consumers first."
        ),
    ),
    "only_new": (
        READERS,
        "Records that only the new output has",
        "Below a group's position: keep leaves them out, counted and listed; replay goes back to them.",
    ),
    "replay_from": (
        READERS,
        "Replay from",
        'With replay: earliest, an instant, or offsets of the source, {"visits":{"0":23,"1":0}}.',
    ),
}
"""What moves consumer groups, in each form that switches."""

WORDS: dict[str, tuple[str, str, str]] = {
    "from": (
        WHAT,
        "From",
        (
            "earliest; an instant with its zone, 2025-09-04T07:00:00Z; a duration back from now, P1D or PT6H; "
            'offsets, {"visits":{"0":23,"1":0}}; shift-by:-1000; or live, a release without history.'
        ),
    ),
    "to": (
        WHAT,
        "To (repair)",
        "Leave empty for a rewind that becomes live. With an end, only this range is repaired.",
    ),
    "repair_into": (
        WHAT,
        "Repair into",
        "live: the repaired rows go to live's output. beside: they stay in their own.",
    ),
    "accept_gaps": (
        WHAT,
        "Accept gaps",
        'Offsets that the mirror lacks and that may be skipped, as {"visits":{"0":[[3,4],[6,8]]}}.',
    ),
    "overrides": (
        HOW,
        "Overrides",
        'Settings of the new generation, as {"max_offsets": 50000}. Empty takes pipeline.yaml.',
    ),
    "same_code": (HOW, "Same code", "Go on although nothing differs from the live job."),
    "reason": (HOW, "Reason", "Why, for those who read the history."),
    "auto_approve": (GATES, "Approve a pass by itself", "Skip the question to a person when the verdict is pass."),
    "observe": (GATES, "Observe for", "How long the switched pipeline is watched before the rewind ends: PT15M, PT1H."),
    "on_difference": (
        GATES,
        "On differences meanwhile",
        (
            "Both jobs are compared while the switch is observed. tell: new classes of differences are reported. "
            "roll_back: the old job is made live again by itself."
        ),
    ),
    "compare_every": (
        GATES,
        "Compare every",
        "Pause between two comparisons meanwhile, PT5M. Empty: after 1, 2, 4, 8, … minutes and at the end.",
    ),
    "compare": (
        GATES,
        "Compare",
        (
            "rows: the rows of both outputs. none: nothing, where live is dead and has no rows to compare with; "
            "needs a reason, and a person approves."
        ),
    ),
    "grace": (GATES, "Keep the old job for", "How long after the cut-over a rollback stays possible: PT1H, P1D."),
    **MOVES,
    "dry_run": (RUN, "Dry run", "Only plan, and print the plan with its id. Switch it off to act."),
    "apply_plan": (
        RUN,
        "Apply plan",
        "Id of a plan that a dry run printed: exactly that is done, or refused as stale.",
    ),
}
"""Section, title and description of each parameter, in the order of the form."""

ROLLBACK_WORDS: dict[str, tuple[str, str, str]] = {
    "to": ("What to go back to", "Job", "The standby to go back to. Leave empty for the newest."),
    "reason": ("What to go back to", "Reason", "Why, for those who read the history."),
    "grace": (RUN, "Keep the job that is left for", "How long the way forward stays open: PT1H, P1D."),
    "move_consumers": (
        READERS,
        "Move them back",
        "The groups that the switch moved go back with the pointer, besides those named below.",
    ),
    **MOVES,
    "dry_run": (RUN, "Dry run", "A dry run shows what would be done. Switch it off to apply."),
}
"""Section, title and description of each parameter of a rollback, in the order of the form."""

CONSUMERS_WORDS: dict[str, tuple[str, str, str]] = {
    **MOVES,
    "from_job": (READERS, "From job", "Whose output they have read. Leave empty for the standby, or for live."),
    "to_job": (READERS, "To job", "Whose output they go on in. Leave empty for live; another one only as a dry run."),
    "dry_run": (RUN, "Dry run", "A dry run shows where each would resume. Switch it off to apply."),
}
"""Section, title and description of each parameter of a move of consumers, in the order of the form."""


def params() -> dict[str, Param]:
    """Return the parameters of a rewind DAG."""
    return {name: param(PARAMETERS[name], *words) for name, words in WORDS.items()}


def rollback_params() -> dict[str, Param]:
    """Return the parameters of a rollback DAG."""
    return {name: param(ROLLBACK[name], *words) for name, words in ROLLBACK_WORDS.items()}


def consumers_params() -> dict[str, Param]:
    """Return the parameters of a consumers DAG."""
    return {name: param(CONSUMERS[name], *words) for name, words in CONSUMERS_WORDS.items()}


def param(declared: Mapping[str, Any], section: str, title: str, description: str) -> Param:
    """Return a parameter of a form with its words; one without default has to be filled in."""
    schema = {key: value for key, value in declared.items() if key != "default"}
    return Param(declared.get("default"), description, schema={**schema, "title": title, "section": section})


def keep_once(dag: DAG) -> None:
    """Leave its parameters to a DAG alone: a run hands them to each of its tasks anyway.

    Airflow gives every task a copy of its DAG's parameters, checks each of them several times when the file is parsed
    and stores them with the task: thirty parameters in fifteen tasks were nine tenths of what parsing cost.
    """
    for task in dag.tasks:
        task.params = ParamsDict.filter_params_by_source(task.params, source="task")

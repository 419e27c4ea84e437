"""What the end of a spark-submit means: its exit code alone has been wrong in both directions."""

from __future__ import annotations

from dataclasses import dataclass

from rewind_airflow.reactions import FINAL_CODES

SUCCESS, WARNING, RETRY, FAIL = "success", "warning", "retry", "fail"

# Standalone and YARN say FINISHED and SUCCEEDED, Kubernetes Succeeded.
GOOD_ENDS = frozenset({"FINISHED", "SUCCEEDED"})


@dataclass(frozen=True)
class Seen:
    """What was seen of a submit that has ended.

    Attributes:
        exit_code: The submit's; None when it was never started, or a retry found its driver ended.
        driver: End state of a driver that a cluster ran; None when the submit itself was the driver.
        marked: Whether the registry holds the job's end marker of this attempt; None when it leaves none.
        words: Last words of the output.
    """

    exit_code: int | None
    driver: str | None
    marked: bool | None
    words: str = ""


@dataclass(frozen=True)
class Outcome:
    """How the task ends (success, warning, retry or fail), and why."""

    kind: str
    text: str


def judge(seen: Seen) -> Outcome:
    """Return how the task of a submit ends.

    The driver's end state decides, never a good exit code alone, and an unknown state is no success. A bad exit
    code is outweighed only by proof that the job came to its end.
    """
    if seen.driver is not None and seen.driver.upper() not in GOOD_ENDS:
        return Outcome(_reaction(seen), f"the driver ended {seen.driver} (exit code {seen.exit_code}). {seen.words}")
    if seen.marked is False:
        return Outcome(_reaction(seen), _unmarked(seen))
    proved = bool(seen.marked) or seen.driver is not None
    if seen.exit_code and not proved:
        return Outcome(_reaction(seen), f"exit code {seen.exit_code}. {seen.words}")
    if seen.exit_code:
        return Outcome(WARNING, f"exit code {seen.exit_code}, but the job came to its end. {seen.words}")
    return Outcome(SUCCESS, "the job came to its end")


def _unmarked(seen: Seen) -> str:
    if seen.exit_code:
        return f"exit code {seen.exit_code}. {seen.words}"
    return f"exit code {seen.exit_code}, but the registry holds no end marker of the job. {seen.words}"


def _reaction(seen: Seen) -> str:
    return FAIL if seen.exit_code in FINAL_CODES else RETRY

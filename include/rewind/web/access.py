"""Who sees what: a pipeline is seen by those who may read its DAG `rewind_<pipeline>` in Airflow."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from fastapi import Depends, HTTPException

from rewind.views.status import Status

DAG = "rewind_"
"""What stands before a pipeline's name in the id of the DAG whose readers see it."""


@dataclass(frozen=True)
class Access:
    """Who may do what.

    Attributes:
        person: FastAPI dependency of every route: returns who asks, or answers 401 or 403.
        may_read: Which of some DAGs a person may read.
        may_run: Whether a person may run a DAG.
        name: By which name Airflow knows a person, as it says who asked for a run and who answered.
    """

    person: Callable[..., Any]
    may_read: Callable[[Any, Collection[str]], Collection[str]]
    may_run: Callable[[Any, str], bool]
    name: Callable[[Any], str]


READS_ALL = Access(lambda: None, lambda _, dag_ids: dag_ids, lambda *_: False, lambda _: "")
"""Of a program that bears the read-only token: it stands for the installation, not for a person."""


class Viewer:
    """One who asks, and what they may see."""

    def __init__(self, access: Access, person: Any) -> None:
        """Ask nothing yet."""
        self._access, self._person = access, person

    def sees(self, pipelines: Iterable[str]) -> frozenset[str]:
        """Return which of some pipelines they see."""
        read = self._access.may_read(self._person, {DAG + name for name in pipelines})
        return frozenset(dag_id.removeprefix(DAG) for dag_id in read)

    def check(self, *pipelines: str) -> None:
        """Refuse unless they see all of these pipelines.

        Raises:
            HTTPException: 403.
        """
        if hidden := sorted(set(pipelines) - self.sees(pipelines)):
            raise _refusal(DAG + hidden[0])

    def check_any(self, pipelines: Collection[str], of: str) -> None:
        """Refuse unless they see one of these pipelines, which share a thing.

        Raises:
            HTTPException: 403.
        """
        if not self.sees(pipelines):
            raise HTTPException(403, f"reading a pipeline of {of} is not allowed to you")

    def check_dag(self, dag_id: str) -> None:
        """Refuse unless they may read a DAG.

        Raises:
            HTTPException: 403.
        """
        if not self._access.may_read(self._person, {dag_id}):
            raise _refusal(dag_id)

    def may_run(self, dag_id: str) -> bool:
        """Return whether they may run a DAG."""
        return self._access.may_run(self._person, dag_id)

    @property
    def name(self) -> str:
        """By which name Airflow knows them."""
        return self._access.name(self._person)

    def part(self, found: Status) -> Status:
        """Return what they see of a state: the same value when that is all of it."""
        seen = self.sees(view.name for view in found.pipelines)
        hidden = [view for view in found.pipelines if view.name not in seen]
        if not hidden:
            return found
        shown = tuple(view for view in found.pipelines if view.name in seen)
        topics = {view.source_topic for view in shown}
        names = {name for view in hidden for name in (view.name, view.source_topic) if name and name not in topics}
        untold = [re.escape(name) for name in names]
        return replace(
            found,
            pipelines=shown,
            mirrors=tuple(mirror for mirror in found.mirrors if mirror.topic in topics),
            # Jobs and topics begin with the names of their pipeline and output.
            problems=tuple(text for text in found.problems if not any(re.search(rf"\b{n}", text) for n in untold)),
        )


def viewers(access: Access) -> Callable[..., Viewer]:
    """Return the FastAPI dependency of routes that ask what a person sees."""
    asks = Depends(access.person)

    def viewer(person: Any = asks) -> Viewer:
        return Viewer(access, person)

    return viewer


def _refusal(dag_id: str) -> HTTPException:
    return HTTPException(403, f"reading {dag_id} is not allowed to you")

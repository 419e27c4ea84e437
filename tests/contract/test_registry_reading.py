"""Views of the registry: one instant, nothing changed, and the same whichever database holds it."""

from __future__ import annotations

import pytest
from sqlalchemy import delete, insert, select

from rewind.core.errors import RefusedError, RetryError
from rewind.registry import generations, schema
from rewind.registry.database import now, writing
from rewind.registry.snapshot import snapshot
from rewind.views import counters, status
from tests.support import page_states
from tests.support.fakes import installation
from tests.support.registry import NAME, create


def there(connection):
    return [generation.job_id for generation in generations.all_of(connection, NAME)]


def test_a_view_shows_one_instant(url):
    with snapshot(url) as connection:
        assert there(connection) == []
        with writing(url) as writer:
            create(writer)
        assert there(connection) == []
    with snapshot(url) as connection:
        assert there(connection) == [f"{NAME}-g1"]


def test_a_view_neither_waits_for_a_writer_nor_sees_what_it_may_take_back(url):
    with writing(url) as writer:
        create(writer)
        with snapshot(url) as connection:
            assert there(connection) == []


def test_a_view_changes_nothing(url):
    with pytest.raises(RetryError, match="registry"), snapshot(url) as connection:
        create(connection)
    with snapshot(url) as connection:
        assert there(connection) == []


def test_where_no_registry_is_a_view_says_so(bare_url):
    with pytest.raises(RefusedError, match=r"registry: (there is none at|it is empty)"), snapshot(bare_url) as view:
        there(view)


def copied(source, target):
    """Copy all that a registry holds into an empty one."""
    with writing(source) as old, writing(target) as new:
        for table in (schema.changes, schema.protocol):
            new.execute(delete(table))
        for table in schema.metadata.sorted_tables:
            rows = [dict(row) for row in old.execute(select(table)).mappings()]
            if rows:
                new.execute(insert(table), rows)


@pytest.mark.parametrize("state", ["standby", "failed verdict", "stuck watermark", "aborted"])
def test_what_is_shown_does_not_depend_on_the_database(own_url, tmp_path, state):
    # One of its own: what a process knows of a registry's mirrors it knows by the registry's address.
    seen = installation(tmp_path / "seen", REWIND_REGISTRY_URL=own_url, REWIND_PIPELINES=str(tmp_path / "pipelines"))
    other = installation(tmp_path / "other", REWIND_PIPELINES=str(tmp_path / "pipelines"))
    page_states.declare(seen)
    page_states.seed(seen, state)
    copied(own_url, other.registry_url)

    at = now()
    shown, wanted = (status.read(one, page_states.Ends(), at).to_json() for one in (seen, other))
    assert (shown, shown["registry_read"]) == (wanted, True)
    with snapshot(own_url) as mine, snapshot(other.registry_url) as theirs:
        assert counters.read(mine) == counters.read(theirs)

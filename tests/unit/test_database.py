"""Database URLs, the state of a schema, and what messages show of them."""

from __future__ import annotations

import pytest

from everstep_savers.errors import SchemaOutOfDate
from everstep_savers.sql.database import check_revision, parse_url, root_cause, shown, unavailable
from everstep_savers.sql.schema import SCHEMA_REVISION


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sqlite:///threads.db", "sqlite+aiosqlite:///threads.db"),
        ("sqlite+aiosqlite:///threads.db", "sqlite+aiosqlite:///threads.db"),
        ("sqlite://", "sqlite+aiosqlite://"),
        ("postgresql://u:p@h:1/d", "postgresql+asyncpg://u:p@h:1/d"),
        ("postgres://u:p@h:1/d", "postgresql+asyncpg://u:p@h:1/d"),
        ("postgresql+asyncpg://u:p@h:1/d", "postgresql+asyncpg://u:p@h:1/d"),
        ("postgresql+psycopg2://h/d?sslmode=require", "postgresql+asyncpg://h/d?ssl=require"),
        ("postgresql:///d?host=/run/pg", "postgresql+asyncpg:///d?host=%2Frun%2Fpg"),
    ],
)
def test_a_url_gets_the_async_driver(text: str, expected: str) -> None:
    assert parse_url(text).render_as_string(hide_password=False) == expected


def test_a_url_is_shown_without_driver_and_password() -> None:
    assert shown(parse_url("postgresql+asyncpg://u:s3cret@h:1/d")) == "postgresql://u:***@h:1/d"
    assert shown(parse_url("sqlite:///threads.db")) == "sqlite:///threads.db"


def test_a_complaint_about_a_url_does_not_repeat_it() -> None:
    with pytest.raises(ValueError) as caught:
        parse_url("//user:s3cret@host")

    assert "s3cret" not in str(caught.value)


def test_a_reason_that_holds_the_password_is_shown_without_it() -> None:
    url = parse_url("postgresql://u:s3cret@h/d")

    error = unavailable(url, OSError("no such host: u:s3cret@h"))

    assert str(error) == "cannot use database postgresql://u:***@h/d: no such host: u:***@h"


def test_the_reason_is_what_the_driver_said() -> None:
    outer = RuntimeError("wrapped")
    outer.__cause__ = ValueError("wrapped once more")
    outer.__cause__.__cause__ = OSError("refused")

    assert str(root_cause(outer)) == "refused"
    assert str(unavailable(parse_url("sqlite:///x.db"), TimeoutError())) == (
        "cannot use database sqlite:///x.db: TimeoutError"
    )


def test_the_schema_of_this_version_is_accepted() -> None:
    check_revision(SCHEMA_REVISION, parse_url("sqlite:///x.db"))


@pytest.mark.parametrize("found", [None, "0000", "9999"])
def test_a_refused_schema_shows_no_password(found: str | None) -> None:
    with pytest.raises(SchemaOutOfDate) as caught:
        check_revision(found, parse_url("postgresql://u:s3cret@h/d"))

    assert "--url postgresql://u:***@h/d" in str(caught.value)
    assert "s3cret" not in str(caught.value)

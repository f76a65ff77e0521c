"""Alembic's environment: which database, which schema, one transaction for a whole migration.

Called in three ways: by `everstep_savers.sql.migrate` with a connection that holds the lock already, or with a URL to
print statements for; by `alembic` on the command line with a URL from `EVERSTEP_DATABASE_URL` or ``-x url=``; and
offline (``--sql``), when it only prints statements.
"""

from __future__ import annotations

import asyncio
import os
from logging.config import fileConfig

from alembic import context
from sqlalchemy import Connection

from everstep_savers.sql.database import parse_url
from everstep_savers.sql.migrate import context_options, run_locked
from everstep_savers.sql.place import DEFAULT_PLACE, Place


def migrate(connection: Connection, place: Place = DEFAULT_PLACE) -> None:
    """Run the revisions on a connection."""
    context.configure(
        connection=connection, target_metadata=place.metadata(), transactional_ddl=True, **context_options(place)
    )
    with context.begin_transaction():
        context.run_migrations()


def print_statements(url: str, place: Place = DEFAULT_PLACE) -> None:
    """Print the statements of the revisions."""
    context.configure(
        url=url,
        target_metadata=place.metadata(),
        literal_binds=True,
        transactional_ddl=True,
        **context_options(place),
    )
    with context.begin_transaction():
        context.run_migrations()


def url_of_command_line() -> str:
    """The database that the command line or the environment names."""
    url = context.get_x_argument(as_dictionary=True).get("url") or os.environ.get("EVERSTEP_DATABASE_URL")
    if not url:
        raise SystemExit("no database: set EVERSTEP_DATABASE_URL, or pass -x url=sqlite:///threads.db")
    return url


def main() -> None:
    """Find out in which way we are called."""
    attributes = context.config.attributes
    if (connection := attributes.get("connection")) is not None:
        migrate(connection, attributes["place"])
        return
    if "url" in attributes:
        print_statements(attributes["url"], attributes["place"])
        return
    if context.config.config_file_name:
        fileConfig(context.config.config_file_name, disable_existing_loggers=False)
    url = url_of_command_line()
    if context.is_offline_mode():
        print_statements(parse_url(url).render_as_string(hide_password=False))
    else:
        asyncio.run(run_locked(url, migrate))


main()

"""A host application with an Alembic of its own: it never touches Everstep's tables, nor Everstep its."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from everstep_savers.sql import migrate
from everstep_savers.sql.database import parse_url
from everstep_savers.sql.place import Place
from everstep_savers.sql.saver import SQLSaver
from tests.conformance.records import config, named, put_chain

INI = """
[alembic]
script_location = %(here)s/migrations
"""
MODELS = """
from sqlalchemy import Column, ForeignKey, Integer, MetaData, String, Table

metadata = MetaData()
customers = Table("customers", metadata, Column("id", Integer, primary_key=True), Column("name", String(80)))
orders = Table("orders", metadata, Column("id", Integer, primary_key=True), Column("by", ForeignKey("customers.id")))
"""
ENV = """
import asyncio
import os
from alembic import context
from sqlalchemy.ext.asyncio import create_async_engine
from everstep_savers.sql import Place
from models import metadata

place = Place(os.environ.get("EVERSTEP_SCHEMA"), os.environ.get("EVERSTEP_PREFIX", ""))

def migrate(connection):
    context.configure(
        connection=connection,
        target_metadata=metadata,
        include_object=place.include_object,
        include_schemas=connection.dialect.name != "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()

async def main():
    engine = create_async_engine(os.environ["HOST_URL"])
    async with engine.begin() as connection:
        await connection.run_sync(migrate)
    await engine.dispose()

asyncio.run(main())
"""
TEMPLATE = '''
"""${message}"""
from alembic import op
import sqlalchemy as sa

revision, down_revision = ${repr(up_revision)}, ${repr(down_revision)}

def upgrade():
    ${upgrades if upgrades else "pass"}

def downgrade():
    ${downgrades if downgrades else "pass"}
'''


@dataclass
class Host:
    """A project on disk, and where its Everstep tables are."""

    folder: Path
    url: str
    place: Place

    def alembic(self, *arguments: str) -> str:
        """Run the project's own `alembic`; what it printed."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self.folder), *sys.path]),
            "HOST_URL": parse_url(self.url).render_as_string(hide_password=False),
            "EVERSTEP_PREFIX": self.place.table_prefix,
        }
        if self.place.schema:
            environment["EVERSTEP_SCHEMA"] = self.place.schema
        done = subprocess.run(
            [sys.executable, "-m", "alembic", *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def revision(self, message: str) -> str:
        """Let Alembic write a revision from what it finds different; its text."""
        self.alembic("revision", "--autogenerate", "--rev-id", message, "-m", message)
        (path,) = (self.folder / "migrations" / "versions").glob(f"{message}_*.py")
        return path.read_text()


@pytest.fixture(params=[Place(), Place("mine", "my_")], ids=["plain", "placed"])
def host(request: pytest.FixtureRequest, empty_url: str, tmp_path: Path) -> Host:
    place: Place = request.param
    if place.schema and empty_url.startswith("sqlite"):
        place = Place(table_prefix="other_")
    folder = tmp_path / "host"
    (folder / "migrations" / "versions").mkdir(parents=True)
    for name, text in {
        "alembic.ini": INI,
        "models.py": MODELS,
        "migrations/env.py": ENV,
        "migrations/script.py.mako": TEMPLATE.lstrip(),
    }.items():
        (folder / name).write_text(text)
    return Host(folder, empty_url, place)


def open_saver(host: Host) -> SQLSaver:
    return SQLSaver.from_url(host.url, schema=host.place.schema, table_prefix=host.place.table_prefix)


async def test_a_host_application_and_everstep_migrate_one_database_apart(host: Host) -> None:
    await migrate.upgrade(host.url, place=host.place)
    async with open_saver(host) as saver:
        made = await put_chain(saver, 2)

    first = host.revision("first")
    host.alembic("upgrade", "head")

    assert "customers" in first
    assert "orders" in first
    for table in host.place.metadata().tables.values():
        assert f'"{table.name}"' not in first
        assert f"'{table.name}'" not in first
    assert "version" not in first.partition("def upgrade")[2]
    assert "No new upgrade operations detected." in host.alembic("check")
    assert await migrate.differences(host.url, place=host.place) == []

    host.alembic("downgrade", "base")
    async with open_saver(host) as saver:
        assert [named(each) async for each in saver.alist(config())] == made[::-1]


async def test_everstep_goes_and_the_host_application_stays(host: Host) -> None:
    host.revision("first")
    host.alembic("upgrade", "head")
    await migrate.upgrade(host.url, place=host.place)

    await migrate.downgrade(host.url, "base", place=host.place)

    assert "No new upgrade operations detected." in host.alembic("check")
    assert "first (head)" in host.alembic("current")


@pytest.mark.parametrize("host", [Place()], ids=["plain"], indirect=True)
async def test_without_include_object_the_host_application_would_drop_our_tables(host: Host) -> None:
    """What the function is for."""
    await migrate.upgrade(host.url, place=host.place)
    environment = host.folder / "migrations" / "env.py"
    environment.write_text(environment.read_text().replace("include_object=place.include_object,", ""))

    assert "drop_table" in host.revision("first").partition("def downgrade")[0]

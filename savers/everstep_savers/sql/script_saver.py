"""The SQL saver for plain scripts, under the names that people who come from LangGraph know.

`SQLSaver` has its sync methods already; here `setup` is sync too. It adds nothing else.
"""

from __future__ import annotations

from everstep_savers.blocking import run_blocking
from everstep_savers.sql.saver import SQLSaver


class SqliteSaver(SQLSaver):
    """An `SQLSaver` whose `setup` is sync, as it is where programs that call it come from."""

    def setup(self) -> None:  # type: ignore[override]  # sync is what it is there for
        """Create or upgrade the schema; any number of processes may do so at once."""
        run_blocking(super().setup, "setup", self._loop)


PostgresSaver = SqliteSaver

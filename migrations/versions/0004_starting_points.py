"""Where the branch of a thread's head starts, for keys that stay the same after a crash.

Revision 0004. Threads of before have none; theirs is looked up in their history.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("threads", sa.Column("starting_point", sa.Text))


def downgrade() -> None:
    op.drop_column("threads", "starting_point")

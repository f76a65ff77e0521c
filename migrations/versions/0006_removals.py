"""How often checkpoints were removed from a thread: what somebody has read before may be gone.

Revision 0006. Only adds a column.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("threads", sa.Column("removals", sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("threads", "removals")

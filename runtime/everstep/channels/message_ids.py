"""Ids for chat messages that come without one, for whoever keeps what was written and reduces it again later.

Nothing here imports langchain: where it is not loaded, there are no messages.
"""

from __future__ import annotations

import sys
from typing import Any
from uuid import uuid4


def with_message_ids(write: Any) -> Any:
    """The write; messages in it (or in the list that it is) that have no id have got one."""
    messages = sys.modules.get("langchain_core.messages")
    if messages is not None:
        for item in write if isinstance(write, list) else (write,):
            if isinstance(item, messages.BaseMessage) and item.id is None:
                item.id = str(uuid4())
    return write

"""Checkpoints, commits and configs as tests of savers need them; they come with the conformance suite."""

from __future__ import annotations

from everstep_savers.conformance.records import checkpoint, claim, config, named, new, put_chain, record, step

__all__ = ["checkpoint", "claim", "config", "named", "new", "put_chain", "record", "step"]

"""The conformance suite on our own savers: `pruning`."""

from everstep_savers.conformance.pruning import *  # noqa: F403

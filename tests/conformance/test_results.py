"""The conformance suite on our own savers: `results`."""

from everstep_savers.conformance.results import *  # noqa: F403

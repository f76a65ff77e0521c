"""The conformance suite on our own savers: `maintenance`."""

from everstep_savers.conformance.maintenance import *  # noqa: F403

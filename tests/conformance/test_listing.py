"""The conformance suite on our own savers: `listing`."""

from everstep_savers.conformance.listing import *  # noqa: F403

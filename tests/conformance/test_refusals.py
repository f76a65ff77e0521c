"""The conformance suite on our own savers: `refusals`."""

from everstep_savers.conformance.refusals import *  # noqa: F403

"""The conformance suite on our own savers: `sharing`."""

from everstep_savers.conformance.sharing import *  # noqa: F403

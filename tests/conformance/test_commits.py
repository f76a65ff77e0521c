"""The conformance suite on our own savers: `commits`."""

from everstep_savers.conformance.commits import *  # noqa: F403

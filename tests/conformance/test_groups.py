"""The conformance suite on our own savers: `groups`."""

from everstep_savers.conformance.groups import *  # noqa: F403

"""The conformance suite on our own savers: `reading`."""

from everstep_savers.conformance.reading import *  # noqa: F403

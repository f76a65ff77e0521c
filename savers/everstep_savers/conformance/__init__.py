"""The contract of a saver as a suite of tests, for savers of other people as for our own.

Run it on a saver of your own, with pytest and pytest-asyncio installed (extra ``conformance``)::

    python -m everstep_savers.conformance mypackage.savers:open_saver

``open_saver(folder)`` gives a saver, or an asynchronous context manager of one, which keeps everything in (or under a
name made of) `folder`: new for every test, and the same for the savers of one test. What a saver is asked depends on
what it is: `BaseCheckpointSaver` (reading, listing), `AtomicSaver` (commits, results, refusals, groups),
`MaintainedSaver` (maintenance, pruning); with ``--shared`` several programs use one storage, and one of them is killed.

Or import the tests of a module (``from everstep_savers.conformance.reading import *``) where pytest collects them, and
define the fixtures `saver` (open and empty) and `storage` (a `Storage`). Nothing here is imported by the savers.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "everstep_savers.conformance.reading",
    "everstep_savers.conformance.listing",
    "everstep_savers.conformance.commits",
    "everstep_savers.conformance.results",
    "everstep_savers.conformance.refusals",
    "everstep_savers.conformance.groups",
    "everstep_savers.conformance.maintenance",
    "everstep_savers.conformance.pruning",
    "everstep_savers.conformance.sharing",
)

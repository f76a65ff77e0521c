"""Runs of a graph for many inputs at the same time.

All runs end before anybody hears of one: a failure cuts no other run short.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from everstep.errors import ConfigError
from everstep.pregel.blocking import run_blocking

Config = Mapping[str, Any] | None


class RunsMany(ABC):
    """What a graph that can be run does with many inputs."""

    @abstractmethod
    async def ainvoke(self, input: Any, config: Config = None, **options: Any) -> Any:
        """Run the graph to its end and return its output."""

    async def abatch(
        self,
        inputs: Sequence[Any],
        config: Config | Sequence[Config] = None,
        *,
        return_exceptions: bool = False,
        **options: Any,
    ) -> list[Any]:
        """Run the graph for each input at the same time, and return the outputs in their order.

        Args:
            config: One for all runs, or one for each.
            return_exceptions: Return what runs raised in place of their outputs, instead of raising the first of it.
            options: Of each call, see `ainvoke`.
        """
        configs = [config] * len(inputs) if config is None or isinstance(config, Mapping) else config
        if len(configs) != len(inputs):
            raise ConfigError(f"{len(inputs)} inputs need as many configs, or one for all, got {len(configs)}")
        runs = [self.ainvoke(value, each, **options) for value, each in zip(inputs, configs, strict=True)]
        outputs = await asyncio.gather(*runs, return_exceptions=True)
        failed = next((output for output in outputs if isinstance(output, BaseException)), None)
        if failed is not None and not return_exceptions:
            raise failed
        return outputs

    def batch(self, inputs: Sequence[Any], config: Config | Sequence[Config] = None, **options: Any) -> list[Any]:
        """`abatch` for plain scripts."""
        return run_blocking(lambda: self.abatch(inputs, config, **options), "batch")

"""Work beside other work in a captured step: small launches leave most of the card idle.

A branch begins after what was launched before the fork and ends before what is launched after the
join. Steps that are launched one by one have none: there the launches themselves take the time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar

import torch

from octavo.ops.gpu import relay
from octavo.ops.gpu.device import is_capturing

Result = TypeVar("Result")


class Branch(Generic[Result]):
    """`work`, launched beside what the caller launches until `join`.

    What it reads has to be held until then: memory that is given back may be used again at once.
    """

    def __init__(self, work: Callable[[], Result]) -> None:
        self._end: Any = None
        # Not in captured steps alone: their kernels have been compiled by plain ones.
        is_apart = relay.stand_apart()
        if is_capturing():
            here, side = torch.cuda.current_stream(), _side()
            side.wait_stream(here)
            with torch.cuda.stream(side):
                self._result = work()
                self._end = side.record_event()
        else:
            self._result = work()
        relay.stand_apart(is_apart)

    def join(self) -> Result:
        """Its result, for launches from now on."""
        relay.stand_apart()
        if self._end is not None:
            torch.cuda.current_stream().wait_event(self._end)
        return self._result


@cache
def _side() -> Any:
    return torch.cuda.Stream()

"""Buffers on the card where experts arrive in groups while others are in use.

A group is copied into the next buffer as soon as what was there has been used; copies run beside
the work, one behind the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.ops.gpu.device import Tensor, allocate
from octavo.ops.gpu.lanes import Lane, Mark

Copy = tuple[int, Tensor]  # where in the buffer, and the bytes in main memory


class Ring:
    """`n_buffers` buffers of `buffer_bytes` each, zeros at first.

    Attributes:
        is_dry: nothing is copied: for steps whose results nobody wants.
    """

    def __init__(self, n_buffers: int, buffer_bytes: int) -> None:
        self._memory = allocate(n_buffers * buffer_bytes).zero_().view(n_buffers, -1)
        self._arrived = [Mark() for _ in range(n_buffers)]
        self._used = [Mark() for _ in range(n_buffers)]
        for mark in self._used:  # behind the zeros
            mark.set()
        self._lane = Lane()
        self._n_sent = 0
        self.is_dry = False

    def __len__(self) -> int:
        return len(self._arrived)

    def send(self, copies: Sequence[Copy]) -> int:
        """Begin to fill the next buffer -> its number. At most as many as there are buffers may
        have been sent and not been used."""
        number = self._n_sent % len(self)
        self._n_sent += 1
        self._lane.hold(self._used[number])
        buffer = self._memory[number]
        if not self.is_dry:
            self._lane.copy([(buffer[at : at + len(source)], source) for at, source in copies])
        self._lane.set(self._arrived[number])
        return number

    def has_arrived(self, number: int) -> bool:
        """Whether all that was sent there is there."""
        return self._arrived[number].is_passed()

    def wait(self, number: int) -> None:
        """Let this thread wait for it."""
        self._arrived[number].wait()

    def open(self, number: int) -> Tensor:
        """The buffer, for work that is launched from now on."""
        self._arrived[number].hold()
        return self._memory[number]

    def close(self, number: int) -> None:
        """All work on it has been launched."""
        self._used[number].set()

"""HTTP with an end to waiting: uvicorn limits how long a connection may be idle, not how long a head may take."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds for the head of a request to arrive.
HEAD_SECONDS = 10.0


class Patient(H11Protocol):
    """A connection that must say what it wants within some seconds, each time that it begins to."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a head; stop waiting once it is there."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.cycle is not None and not self.cycle.response_complete:
            return
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._waiting is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

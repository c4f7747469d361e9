"""HTTP/1.1 protocol with a time limit for request headers. uvicorn only limits idle connections."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds within which the headers of a request must arrive.
HEAD_SECONDS = 10.0


class HeaderTimeout(H11Protocol):
    """Connection that is closed if the headers of a request take longer than `HEAD_SECONDS`."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Starts the timer."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Stops the timer when the headers are complete, starts it when the next request begins."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.cycle is not None and not self.cycle.response_complete:
            return
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

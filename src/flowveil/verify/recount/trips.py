"""Placeholder."""


class UnreadableInputError(ValueError):
    """Cannot read."""


def read_trips(*a, **k):
    """Refuse."""
    raise UnreadableInputError

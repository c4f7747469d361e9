"""Slow, obvious versions of everything fast: the oracles."""

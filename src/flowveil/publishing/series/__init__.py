"""Releases in series: the same zones again, one step after the other, and what was published
before.
"""

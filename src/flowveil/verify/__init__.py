"""Verification of a written release: a recount from the raw trips, and a rebuild from what is published.

`flowveil.verify.recount` imports nothing of flowveil and recounts every cell. `flowveil.verify.rebuild` makes the
folder again from its cells, its zones and its statement and compares every byte. Findings never quote a value below the
guarantee.
"""

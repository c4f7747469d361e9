"""Verification of a written release: a recount from the raw trips, and a rebuild from what is
published.
"""

"""Private pages: HTML and pictures for the operator, made from raw trips.

Never part of a release folder.
"""

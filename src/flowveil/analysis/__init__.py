"""What only the operator may see: measures, comparisons, studies and descriptions, computed from
raw trips.

All figures are exact and none is withheld. Nothing made here may be written into a release folder.
"""

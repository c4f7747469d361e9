"""Records, not flows: k-anonymity by Mondrian, differentially private synthesis by IPF, and both
compared.
"""

from __future__ import annotations

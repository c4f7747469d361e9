"""Everything that is computed from published tables alone."""

"""Several methods on the same data: compare, study, describe."""

"""Known data sets: each module makes of one of them a trip table that `read_trips` takes as it is."""

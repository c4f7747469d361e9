"""Files, paths, processes, progress and limits of this machine."""

"""Writing a release: its tables, and the folder that appears whole and verified or not at all."""

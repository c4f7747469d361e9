"""From a request to a verified folder."""

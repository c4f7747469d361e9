"""What can be requested: settings, requests and recipes."""

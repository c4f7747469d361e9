"""The workbench: the front door in a browser, on this machine only."""

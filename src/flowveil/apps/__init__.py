"""The command line and the workbench."""

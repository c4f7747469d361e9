"""``python -m flowveil``."""

from flowveil.apps.cli import main

main()

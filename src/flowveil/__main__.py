"""``python -m flowveil``."""

from flowveil.cli import main

main()

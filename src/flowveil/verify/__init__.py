"""The independent recount of a written release; see `flowveil.verify.release.release`."""

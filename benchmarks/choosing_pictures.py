"""Pictures of the same synthetic city by TwinCut, PairCut and CurveCut, for the page on choosing a method.

    python -m benchmarks.choosing_pictures DIR

Made with ``flowveil anonymize`` and ``flowveil picture`` from the synthetic survey: nobody took part in it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from flowveil.cli import cli
from flowveil.sources.synthetic import synthetic_survey

METHODS = ("twincut", "paircut", "curvecut")


def run(*words: str) -> None:
    """Run a command as on the command line."""
    cli([*words, "--quiet"], standalone_mode=False)


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        survey = str(Path(scratch) / "survey.parquet")
        pq.write_table(synthetic_survey(people=4000), survey)
        for method in METHODS:
            out = str(Path(scratch) / method)
            run("anonymize", survey, "--method", method, "--resolution", "8", "--protect", "trips", "--out", out)
            picture = str(target / f"choosing-{method}.png")
            run("picture", out, "--out", picture, "--width", "3.4", "--dpi", "110", "--title", method)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

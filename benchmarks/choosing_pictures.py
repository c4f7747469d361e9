"""Pictures of the same synthetic city by TwinCut, LayerCut, CurveCut and topdown, for the page on
choosing a method.

    python -m benchmarks.choosing_pictures DIR

Made with ``flowveil anonymize`` and ``flowveil picture`` from the synthetic survey, which has no
real person.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from flowveil.apps.cli import cli
from flowveil.reading.sources.synthetic import synthetic_survey

#: Options of each. Noise needs a region that is known without the trips: an H3 cell around Paris.
METHODS = {
    "twincut": ("--protect", "trips"),
    "layercut": ("--protect", "trips"),
    "curvecut": ("--protect", "trips"),
    "topdown": tuple(
        word
        for option in ("epsilon=2", "bound=5", "level=7", "region=841fb47ffffffff")
        for word in ("--option", option)
    ),
}


def run(*words: str) -> None:
    """Run a command as on the command line."""
    cli([*words, "--quiet"], standalone_mode=False)


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        survey = str(Path(scratch) / "survey.parquet")
        pq.write_table(synthetic_survey(people=4000), survey)
        for method, options in METHODS.items():
            out = str(Path(scratch) / method)
            words = ("--method", method, "--resolution", "8", "--out", out)
            run("anonymize", survey, *words, *options)
            picture = str(target / f"choosing-{method}.png")
            run(
                "picture",
                out,
                "--out",
                picture,
                "--style",
                "width=3.4",
                "--style",
                "dpi=110",
                "--title",
                method,
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Draw a release for a newspaper: PNG for the site, SVG for the graphics desk, and a caption that says what it shows.

    python examples/readers/newspaper.py release graphic

The caption states source, guarantee and what is missing, from the release itself. For a map that readers can move, take
the page's "embed" instead.
"""

import json
import subprocess
import sys
from pathlib import Path

release, graphic = map(Path, sys.argv[1:])
graphic.mkdir(exist_ok=True)
report = json.loads((release / "report.json").read_text(encoding="utf-8"))
about, published = report["statement"]["about"], report["published"]

title = f"{about['title']}: the largest flows"
for name in ("flows.png", "flows.svg"):
    picture = [sys.executable, "-m", "flowveil", "--quiet", "picture", release, "--out", graphic / name]
    # 8 inches at 150 dots an inch are 1,200 pixels, the width of a column on a large screen.
    style = ["--style", "lines=60", "--style", "width=8", "--style", "dpi=150", "--style", "zoom=2"]
    subprocess.run([*picture, "--show", "flows", "--title", title, *style], check=True)

caption = [
    f"{about['title']}: {published['trips']:,} trips between {published['origin_zones']} areas.",
    *(sentence for sentence in published["sentences"] if sentence.startswith(("Protected", "Incomplete"))),
    f"Source: {about['source']} ({about['licence']}), published with flowveil {report['version']}.",
]
(graphic / "caption.txt").write_text("\n".join(caption) + "\n", encoding="utf-8")
print("\n".join(caption))

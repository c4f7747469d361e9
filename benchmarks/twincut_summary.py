"""The summary of TwinCut's experiments, as Markdown; read from ``results/``, nothing is run.

The figures of ``benchmarks/results/methods.md`` are printed by this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

TABLE = Path(__file__).parent / "results" / "twincut-experiments.md"
TWINCUT, QUICK = "**TwinCut**", "TwinCut, no local search"
ODKANON, ATG, OIGH = "ODkAnon, volume budget", "ATG-Dual, best v_target (zones overlap)", "OIGH"
PROVEN = "*proven: no homogeneous map below*"


@dataclass(frozen=True)
class Setting:
    """One data set, k and limit: the error and the processor's seconds of every row that has an
    error."""

    data: str
    k: str
    limit: str
    error: dict[str, float]
    seconds: dict[str, float]

    def ratio(self, method: str, other: str) -> float:
        """How many times the error of the other one."""
        return self.error[method] / self.error[other]


def read_settings(text: str) -> list[Setting]:
    """The rows of the table, grouped."""
    found: dict[tuple[str, str, str], Setting] = {}
    data = ""
    for line in text.splitlines():
        if line.startswith("## "):
            data = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not re.match(r"\| \d+ \|", line):
            continue
        k, limit, method, error = cells[:4]
        setting = found.setdefault((data, k, limit), Setting(data, k, limit, {}, {}))
        if re.fullmatch(r"[\d,.]+", error):
            setting.error[method] = float(error.replace(",", ""))
            setting.seconds[method] = float(cells[-1])
    return list(found.values())


def _both(settings: list[Setting], *methods: str) -> list[Setting]:
    return [s for s in settings if all(method in s.error for method in methods)]


def _row(label: str, settings: list[Setting]) -> str:
    gaps = [s.ratio(TWINCUT, PROVEN) - 1 for s in _both(settings, TWINCUT, PROVEN)]
    within = f"{sum(gap <= 0.01 for gap in gaps)} of {len(gaps)}"
    cells = [label, within, f"{median(gaps):.1%}", f"{max(gaps):.1%}"]
    for method in (ODKANON, OIGH, ATG):
        cells.append(
            f"{median(s.ratio(method, TWINCUT) for s in _both(settings, TWINCUT, method)):.2f}"
        )
    return f"| {' | '.join(cells)} |"


def _rows(settings: list[Setting], title: str, key: Callable[[Setting], str]) -> Iterator[str]:
    yield (
        f"| {title} | within 1 % of the proven floor | median gap | widest gap | ODkAnon | OIGH |"
        " ATG-Dual |"
    )
    yield "|---|---|---|---|---|---|---|"
    for value in dict.fromkeys(map(key, settings)):
        yield _row(value, [s for s in settings if key(s) == value])
    yield _row("all", settings)


def main() -> None:
    settings = read_settings(TABLE.read_text(encoding="utf-8"))
    print(f"{len(settings)} settings of {len({s.data for s in settings})} data sets")
    for method in (ODKANON, OIGH, ATG, QUICK):
        both = _both(settings, TWINCUT, method)
        finer = sum(s.error[method] < s.error[TWINCUT] for s in both)
        print(f"{method}: finer than TwinCut in {finer} of {len(both)}")
    for method in (TWINCUT, QUICK, ODKANON, OIGH, ATG):
        seconds = [s.seconds[method] for s in _both(settings, method)]
        print(f"{method}: median {median(seconds):.1f} s, at most {max(seconds):.1f} s")
    gains = [1 - s.ratio(TWINCUT, QUICK) for s in _both(settings, TWINCUT, QUICK)]
    print(
        f"local search: median gain {median(gains):.1%}, largest {max(gains):.1%}, none in"
        f" {sum(g <= 0 for g in gains)}"
    )
    uniform = [s for s in settings if s.limit != "0%" and not s.data.startswith("Montpellier")]
    for label, some in (("all", settings), ("limit above 0, without Montpellier", uniform)):
        gaps = [s.ratio(TWINCUT, PROVEN) - 1 for s in some]
        near = ", ".join(
            f"{sum(gap <= most for gap in gaps)} within {most:.0%}" for most in (0.01, 0.1)
        )
        print(f"proven floor, {label}: {len(gaps)} settings, {near}, widest {max(gaps):.1%}")
    keys: dict[str, Callable[[Setting], str]] = {
        "at most suppressed": lambda s: s.limit,
        "data": lambda s: s.data,
    }
    for title, key in keys.items():
        print("", *_rows(settings, title, key), sep="\n")


if __name__ == "__main__":
    main()

"""Whether the tests notice when the guarantee, merging, withholding or the recount is wrong.

    python tests/mutants.py [--tests FOLDER] [--unchecked] [NAME ...]

Each mutant is one small mistake in a copy of `src`. The tests named beside it must pass without the mistake and fail
with it. Not collected by pytest: run it when tests are removed or merged, on the tests before (`--tests`) and after.
Where a text stands is looked up, so code may move. A text that is no longer in the source exactly once, a test file
that is gone and a run that does not get as far as its tests are errors, not kills.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"

#: What pytest returns.
PASSED, FAILED = 0, 1


@dataclass(frozen=True)
class Mutant:
    """A mistake, and the tests that must notice it.

    Attributes:
        name: what is wrong, in words.
        old: what the source says, exactly once in all its files.
        new: what it says instead.
        tests: files below the tests, and options of pytest.
    """

    name: str
    old: str
    new: str
    tests: tuple[str, ...]


CONTRACT = ("contract/test_methods.py", "-k", "twincut or odkanon or suppression")
PERSONS = ("unit/reading/test_persons.py",)
SLICES = ("unit/test_slices.py", "-k", "identifier or fifty or combinations")
HEADERS = ("unit/test_headers.py",)
DRAFTS = ("unit/test_output.py", "-k", "killed or draft")
STRICTER = ("unit/disclosure/test_stricter.py",)
DOMINANCE = ("unit/disclosure/test_dominance.py",)
REVISION = ("unit/release/test_revision.py",)
TOPDOWN = ("unit/methods/test_topdown_method.py", "unit/methods/test_topdown_audit.py")
PRIVTREE = ("unit/methods/test_privtree_method.py", "unit/methods/test_privtree_audit.py")
LEDGER = ("unit/series/test_ledger.py",)
UNFINISHED = ("unit/release/test_unfinished.py",)
FOLDERS = ("unit/release/test_read_folder.py",)
POPULATION = ("unit/verify/test_verify.py", "-k", "population")

MUTANTS = (
    # ---- the guarantee
    Mutant("k-1 trips", ".of(cells) >= least", ".of(cells) + 1 >= least", CONTRACT),
    Mutant("trips taken for people", "cells: cells.n_people()", "cells: cells.trips", CONTRACT),
    Mutant(
        "population threshold by flow",
        "return -(-k * total // int(np.sum(flows.trips))) / MILLION",
        "return -(-k * total // len(flows)) / MILLION",
        ("unit/test_guarantee.py",),
    ),
    # ---- merging
    Mutant("people counted twice", "key = np.compress(_first_of_runs(key), key)", "key = key.copy()", CONTRACT),
    Mutant(
        "counts without the last row",
        "np.bincount(row, weights=values",
        "np.bincount(row, weights=np.append(values[:-1], 0)",
        CONTRACT,
    ),
    Mutant(
        "weights that are not whole millionths",
        "    rounded = whole / MILLION\n",
        "    rounded = np.array(values)\n",
        ("unit/test_flows.py",),
    ),
    # ---- withholding
    Mutant(
        "one suppressed flow is disclosed",
        "\nFEWEST_SUPPRESSED = 3",
        "\nFEWEST_SUPPRESSED = 1",
        ("unit/disclosure/test_withholding.py",),
    ),
    Mutant(
        "less than a cell is disclosed",
        "or not _reaches(_asked_of_total(release), together)",
        "or not len(together)",
        ("unit/disclosure/test_withholding.py",),
    ),
    Mutant(
        "losses inside few cells are disclosed",
        "if few and sum(few) < FEWEST_MERGED",
        "if few and sum(few) < 0",
        ("unit/disclosure/test_withholding.py",),
    ),
    Mutant(
        "slices that withhold follow from the total",
        "matrices.finest if reasons[i] is not None]",
        "matrices.finest[:0] if reasons[i] is not None]",
        ("unit/release/test_sliced_release.py", "-k", "follow"),
    ),
    # ---- the recount
    Mutant(
        "verify: cells may hold more than is said",
        '"true_trips <> trips"',
        '"true_trips < trips"',
        ("unit/verify/test_verify.py",),
    ),
    Mutant(
        "verify: nobody is enough people",
        'f"coalesce({unit.recounted}, 0) < {literal(least)}"',
        'f"coalesce({unit.recounted}, 0) < {literal(0 if unit.members else least)}"',
        ("unit/verify/test_verify.py",),
    ),
    Mutant(
        "verify: hashes are not compared",
        "_sha256(place / name) != listed[name]",
        "listed[name] is None",
        ("unit/verify/test_verify.py",),
    ),
    Mutant(
        "verify: withheld measures may be any",
        "listed != {basis: sorted(_hidden(report, reasons, basis))",
        "listed == {basis: [reasons, _hidden]",
        ("unit/verify/test_verify_rendering.py", "-k", "withheld_is_what"),
    ),
    Mutant(
        "verify: what is withheld need not be listed",
        "named = name in listed.get(basis, ()) or",
        "named = name is not None or",
        ("unit/verify/test_verify_rendering.py", "-k", "is_listed"),
    ),
    # ---- who is a person, and what is a class
    Mutant("persons: case makes two of one", "return pc.ascii_lower(persons)", "return persons", PERSONS),
    Mutant(
        "persons: two spellings stay two rows of a flow",
        "self._as_persons = self._learn_names(",
        "self._as_persons = None is not self._learn_names(",
        ("unit/engines/test_duckdb.py", "-k", "spellings"),
    ),
    Mutant(
        "persons: rows of one are in two places of a cluster",
        "THEN {place} ELSE hash(person) END",
        "THEN {place} ELSE hash(person, origin) END",
        ("unit/engines/test_spark_parcels.py",),
    ),
    Mutant(
        "persons: those of several buckets are taken for the same",
        "n_persons, most = n_persons + most, 0",
        "n_persons, most = 0, 0",
        ("unit/engines/test_spark_parcels.py",),
    ),
    Mutant(
        "persons: one too few on a cluster is enough",
        "(persons >= self._least)",
        "(persons + 1 >= self._least)",
        ("contract/test_distant.py",),
    ),
    Mutant(
        "some of the rows pass for all",
        "        if self._given_up:\n",
        "        if False:\n",
        ("unit/engines/test_arriving.py",),
    ),
    Mutant(
        "a depth whose thread comes late counts persons twice",
        "        return copy(self)\n",
        "        return self\n",
        ("unit/methods/test_safe_pairs.py",),
    ),
    Mutant(
        "persons: placeholders are people",
        "WHEN regexp_full_match({lowered}, {_NOBODY}) THEN",
        "WHEN regexp_full_match({lowered}, {_NOBODY}) AND false THEN",
        PERSONS,
    ),
    Mutant(
        "persons: the release decides on case",
        "return person_case is None and made_with",
        "return person_case == 0 and made_with",
        PERSONS,
    ),
    Mutant("slices: any number of values", "n > MOST_VALUES or n * ROWS", "n * ROWS", SLICES),
    Mutant(
        "slices: values of few rows",
        "if n > MOST_VALUES or n * ROWS_PER_VALUE > rows}",
        "if n > MOST_VALUES}",
        SLICES,
    ),
    Mutant("slices: combinations of few rows", "if len(attributes) > 1 and", "if len(attributes) > 9 and", SLICES),
    # ---- what is quoted, written and left behind
    Mutant(
        "headers: data are quoted",
        "if any(_LIKE_DATA.search(name) for name in names if name.casefold() not in _PUBLIC):",
        "if any(_LIKE_DATA.search(name) is None for name in ()):",
        HEADERS,
    ),
    Mutant(
        "headers: names of people are quoted",
        "if any(_LIKE_A_NAME.match(name) for name in names if name not in known):",
        "if any(_LIKE_A_NAME.match(name) for name in ()):",
        HEADERS,
    ),
    Mutant(
        "headers: unknown words are quoted",
        "if 2 * sum(name in known or name in above for name in names) < len(names):",
        "if 2 * sum(name in known or name in above for name in names) < 0:",
        HEADERS,
    ),
    Mutant(
        "headers: what recurs below is quoted",
        "return any(name.casefold() in values for name in names)",
        "return any(name.casefold() in values for name in ())",
        HEADERS,
    ),
    Mutant(
        "spreadsheets: formulas run",
        "return _RISKY.sub(r\"\\1'\", text)",
        "return _RISKY.sub(r\"\\1\", text)",
        ("unit/publish/test_spreadsheets.py",),
    ),
    Mutant(
        "verify: spreadsheets may run formulas",
        """                written.append("'")\n""",
        """                written.append("")\n""",
        ("unit/publish/test_spreadsheets.py", "-k", "exports"),
    ),
    Mutant(
        "drafts of killed runs stay",
        "_put_back(room, name)\n                _remove(room)",
        "_put_back(room, name)",
        DRAFTS,
    ),
    Mutant(
        "drafts: a result moved aside is lost",
        "_put_back(room, name)\n                _remove(room)",
        "_remove(room)",
        DRAFTS,
    ),
    Mutant(
        "drafts of anybody are unpacked",
        "ours = plain and folder == os.lstat(room).st_ino and",
        "ours = plain and",
        DRAFTS,
    ),
    # ---- a population that is given
    Mutant(
        "a given population is called k",
        'return None if self.population_is_given and self.units == ("population",) else self.k',
        "return self.k",
        POPULATION,
    ),
    Mutant(
        "verify: any population is k",
        "weight = enough or _mean_population(flows, k) or math.inf",
        "weight = enough or 0",
        POPULATION,
    ),
    Mutant(
        "verify: a given population may be called k",
        'if guarantee.get("k") is not None:\n            yield',
        'if guarantee.get("k") == 0:\n            yield',
        POPULATION,
    ),
    # ---- rules after the method
    Mutant(
        "stricter: places ask for nothing",
        "short[here] |= ~guarantee.raised(",
        "short[here] &= ~guarantee.raised(",
        STRICTER,
    ),
    Mutant(
        "stricter: the destination asks for nothing",
        "asked = np.maximum(asked, of_node[zones.nodes[at]])",
        "asked = np.maximum(asked, of_node[zones.nodes[at]] * (zones is plan.origin_zones))",
        STRICTER,
    ),
    Mutant(
        "verify: cells may be dominated",
        "found = db.one(\"SELECT count(*) FROM cells SEMI JOIN dominated USING (a, b)\")\n    if found:",
        "found = db.one(\"SELECT count(*) FROM cells SEMI JOIN dominated USING (a, b)\")\n    if found < 0:",
        DOMINANCE,
    ),
    Mutant(
        "verify: cells around places may fall short",
        "    if short:\n        yield f\"flows.parquet: {short} cells around listed places",
        "    if short < 0:\n        yield f\"flows.parquet: {short} cells around listed places",
        STRICTER,
    ),
    Mutant("dominance: twice the share", "= largest > share *", "= largest / 2 > share *", DOMINANCE),
    Mutant(
        "dominance: one flow after the other",
        "np.maximum.at(largest, key // n_people, np.bincount(at, weights=people.trips))",
        "np.maximum.at(largest, cell[people.cell], people.trips)",
        DOMINANCE,
    ),
    # ---- revisions
    Mutant(
        "revision: any change is shown",
        "safe &= np.abs(grown[0]) >= guarantee.trips",
        "safe &= np.abs(grown[0]) >= 1",
        REVISION,
    ),
    Mutant(
        "revision: persons of a change are not counted",
        "safe &= self._most_of(self._persons(), guarantee.people - 1)[at] < grown[0]",
        "safe &= grown[0] >= guarantee.people",
        REVISION,
    ),
    Mutant(
        "revision: trips of nobody known are not counted",
        "return most + (self.cells.trips - known)",
        "return most + 0 * known",
        REVISION,
    ),
    Mutant(
        "revision: only the latest is subtracted",
        "    for published in chain:\n",
        "    for published in chain[-1:]:\n",
        REVISION,
    ),
    Mutant(
        "verify: any change may be shown",
        "terms.append(f\"abs({more}) >= {literal(claims.threshold('trips'))}\")",
        "terms.append(f\"abs({more}) >= 1\")",
        REVISION,
    ),
    Mutant(
        "verify: kept cells may have any value",
        "f\"NOT revised AND NOT coalesce({kept}, false)\"",
        "f\"NOT revised AND NOT coalesce({kept}, true) AND false\"",
        REVISION,
    ),
    # ---- what noise costs
    Mutant(
        "topdown: every step spends all",
        "part = share * Fraction(privacy.epsilon)",
        "part = Fraction(privacy.epsilon)",
        TOPDOWN,
    ),
    Mutant(
        "topdown: half of the Gaussian noise",
        "DiscreteGaussian(privacy.bound**2 / (2 * part))",
        "DiscreteGaussian(privacy.bound**2 / (4 * part))",
        TOPDOWN,
    ),
    Mutant(
        "topdown: the bound is forgotten",
        "DiscreteLaplace(privacy.bound / part), rounded_up",
        "DiscreteLaplace(1 / part), rounded_up",
        TOPDOWN,
    ),
    Mutant(
        "topdown: pairs that are there are opened",
        "    shown = trips > 0\n    return Cells(origin[shown], destination[shown], trips[shown])",
        "    shown = (trips > 0) | np.isin(wanted, key)\n"
        "    return Cells(origin[shown], destination[shown], trips[shown])",
        TOPDOWN,
    ),
    Mutant(
        "zcdp: more than is allowed",
        "rho = Fraction(low)\n    while True:",
        "return Fraction(2 * low)\n    while True:",
        ("unit/methods/test_discrete_gaussian.py", "unit/methods/test_topdown_method.py"),
    ),
    Mutant(
        "privtree: divisions at the price of one count",
        "privacy.bound * (2 * b - 1) / ((b - 1) * parts[0])",
        "privacy.bound / parts[0]",
        PRIVTREE,
    ),
    Mutant(
        "privtree: counts without the bound",
        "privacy.bound / parts[1]",
        "1 / parts[1]",
        PRIVTREE,
    ),
    Mutant(
        "privtree: divisions without noise",
        "divides[can] = lowered + noise.divisions.draw(int(can.sum()), bits) > noise.above",
        "divides[can] = lowered > noise.above",
        PRIVTREE,
    ),
    # ---- the ledger
    Mutant(
        "ledger: what is found is published",
        "if not audit.is_clean and not accept_differencing:",
        "if audit.unchecked and not accept_differencing:",
        LEDGER,
    ),
    Mutant(
        "ledger: nothing is recorded",
        "            if not known:\n                book.append(",
        "            if known:\n                book.append(",
        LEDGER,
    ),
    Mutant(
        "ledger: other words make other trips",
        "held = [replace(read, period=new.period) if at in same else read for at, read in known.items()]",
        "held = [read for at, read in known.items() if same is not None or at]",
        LEDGER,
    ),
    # ---- folders of somebody
    Mutant(
        "plans are kept where others can read them",
        "found.st_uid == os.getuid() and not found.st_mode & 0o077",
        "found.st_uid == os.getuid()",
        UNFINISHED,
    ),
    Mutant("links are followed", 'os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)', "os.O_RDONLY", FOLDERS),
    Mutant(
        "tables unpack to anything",
        "if table.metadata.num_rows > _ROWS + _ROWS_PER_BYTE * size:",
        "if table.metadata.num_rows < 0:",
        FOLDERS,
    ),
)  # fmt: skip


def places(text: str, source: Path) -> list[Path]:
    """The file of each place where a text stands in a source."""
    files = sorted((source / "flowveil").rglob("*.py"))
    return [file for file in files for _ in range(file.read_text(encoding="utf-8").count(text))]


def run(tests: Path, source: Path, chosen: tuple[str, ...]) -> tuple[int, str]:
    """Run tests against a source: what pytest returns, and the first test that fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *chosen]
    paths = os.pathsep.join(map(str, (source, tests)))
    done = subprocess.run(
        command, cwd=tests, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return done.returncode, failed[0] if failed else done.stdout[-500:] + done.stderr[-500:]


def copied(folder: str) -> Path:
    """A copy of the source, and proof that it is what a run imports."""
    source = Path(folder) / "src"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    found = subprocess.run(
        [sys.executable, "-c", "import flowveil; print(flowveil.__file__)"],
        env={**os.environ, "PYTHONPATH": str(source)}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    if not Path(found.strip()).is_relative_to(source):
        raise SystemExit(f"tests would import {found.strip()}, not the copy")
    return source


def kill(mutant: Mutant, tests: Path) -> bool:
    """Whether the tests of a mutant fail on it; says so."""
    with tempfile.TemporaryDirectory() as folder:
        source = copied(folder)
        (file,) = places(mutant.old, source)
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        code, failed = run(tests, source, mutant.tests)
    if code not in (PASSED, FAILED):
        raise SystemExit(f"{mutant.name}: pytest ended with {code}\n{failed}")
    print(
        f"{'killed' if code == FAILED else 'SURVIVED'}: {mutant.name}" + (f" ({failed[:160]})" if code else ""),
        flush=True,
    )
    return code == FAILED


def complain_of_moved_texts(mutants: list[Mutant], tests: Path) -> None:
    """Stop where a mutant no longer fits the source or the tests."""
    moved = []
    for mutant in mutants:
        n = len(places(mutant.old, SOURCE))
        if n != 1:
            moved.append(f"{mutant.name}: {n} times in the source: {mutant.old!r}")
        if not (tests / mutant.tests[0]).is_file():
            moved.append(f"{mutant.name}: there is no {mutant.tests[0]}")
    if moved:
        raise SystemExit("Mutants to be written anew:\n" + "\n".join(moved))


def main() -> int:
    """Run the mutants; 1 where one survives."""
    parser = argparse.ArgumentParser(description="Whether the tests notice small mistakes in the source.")
    parser.add_argument("--tests", type=Path, default=HERE, help="folder of the tests (default: these)")
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests without a mutant first")
    parser.add_argument("names", nargs="*", help="only these mutants (default: all)")
    asked = parser.parse_args()
    tests = asked.tests.resolve()
    mutants = [m for m in MUTANTS if not asked.names or m.name in asked.names]
    complain_of_moved_texts(mutants, tests)
    for chosen in () if asked.unchecked else dict.fromkeys(m.tests for m in mutants):
        code, failed = run(tests, SOURCE, chosen)
        if code != PASSED:
            raise SystemExit(f"{' '.join(chosen)} fails without a mutant: {failed}")
    survivors = [m.name for m in mutants if not kill(m, tests)]
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

"""Whether the tests notice small mistakes in the code that keeps the guarantee.

    python tests/mutants.py [NAME ...]

Each mutant replaces the body of one function in a copy of `src`. The tests listed with it must pass
on the unchanged copy and fail on the mutant. A function or test file that does not exist is an
error. Not collected by pytest: run it when tests are removed or merged.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent
SOURCE = TESTS.parent / "src"

#: Exit codes of pytest.
PASSED, FAILED = 0, 1


@dataclass(frozen=True)
class Mutant:
    """A mistake, and the tests that must notice it.

    Attributes:
        name: what is wrong.
        place: file below `src/flowveil`, and the function, with its class. If the function is not
            in that file, the one file of the package that has it is taken, so that files can be
            renamed and merged.
        body: the new body; ``correct`` is the correct function, to be called with the same
            arguments.
        tests: files below the tests, and options of pytest.
    """

    name: str
    place: str
    body: str
    tests: tuple[str, ...]


CONTRACT = (
    "contract/test_methods.py",
    "-k",
    "keep_the_promises and (suppression or odkanon) and not random",
)
GUARANTEE = ("unit/core/test_guarantee.py",)
FLOWS = ("unit/core/test_flows.py",)
BOUNDARY = ("unit/release/test_boundary.py",)
RECOUNT = ("unit/verify/test_recount.py",)
REBUILD = ("unit/verify/test_rebuild.py",)
DERIVE = ("unit/published/test_derive.py",)
REPORT = ("unit/published/test_report_json.py",)
LEDGER = ("unit/publishing/ledger/test_ledger_rule.py",)
NUMBERS = ("unit/core/test_values.py",)
FOLDS = ("unit/release/test_folded_attributes.py",)
ATTACKS = ("unit/analysis/test_attacks.py",)
LEDGER_FILE = ("unit/publishing/ledger/test_ledger_file.py",)

NOISE = ("unit/methods/test_posterior_audit.py",)
NOISE_OF_LAPLACE = ("unit/methods/test_laplace_audit.py",)

MUTANTS = (
    # ---- noise
    Mutant(
        "posterior: half of the noise",
        "methods/posterior.py:noisy_counts",
        "of_classes, of_pairs = (\n"
        "    DiscreteLaplace(distribution.scale / 2) for distribution in distributions\n"
        ")\n"
        "return correct(tables, districts, (of_classes, of_pairs), bits)",
        NOISE,
    ),
    Mutant(
        "posterior: half of the noise of slices",
        "methods/posterior.py:noisy_parts",
        "return correct(tables, pairs, DiscreteLaplace(distribution.scale / 2), bits)",
        (*NOISE, "-k", "slices"),
    ),
    Mutant(
        "laplace: half of the noise",
        "methods/laplace.py:noise_scale",
        "return correct(sensitivity, epsilon) / 2",
        NOISE_OF_LAPLACE,
    ),
    Mutant(
        "topdown: half of the noise",
        "methods/topdown.py:_noise_of_levels",
        "return correct(replace(privacy, epsilon=2 * privacy.epsilon), levels, shares)",
        ("unit/methods/test_topdown_audit.py",),
    ),
    Mutant(
        "privtree: half of the noise",
        "methods/privtree.py:_Budget.from_options",
        "doubled = replace(privacy, epsilon=2 * privacy.epsilon)\n"
        "return correct(doubled, budget, decay, divide_above)",
        ("unit/methods/test_privtree_audit.py", "-k", "keep_the_promise"),
    ),
    Mutant(
        "slices of noise: a person's trips are not bounded over all slices",
        "methods/noise_guarantee.py:bounded_trips",
        "return trips.astype(np.int64)",
        (*NOISE_OF_LAPLACE, "-k", "slices"),
    ),
    Mutant(
        "posterior: a person's trips are not bounded",
        "methods/noise_guarantee.py:bounded_trips",
        "return trips.astype(np.int64)",
        NOISE,
    ),
    # ---- guarantee
    Mutant(
        "half of k is enough",
        "guarantee.py:Guarantee.safe",
        "least = {name: value / 2 for name, value in self.thresholds.items()}\n"
        "return np.all([ALL_UNITS[name].of(cells) >= value for name, value in least.items()], "
        "axis=0)",
        CONTRACT,
    ),
    Mutant(
        "trips count as people",
        "flows.py:Cells.n_people",
        "return self.people and self.trips",
        GUARANTEE,
    ),
    Mutant(
        "half the population",
        "guarantee.py:_k_mean_weights",
        "return correct(flows, k) / 2",
        GUARANTEE,
    ),
    # ---- merge
    Mutant(
        "people counted twice",
        "flows.py:_first_of_runs",
        "return np.ones(len(ordered), dtype=bool)",
        FLOWS,
    ),
    Mutant(
        "one too many in a cell",
        "flows.py:Groups.sum",
        "return correct(self, values) + 1",
        CONTRACT,
    ),
    # ---- statement
    Mutant("shares are exact", "release/statement.py:round_share", "return float(share)", BOUNDARY),
    Mutant(
        "shares in steps of 1 %",
        "release/statement.py:share_step",
        "return _SMALLEST_STEP",
        BOUNDARY,
    ),
    # ---- boundary
    Mutant(
        "the mean weight of a trip is stated",
        "release/boundary.py:_guarantee_rule",
        "return release.guarantee.to_dict()",
        ("contract/test_layered.py", "-k", "population"),
    ),
    Mutant(
        "full pairs have a share that no others have",
        "release/boundary.py:_suppressed_share",
        "return round_share(suppressed / whole, step)",
        ("property/test_small_worlds.py", "-k", "suppression and large"),
    ),
    Mutant(
        "cells below the threshold are published",
        "publishing/publish.py:_recount",
        "return None",
        ("unit/published/test_folder.py",),
    ),
    # ---- means, totals and medians
    Mutant(
        "numbers: one contributor may stand out",
        "record_values.py:RecordValues._allowed",
        "return np.ones(n_cells, dtype=np.bool_)",
        (*NUMBERS, "-k", "small_worlds"),
    ),
    Mutant(
        "numbers: differences",
        "request/support.py:check",
        "return None",
        (*NUMBERS, "-k", "refuses"),
    ),
    Mutant(
        "recount: numbers",
        "verify/recount/values.py:compare",
        "return {}",
        (*NUMBERS, "-k", "recount_finds"),
    ),
    # ---- layers
    Mutant(
        "layers: rules on cells are ignored",
        "methods/layercut.py:_Layers._cells",
        "return correct(replace(self, cell_rule=None), rows, table, pairs)",
        ("property/test_layercut.py", "-k", "break_a_rule"),
    ),
    Mutant(
        "layers: thresholds of exactly k are called secret",
        "methods/pair_divisions.py:PairTable.refused_by",
        "return correct(self, None, words, step)",
        ("property/test_secret_thresholds.py", "-k", "row and not paircut and not districts"),
    ),
    Mutant(
        "layers: no secret amount",
        "core/secret_thresholds.py:SecretThresholds.amounts",
        "return np.zeros(len(nodes[0]), dtype=np.int64)",
        ("property/test_secret_thresholds.py", "-k", "geometric"),
    ),
    Mutant(
        "layers: sizes are those of seen tiles",
        "zoning/public_map.py:tiles_of_nodes",
        "return np.maximum(tree.leaf_stop - tree.leaf_start, 1).astype(np.float64)",
        ("property/test_secret_thresholds.py", "-k", "nothing_is_proven"),
    ),
    Mutant(
        "kept layers: trips of a short cell are lost",
        "methods/zones_of.py:MapCells.assign",
        "return correct(self, flows, guarantee, revise=True)",
        ("property/test_zones_of.py",),
    ),
    # ---- folds
    Mutant(
        "dimensions: few people",
        "methods/safe_pairs.py:_nameable",
        "return deep",
        (*FOLDS, "-k", "few_people"),
    ),
    Mutant(
        "dimensions: values",
        "dimensions.py:Dimension.leaves",
        "return np.zeros(len(labels), dtype=np.int32)",
        FOLDS,
    ),
    Mutant(
        "recount: people of combinations",
        "verify/recount/recount.py:_Recount._check_people_of_slices",
        "yield from ()",
        (*FOLDS, "-k", "weaker_rule"),
    ),
    Mutant(
        "recount: groups",
        "verify/recount/families.py:_groups_above",
        "return [value, *parents]",
        (*FOLDS, "-k", "every_case"),
    ),
    # ---- recount
    Mutant(
        "recount: nothing is short",
        "verify/recount/recount.py:_safe",
        "return counted['trips'] >= 0",
        RECOUNT,
    ),
    Mutant(
        "recount: cells are free",
        "verify/recount/recount.py:_Recount._check_cells",
        "yield from ()",
        RECOUNT,
    ),
    Mutant(
        "recount: shares are free",
        "verify/recount/recount.py:_Recount._check_shares",
        "yield from ()",
        RECOUNT,
    ),
    Mutant(
        "recount: people counted by row",
        "verify/recount/recount.py:_distinct",
        "kept = group >= 0\nreturn np.bincount(group[kept], minlength=n).astype(np.int64)",
        RECOUNT,
    ),
    Mutant(
        "recount: totals next to slices are free",
        "verify/recount/slices.py:find_slices",
        "try: return correct(release, trips)\n"
        "except FolderError: return np.zeros((1, len(trips.slices)), dtype=np.int32), "
        "np.zeros(len(release), dtype=np.int64), 1",
        ("unit/publishing/test_sliced_release.py",),
    ),
    Mutant(
        "recount: any guarantee will do",
        "verify/recount/inputs.py:check_guarantee",
        "yield from ()",
        RECOUNT,
    ),
    # ---- rebuild
    Mutant("rebuild: other bytes pass", "verify/rebuild.py:_same_bytes", "return True", REBUILD),
    Mutant(
        "rebuild: other values pass", "verify/rebuild.py:_compare_values", "yield from ()", REBUILD
    ),
    # ---- derive
    Mutant(
        "derive: different zones are added",
        "published/derive.py:_refuse_different_zones",
        "return None",
        DERIVE,
    ),
    Mutant(
        "derive: noise is understated",
        "published/derive.py:_statement",
        "return correct(source, table, how, merged=merged, most=1)",
        DERIVE,
    ),
    Mutant(
        "derive: a part of a zone is inside", "published/derive.py:_inside", "return cells", DERIVE
    ),
    Mutant(
        "schema: any report will do", "release/statement.py:_find_problem", "return None", REPORT
    ),
    # ---- figures of an audit
    Mutant(
        "linkage: no one is alone",
        "verify/audit/single_release.py:linkage",
        "return [type(one)(**{**vars(one), **dict( alone=0.0, raw_alone=0.0, below_k=0.0)})"
        " for one in correct(release, trips, sample=sample, seed=seed)]",
        ATTACKS,
    ),
    Mutant(
        "linkage: union for intersection",
        "verify/audit/single_release.py:_common",
        "return len(np.unique(np.concatenate(sets))) if sets else everybody",
        ATTACKS,
    ),
    Mutant(
        "membership: half of the advantage",
        "analysis/shadow_releases.py:_mean_interval",
        "return tuple(one / 2 for one in correct(advantages, tried))",
        ATTACKS,
    ),
    Mutant(
        "parts: nothing is proven",
        "verify/audit/parts.py:_parts",
        "return []",
        ATTACKS,
    ),
    # ---- ledger
    Mutant(
        "ledger: places are not compared",
        "publishing/ledger/trip_sketch.py:shares_trips",
        "return False",
        ("unit/publishing/ledger/test_trip_sketch.py",),
    ),
    Mutant(
        "ledger: the head is not signed",
        "publishing/ledger/ledger_file.py:_head_hmac",
        "return 'x'",
        LEDGER_FILE,
    ),
    Mutant(
        "numbers: values of persons",
        "core/values.py:RecordValues.refuse_values_of_persons",
        "return None",
        (*NUMBERS, "-k", "persons or person"),
    ),
    Mutant(
        "ledger: everything is disjoint",
        "publishing/ledger/trip_facts.py:shares_no_trip",
        "return True",
        LEDGER,
    ),
    Mutant(
        "ledger: spellings differ",
        "publishing/ledger/trip_facts.py:_canonical",
        "return value",
        LEDGER,
    ),
    Mutant(
        "ledger: withdrawn releases are forgotten",
        "publishing/ledger/ledger.py:_check",
        "book.entries[:] = [e for e in book.entries if not any('withdraws' in x for x in book.entries)]\n"
        "return correct(release, new, book)",
        LEDGER,
    ),
    Mutant(
        "ledger: lines are not chained",
        "publishing/ledger/ledger_file.py:_next_chain",
        "return 'x'",
        LEDGER_FILE,
    ),
    Mutant(
        "series: half a quarter is a quarter",
        "publishing/series/derived.py:complete_periods",
        "return {**correct(labels), **{label[:4]: [label] for label in labels}}",
        ("unit/publishing/series/test_series.py",),
    ),
)


def find(tree: ast.Module, function: str) -> tuple[ast.Module | ast.ClassDef, int] | None:
    """Returns the scope of a function and its position there; None if it does not exist."""
    *outer, name = function.split(".")
    scope: ast.Module | ast.ClassDef = tree
    for wanted in outer:
        inner = [
            node for node in scope.body if isinstance(node, ast.ClassDef) and node.name == wanted
        ]
        if not inner:
            return None
        scope = inner[0]
    places = [
        i
        for i, node in enumerate(scope.body)
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return (scope, places[0]) if places else None


def file_of(place: str, source: Path) -> Path:
    """Returns the file of a function: the one that is named, or the only one of its package that
    has the function."""
    name, _, function = place.partition(":")
    named = source / "flowveil" / name
    if named.is_file() and find(ast.parse(named.read_text(encoding="utf-8")), function):
        return named
    package = source / "flowveil" / name.rpartition("/")[0]
    files = [
        file
        for file in package.rglob("*.py")
        if find(ast.parse(file.read_text(encoding="utf-8")), function)
    ]
    if len(files) != 1:
        raise SystemExit(f"{place}: {len(files)} files have this function")
    return files[0]


def mutate(text: str, function: str, body: str) -> str:
    """Returns a source in which a function has another body, and the correct one is kept under
    another name."""
    tree = ast.parse(text)
    *outer, name = function.split(".")
    found = find(tree, function)
    assert found is not None, f"no function {function}"
    scope, at = found
    node = scope.body[at]
    assert isinstance(node, ast.FunctionDef)
    kept, wrong = copy.deepcopy(node), copy.deepcopy(node)
    kept.name = f"correct_{name}"
    wrong.body = ast.parse(body.replace("correct(", ".".join([*outer, kept.name]) + "(")).body
    scope.body[at : at + 1] = [kept, wrong]
    return ast.unparse(ast.fix_missing_locations(tree))


def run(source: Path, chosen: tuple[str, ...]) -> tuple[int, str]:
    """Runs tests against a source: the exit code of pytest, and the first test that fails."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        *chosen,
    ]
    paths = os.pathsep.join(map(str, (source, TESTS)))
    done = subprocess.run(
        command,
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return done.returncode, failed[0] if failed else done.stdout[-500:] + done.stderr[-500:]


def is_killed(mutant: Mutant, source: Path) -> bool:
    """Whether the tests of a mutant fail on it; prints the answer. The source is restored."""
    function, file = mutant.place.partition(":")[2], file_of(mutant.place, source)
    text = file.read_text(encoding="utf-8")
    try:
        file.write_text(mutate(text, function, mutant.body), encoding="utf-8")
        code, failed = run(source, mutant.tests)
    finally:
        file.write_text(text, encoding="utf-8")
    if code not in (PASSED, FAILED):
        raise SystemExit(f"{mutant.name}: pytest ended with {code}\n{failed}")
    print(
        f"{'killed' if code == FAILED else 'SURVIVED'}: {mutant.name}",
        failed[:160] if code else "",
        flush=True,
    )
    return code == FAILED


def main() -> int:
    """Runs the mutants; 1 if one survives."""
    parser = argparse.ArgumentParser(
        description="Whether the tests notice small mistakes in the source."
    )
    parser.add_argument("names", nargs="*", help="only these mutants (default: all)")
    names = parser.parse_args().names
    mutants = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        # With compiled functions, which are reused where a file is not changed.
        shutil.copytree(SOURCE, source)
        for chosen in dict.fromkeys(mutant.tests for mutant in mutants):
            code, failed = run(source, chosen)
            if code != PASSED:
                raise SystemExit(f"{' '.join(chosen)} fails without a mutant: {failed}")
        survivors = [mutant.name for mutant in mutants if not is_killed(mutant, source)]
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

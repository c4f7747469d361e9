"""A release folder: it appears whole and verified, or not at all.

The files are written into a draft beside the target (`flowveil.output`), read back and recounted against the input, and
only then renamed. What was there before is moved aside for that moment and put back if anything fails. Documents for
the data holder that belong to the release are written before it is verified, and take their places with it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from flowveil.disclosure.confirmation import weaker_in
from flowveil.errors import GuaranteeError, OutputError
from flowveil.output import Draft, Place, explained, real_place, sync_folder, try_place
from flowveil.paths import read_json
from flowveil.progress import log
from flowveil.publish.exports import Format, check_formats, parse_formats
from flowveil.publish.spreadsheets import write_csv
from flowveil.publish.tables import lookup_table
from flowveil.reading.limits import threads
from flowveil.release.release import Publishable
from flowveil.report.about import checked
from flowveil.report.html import render, tile_server
from flowveil.report.internal import check_place
from flowveil.report.own_lines import CONTEXT, own_lines, read_own_lines
from flowveil.report.summary import FORMAT, json_text, manifest, summarize
from flowveil.verify import verify_release
from flowveil.verify.files import LOOKUP
from flowveil.workers import run_in_background

MANIFEST = "manifest.json"
#: Fixed, because the size of row groups is part of the bytes.
ROWS_PER_GROUP = 1 << 20
#: What file managers leave behind; no reason to refuse a folder.
_LITTER = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})


def publish(
    release: Publishable,
    directory: str | PathLike[str],
    *,
    overwrite: bool = True,
    formats: str | Iterable[str] = (),
    basemap: str | None = None,
    context: str | PathLike[str] | None = None,
    replace_stronger: bool = False,
    private: Mapping[str, str] | None = None,
    before_it_appears: Callable[[Mapping[str, Any]], None] | None = None,
    **about: str | None,
) -> Path:
    """Write a release into a folder.

    Args:
        release: what to publish.
        directory: the folder: new, empty, or an earlier release; its parent must exist.
        overwrite: whether an earlier release may be replaced.
        formats: exports to write beside the tables; names of `flowveil.publish.exports.FORMATS`.
        basemap: address of a tile server for the report's optional background map.
        context: a GeoJSON file of outlines to draw on the report's maps; its lines and names are published.
        replace_stronger: confirms that an earlier release with a stronger guarantee may be replaced.
        private: documents of raw counts to write with it, by their file outside of the release; only their owner may
            read them. They and the release appear together or not at all.
        before_it_appears: called with the content of report.json when all is written and verified, just before it
            takes its place; if it raises, nothing is published.
        **about: what the release is about: ``title``, ``source``, ``period``, ``licence``, ``contact``.

    Returns:
        The folder.

    Raises:
        DataError: the file of outlines cannot be read or drawn.
        ParameterError: a format is not known, or cannot hold this release; the background map's address is not plain;
            the noise of a noisy release could be repeated.
        MissingExtraError: a format needs a library that is not installed.
        OutputError: the folder may not or cannot be written, or holds a release with a stronger guarantee. What was
            there is untouched.
        GuaranteeError: the files, read back and recounted, contradict the release. What was there is untouched.
    """
    release.check_publishable()
    log.info("Verifying and writing")
    _refuse_over_earlier(release, directory)
    basemap = tile_server(basemap)
    outlines = None if context is None else read_own_lines(context)
    said = checked(about)
    check_target(directory, overwrite=overwrite)
    wanted = _formats_of(release, formats)
    for path in private or ():
        check_place(path, release=directory)
    with explained(directory), ExitStack() as drafts:
        documents = [_begin_document(drafts, path, text) for path, text in (private or {}).items()]
        # A link to a folder stays a link: what it points to is replaced.
        draft = drafts.enter_context(Draft(directory))
        os.mkdir(draft.new)
        _draw_and_measure(release)
        report = summarize(
            release,
            formats=[f.name for f in wanted],
            basemap=basemap,
            outlines=outlines is not None,
            replace_stronger=replace_stronger,
            about=said,
        )
        if not replace_stronger:
            _refuse_weaker(directory, report)
        _write_files(release, draft.new, wanted, json_text(report), outlines)
        _check_draft(release, draft.new, directory)
        # The run was long: somebody may have put something there since the first look.
        check_target(directory, overwrite=overwrite)
        if not replace_stronger:
            _refuse_weaker(directory, report)
        if before_it_appears is not None:
            before_it_appears(report)
        for begun in (*documents, draft):
            begun.take_place()
    return Path(directory)


def _refuse_over_earlier(release: Publishable, directory: Place) -> None:
    """Refuse a revision in the place of what it revises: without that, nobody could verify it or revise it again."""
    revision = getattr(release, "revision", None)
    if revision is not None and real_place(directory) in [real_place(f.path) for f in revision.earlier.folders]:
        raise OutputError(f"'{directory}' is the release that is revised; both are needed. Hint: name a new folder.")


def _draw_and_measure(release: Publishable) -> None:
    """Draw the zones while the measures are taken: both are kept with the release, and asked for later."""
    if release.kind != "plain" or getattr(release, "revision", None) is not None:
        return
    with run_in_background(lambda: release.zones, threads=threads()) as drawn:
        for _, part in release.parts:
            part.metrics()
        drawn()


def _formats_of(release: Publishable, formats: str | Iterable[str]) -> tuple[Format, ...]:
    """The exports that are asked for, all of which can hold this release."""
    wanted = parse_formats(formats)
    if not wanted:
        return ()
    zones = release.zones
    check_formats(
        wanted,
        zones=len(zones),
        mapped=zones["lat"].null_count < len(zones),
        sliced=bool(release.slice_columns),
        folded=release.kind == "folded",
        revised=getattr(release, "revision", None) is not None,
    )
    return wanted


def _begin_document(drafts: ExitStack, path: str, document: str) -> Draft:
    draft = drafts.enter_context(Draft(path))
    draft.write_file(document, private=True)
    return draft


def _check_draft(release: Publishable, draft: Path, directory: Place) -> None:
    plan = next((part.plan for _, part in release.parts), None)
    frozen, places = (None, None) if plan is None else (plan.frozen, plan.stricter)
    revision = getattr(release, "revision", None)
    earlier = None if revision is None else [folder.path for folder in revision.earlier.folders]
    findings = verify_release(draft, release.input, law=False, zones_of=frozen, stricter=places, revision=earlier)
    if findings:
        raise GuaranteeError(
            f"The release for '{directory}' was written and read back, but a recount contradicts it; "
            "nothing was published:\n" + "\n".join(f"- {finding}" for finding in findings),
            findings=findings,
        )


def check_target(directory: str | PathLike[str], *, overwrite: bool = True) -> None:
    """Refuse a folder that may not be written, before anything is computed.

    Raises:
        OutputError: it is a file, it holds something else than a release, it is a release and ``overwrite``
            is False, its name cannot be, or its parent is missing or not writable.
    """
    target = real_place(directory)
    if target.exists():
        if not target.is_dir():
            raise OutputError(f"'{directory}' is a file; a folder is needed. Hint: name a new folder.")
        _check_content(directory, target, overwrite=overwrite)
    try_place(directory)


def _check_content(directory: str | PathLike[str], target: Path, *, overwrite: bool) -> None:
    try:
        found = {entry.name for entry in os.scandir(target)} - _LITTER
    except OSError as problem:
        raise OutputError(f"'{directory}' cannot be read: {problem.strerror}.") from problem
    if not found:
        return
    listed = _files_of_release(target)
    if listed is None:
        raise OutputError(
            f"'{directory}' is not empty and holds no release of flowveil ({len(found)} entries found); "
            "only a new folder, an empty one or an earlier release is written to. Hint: name a new folder."
        )
    if not overwrite:
        raise OutputError(f"'{directory}' holds a release already, and it may not be overwritten.")
    strangers = sorted(found - listed)
    if strangers:
        shown = ", ".join(f"'{name}'" for name in strangers[:5])
        raise OutputError(
            f"'{directory}' holds a release and {len(strangers)} entries that are not part of it ({shown}); "
            "replacing the release would delete them. Hint: move them away, or name a new folder."
        )


def _refuse_weaker(directory: Place, report: Mapping[str, Any]) -> None:
    """Refuse to replace a release whose guarantee is stronger, or cannot be read.

    Raises:
        OutputError: the release that is there promises more than this one.
    """
    target = real_place(directory)
    if not (target / MANIFEST).exists():
        return
    try:
        weaker = weaker_in(read_json(target / "report.json"), report)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        weaker = ["a guarantee that cannot be compared: that of the earlier release cannot be read"]
    if weaker:
        raise OutputError(
            f"'{directory}' holds a release with a stronger guarantee; the new one would have {', '.join(weaker)}. "
            "Nothing was changed. Hint: name a new folder; if you mean it, confirm it with --replace-stronger "
            "(replace_stronger=True)."
        )


def _files_of_release(folder: Path) -> set[str] | None:
    """The files that a manifest of ours lists, itself included; None where there is no such manifest."""
    try:
        content = read_json(folder / MANIFEST)
        if content["format"] != FORMAT:
            return None
        return {MANIFEST, *map(str, content["sha256"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_files(
    release: Publishable,
    folder: Path,
    formats: Sequence[Format],
    said: str,
    outlines: str | None,
) -> None:
    # The page is made from what the file says, to the order of its entries: whoever reads it can make the page again.
    report = json.loads(said)
    drawn = () if outlines is None else own_lines(outlines)
    content: dict[str, Callable[[IO[bytes]], None]] = {
        "flows.parquet": lambda file: _write_parquet(release.flows, file),
        "zones.parquet": lambda file: _write_parquet(release.zones, file),
        "report.json": lambda file: _write_text(said, file),
        "report.html": lambda file: _write_text(render(report, release.flows, release.zones, outlines=drawn), file),
    }
    if outlines is not None:
        content[CONTEXT] = lambda file: _write_text(outlines, file)
    lookup = lookup_table(release)
    if lookup is not None:
        content[LOOKUP] = lambda file: write_csv(lookup, file)
    for name, write in content.items():
        _write_file(folder / name, write)
    for wanted in formats:
        wanted.write(folder, release.flows, release.zones, report["about"])
    names = [*content, *(name for wanted in formats for name in wanted.files)]
    for name in names[len(content) :]:
        _sync_file(folder / name)
    sha256 = {name: _sha256(folder / name) for name in names}
    _write_file(folder / MANIFEST, lambda file: _write_text(json_text(manifest(report, sha256)), file))
    sync_folder(folder)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_file(path: Path) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def _write_file(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    with open(path, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def _write_parquet(table: pa.Table, file: IO[bytes]) -> None:
    pq.write_table(table, file, row_group_size=ROWS_PER_GROUP, compression="zstd", version="2.6")


def _write_text(text: str, file: IO[bytes]) -> None:
    file.write(text.encode("utf-8"))

"""Publishing a release: written to a draft, recounted from the files, then renamed.

A crash leaves the old release or none. What was in the folder before is put back if anything fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from flowveil.core.errors import GuaranteeError, OutputError
from flowveil.published.about import checked
from flowveil.published.exports import parse_formats
from flowveil.published.folder import FolderContent, check_target, refuse_weaker, write_files
from flowveil.published.html import tile_server
from flowveil.published.user_outlines import read_own_lines
from flowveil.release.boundary import to_published
from flowveil.release.counts import Publishable
from flowveil.system.output import Draft, Place, explained, real_place
from flowveil.system.progress import log
from flowveil.verify.from_flows import recount_flows


def publish(
    release: Publishable,
    directory: str | PathLike[str],
    *,
    overwrite: bool = True,
    replace_stronger: bool = False,
    before_rename: Callable[[Path], None] | None = None,
    **writing: Any,
) -> Path:
    """Writes a release into a folder; after any error what was there is untouched.

    Arguments are those of `Release.write`; ``writing`` goes to `folder_content`. ``before_rename``
    is called with the draft of the folder when all is written and recounted; if it raises, nothing
    is published. GuaranteeError: the recount contradicts the release.
    """
    release.check_publishable()
    log.info("Writing and recounting")
    revision = getattr(release, "revision", None)
    if revision is not None and real_place(directory) in [
        real_place(f.path) for f in revision.earlier.folders
    ]:
        raise OutputError(
            f"'{directory}' is the release that is revised; both are needed. Hint: name a new"
            " folder."
        )
    content = folder_content(release, **writing)
    # Outlines are drawn once: zones depend neither on texts nor on formats.
    vars(release)["zones"] = content.zones
    check_target(directory, overwrite=overwrite)
    content.formats()
    # A link to a folder stays a link: what it points to is replaced.
    with explained(directory), Draft(directory) as draft:
        os.mkdir(draft.new)
        if not replace_stronger:
            refuse_weaker(directory, content.report)
        write_files(content, draft.new)
        _recount(release, draft.new, directory)
        # The target may have changed during a long run.
        check_target(directory, overwrite=overwrite)
        if not replace_stronger:
            refuse_weaker(directory, content.report)
        if before_rename is not None:
            before_rename(draft.new)
        draft.take_place()
    return Path(directory)


def folder_content(
    release: Publishable,
    *,
    formats: str | Iterable[str] = (),
    basemap: str | None = None,
    context: str | PathLike[str] | None = None,
    **about: str | None,
) -> FolderContent:
    """Returns the tables, report and page that `publish` would write."""
    published = to_published(
        release,
        about=checked(about),
        formats=[f.name for f in parse_formats(formats)],
        basemap=tile_server(basemap),
        outlines=None if context is None else read_own_lines(context),
    )
    return FolderContent(published)


def _recount(release: Publishable, draft: Path, directory: Place) -> None:
    """Recounts the written files from the flows."""
    plan = next((part.plan for _, part in release.parts), None)
    revision = getattr(release, "revision", None)
    result = recount_flows(
        draft,
        release.input,
        zones_of=None if plan is None else plan.frozen,
        stricter=None if plan is None else plan.stricter,
        revision=() if revision is None else [folder.path for folder in revision.earlier.folders],
        test_noise=False,
    )
    if result.findings:
        raise GuaranteeError(
            f"The release for '{directory}' was written, but a recount of the files contradicts it;"
            " nothing was published:\n" + "\n".join(f"- {finding}" for finding in result.findings),
            findings=list(result.findings),
        )

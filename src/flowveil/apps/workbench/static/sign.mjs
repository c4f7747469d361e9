/* Steps 4 and 5: the statement of a release is read, ticked and signed; then the release is published. */

import {
  $,
  $$,
  button,
  figuresInto,
  fill,
  listOf,
  make,
  pageWords,
  share,
} from "./dom.mjs";
import {
  fits,
  jobsOf,
  lastDone,
  onState,
  post,
  resultOf,
  session,
  start,
  startWith,
} from "./session.mjs";
import { keep } from "./choices.mjs";

const FILES = {
  analysis: "Operator's analysis (private)",
  dpia: "DPIA text (private)",
  derive: "Derived table",
};
/* Milliseconds without a key after which a name is kept. */
const REST = 400;

export function mountSign(isHere, go) {
  let shown = "";
  let failed = "";
  let listed = "";
  let listedReleases = "";
  let sentence = "";
  let rest = 0;
  let noting = 0;
  let noted = "";

  for (const field of $$("section[data-step=sign] [data-choice]"))
    field.addEventListener("change", () => keep().catch(() => {}));
  $("#signer").addEventListener("input", () => {
    allow();
    showSentence();
    clearTimeout(rest);
    rest = setTimeout(note, REST);
  });
  $("#check").addEventListener("click", async () => {
    try {
      await keep();
      await start("check");
    } catch {
      /* the page shows why */
    }
  });
  $("#go").addEventListener("click", async () => {
    const content = {
      read: allTicked(),
      accepted: accepted(),
      signer: $("#signer").value,
    };
    try {
      await post("/api/publish", content);
      go("publish");
    } catch {
      /* the page shows why */
    }
  });

  const accepted = () => $("#accept")?.checked ?? false;
  const ticks = () => $$(".ticks input", $("#checked"));
  const allTicked = () =>
    ticks().length > 0 && ticks().every((tick) => tick.checked);
  /* Ticks and the name survive a reload. */
  async function note() {
    rest = 0;
    noting++;
    const kept = ticks().filter((tick) => tick.checked);
    const content = {
      ticks: kept.map((tick) => tick.value),
      accepted: accepted(),
      signer: $("#signer").value,
    };
    noted = JSON.stringify(content);
    await post("/api/signing", content).catch(() => {});
    noting--;
  }
  /* What another tab, or this one before a reload, has ticked. */
  function showSigning() {
    const { signing } = session.state;
    if (rest || noting || JSON.stringify(signing) === noted) return;
    for (const tick of ticks())
      tick.checked = signing.ticks.includes(tick.value);
    if ($("#accept")) $("#accept").checked = signing.accepted;
    $("#signer").value = signing.signer;
    if (shown) noted = JSON.stringify(signing);
  }
  function allow() {
    const isAccepted = !$("#accept") || accepted();
    $("#go").disabled =
      !allTicked() || !$("#signer").value.trim() || !isAccepted;
  }
  function showSentence() {
    const name = $("#signer").value.trim();
    $("#sentence").textContent = sentence + (name ? ` Signed by ${name}.` : "");
  }

  onState(async (state) => {
    showChoice(state);
    showEarlier(state);
    const job = jobsOf("check").at(-1);
    const done = lastDone("check", fits("cells"));
    if (job?.state === "failed" && job.id !== failed) {
      failed = job.id;
      shown = "";
      fill($("#checked"), make("p", pageWords(job.error), "notice"));
    }
    if (done && done === job) {
      if (done.id !== shown) {
        shown = done.id;
        const found = await resultOf(done);
        if (found) showCheck(found);
      }
    } else if (job?.state !== "failed") {
      shown = "";
      if ($("#checked").children.length) fill($("#checked"));
    }
    $("#signature").hidden = !shown;
    showSigning();
    showSentence();
    allow();
    showReleases(state);
  });

  function showChoice(state) {
    const { choices, files, unavailable, defaults } = state;
    if (!files.trips) {
      $("#chosen").textContent = "No trips yet.";
      return;
    }
    const method =
      choices.method ?? `the recommended method (${defaults.method})`;
    const k =
      "k" in unavailable
        ? ""
        : `, every cell covers at least ${choices.k ?? 10}`;
    const most = choices.max_suppressed ?? defaults.max_suppressed;
    const limit =
      "k" in unavailable ? "" : `, at most ${share(most)} suppressed`;
    $("#chosen").textContent = `${files.trips.name}, by ${method}${k}${limit}.`;
  }
  function showEarlier(state) {
    $("#ledger-state").textContent = state.ledger
      ? `The ledger ${state.ledger} is checked too, and will record this one.`
      : "Without a ledger they are unknown to the next start: choose one on the first screen.";
    const key = state.releases.map((release) => release.id).join();
    if (key === listed && $("#earlier").children.length) return;
    listed = key;
    const items = state.releases.map(earlier);
    fill(
      $("#earlier"),
      ...(items.length ? items : [make("li", "None.", "soft")]),
    );
  }
  function earlier(release) {
    const text = release.own
      ? `${release.title} (of this workbench)`
      : release.title;
    const item = make("li", text);
    if (!release.own)
      item.append(
        " ",
        button(
          "Remove",
          () => post("/api/remove-release", { id: release.id }),
          {
            "aria-label": `Remove ${release.title}`,
          },
        ),
      );
    return item;
  }

  function showCheck(found) {
    const figures = make("dl", "", "figures");
    figuresInto(figures, found.figures);
    sentence = found.sentence;
    noted = "";
    fill(
      $("#checked"),
      figures,
      make("h3", "What is protected"),
      tickList(found.protected, ""),
      make("h3", "What is not protected"),
      tickList([...found.not_protected, ...found.rest], " warn"),
      ...comparison(found.audit),
    );
    for (const box of $$("input", $("#checked")))
      box.addEventListener("change", () => {
        allow();
        note();
      });
  }
  function comparison(audit) {
    const parts = [make("h3", "Compared with earlier releases")];
    const ledger = audit.ledger ?? 0;
    const others = [
      ...audit.compared,
      ...(ledger ? [`${ledger} of the ledger`] : []),
    ];
    const missing = audit.not_compared;
    if (!others.length) parts.push(make("p", "No earlier release is known."));
    else if (missing.length)
      parts.push(
        make(
          "p",
          `${audit.verdict || "Not everything could be compared"}. Not compared:`,
          "notice",
        ),
        listOf(missing),
      );
    else if (!audit.failures.length)
      parts.push(
        make(
          "p",
          `${audit.verdict || "Nothing was found"}. Compared with: ${others.join(", ")}.`,
        ),
      );
    if (audit.budget) parts.push(make("p", budgetText(audit.budget)));
    for (const line of audit.failures)
      parts.push(make("p", pageWords(line), "notice"));
    if (audit.lines.length) {
      const more = make("details");
      more.append(make("summary", "What was computed"), listOf(audit.lines));
      parts.push(more);
    }
    if (audit.failures.length || missing.length) {
      const label = make("label", "", "check");
      const text = audit.failures.length
        ? " I publish although readers can compute this."
        : " I publish although not everything was compared.";
      label.append(
        make("input", "", "", { type: "checkbox", id: "accept" }),
        make("span", text),
      );
      parts.push(label);
    }
    return parts;
  }
  function budgetText({ releases, epsilon, epsilon_total: total }) {
    const earlier = `${releases} earlier noisy release${releases === 1 ? "" : "s"}`;
    const allowed = total === null ? "" : ` of ${total} allowed`;
    return `With ${earlier} of the ledger, ε is ${epsilon}${allowed}.`;
  }
  function tickList(lines, kind) {
    const list = make("ul", "", `ticks${kind}`);
    for (const [head, text] of lines) {
      const item = make("li");
      const label = make("label");
      const line = make("span");
      if (head) line.append(make("strong", `${head}: `));
      line.append(head ? text : text[0].toUpperCase() + text.slice(1));
      label.append(
        make("input", "", "", { type: "checkbox", value: `${head}: ${text}` }),
        line,
      );
      item.append(label);
      list.append(item);
    }
    return list;
  }

  function publishingText(job, mine) {
    if (!job)
      return mine.length ? "" : "Nothing is published yet. Sign off first.";
    if (job.state === "failed") return pageWords(job.error);
    if (job.state === "cancelled") return "Cancelled. Nothing was published.";
    return job.state === "done"
      ? "Done: written, read back, and recounted from your file."
      : `${job.label || "Starting"} …`;
  }
  function showReleases(state) {
    const job = jobsOf("publish").at(-1);
    const mine = state.releases.filter((release) => release.own);
    const at = $("#publishing");
    at.classList.toggle("notice", job?.state === "failed");
    at.textContent = publishingText(job, mine);
    const key = mine.map((release) => release.id).join();
    if (key !== listedReleases) {
      listedReleases = key;
      fill($("#releases"), ...mine.map(releaseBox).toReversed());
    }
    for (const release of mine) showFiles(release);
  }
  /* Links to the files that jobs on a release have made. */
  function showFiles(release) {
    const at = $(`[data-files="${release.id}"]`);
    const done = Object.keys(FILES)
      .map((kind) =>
        lastDone(kind, (job) => job.request.release === release.id),
      )
      .filter(Boolean);
    const key = done.map((job) => job.id).join();
    if (at.dataset.jobs === key) return;
    at.dataset.jobs = key;
    const links = done.map((job) =>
      make("a", `Download: ${FILES[job.kind]}`, "button", {
        href: `/api/jobs/${job.id}/file`,
        download: "",
      }),
    );
    fill(at, ...links);
  }
  function releaseBox(release, index) {
    const box = make("div", "", "release");
    const link = (text, file, more = {}) =>
      make("a", text, "button", {
        href: `/releases/${release.id}/${file}`,
        ...more,
      });
    const saved = (text, file) => link(text, file, { download: file });
    const first = make("p", "", "next");
    const zip = saved("Download as zip", "release.zip");
    zip.classList.add("primary");
    const report = link("Open the report", "report.html", {
      target: "_blank",
      rel: "noopener",
    });
    const certificate = saved("Certificate (private)", "certificate.html");
    first.append(
      zip,
      " ",
      report,
      " ",
      certificate,
      " ",
      saved("Recipe", "recipe.toml"),
    );
    const more = make("p", "", "next");
    for (const kind of ["analysis", "dpia"])
      more.append(
        button(FILES[kind], () => startWith(kind, { release: release.id })),
        " ",
      );
    more.append(
      button("The same for another file", async () => {
        await post("/api/same-again", { id: release.id });
        go("drop");
      }),
    );
    box.append(
      make("h3", release.title),
      make("p", release.sentence, "sentence"),
      first,
      more,
      make("p", "", "next", { "data-files": release.id }),
      deriveForm(release),
      programs(release, index + 1),
    );
    return box;
  }
  /* The command line and the lines of Python that make the same release. */
  function programs(release, number) {
    const around = make("details");
    const note = release.noisy
      ? "The same mechanism again, with new draws of noise:"
      : "The same release again, byte by byte:";
    around.append(make("summary", "For programmers"), make("p", note, "soft"));
    const texts = { "command line": release.command, Python: release.python };
    for (const [name, text] of Object.entries(texts)) {
      const label = `${name} of release ${number}, ${release.title}`;
      const copy = button(`Copy the ${name}`, async () => {
        await navigator.clipboard.writeText(text);
        copy.textContent = "Copied";
        setTimeout(() => {
          copy.textContent = `Copy the ${name}`;
        }, 1500);
      });
      const more = { tabindex: "0", "aria-label": label, role: "region" };
      around.append(make("pre", text, "", more), copy);
    }
    return around;
  }
  /* A second table is derived from the published one, so it reveals nothing new. */
  function deriveForm(release) {
    const form = make("details");
    const tools = make("div", "", "tools");
    const label = make("label", "Coarser zones: H3 resolution");
    const level = make("input", "", "", { type: "number", min: 0, max: 15 });
    label.append(level);
    const sums = release.slice_columns.map((name) => {
      const field = make("label", "", "check");
      const box = make("input", "", "", { type: "checkbox", value: name });
      field.append(box, make("span", ` Add up over ${name}`));
      return field;
    });
    const derive = button("Derive", () =>
      startWith("derive", {
        release: release.id,
        derive: {
          level: level.value === "" ? null : +level.value,
          sum: $$("input:checked", form).map((box) => box.value),
        },
      }),
    );
    tools.append(label, ...sums, derive);
    const why =
      "Computed from the published table alone, so it reveals nothing new.";
    form.append(
      make("summary", "Derive a second table"),
      make("p", why, "soft"),
      tools,
    );
    return form;
  }
}

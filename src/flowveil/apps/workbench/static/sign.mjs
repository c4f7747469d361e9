/* Steps 6 and 7: the statement of a release is read, ticked and signed; then the release is published. */

import { $, $$, cellChoices, figuresInto, fill, make, pageWords, same, share } from "./dom.mjs";
import { isOver, jobsOf, lastDone, onState, post, resultOf, session, start, startWith } from "./session.mjs";
import { keep } from "./choices.mjs";
import { isNoisy } from "./availability.mjs";

const FILES = { analysis: "Operator's analysis (private)", dpia: "DPIA text (private)", derive: "Derived table" };

export function mountSign(isHere, go) {
  let shown = "", failed = "", listedReleases = "";

  for (const field of $$("section[data-step=sign] [data-choice]")) field.addEventListener("change", () => keep().catch(() => {}));
  $("#signer").addEventListener("input", () => { allow(); showSentence(); });
  $("#check").addEventListener("click", async () => { try { await keep(); await start("check"); } catch { /* the page shows why */ } });
  $("#go").addEventListener("click", async () => {
    const content = { read: allTicked(), accepted: $("#accept")?.checked ?? false, signer: $("#signer").value };
    try { await post("/api/publish", content); go("publish"); } catch { /* the page shows why */ }
  });
  const allTicked = () => { const ticks = $$(".ticks input", $("#checked")); return ticks.length > 0 && ticks.every((t) => t.checked); };
  /* A check stays valid when the description or the formats change. */
  const fits = (job) => same(cellChoices(job.request), cellChoices(session.state.choices));

  onState(async (state) => {
    const c = state.choices, limit = c.max_suppressed === undefined ? "" : `, at most ${share(c.max_suppressed)} suppressed`;
    $("#chosen").textContent = state.files.trips ? `${c.method ?? "Recommended method"} on ${state.files.trips.name}${isNoisy(c.method) ? "" : `, every cell covers at least ${c.k ?? 10}${limit}`}.` : "No trips yet.";
    showEarlier(state);
    const job = jobsOf("check").at(-1), done = lastDone("check", fits);
    if (job?.state === "failed" && job.id !== failed) { failed = job.id; shown = ""; fill($("#checked"), make("p", pageWords(job.error), "notice")); }
    if (done && done === job) {
      if (done.id !== shown) { shown = done.id; const found = await resultOf(done); if (found) showCheck(found); }
    } else if (job?.state !== "failed") { shown = ""; if ($("#checked").children.length) fill($("#checked")); }
    $("#signature").hidden = !shown;
    allow();
    showReleases(state);
  });
  const allow = () => { const accept = $("#accept"); $("#go").disabled = !allTicked() || !$("#signer").value.trim() || (accept ? !accept.checked : false); };

  let listed = "", sentence = "";
  const showSentence = () => { const name = $("#signer").value.trim(); $("#sentence").textContent = sentence + (name ? ` Signed by ${name}.` : ""); };
  function showEarlier(state) {
    $("#ledger-state").textContent = state.ledger ? `The ledger ${state.ledger} is checked too, and will record this one.` : "Without a ledger they are unknown to the next start: use --ledger FOLDER to record them.";
    const key = state.releases.map((r) => r.id).join();
    if (key === listed && $("#earlier").children.length) return;
    listed = key;
    fill($("#earlier"), ...(state.releases.length ? state.releases.map(earlier) : [make("li", "None.", "soft")]));
  }
  function earlier(r) {
    const item = make("li", r.own ? `${r.title} (of this workbench)` : r.title);
    if (!r.own) {
      const remove = make("button", "Remove", "", { type: "button", "aria-label": `Remove ${r.title}` });
      remove.addEventListener("click", () => post("/api/remove-release", { id: r.id }).catch(() => {}));
      item.append(" ", remove);
    }
    return item;
  }

  function showCheck(found) {
    const figures = make("dl", "", "figures");
    figuresInto(figures, found.figures);
    sentence = found.sentence;
    showSentence();
    fill($("#checked"), figures, make("h3", "What is protected"), ticks(found.protected, ""), make("h3", "What is not protected"), ticks([...found.not_protected, ...found.rest], " warn"), ...comparison(found.audit));
    for (const box of $$("input", $("#checked"))) box.addEventListener("change", allow);
    allow();
  }
  function comparison(audit) {
    const parts = [make("h3", "Compared with earlier releases")];
    const ledger = audit.ledger ?? 0, others = [...audit.compared, ...(ledger ? [`${ledger} of the ledger`] : [])];
    if (!others.length) parts.push(make("p", "No earlier release is known."));
    else if (audit.not_compared.length) parts.push(make("p", `${audit.verdict || "Not everything could be compared"}. Not compared:`, "notice"), listOf(audit.not_compared));
    else if (!audit.failures.length) parts.push(make("p", `${audit.verdict || "Nothing was found"}. Compared with: ${others.join(", ")}.`));
    const spent = audit.budget, n = spent?.releases;
    if (spent) parts.push(make("p", `With ${n} earlier noisy release${n === 1 ? "" : "s"} of the ledger, ε is ${spent.epsilon}${spent.epsilon_total === null ? "" : ` of ${spent.epsilon_total} allowed`}.`));
    for (const line of audit.failures) parts.push(make("p", pageWords(line), "notice"));
    if (audit.lines.length) {
      const more = make("details");
      more.append(make("summary", "What was computed"), listOf(audit.lines));
      parts.push(more);
    }
    if (audit.failures.length || audit.not_compared.length) {
      const label = make("label", "", "check"), box = make("input", "", "", { type: "checkbox", id: "accept" });
      label.append(box, make("span", audit.failures.length ? " I publish although readers can compute this." : " I publish although not everything was compared."));
      parts.push(label);
    }
    return parts;
  }
  function listOf(lines) {
    const list = make("ul");
    for (const line of lines) list.append(make("li", line));
    return list;
  }
  function ticks(lines, kind) {
    const list = make("ul", "", `ticks${kind}`);
    for (const [head, text] of lines) {
      const item = make("li"), label = make("label"), line = make("span");
      if (head) line.append(make("strong", `${head}: `));
      line.append(head ? text : text[0].toUpperCase() + text.slice(1));
      label.append(make("input", "", "", { type: "checkbox" }), line);
      item.append(label);
      list.append(item);
    }
    return list;
  }

  function showReleases(state) {
    const job = jobsOf("publish").at(-1), mine = state.releases.filter((r) => r.own);
    const at = $("#publishing");
    at.classList.toggle("notice", job?.state === "failed");
    at.textContent = !job ? (mine.length ? "" : "Nothing is published yet. Sign off first.") : job.state === "failed" ? pageWords(job.error) : job.state === "cancelled" ? "Cancelled. Nothing was published." : job.state === "done" ? "Done: written, read back, and recounted from your file." : `${job.label || "Starting"} …`;
    const key = mine.map((r) => r.id).join();
    if (key !== listedReleases) {
      listedReleases = key;
      fill($("#releases"), ...mine.map((r, i) => release(r, i + 1)).toReversed());
    }
    for (const r of mine) showFiles(r);
  }
  /* Links to the files that jobs on a release have made. */
  function showFiles(r) {
    const at = $(`[data-files="${r.id}"]`), done = Object.keys(FILES).map((kind) => lastDone(kind, (job) => job.request.release === r.id)).filter(Boolean);
    const key = done.map((job) => job.id).join();
    if (at.dataset.jobs === key) return;
    at.dataset.jobs = key;
    fill(at, ...done.map((job) => make("a", `Download: ${FILES[job.kind]}`, "button", { href: `/api/jobs/${job.id}/file`, download: "" })));
  }
  function release(r, number) {
    const box = make("div", "", "release"), row = make("p", "", "next"), more = make("p", "", "next");
    const link = (text, file, others = {}) => make("a", text, "button", { href: `/releases/${r.id}/${file}`, ...others });
    const download = link("Download as zip", "release.zip", { download: "release.zip" });
    download.classList.add("primary");
    row.append(download, " ", link("Open the report", "report.html", { target: "_blank", rel: "noopener" }), " ", link("Certificate (private)", "certificate.html", { download: "certificate.html" }));
    for (const kind of ["analysis", "dpia"]) more.append(action(FILES[kind], () => startWith(kind, { release: r.id })), " ");
    box.append(make("h3", r.title), row, more, deriveForm(r), make("p", "", "next", { "data-files": r.id }));
    box.append(make("p", r.noisy ? "The same mechanism again, with new draws of noise:" : "The same release again, byte by byte:", "soft"));
    for (const [name, text] of [["command line", r.command], ["Python", r.python], ["recipe", r.recipe]]) {
      const copy = make("button", `Copy the ${name}`, "", { type: "button" });
      copy.addEventListener("click", async () => { await navigator.clipboard.writeText(text); copy.textContent = "Copied"; setTimeout(() => { copy.textContent = `Copy the ${name}`; }, 1500); });
      box.append(make("pre", text, "", { tabindex: "0", "aria-label": `${name} of release ${number}, ${r.title}`, role: "region" }), copy);
    }
    return box;
  }
  function action(text, act) {
    const button = make("button", text, "", { type: "button" });
    button.addEventListener("click", () => act().catch(() => {}));
    return button;
  }
  /* A second table is derived from the published one, so it reveals nothing new. */
  function deriveForm(r) {
    const form = make("details"), tools = make("div", "", "tools"), label = make("label", "Coarser zones: H3 resolution"), level = make("input", "", "", { type: "number", min: 0, max: 15 });
    label.append(level);
    const sums = r.slice_columns.map((name) => {
      const field = make("label", "", "check"), box = make("input", "", "", { type: "checkbox", value: name });
      field.append(box, make("span", ` Add up over ${name}`));
      return field;
    });
    const make_ = action("Derive", () => startWith("derive", { release: r.id, derive: { level: level.value === "" ? null : +level.value, sum: $$("input:checked", form).map((box) => box.value) } }));
    tools.append(label, ...sums, make_);
    form.append(make("summary", "Derive a second table"), make("p", "Computed from the published table alone, so it reveals nothing new.", "soft"), tools);
    return form;
  }
}

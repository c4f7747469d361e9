/* Steps 6 and 7: what the release says of itself, read and ticked; then it is published. */

import { $, $$, figuresInto, fill, inWords, make, same, share } from "./dom.mjs";
import { desk, isOver, jobsOf, lastDone, post, resultOf, start, watch } from "./desk.mjs";
import { keep } from "./choices.mjs";
import { isNoisy } from "./offering.mjs";

export function mountSigning(isHere, go) {
  let shown = "", failed = "", given = "";

  for (const field of $$("section[data-step=sign] [data-choice]")) field.addEventListener("change", () => keep().catch(() => {}));
  $("#check").addEventListener("click", async () => { try { await keep(); await start("check"); } catch { /* the page has said why */ } });
  $("#go").addEventListener("click", async () => {
    try { await post("/api/publish", { read: allTicked(), accepted: $("#accept")?.checked ?? false }); go("publish"); } catch { /* the page has said why */ }
  });
  const allTicked = () => { const ticks = $$(".ticks input", $("#checked")); return ticks.length > 0 && ticks.every((t) => t.checked); };
  const fits = (job) => same(job.asked, desk.state.choices);

  watch(async (state) => {
    const c = state.choices;
    $("#chosen").textContent = state.files.trips ? `${c.method ?? "twincut"} on ${state.files.trips.name}${isNoisy(c.method) ? "" : `, every number covers at least ${c.k ?? 10}, at most ${share(c.max_suppressed ?? 0.1)} suppressed`}.` : "No trips yet.";
    showEarlier(state);
    const job = jobsOf("check").at(-1), done = lastDone("check", fits);
    if (job?.state === "failed" && job.id !== failed) { failed = job.id; shown = ""; fill($("#checked"), make("p", inWords(job.error), "notice")); }
    if (done && done === job) {
      if (done.id !== shown) { shown = done.id; const found = await resultOf(done); if (found) showCheck(found); }
    } else if (job?.state !== "failed") { shown = ""; if ($("#checked").children.length) fill($("#checked")); }
    allow();
    showReleases(state);
  });
  const allow = () => { const accept = $("#accept"); $("#go").disabled = !allTicked() || (accept ? !accept.checked : false); };

  let listed = "";
  function showEarlier(state) {
    $("#ledger-said").textContent = state.ledger ? `So are all that the ledger ${state.ledger} remembers, and this one will be.` : "They are forgotten when the workbench ends: start it with --ledger FOLDER to remember them.";
    const key = state.releases.map((r) => r.id).join();
    if (key === listed && $("#earlier").children.length) return;
    listed = key;
    fill($("#earlier"), ...(state.releases.length ? state.releases.map(earlier) : [make("li", "None.", "soft")]));
  }
  function earlier(r) {
    const item = make("li", r.own ? `${r.title} (of this workbench)` : r.title);
    if (!r.own) {
      const away = make("button", "Take away", "", { type: "button", "aria-label": `Take away ${r.title}` });
      away.addEventListener("click", () => post("/api/forget", { id: r.id }).catch(() => {}));
      item.append(" ", away);
    }
    return item;
  }

  function showCheck(found) {
    const figures = make("dl", "", "figures");
    figuresInto(figures, found.figures);
    const audit = [make("h3", "Compared with earlier releases")];
    const ledger = found.audit.ledger ?? 0, with_ = [...found.audit.compared, ...(ledger ? [`${ledger} of the ledger`] : [])];
    if (!with_.length) audit.push(make("p", "There is none to compare with."));
    else if (found.audit.not_compared.length) audit.push(make("p", `${found.audit.verdict || "Not everything could be compared"}. What was not:`, "notice"), listOf(found.audit.not_compared));
    else if (!found.audit.failures.length) audit.push(make("p", `${found.audit.verdict || "Nothing stands against it"}. Compared with: ${with_.join(", ")}.`));
    const spent = found.audit.budget, n = spent?.releases;
    if (spent) audit.push(make("p", `With ${n} earlier noisy release${n === 1 ? "" : "s"} of the ledger, ε comes to ${spent.epsilon}${spent.epsilon_total === null ? "" : `, of ${spent.epsilon_total} that are allowed`}.`));
    for (const line of found.audit.failures) audit.push(make("p", inWords(line), "notice"));
    if (found.audit.lines.length) {
      const more = make("details"), list = make("ul");
      for (const line of found.audit.lines) list.append(make("li", line));
      more.append(make("summary", "What was computed"), list);
      audit.push(more);
    }
    if (found.audit.failures.length || found.audit.not_compared.length) {
      const label = make("label", "", "check"), box = make("input", "", "", { type: "checkbox", id: "accept" });
      label.append(box, make("span", found.audit.failures.length ? " I publish although this can be computed." : " I publish although not everything was compared."));
      audit.push(label);
    }
    fill($("#checked"), figures, make("h3", "What is protected"), ticks(found.protected, ""), make("h3", "What is not protected"), ticks([...found.not_protected, ...found.rest], " warn"), ...audit);
    for (const box of $$("input", $("#checked"))) box.addEventListener("change", allow);
    allow();
  }
  function listOf(lines) {
    const list = make("ul");
    for (const line of lines) list.append(make("li", line));
    return list;
  }
  function ticks(lines, kind) {
    const list = make("ul", "", `ticks${kind}`);
    for (const [head, text] of lines) {
      const item = make("li"), label = make("label"), said = make("span");
      if (head) said.append(make("strong", `${head}: `));
      said.append(head ? text : text[0].toUpperCase() + text.slice(1));
      label.append(make("input", "", "", { type: "checkbox" }), said);
      item.append(label);
      list.append(item);
    }
    return list;
  }

  function showReleases(state) {
    const job = jobsOf("publish").at(-1), mine = state.releases.filter((r) => r.own);
    const at = $("#publishing");
    at.classList.toggle("notice", job?.state === "failed");
    at.textContent = !job ? (mine.length ? "" : "Nothing is published yet. Sign off first.") : job.state === "failed" ? inWords(job.error) : job.state === "cancelled" ? "Cancelled. Nothing was published." : job.state === "done" ? "Done: written, read back, and recounted from your file." : `${job.label || "Starting"} …`;
    const key = mine.map((r) => r.id).join();
    if (key === given) return;
    given = key;
    fill($("#releases"), ...mine.map((r, i) => release(r, i + 1)).toReversed());
  }
  function release(r, number) {
    const box = make("div", "", "release"), row = make("p", "", "next");
    row.append(make("a", "Download as zip", "button primary", { href: `/releases/${r.id}/release.zip`, download: "release.zip" }), " ", make("a", "Open the report", "button", { href: `/releases/${r.id}/report.html`, target: "_blank", rel: "noopener" }));
    box.append(make("h3", r.title), row);
    box.append(make("p", r.noisy ? "The same mechanism again, with new draws of noise:" : "The same release again, byte by byte:", "soft"));
    for (const [name, text] of [["command line", r.command], ["Python", r.python], ["recipe", r.recipe]]) {
      const copy = make("button", `Copy the ${name}`, "", { type: "button" });
      copy.addEventListener("click", async () => { await navigator.clipboard.writeText(text); copy.textContent = "Copied"; setTimeout(() => { copy.textContent = `Copy the ${name}`; }, 1500); });
      box.append(make("pre", text, "", { tabindex: "0", "aria-label": `${name} of release ${number}, ${r.title}`, role: "region" }), copy);
    }
    return box;
  }
}

/* The page: seven steps, running jobs, and problems. */

import { $, $$, fieldOf, make, pageWords } from "./dom.mjs";
import { cancel, clearProblems, isOver, listen, onProblems, onState, session, setProblem } from "./session.mjs";
import "./choices.mjs";
import { mountFiles } from "./files.mjs";
import { mountColumns } from "./columns.mjs";
import { mountDescribe } from "./describe.mjs";
import { mountTry } from "./try.mjs";
import { mountTradeoff } from "./tradeoff.mjs";
import { mountSign } from "./sign.mjs";

const STEPS = $$("#steps a").map((a) => a.dataset.step);
const NAMES = { demo: "Demonstration", inspect: "Columns", read: "Reading", describe: "Look before", preview: "Preview", run: "Full run", slice: "Slice", frontier: "Trade-off", candidates: "Candidates", check: "Check", publish: "Publishing", unpack: "Earlier release", analysis: "Analysis", dpia: "DPIA text", derive: "Derived table" };
const LOST = {
  stopped: "The workbench does not answer. It was stopped: start flowveil serve again and open the address that it prints.",
  ended: "The workbench was started again and has a new session. Open the address that flowveil serve prints now.",
};
const here = () => (STEPS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "drop");
const go = (step) => { location.hash = step; };

function showStep(focus) {
  const step = here();
  for (const section of $$("main > section")) section.hidden = section.dataset.step !== step;
  for (const link of $$("#steps a")) if (link.dataset.step === step) link.setAttribute("aria-current", "step"); else link.removeAttribute("aria-current");
  /* Only the result of the last step is for publication. */
  $("#mark").hidden = step === "publish";
  if (focus) { $(`#h-${step}`).focus({ preventScroll: true }); scrollTo(0, 0); }
}
addEventListener("hashchange", () => { clearProblems(); showStep(true); });

/* Shows a problem at its field if that is visible, otherwise above the step. */
let connection = "", shown = [];
function showProblems() {
  for (const note of $$(".field-problem")) note.remove();
  for (const field of $$("[aria-invalid]")) field.removeAttribute("aria-invalid");
  const above = [];
  for (const text of connection ? [LOST[connection]] : shown) {
    const field = connection ? null : fieldOf(text);
    if (!field || field.closest("[hidden]") || !field.getClientRects().length) { above.push(pageWords(text)); continue; }
    field.setAttribute("aria-invalid", "true");
    (field.closest("label") ?? field).after(make("p", pageWords(text), "notice field-problem", { role: "alert" }));
  }
  $("#problem").hidden = !above.length;
  $("#problem").textContent = above.join(" ");
}
onProblems((texts) => { shown = texts; showProblems(); });

const rows = new Map();
onState((state) => {
  const running = state.jobs.filter((job) => !isOver(job));
  for (const [id, row] of rows) if (!running.some((job) => job.id === id)) { row.remove(); rows.delete(id); }
  for (const job of running) {
    if (!rows.has(job.id)) {
      const row = make("div", "", "job"), stop = make("button", "Cancel", "", { type: "button", "aria-label": `Cancel: ${NAMES[job.kind]}` });
      stop.addEventListener("click", () => cancel(job).catch(() => {}));
      row.append(make("span"), make("progress", "", "", { max: 1, "aria-label": NAMES[job.kind] }), stop);
      rows.set(job.id, row);
      $("#jobs").append(row);
    }
    const row = rows.get(job.id), bar = $("progress", row);
    $("span", row).textContent = job.label && job.label !== NAMES[job.kind] ? `${NAMES[job.kind]}: ${job.label}` : NAMES[job.kind];
    if (job.share === null) bar.removeAttribute("value"); else bar.value = job.share;
  }
  const failed = state.jobs.filter((job) => job.state === "failed" && ["demo", "unpack", "candidates", "slice", "analysis", "dpia", "derive"].includes(job.kind)).at(-1);
  if (failed && failed.id !== session.reportedJob) { session.reportedJob = failed.id; setProblem(failed.kind === "unpack" ? "file release" : `job ${failed.kind}`, failed.error); }
  document.documentElement.dataset.ready = "true";
});

mountFiles(go);
mountColumns(() => here() === "columns");
mountDescribe(() => here() === "before");
mountTry(() => here() === "try");
mountTradeoff(() => here() === "tradeoff", go);
mountSign(() => here() === "sign", go);
showStep(false);
listen((state) => { if (state !== connection) { connection = state; showProblems(); } });

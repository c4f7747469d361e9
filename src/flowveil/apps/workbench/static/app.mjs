/* The page: five steps, running jobs, and problems. */

import { $, $$, button, fieldOf, make, pageWords } from "./dom.mjs";
import {
  cancel,
  clearProblems,
  isOver,
  listen,
  onProblems,
  onState,
  session,
  setProblem,
} from "./session.mjs";
import "./choices.mjs";
import { mountFiles } from "./files.mjs";
import { mountColumns } from "./columns.mjs";
import { mountDecide } from "./decide.mjs";
import { mountSign } from "./sign.mjs";

const STEPS = $$("#steps a").map((link) => link.dataset.step);
const NAMES = {
  demo: "Demonstration",
  inspect: "Columns",
  read: "Reading",
  describe: "What is safe already",
  run: "Release",
  errors: "Errors against k",
  check: "Check",
  publish: "Publishing",
  unpack: "Earlier release",
  analysis: "Analysis",
  dpia: "DPIA text",
  derive: "Derived table",
};
/* Jobs without a separate place for failures. */
const REPORTED = ["demo", "unpack", "analysis", "dpia", "derive"];
const LOST = {
  stopped:
    "The workbench does not answer. It was stopped: start flowveil serve again and open the address that it prints.",
  ended:
    "The workbench was started again and has a new session. Open the address that flowveil serve prints now.",
};
const here = () =>
  STEPS.includes(location.hash.slice(1)) ? location.hash.slice(1) : STEPS[0];
const go = (step) => {
  location.hash = step;
};

function showStep(focus) {
  const step = here();
  for (const section of $$("main > section"))
    section.hidden = section.dataset.step !== step;
  for (const link of $$("#steps a"))
    if (link.dataset.step === step) link.setAttribute("aria-current", "step");
    else link.removeAttribute("aria-current");
  /* Only the result of the last step is for publication. */
  $("#mark").hidden = step === "publish";
  if (!focus) return;
  $(`#h-${step}`).focus({ preventScroll: true });
  scrollTo(0, 0);
}
addEventListener("hashchange", () => {
  clearProblems();
  showStep(true);
});

/* Shows a problem at its field if that is visible, otherwise above the step. */
let connection = "";
let shown = [];
function showProblems() {
  for (const note of $$(".field-problem")) note.remove();
  for (const field of $$("[aria-invalid]"))
    field.removeAttribute("aria-invalid");
  const above = [];
  for (const text of connection ? [LOST[connection]] : shown) {
    const field = connection ? null : fieldOf(text);
    if (!field?.getClientRects().length) {
      above.push(connection ? text : pageWords(text));
      continue;
    }
    field.setAttribute("aria-invalid", "true");
    const note = make("p", pageWords(text), "notice field-problem", {
      role: "alert",
    });
    (field.closest("label") ?? field).after(note);
  }
  $("#problem").hidden = !above.length;
  $("#problem").textContent = above.join(" ");
}
onProblems((texts) => {
  shown = texts;
  showProblems();
});

const rows = new Map();
function rowOf(job) {
  const row = make("div", "", "job");
  const stop = button("Cancel", () => cancel(job), {
    "aria-label": `Cancel: ${NAMES[job.kind]}`,
  });
  const bar = make("progress", "", "", {
    max: 1,
    "aria-label": NAMES[job.kind],
  });
  row.append(make("span"), bar, stop);
  $("#jobs").append(row);
  return row;
}
onState((state) => {
  const running = state.jobs.filter((job) => !isOver(job));
  for (const [id, row] of rows)
    if (!running.some((job) => job.id === id)) {
      row.remove();
      rows.delete(id);
    }
  for (const job of running) {
    if (!rows.has(job.id)) rows.set(job.id, rowOf(job));
    const bar = $("progress", rows.get(job.id));
    const name = NAMES[job.kind];
    const isOther = job.label && job.label !== name;
    $("span", rows.get(job.id)).textContent = isOther
      ? `${name}: ${job.label}`
      : name;
    if (job.share === null) bar.removeAttribute("value");
    else bar.value = job.share;
  }
  const failed = state.jobs
    .filter((job) => job.state === "failed" && REPORTED.includes(job.kind))
    .at(-1);
  if (failed && failed.id !== session.reportedJob) {
    session.reportedJob = failed.id;
    setProblem(
      failed.kind === "unpack" ? "file release" : `job ${failed.kind}`,
      failed.error,
    );
  }
  document.documentElement.dataset.ready = "true";
});

mountFiles(go);
mountColumns(() => here() === "columns");
mountDecide(() => here() === "decide");
mountSign(() => here() === "sign", go);
showStep(false);
listen((state) => {
  if (state === connection) return;
  connection = state;
  showProblems();
});

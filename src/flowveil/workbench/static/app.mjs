/* The page: seven steps, one at a time, what is running, and what went wrong. */

import { $, $$, make } from "./dom.mjs";
import { cancel, desk, isOver, listen, onProblem, say, sayNothing, watch } from "./desk.mjs";
import "./choices.mjs";
import { mountFiles } from "./files.mjs";
import { mountColumns } from "./columns.mjs";
import { mountBefore } from "./before.mjs";
import { mountTrying } from "./trying.mjs";
import { mountTradeoff } from "./tradeoff.mjs";
import { mountSigning } from "./signing.mjs";

const STEPS = $$("#steps a").map((a) => a.dataset.step);
const NAMES = { demo: "Demonstration", look: "Columns", read: "Reading", describe: "Look before", preview: "Preview", run: "Full run", frontier: "Trade-off", beside: "Side by side", check: "Check", publish: "Publishing", unpack: "Earlier release" };
const here = () => (STEPS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "drop");
const go = (step) => { location.hash = step; };

function showStep(focus) {
  const step = here();
  for (const section of $$("main > section")) section.hidden = section.dataset.step !== step;
  for (const link of $$("#steps a")) if (link.dataset.step === step) link.setAttribute("aria-current", "step"); else link.removeAttribute("aria-current");
  /* What the last step gives is for publication; everything before it is not. */
  $("#mark").hidden = step === "publish";
  if (focus) { $(`#h-${step}`).focus({ preventScroll: true }); scrollTo(0, 0); }
}
addEventListener("hashchange", () => { sayNothing(); showStep(true); });

let gone = false, said = "";
function sayProblem() {
  const text = gone ? "The workbench does not answer. It was stopped, or started again: open the address that flowveil serve prints now." : said;
  $("#problem").hidden = !text;
  $("#problem").textContent = text;
}
onProblem((text) => { said = text; sayProblem(); });

const rows = new Map();
watch((state) => {
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
  const failed = state.jobs.filter((job) => job.state === "failed" && ["demo", "unpack", "beside"].includes(job.kind)).at(-1);
  if (failed && failed.id !== desk.told) { desk.told = failed.id; say(failed.kind === "unpack" ? "file release" : `job ${failed.kind}`, failed.error); }
  document.documentElement.dataset.ready = "true";
});

mountFiles(go);
mountColumns(() => here() === "columns");
mountBefore(() => here() === "before");
mountTrying(() => here() === "try");
mountTradeoff(() => here() === "tradeoff", go);
mountSigning(() => here() === "sign", go);
showStep(false);
listen((lost) => { if (lost !== gone) { gone = lost; sayProblem(); } });
/* Steps are drawn from what the server says, so coming to one is a reason to look again. */
addEventListener("hashchange", () => desk.state && document.dispatchEvent(new CustomEvent("step")));

/* Step 3: settings, the page that they give, and the chart of errors against k. */

import { $, $$, figuresInto, fill, make, pageWords, share } from "./dom.mjs";
import {
  fits,
  isOver,
  isRequesting,
  isUnderWay,
  jobsOf,
  lastDone,
  onState,
  resultOf,
  run,
  session,
  startOnce,
} from "./session.mjs";
import { chosen, offer } from "./choices.mjs";
import { chart } from "./chart.mjs";

/* Milliseconds without a change after which the release is computed. */
const REST = 500;

const QUESTIONS = { person: "Who travelled?", row: "What is one row?" };

export function mountDecide(isHere) {
  let rest = 0;
  let shown = "";
  let charted = "";
  let latest = null;

  async function compute() {
    rest = 0;
    try {
      await run(chosen());
    } catch {
      /* the page shows why */
    }
  }
  function changed() {
    clearTimeout(rest);
    rest = setTimeout(compute, REST);
    showStatus();
  }

  $("#skip-draft").addEventListener("click", () => $("#h-chart").focus());
  const form = $("#choices");
  form.addEventListener("submit", (e) => e.preventDefault());
  form.addEventListener("input", (e) => {
    delete e.target.dataset.unset;
    showValues();
  });
  form.addEventListener("change", (e) => {
    if (e.target.id === "method") beginWith(e.target.value);
    showValues();
    if (e.target.matches("[data-choice], [data-area], [data-option]"))
      changed();
  });

  /* Sets initial values of the options that noise requires. */
  function beginWith(method) {
    const people = !("protect=people" in session.state.unavailable);
    for (const field of $$("[data-option]")) {
      const own = field.closest(".of-method").dataset.method === method;
      const first =
        field.dataset.begin || (people && field.dataset.beginPeople) || "";
      field.value = own ? first : "";
    }
    offer();
  }
  function showValues() {
    const method = $("#method").selectedOptions[0];
    const limit = $("#limit");
    const defaults = session.state?.defaults;
    if (!method || !defaults) return;
    /* The default of an unset limit is that of the method. */
    if (limit.dataset.unset)
      limit.value = method.dataset.share ?? defaults.max_suppressed;
    $("#k-value").textContent = $("#k").value;
    $("#limit-value").textContent = share(+limit.value);
    const resolution = $("#resolution").value;
    $("#resolution-value").textContent =
      `hexagons of about ${defaults.widths[resolution]} (resolution ${resolution})`;
    $("#method-summary").textContent = method.value
      ? method.dataset.summary
      : defaults.method;
  }
  document.addEventListener("choices", showValues);

  /* The release is computed when the step is opened, and its chart when the machine is free. */
  function begin() {
    if (!isHere() || isRequesting() || rest || !session.state?.files.trips)
      return;
    /* A file may ask questions, which nothing else answers. */
    const inspected = jobsOf("inspect").at(-1);
    if (!inspected) startOnce("inspect", "reading");
    if (!inspected || !isOver(inspected) || session.state.unanswered.length)
      return;
    const ended = jobsOf("run").filter(fits("cells")).at(-1);
    if (!isUnderWay("run", "cells") && !ended) startOnce("run", "cells");
    if (!jobsOf("describe").some(fits("cells"))) startOnce("describe", "cells");
    if (ended && isOver(ended) && !jobsOf("errors").some(fits("chart")))
      startOnce("errors", "chart");
  }
  addEventListener("hashchange", () => session.state && update(session.state));
  onState(update);

  async function update(state) {
    showValues();
    if (!state.files.trips) clear();
    begin();
    if (!isHere()) return;
    const best = lastDone("run", fits("cells")) ?? lastDone("run");
    if (best && best.id !== shown) {
      shown = best.id;
      const found = await resultOf(best);
      if (found && shown === best.id) showRun(found, best);
    }
    showStatus();
    await showSafety();
    await showChart();
  }

  function clear() {
    shown = charted = "";
    latest = null;
    fill($("#figures"));
    fill($("#chart"));
    fill($("#safety"));
    $("#draft").hidden = true;
    $("#draft").removeAttribute("src");
  }

  function showStatus() {
    const at = $("#which");
    const done = lastDone("run", fits("cells"));
    const last = jobsOf("run").filter(fits("cells")).at(-1);
    const failed = !done && last?.state === "failed";
    at.classList.toggle("notice", failed);
    const open = session.state.unanswered.map((name) => QUESTIONS[name]);
    if (open.length)
      at.textContent = `Answer this first, on the step Questions: ${open.join(" ")}`;
    else if (rest || (last && !isOver(last)))
      at.textContent = shown
        ? "Computing … what you see is the choice before."
        : "Computing the release …";
    else if (done)
      at.textContent = `This is what would be published (${done.seconds.toFixed(1)} s).`;
    else if (failed) at.textContent = pageWords(last.error);
    else
      at.textContent = last
        ? "Cancelled. What you see is an earlier choice."
        : "";
    const stale = !done || Boolean(rest);
    for (const part of ["#figures", "#draft"])
      $(part).classList.toggle("stale", stale);
    at.dataset.of = !stale
      ? `${done.request.method ?? "recommended"} ${done.request.k ?? ""}`
      : "";
  }

  function showRun(found, job) {
    latest = found;
    charted = "";
    figuresInto($("#figures"), found.figures);
    const frame = $("#draft");
    frame.hidden = false;
    frame.src = `/drafts/${job.id}/report.html`;
    document.documentElement.dataset.drawn = job.id;
  }

  async function showSafety() {
    const done = lastDone("describe", fits("cells"));
    const found = done && (await resultOf(done));
    if (found) $("#safety").textContent = found.sentence;
  }

  async function showChart() {
    const job = jobsOf("errors").filter(fits("chart")).at(-1);
    const failed = job?.state === "failed";
    const state = !job || failed ? "" : isOver(job) ? job.state : "growing";
    const key = `${job?.id} ${job?.share} ${state} ${shown} ${session.state.keys.cells}`;
    if (!job || key === charted) return;
    charted = key;
    if (failed) {
      fill($("#chart"), make("p", pageWords(job.error), "notice"));
      return;
    }
    /* The first point has not arrived. */
    if (!isOver(job) && !job.share) return;
    const found = await resultOf(job);
    if (found && key === charted)
      fill($("#chart"), ...chart(found, present(), choose));
  }
  /* The present choice, to be marked. */
  function present() {
    const done = lastDone("run", fits("cells"));
    return done && latest && done.id === shown
      ? { method: latest.method, k: latest.k, error: latest.error }
      : null;
  }
  function choose(point) {
    const method = $("#method");
    const isRecommended =
      !method.value && session.state.defaults.method === point.method;
    if (!isRecommended) method.value = point.method;
    const k = $("#k");
    delete k.dataset.unset;
    k.value = point.k;
    showValues();
    changed();
  }
}

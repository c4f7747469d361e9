/* Step 4: a preview while a slider moves, then the full run. */

import { $, $$, cellChoices, figuresInto, pageWords, same, share } from "./dom.mjs";
import { cancel, isOver, isRequesting, jobsOf, lastDone, onState, post, preview as startPreview, resultOf, session, start, startWith } from "./session.mjs";
import { chosen } from "./choices.mjs";
import { beginWith, methodNow, offer } from "./availability.mjs";
import { mount } from "./map.mjs";

/* Width of hexagons by resolution. */
const WIDTHS = { 4: "45 km", 5: "17 km", 6: "6.5 km", 7: "2.4 km", 8: "920 m", 9: "350 m", 10: "130 m", 11: "50 m", 12: "19 m" };
const size = (resolution) => `hexagons of about ${WIDTHS[resolution]} (resolution ${resolution})`;
/* Milliseconds without a change after which the full run starts. */
const REST = 700;

export function mountTry(isHere) {
  let map = null, shown = "", started = false, rest = 0, moving = 0, sliced = null;

  async function changed() {
    started = true;
    clearTimeout(rest);
    for (const job of jobsOf("run")) if (!isOver(job)) cancel(job).catch(() => {});
    try {
      await startPreview(chosen());
      clearTimeout(rest);
      rest = setTimeout(full, REST);
    } catch { /* the page shows why */ }
  }
  const fits = (job) => same(cellChoices(job.request), cellChoices(session.state.choices));
  const full = () => { rest = 0; if (isHere() && !jobsOf("run").some((job) => fits(job) && (job.state === "done" || !isOver(job)))) start("run").catch(() => {}); };

  const form = $("#choices");
  form.addEventListener("submit", (e) => e.preventDefault());
  form.addEventListener("input", (e) => {
    delete e.target.dataset.unset;
    showValues();
    if (e.target.classList.contains("split") || !(e.target.dataset.choice || e.target.dataset.area)) return;
    /* Texts are applied when they are complete, sliders while they move. */
    if (e.target.type === "range") { clearTimeout(moving); moving = setTimeout(changed, 60); }
  });
  form.addEventListener("change", (e) => {
    if (e.target.id === "method") beginWith($("#method").value);
    showValues();
    if (e.target.type !== "range" && (e.target.dataset.choice || e.target.dataset.area || e.target.dataset.option)) changed();
  });
  $("#pin").addEventListener("click", () => { const run = fitting("run"); if (run) post("/api/pins", { id: run.id }).catch(() => {}); });
  $("#slice").addEventListener("change", () => { if ($("#slice").value === "") showMap(sliced.map); else startWith("slice", { run: sliced.run, slice: +$("#slice").value }).catch(() => {}); });

  function showValues() {
    const limit = $("#limit");
    /* The default of an unset limit is that of the method. */
    if (limit.dataset.unset) limit.value = methodNow().dataset.share ?? session.state?.defaults.max_suppressed ?? limit.dataset.default;
    $("#k-value").textContent = $("#k").value;
    $("#limit-value").textContent = share(+limit.value);
    $("#resolution-value").textContent = size(+$("#resolution").value);
    offer();
  }
  document.addEventListener("choices", showValues);

  const fitting = (kind) => lastDone(kind, fits);

  /* Starts a preview when the step is opened for the first time. */
  function begin() {
    /* While a request is open the fields may be old. */
    if (!isHere() || isRequesting() || !session.state?.files.trips) return;
    if (!fitting("run") && !fitting("preview") && !jobsOf("preview").some((job) => !isOver(job)) && !started) changed();
  }
  addEventListener("hashchange", () => { started = false; begin(); });

  onState(async (state) => {
    showValues();
    if (!state.files.trips) { shown = ""; started = false; $("#figures").replaceChildren(); $("#swipes").hidden = true; $("#slice-label").hidden = true; }
    begin();
    const run = fitting("run"), preview = fitting("preview"), best = run ?? preview;
    $("#pin").disabled = !run;
    await showSlice();
    const last = best ?? lastDone("preview");
    if (last && last.id !== shown && isHere()) {
      shown = last.id;
      const found = await resultOf(last);
      if (found && shown === last.id) show(found, last);
    }
    /* After the figures, so that the text never describes those of another run. */
    showState(fitting("run"), fitting("preview"));
  });

  function showState(run, preview) {
    const failed = [...jobsOf("run"), ...jobsOf("preview")].find((job) => job.state === "failed" && fits(job));
    const at = $("#which");
    at.classList.remove("notice");
    if (run) at.textContent = `Full run: what would be published (${run.seconds.toFixed(1)} s).`;
    else if (failed) { at.textContent = pageWords(failed.error); at.classList.add("notice"); }
    else if (preview) at.textContent = !rest && jobsOf("run").filter(fits).at(-1)?.state === "cancelled" ? "Preview. The full run was cancelled." : "Preview. The full run follows and is usually finer.";
    else at.textContent = jobsOf("preview").some((job) => !isOver(job)) ? "Computing a preview …" : "";
    $("#figures").classList.toggle("stale", !run && !preview);
    const request = (run ?? preview)?.request;
    at.dataset.of = request ? `${request.method ?? "recommended"} ${request.k ?? ""}` : "";
  }

  function show(found, job) {
    figuresInto($("#figures"), found.figures);
    const slices = job.kind === "run" ? found.slices : [];
    $("#slice-label").hidden = !slices.length;
    $("#slice").replaceChildren(new Option("all slices together", ""), ...slices.map((slice, i) => new Option(Object.entries(slice).map(([name, value]) => `${name}: ${value ?? "all"}`).join(", "), i)));
    sliced = { run: job.id, map: found.map, drawn: "" };
    showMap(found.map);
    document.documentElement.dataset.drawn = shown;
  }
  async function showSlice() {
    const done = lastDone("slice");
    if (!sliced || !done || done.request.run !== sliced.run || String(done.request.slice) !== $("#slice").value || done.id === sliced.drawn) return;
    sliced.drawn = done.id;
    const found = await resultOf(done);
    if (found) { showMap(found.map); document.documentElement.dataset.slice = done.request.slice; }
  }
  function showMap(data) {
    const drawn = data.frame !== null;
    $("#swipes").hidden = !drawn;
    $("#no-map").hidden = drawn;
    if (!drawn) return;
    if (map) map.update(data); else map = mount($("#swipes"), data);
  }

  /* The divider follows the pointer, or the keys of its slider. */
  for (const swipe of $$(".swipe")) {
    const stack = $(".stack", swipe), slider = $(".split", swipe), handle = $(".divider", swipe);
    const put = (percent) => { const at = Math.max(0, Math.min(100, percent)); stack.style.setProperty("--split", `${at}%`); slider.value = at; };
    slider.addEventListener("input", () => put(+slider.value));
    handle.addEventListener("pointerdown", (e) => { handle.setPointerCapture(e.pointerId); e.preventDefault(); });
    handle.addEventListener("pointermove", (e) => { if (handle.hasPointerCapture(e.pointerId)) { const box = stack.getBoundingClientRect(); put((100 * (e.clientX - box.left)) / box.width); } });
  }
}

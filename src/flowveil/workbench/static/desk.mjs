/* What lies on the desk, as the server says it. The server is the one who knows: a page keeps nothing of its own. */

const watchers = [];
export const desk = { state: null };
let asking = 0;

export const watch = (react) => { watchers.push(react); if (desk.state) react(desk.state); };

export function take(state) {
  /* An answer may be overtaken by a message. */
  if (desk.state && state.version < desk.state.version) return;
  desk.state = state;
  for (const react of watchers) react(state);
}

/* What went wrong, by what it is about. It stays until the same is tried again or the reader goes on to another step:
   the page asks for much by itself, and none of that may take a message away before it is read. */
const problems = new Map();
let complain = () => {};
export const onProblem = (react) => { complain = react; };
export function say(about, text) {
  if (text) problems.set(about, text); else problems.delete(about);
  complain([...problems.values()].join(" "));
}
export const sayNothing = () => { problems.clear(); complain(""); };

async function answerOf(response, about) {
  let said = {};
  try { said = await response.json(); } catch { /* an answer without words */ }
  say("server", "");
  if (response.ok) return said;
  if (about) say(about, said.error || "The workbench did not understand.");
  throw new Error(said.error || response.status);
}

export async function post(path, content = {}, about = path) {
  asking++;
  problems.delete(about);
  try {
    const said = await answerOf(await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(content) }), about);
    if ("version" in said) take(said);
    return said;
  } catch (problem) {
    if (problem instanceof TypeError) say("server", "The workbench does not answer. If it was stopped, start flowveil serve again.");
    throw problem;
  } finally {
    asking--;
    /* What came meanwhile was not shown in the fields. */
    if (!asking && desk.state) for (const react of watchers) react(desk.state);
  }
}
/* While the page asks for something, what the server said before is old. */
export const isAsking = () => asking > 0;

export const get = async (path, about = path) => answerOf(await fetch(path), about);
export const start = (kind, choices) => post("/api/jobs", choices ? { kind, choices } : { kind }, `job ${kind}`);
/* New choices and their preview in one: nobody sees the choices without it, and tries them as well. */
export const tryOut = (choices) => post("/api/jobs", { kind: "preview", choices, keep: true }, "choices");
/* A job that is over, or was forgotten, needs no cancelling. */
export const cancel = (job) => post(`/api/jobs/${job.id}/cancel`, {}, "");

const results = new Map();
/* A result is fetched once; old ones are dropped, because maps are large. */
export function resultOf(job) {
  if (!results.has(job.id)) {
    results.set(job.id, get(`/api/jobs/${job.id}/result`, "").catch(() => null));
    if (results.size > 12) results.delete(results.keys().next().value);
  }
  return results.get(job.id);
}

export const jobsOf = (kind) => (desk.state?.jobs ?? []).filter((job) => job.kind === kind);
export const lastDone = (kind, fits = () => true) => jobsOf(kind).filter((job) => job.state === "done" && fits(job)).at(-1);
export const isOver = (job) => ["done", "failed", "cancelled"].includes(job.state);

/* A file goes as it is, with its progress. */
export function send(role, file, progress) {
  const about = `file ${role}`;
  say(about, "");
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", `/api/files/${role}?name=${encodeURIComponent(file.name)}`);
    request.upload.onprogress = (e) => progress(e.loaded / e.total);
    request.onerror = () => { say(about, "The file could not be sent: it may be too large, or the workbench was stopped."); reject(new Error("not sent")); };
    request.onload = () => {
      let said = {};
      try { said = JSON.parse(request.responseText); } catch { /* an answer without words */ }
      if (request.status >= 400) { say(about, said.error || "The file was not taken."); reject(new Error(said.error)); return; }
      if ("version" in said) take(said);
      resolve(said);
    };
    request.send(file);
  });
}

export function listen(lost) {
  const events = new EventSource("/api/events");
  events.onmessage = (message) => { lost(false); take(JSON.parse(message.data)); };
  /* It tries again by itself; a new server counts from the beginning. */
  events.onerror = () => { lost(true); if (desk.state) desk.state.version = -1; };
}

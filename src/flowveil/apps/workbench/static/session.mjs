/* The state of the workbench, as the server sends it. Pages store nothing themselves. */

const listeners = [];
export const session = { state: null, reportedJob: "" };
let requests = 0;

export function onState(react) {
  listeners.push(react);
  if (session.state) react(session.state);
}

export function setState(state) {
  /* An answer may arrive after a newer event. */
  if (session.state && state.version < session.state.version) return;
  session.state = state;
  for (const react of listeners) react(state);
}

/* Problems by topic. A problem stays until its topic is tried again or the reader changes the step: background
   requests must not remove a message before it is read. */
const problems = new Map();
let showProblems = (_texts) => {};
export const onProblems = (react) => {
  showProblems = react;
};
export function setProblem(topic, text) {
  if (text) problems.set(topic, text);
  else problems.delete(topic);
  showProblems([...problems.values()]);
}
export const clearProblems = () => {
  problems.clear();
  showProblems([]);
};

async function jsonOf(response) {
  try {
    return await response.json();
  } catch {
    return {};
  }
}

async function answerOf(response, topic) {
  const answer = await jsonOf(response);
  setProblem("server", "");
  if (response.ok) return answer;
  if (topic)
    setProblem(
      topic,
      answer.error || "The workbench did not understand this request.",
    );
  throw new Error(answer.error || response.status);
}

export async function post(path, content = {}, topic = path) {
  requests++;
  problems.delete(topic);
  const headers = { "content-type": "application/json" };
  try {
    const sent = { method: "POST", headers, body: JSON.stringify(content) };
    const answer = await answerOf(await fetch(path, sent), topic);
    /* The state has the new job before the next listener asks whether it runs. */
    const isJob = path === "/api/jobs" && !("version" in answer);
    const state = isJob ? await jsonOf(await fetch("/api/state")) : answer;
    if ("version" in state) setState(state);
    return answer;
  } catch (problem) {
    if (problem instanceof TypeError)
      setProblem(
        "server",
        "The workbench does not answer. If it was stopped, start flowveil serve again.",
      );
    throw problem;
  } finally {
    requests--;
    /* Fields do not follow the state while a request is open. */
    if (!requests && session.state)
      for (const react of listeners) react(session.state);
  }
}
/* While a request is open, the state is older than the fields. */
export const isRequesting = () => requests > 0;

export const get = async (path, topic = path) =>
  answerOf(await fetch(path), topic);
export const start = (kind, choices = undefined) =>
  post("/api/jobs", choices ? { kind, choices } : { kind }, `job ${kind}`);
export const startWith = (kind, content) =>
  post("/api/jobs", { kind, ...content }, `job ${kind}`);
/* Sets choices and starts their run in one request, so that a second page does not start another run. */
export const run = (choices) =>
  post("/api/jobs", { kind: "run", choices, keep: true }, "choices");
/* A finished or unknown job needs no message. */
export const cancel = (job) => post(`/api/jobs/${job.id}/cancel`, {}, "");

const results = new Map();
/* Fetches a result once; that of a running job grows. */
export function resultOf(job) {
  if (!isOver(job))
    return get(`/api/jobs/${job.id}/result`, "").catch(() => null);
  if (!results.has(job.id)) {
    results.set(
      job.id,
      get(`/api/jobs/${job.id}/result`, "").catch(() => null),
    );
    if (results.size > 12) results.delete(results.keys().next().value);
  }
  return results.get(job.id);
}

export const jobsOf = (kind) =>
  (session.state?.jobs ?? []).filter((job) => job.kind === kind);
export const lastDone = (kind, fits = (_job) => true) =>
  jobsOf(kind)
    .filter((job) => job.state === "done" && fits(job))
    .at(-1);
export const isOver = (job) =>
  ["done", "failed", "cancelled"].includes(job.state);
/* Whether a job is about the present choices: those that decide the reading, the cells or the chart. */
export const fits = (key) => (job) => job.keys[key] === session.state.keys[key];
/* Whether a job of the present choices runs or has ended well: another tab may have started it. */
export const isUnderWay = (kind, key) =>
  jobsOf(kind).some(
    (job) => fits(key)(job) && (job.state === "done" || !isOver(job)),
  );

const refused = new Set();
/* Starts a job that a step needs; one that was refused is not started again for the same choices. */
export function startOnce(kind, key) {
  const { keys, files, unanswered } = session.state;
  const name = JSON.stringify([kind, keys[key], files, unanswered]);
  if (!refused.has(name)) start(kind).catch(() => refused.add(name));
}

/* Uploads a file and reports the share that was sent. */
export function upload(role, file, progress) {
  const topic = `file ${role}`;
  setProblem(topic, "");
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(
      "PUT",
      `/api/files/${role}?name=${encodeURIComponent(file.name)}`,
    );
    request.upload.onprogress = (e) => progress(e.loaded / e.total);
    request.onerror = () => {
      setProblem(
        topic,
        "The file could not be sent: it may be too large, or the workbench was stopped.",
      );
      reject(new Error("not sent"));
    };
    request.onload = () => {
      let answer;
      try {
        answer = JSON.parse(request.responseText);
      } catch {
        answer = {};
      }
      if (request.status >= 400) {
        setProblem(topic, answer.error || "The file was not accepted.");
        reject(new Error(answer.error));
        return;
      }
      if ("version" in answer) setState(answer);
      resolve(answer);
    };
    request.send(file);
  });
}

/* Follows the state. `lost` gets "" while connected, "stopped" without a server, "ended" where the server has another
   session and does not accept this page any more. */
export function listen(lost) {
  const events = new EventSource("/api/events");
  events.onmessage = (message) => {
    lost("");
    setState(JSON.parse(message.data));
  };
  events.onerror = async () => {
    /* The browser reconnects. A restarted server counts versions from 0. */
    if (session.state) session.state.version = -1;
    try {
      lost((await fetch("/api/state")).ok ? "" : "ended");
    } catch {
      lost("stopped");
    }
  };
}

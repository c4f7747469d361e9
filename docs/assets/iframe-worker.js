// The search runs in a worker, which browsers do not start for pages that are opened by double click (file:). There, and
// only there, a hidden frame takes the worker's place: same messages, same script.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      // What the script sends arrives here; self is the window of the frame.
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = async (...addresses) => {
        for (const one of addresses) await load(inside.document, one);
      };
      this.inside = inside;
      this.loaded = load(inside.document, address);
    }
    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}

function load(where, address) {
  return new Promise((done, failed) => {
    const script = where.createElement("script");
    script.src = new URL(address, document.baseURI).href;
    script.onload = done;
    script.onerror = failed;
    where.head.append(script);
  });
}

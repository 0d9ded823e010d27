// The worker that searches, adapted in two ways. The theme looks for a script of this file's name.
(() => {
  // Browsers start no workers for pages that are opened as files. There the script of the worker
  // runs in a hidden frame, which exchanges the same messages with the page.
  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inner.document.createElement("script");
      script.src = url;
      this.ready = new Promise((resolve) => { script.onload = () => resolve(inner); });
      inner.document.body.append(script);
    }

    // Messages of the page wait until the script has loaded.
    postMessage(data) {
      this.ready.then((inner) => inner.dispatchEvent(new MessageEvent("message", { data })));
    }
  }

  // Each word of a query also finds words that begin with it: "a" would find half of the pages.
  const QUERY = 2;
  const COMMON = /(^|\s)(an?|and|are|as|at|be|by|can|do|does|for|from|how|i|in|is|it|my|of|on|or|that|the|this|to|what|when|why|with|you)(?=\s|$)/gi;
  const shorten = (query) => query.replace(COMMON, "").trim() || query;

  const isFile = location.protocol === "file:";
  if (isFile) window.IFrameWorker = FrameWorker;
  const Base = isFile ? FrameWorker : window.Worker;
  window.Worker = class extends Base {
    postMessage(message) {
      const isQuery = message.type === QUERY && typeof message.data === "string";
      super.postMessage(isQuery ? { ...message, data: shorten(message.data) } : message);
    }
  };
})();

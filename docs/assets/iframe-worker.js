// The search runs in a worker, which browsers refuse to start from a folder: there, it runs in a frame of the page.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inside = frame.contentWindow;
    this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    const script = this.inside.document.createElement("script");
    script.src = new URL(url, document.baseURI);
    this.loaded = new Promise((loaded) => (script.onload = loaded));
    this.inside.document.body.append(script);
  }

  async postMessage(data) {
    await this.loaded;
    this.inside.dispatchEvent(new MessageEvent("message", { data }));
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;

// Moving the run: one click is a bounded piece of work; a long way goes on slice by slice.
// All zones of one view share a driver.

export function driver(host) {
  if (host.driver) return host.driver;
  const { ask, model } = host;
  const followers = [];
  let driving = false, travelling = false, wanted = null, turn = 0, queued = 0, last = Promise.resolve();
  const tell = () => followers.forEach((f) => f(driving || travelling));

  // A piece of work that begins with any question. A click on top of a short one waits for its
  // turn; on top of a long one it changes nothing, and the kernel says so.
  const work = (message) => {
    if (travelling || model.get("running")) return ask(message);
    if (driving && queued > 2) return Promise.resolve({});
    queued++;
    last = last.then(() => { queued = Math.max(0, queued - 1); return begin(message); });
    return last;
  };
  const begin = async (message) => {
    const mine = ++turn;
    driving = true;
    tell();
    let reply = await ask(message);
    // One slice is always on its way, so that the kernel works while the page draws.
    let next = reply.running && !reply.lost ? ask({ ask: "tick" }) : null;
    while (mine === turn && driving && reply.running && !reply.lost) {
      const after = ask({ ask: "tick" });
      reply = await next;
      next = after;
    }
    if (mine === turn) stop();
    return reply;
  };
  // To an event. While it is on its way the newest place counts: that is what dragging needs.
  const travel = async (n) => {
    if (driving) { ask({ ask: "go", action: "goto", to: n }); return; }
    wanted = n;
    if (travelling) return;
    const mine = ++turn;
    travelling = true;
    tell();
    while (wanted !== null && mine === turn) {
      const to = wanted;
      wanted = null;
      let reply = await ask({ ask: "go", action: "goto", to });
      while (reply.running && !reply.lost && wanted === null && mine === turn) reply = await ask({ ask: "tick" });
    }
    if (mine === turn) stop();
  };
  const stop = () => { turn++; queued = 0; last = Promise.resolve(); driving = travelling = false; wanted = null; tell(); };
  host.onGone = stop; // a kernel that does not answer holds no button
  host.driver = {
    go: (action, to) => work({ ask: "go", action, to }),
    work, travel,
    pause() { stop(); ask({ ask: "pause" }); },
    follow(f) { followers.push(f); },
    get busy() { return driving || travelling || !!model.get("running"); },
  };
  // A run belongs to the page that watches it.
  host.onEnd(() => { if (driving || travelling) { stop(); try { model.send({ ask: "pause" }); } catch { /* the kernel is gone as well */ } } });
  return host.driver;
}

// Moving the run: one click is a bounded piece of work; a long way goes on slice by slice.
// All zones of one view share a driver.

const STEPS = new Set(["into", "over", "out", "next-token", "back", "back-over", "back-out", "prev-token"]);
const MOST = 99; // presses that may wait

export function driver(host) {
  if (host.driver) return host.driver;
  const { ask, model } = host;
  const followers = [], queue = [];
  let driving = false, travelling = false, wanted = null, then = null, turn = 0, doing = null;
  const busy = () => driving || travelling || !!model.get("running");
  const tell = () => followers.forEach((f) => f({ busy: driving || travelling, waiting: queue.length }));
  // Whether a press on top of what is done now waits for its turn: on top of a step, however long
  // it takes, and of anything short. On top of a long way it changes nothing, and the kernel says so.
  const waits = () => driving && (STEPS.has(doing.action) || !model.get("running"));

  // A piece of work that begins with any question. A key that is held down asks again and again:
  // of those one waits, so that the run stands when the key is let go.
  const work = (message, held) => {
    if (!busy()) return new Promise((done) => { turns({ message, done }); });
    if (!waits()) return held ? Promise.resolve({}) : ask(message, true);
    if (queue.length >= (held ? 1 : MOST)) return Promise.resolve({});
    return new Promise((done) => { queue.push({ message, done }); tell(); });
  };
  const turns = async (item) => {
    const mine = ++turn;
    driving = true;
    while (item) {
      doing = item.message;
      tell();
      const reply = await begin(item.message, mine);
      item.done(reply);
      if (mine !== turn) return;
      if (reply.error || reply.lost) drop(); // the next would fail in the same way
      item = queue.shift();
    }
    const to = then;
    stop();
    if (to !== null) travel(to);
  };
  const begin = async (message, mine) => {
    let reply = await ask(message, true);
    // One slice is always on its way, so that the kernel works while the page draws.
    let next = reply.running && !reply.lost ? ask({ ask: "tick" }, true) : null;
    while (mine === turn && reply.running && !reply.lost) {
      const after = ask({ ask: "tick" }, true);
      reply = await next;
      next = after;
    }
    return reply;
  };
  // To an event. While it is on its way the newest place counts: that is what dragging needs.
  const travel = async (n) => {
    if (driving && waits()) { then = n; return; }
    if (driving) { ask({ ask: "go", action: "goto", to: n }, true); return; }
    wanted = n;
    if (travelling) return;
    const mine = ++turn;
    travelling = true;
    tell();
    while (wanted !== null && mine === turn) {
      const to = wanted;
      wanted = null;
      let reply = await ask({ ask: "go", action: "goto", to }, true);
      while (reply.running && !reply.lost && wanted === null && mine === turn) reply = await ask({ ask: "tick" }, true);
    }
    if (mine === turn) stop();
  };
  const drop = () => queue.splice(0).forEach((item) => item.done({ dropped: true }));
  const stop = () => { turn++; drop(); driving = travelling = false; wanted = then = doing = null; tell(); };
  host.onGone = stop; // a kernel that does not answer holds no button
  host.driver = {
    go: (action, to, held) => work({ ask: "go", action, to }, held),
    work, travel,
    pause() { stop(); ask({ ask: "pause" }, true); },
    follow(f) { followers.push(f); },
    get busy() { return busy(); },
    get waits() { return waits(); },
  };
  // A run belongs to the page that watches it.
  host.onEnd(() => { if (driving || travelling) { stop(); try { model.send({ ask: "pause" }); } catch { /* the kernel is gone as well */ } } });
  return host.driver;
}

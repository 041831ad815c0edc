// Keys, the start, and what a live page asks for.

// -- Keys -----------------------------------------------------------------------------------------------------------------

function move(by) {
  if (!shown.length) return;
  const at = shown.findIndex((row) => row.key === state.e);
  const next = at < 0 ? (by > 0 ? 0 : shown.length - 1) : Math.max(0, Math.min(shown.length - 1, at + by));
  if (shown[next].key !== state.e) go(shown[next].key);
}
function turn(by) {
  const turns = [...document.querySelectorAll("#reader .turn")];
  if (!turns.length) return;
  const at = turns.findIndex((one) => one.classList.contains("current"));
  const next = turns[Math.max(0, Math.min(turns.length - 1, at < 0 ? (by > 0 ? 0 : turns.length - 1) : at + by))];
  turns.forEach((one) => one.classList.toggle("current", one === next));
  next.scrollIntoView({ block: "start" });
}
function leave() {
  if (state.vs) return go(state.e);
  if (!state.e) return undefined;
  state.e = null;
  writeFragment(true);
  drawList();
  $("list").focus({ preventScroll: true });
  return show();
}
function compare() {
  const row = all.byKey.get(state.e), next = row && nextOther(row, state.vs);
  if (next) go(row.key, next);
}

const KEYS = [
  [["j"], "next episode of the list", () => move(1)],
  [["k"], "the one before", () => move(-1)],
  [["ArrowDown", "ArrowUp"], "the same, while the list has the focus (click it)", (key) => move(key === "ArrowDown" ? 1 : -1)],
  [["ArrowRight", "ArrowLeft"], "next turn, turn before", (key) => turn(key === "ArrowRight" ? 1 : -1)],
  [["c"], "compare with another attempt at the task; again: with the next", compare],
  [["f"], "first difference", () => document.querySelector(".first")?.scrollIntoView({ block: "start" })],
  [["/"], "search", () => { document.body.classList.remove("reading"); $("f-q").focus(); $("f-q").select(); }],
  [["Escape"], "leave: the search, the comparison, the episode", leave],
  [["?"], "this help", () => $("help").showModal()],
];
const NAMES = { ArrowDown: "↓", ArrowUp: "↑", ArrowRight: "→", ArrowLeft: "←", Escape: "Esc" };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  const at = document.activeElement;
  if (at && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName)) {
    if (event.key === "Escape") { at.blur(); $("list").focus({ preventScroll: true }); }
    return;
  }
  const vertical = event.key === "ArrowDown" || event.key === "ArrowUp";
  if (vertical && $("reader").contains(at)) return; // there they scroll
  const found = KEYS.find(([keys]) => keys.includes(event.key));
  if (!found) return;
  event.preventDefault();
  found[2](event.key);
});

// -- Start, and for a live run: what is new, every two seconds ---------------------------------------------------------

function changed() {
  state.q = $("f-q").value;
  state.deep = $("f-deep").checked;
  state.sort = $("f-sort").value;
  for (const [name, id] of FILTERS) state.filters[name] = $(id).value;
  $("list").scrollTop = 0;
  writeFragment(false);
  search();
}
function restore() {
  readFragment();
  showFilters();
  const ready = search();
  reveal();
  return Promise.all([show(), state.deep ? null : ready]);
}

async function follow() {
  const status = $("live");
  status.hidden = false;
  for (;;) {
    try {
      const answer = await fetch(`index?have=${Math.max(-1, ...all.parts.keys())}`);
      if (!answer.ok) throw new Error(`the server says ${answer.status}`);
      const news = await answer.json();
      const alive = news.alive.join(), before = [...all.parts.keys()].join();
      if (alive !== before) {
        take(news);
        showFilters();
        search();
        if (state.e && !$("reader").querySelector(".sheet")) show();
        document.title = `(${all.rows.length}) TurnGym episodes`;
      }
      status.textContent = news.error ? plain(news.error) : "live";
      status.classList.toggle("bad", Boolean(news.error));
    } catch (error) {
      status.textContent = `not connected: ${error.message}`;
      status.classList.add("bad");
    }
    await new Promise((done) => setTimeout(done, 2000));
  }
}

async function start() {
  $("keys").append(...KEYS.flatMap(([keys, what]) => [el("dt", keys.map((key) => NAMES[key] ?? key).join(" ")), el("dd", what)]));
  $("help-button").addEventListener("click", () => $("help").showModal());
  $("help-close").addEventListener("click", () => $("help").close());
  $("list").addEventListener("scroll", () => requestAnimationFrame(drawList));
  addEventListener("resize", drawList);
  addEventListener("hashchange", restore);
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("filters").addEventListener("input", changed);
  $("f-clear").addEventListener("click", () => {
    state.q = "";
    for (const [name] of FILTERS) state.filters[name] = "";
    writeFragment(false);
    restore();
  });
  try {
    take(LIVE ? await (await fetch("index?have=-1")).json() : await inflate(bytesOf("index")));
    await restore();
  } catch (error) {
    const old = typeof DecompressionStream === "undefined";
    $("count").textContent = old
      ? "This browser is too old: it has no DecompressionStream (Chrome 80, Firefox 113, Safari 16.4 have)."
      : `The page cannot be opened: ${error.message}`;
    return;
  }
  document.body.dataset.ready = String(Math.round(performance.now())); // tests and the benchmark wait for it
  if (LIVE) follow();
}
start();

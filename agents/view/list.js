// The episodes of the page, what is chosen among them, and the list.

// -- Data: the index at once, a part when it is needed -------------------------------------------------------------

const bytesOf = (id) => Uint8Array.from(atob($(id).textContent), (letter) => letter.charCodeAt(0));
async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

const all = { marks: [], top: 16, intents: new Map(), parts: new Map(), rows: [], byKey: new Map(), byTask: new Map() };
const opened = new Map(); // the last parts that were opened, the newest last
const KEPT = 12;

async function readPart(id) {
  if (!LIVE) return inflate(bytesOf(`part-${id}`));
  const answer = await fetch(`part/${id}`);
  if (!answer.ok) throw new Error(`the server says ${answer.status}`);
  return inflate(await answer.arrayBuffer());
}
async function openPart(id) {
  let promise = opened.get(id);
  opened.delete(id);
  if (!promise) {
    promise = readPart(id);
    promise.catch(() => opened.delete(id));
  }
  opened.set(id, promise);
  while (opened.size > KEPT) opened.delete(opened.keys().next().value);
  return promise;
}
// What the task of an episode wanted, by its content hash; null where the task is not at hand.
let tasks = null;
const asked = new Set();
async function wantedOf(episode) {
  const known = tasks && own(await tasks, episode.hash);
  if (known || !episode.hash || (tasks && !LIVE) || asked.has(episode.hash)) return known ?? null;
  asked.add(episode.hash); // a live run may have brought a task since: ask once for each
  tasks = LIVE ? fetch("wanted").then((answer) => answer.arrayBuffer()).then(inflate) : inflate(bytesOf("wanted"));
  tasks.catch(() => { tasks = null; });
  return own(await tasks, episode.hash) ?? null;
}
const episodeOf = async (row) => (await openPart(row.part.id))[row.place];

// The places of a row are those of `agents.view.pack.row`.
function rowOf(part, place, cells) {
  const [task, family, attempt, passed, rate, reward, stop, turns, tokens, failed, marks, step] = cells;
  return {
    part, place, task, family, attempt, passed, rate, reward, stop, turns, tokens, failed, marks,
    step: part.step ?? step, arm: part.arm, run: part.run,
    key: `${part.file}:${part.first + place}`,
    low: `${task}\n${all.intents.get(task) ?? ""}`.toLowerCase(),
  };
}

function take(index) {
  all.marks = index.marks;
  all.top = index.top;
  for (const [task, intent] of Object.entries(index.intents)) all.intents.set(task, intent);
  for (const part of index.parts) {
    all.parts.set(part.id, { ...part, rows: part.rows.map((cells, place) => rowOf(part, place, cells)) });
  }
  const order = index.alive ?? index.parts.map((part) => part.id);
  all.parts = new Map(order.filter((id) => all.parts.has(id)).map((id) => [id, all.parts.get(id)]));
  all.rows = [...all.parts.values()].flatMap((part) => part.rows);
  all.byKey = new Map(all.rows.map((row) => [row.key, row]));
  all.byTask = Map.groupBy ? Map.groupBy(all.rows, (row) => row.task) : grouped(all.rows);
}
function grouped(rows) {
  const out = new Map();
  for (const row of rows) out.has(row.task) ? out.get(row.task).push(row) : out.set(row.task, [row]);
  return out;
}

// -- Filters: what is chosen stands in the fragment of the address, so that a link leads to the same view ----------

const VERDICTS = { passed: true, failed: false, "no grade": null };
const ORDERS = {
  "as recorded": null,
  "worst first": (a, b) => (a.rate ?? 2) - (b.rate ?? 2),
  "most turns": (a, b) => b.turns - a.turns,
  "most tokens": (a, b) => b.tokens - a.tokens,
  "by task": (a, b) => (a.task < b.task ? -1 : a.task > b.task ? 1 : 0),
};
const has = (text, part) => text.toLowerCase().includes(part.toLowerCase());
// Name in the fragment, the control, what it is called before anything is chosen, and which rows a value lets pass.
const FILTERS = [
  ["task", "f-task", "task", (row, value) => has(row.task, value)],
  ["family", "f-family", "family", (row, value) => row.family === value],
  ["pass", "f-pass", "passed or not", (row, value) => row.passed === own(VERDICTS, value)],
  ["stop", "f-stop", "stop reason", (row, value) => row.stop === value],
  ["run", "f-run", "run", (row, value) => row.run === value],
  ["step", "f-step", "step", (row, value) => String(row.step) === value],
  ["arm", "f-arm", "arm", (row, value) => row.arm === value],
  ["failed", "f-failed", "failed assertion", (row, value) => row.failed.some(([name, kind]) => has(name, value) || has(kind, value))],
  ["with", "f-mark", "with …", (row, value) => (row.marks >> all.marks.indexOf(value)) & 1],
];
const state = { q: "", deep: false, sort: "as recorded", e: null, vs: null, filters: {} };
let shown = []; // the rows of the list
let hits = null; // keys whose turns hold what is searched for; null: turns are not searched

function readFragment() {
  const given = new URLSearchParams(location.hash.slice(1));
  state.q = given.get("q") ?? "";
  state.deep = given.has("deep");
  state.sort = Object.hasOwn(ORDERS, given.get("sort") ?? "") ? given.get("sort") : "as recorded";
  state.e = given.get("e");
  state.vs = given.get("vs");
  state.filters = Object.fromEntries(FILTERS.map(([name]) => [name, given.get(name) ?? ""]));
}
function writeFragment(push) {
  const out = new URLSearchParams();
  if (state.e) out.set("e", state.e);
  if (state.vs) out.set("vs", state.vs);
  if (state.q) out.set("q", state.q);
  if (state.deep) out.set("deep", "1");
  for (const [name, value] of Object.entries(state.filters)) if (value) out.set(name, value);
  if (state.sort !== "as recorded") out.set("sort", state.sort);
  const hash = `#${out.toString().replaceAll("%2F", "/").replaceAll("%3A", ":")}`;
  if (hash !== (location.hash || "#")) history[push ? "pushState" : "replaceState"](null, "", hash);
}

function fill(id, first, values, chosen, label = (value) => value) {
  const options = [["", first], ...values.map((value) => [value, label(value)])];
  if (chosen && !values.includes(chosen)) options.push([chosen, label(chosen)]);
  $(id).replaceChildren(...options.map(([value, label]) => {
    const made = el("option", plain(label));
    made.value = value;
    return made;
  }));
  $(id).hidden = values.length < 2 && !chosen; // a choice of one is none
  $(id).value = chosen ?? "";
}
const distinct = (get) => [...new Set(all.rows.map(get))].filter((value) => value !== "" && value !== null && value !== undefined);
function suggest(id, values) {
  $(id).replaceChildren(...values.slice(0, 300).map((value) => {
    const made = document.createElement("option");
    made.value = value;
    made.label = plain(value);
    return made;
  }));
}
function showFilters() {
  const f = state.filters;
  $("f-q").value = state.q;
  $("f-deep").checked = state.deep;
  $("f-task").value = f.task;
  $("f-failed").value = f.failed;
  suggest("l-task", distinct((row) => row.task).sort());
  const often = new Map();
  for (const [name, kind] of all.rows.flatMap((row) => row.failed)) {
    for (const one of new Set([kind, name])) often.set(one, (often.get(one) ?? 0) + 1);
  }
  suggest("l-failed", [...often].sort((a, b) => b[1] - a[1]).map(([name]) => name));
  $("f-failed").hidden = !often.size && !f.failed;
  fill("f-family", "family", distinct((row) => row.family).sort(), f.family);
  fill("f-pass", "passed or not", Object.keys(VERDICTS).filter((name) => all.rows.some((row) => row.passed === VERDICTS[name])), f.pass);
  fill("f-stop", "stop reason", distinct((row) => row.stop).sort(), f.stop);
  fill("f-run", "run", distinct((row) => row.run), f.run);
  fill("f-step", "step", distinct((row) => row.step).sort((a, b) => a - b).map(String), f.step, (value) => `step ${value}`);
  fill("f-arm", "arm", distinct((row) => row.arm), f.arm);
  const marks = all.marks.filter((_, place) => all.rows.some((row) => (row.marks >> place) & 1));
  fill("f-mark", "with …", marks, f.with);
  $("f-mark").hidden = !marks.length && !f.with;
  fill("f-sort", "", Object.keys(ORDERS), state.sort);
  $("f-sort").options[0].remove();
  $("f-sort").value = state.sort;
}

function filter() {
  const needle = state.q.toLowerCase();
  const active = FILTERS.filter(([name]) => state.filters[name]);
  shown = all.rows.filter((row) =>
    (!needle || row.low.includes(needle) || (hits !== null && hits.has(row.key))) &&
    active.every(([name, , , test]) => test(row, state.filters[name])));
  if (ORDERS[state.sort]) shown = [...shown].sort(ORDERS[state.sort]);
  for (const [name, id] of FILTERS) $(id).classList.toggle("on", Boolean(state.filters[name]));
  $("f-q").classList.toggle("on", Boolean(needle));
  $("f-clear").hidden = !needle && !active.length;
  const graded = shown.filter((row) => row.passed !== null), passed = graded.filter((row) => row.passed).length;
  const rate = graded.length ? `, ${passed} of ${graded.length} graded passed (${(100 * passed / graded.length).toFixed(1)} %)` : "";
  const of = shown.length < all.rows.length ? ` of ${all.rows.length.toLocaleString("en")}` : "";
  $("count").textContent = `${shown.length.toLocaleString("en")}${of} episodes${rate}`;
  drawList();
}

// Searching turns opens every part, one after the other; a new search ends the one before.
let searching = 0;
async function search() {
  delete document.body.dataset.searched;
  const mine = ++searching, needle = state.q.toLowerCase();
  hits = state.deep && needle ? new Set() : null;
  filter();
  if (hits === null) return;
  let done = 0;
  for (const part of all.parts.values()) {
    const episodes = await (opened.get(part.id) ?? readPart(part.id)); // not kept: they would push out what is looked at
    if (mine !== searching) return;
    episodes.forEach((episode, place) => {
      const inside = (text) => text !== undefined && text.toLowerCase().includes(needle);
      if ((episode.turns ?? []).some((turn) => inside(turn.reply) || inside(turn.observation))) hits.add(part.rows[place].key);
    });
    done += 1;
    if (done % 20 === 0 || done === all.parts.size) filter();
  }
  document.body.dataset.searched = state.q; // the benchmark waits for it
}

// -- The list: only the rows in view are on the page ----------------------------------------------------------------

const HEIGHT = 52;
const SIGNS = new Map([[true, ["✓", "pass", "passed"]], [false, ["✗", "fail", "failed"]], [null, ["○", "none", "no grade"]]]);
const stepOf = (row) => (row.step === null || row.step === undefined ? "" : `step ${row.step}`);
const where = (row) => [row.run, stepOf(row), row.arm, `#${row.attempt}`].filter(Boolean).join(" · ");

function drawList() {
  const list = $("list"), rows = $("rows");
  rows.style.height = `${shown.length * HEIGHT}px`;
  const from = Math.max(0, Math.floor(list.scrollTop / HEIGHT) - 4);
  const to = Math.min(shown.length, Math.ceil((list.scrollTop + (list.clientHeight || innerHeight)) / HEIGHT) + 4);
  const made = [];
  for (let place = from; place < to; place++) {
    const row = shown[place], [sign, kind, verdict] = SIGNS.get(row.passed);
    const failed = row.failed.length ? `failed: ${row.failed.map(([name]) => name).join(", ")}` : "";
    const line = el("div.row",
      el("div", el(`span.sign.${kind}`, sign), el("span.name.code", clip(row.task, 200)), el("span.end", number(row.rate, 2))),
      el("div", el("span.note", [where(row), count(row.turns, "turn"), row.stop, clip(failed, 300)].filter(Boolean).join(" · "))));
    line.style.top = `${place * HEIGHT}px`;
    line.id = `row-${place}`;
    line.setAttribute("role", "option");
    line.setAttribute("aria-label", `${plain(row.task)}, ${verdict}`);
    const picked = row.key === state.e;
    line.setAttribute("aria-selected", String(picked));
    if (picked) line.classList.add("picked");
    line.addEventListener("click", () => go(row.key));
    made.push(line);
  }
  rows.replaceChildren(...made);
  if (!shown.length) {
    rows.style.height = "auto";
    rows.append(el("p.empty", all.rows.length ? "No episode is like that." : "No episodes yet."));
  }
}
function reveal() {
  const place = shown.findIndex((row) => row.key === state.e), list = $("list");
  if (place < 0) return;
  const top = place * HEIGHT;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + HEIGHT > list.scrollTop + list.clientHeight) list.scrollTop = top + HEIGHT - list.clientHeight;
  list.setAttribute("aria-activedescendant", `row-${place}`);
}

function go(key, vs = null) {
  state.e = key;
  state.vs = vs;
  writeFragment(true);
  drawList();
  reveal();
  return show();
}

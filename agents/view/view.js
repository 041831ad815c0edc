"use strict";
// The browser of episodes. It reads the index of the page, opens a part when an episode of it is shown, and puts every
// text on the page as text (`say`): nothing that a policy or a sandbox wrote is ever parsed as markup.
(() => {
  const $ = (id) => document.getElementById(id);
  const LIVE = document.body.dataset.mode === "live";

  // -- Text ----------------------------------------------------------------------------------------------------------

  // What cannot be seen or moves what can: controls, format characters (direction marks among them), halves of
  // surrogate pairs, private use, line separators, and all that Unicode calls ignorable (fillers, variation selectors).
  const HIDDEN = /(?![\n\t])[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;
  const code = (letter) => `<U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}>`;
  // Names, facts and labels are short, or somebody wants to hold the page up: long texts have `block`.
  const clip = (text, most = 2000) => (text.length > most ? `${text.slice(0, most)}… (${text.length.toLocaleString("en")} characters)` : text);
  const plain = (text) => clip(String(text), 200).replace(HIDDEN, code); // where there is no place for a box around the code

  function say(into, text) {
    let at = 0;
    for (const found of text.matchAll(HIDDEN)) {
      if (found.index > at) into.append(text.slice(at, found.index));
      const box = document.createElement("span");
      box.className = "esc";
      box.textContent = code(found[0]);
      into.append(box);
      at = found.index + found[0].length;
    }
    if (at < text.length) into.append(text.slice(at));
    return into;
  }

  // An element. `kind` is "tag.class.class"; children are elements, or texts.
  function el(kind, ...children) {
    const [tag, ...classes] = kind.split(".");
    const made = document.createElement(tag);
    if (classes.length) made.className = classes.join(" ");
    for (const child of children.flat()) {
      if (child instanceof Node) made.append(child);
      else if (child !== null && child !== undefined && child !== false) say(made, clip(String(child)));
    }
    return made;
  }

  function button(label, act, title) {
    const made = el("button", label);
    made.type = "button";
    if (title) made.title = plain(title);
    made.addEventListener("click", act);
    return made;
  }

  // A text of any length: a megabyte on one line would hold the page up, so the rest comes when asked for.
  const FIRST = 3000, MORE = 100000;
  function block(kind, text, before) {
    const box = el("div"), pre = el(kind, before);
    let shown = 0;
    const more = button("", () => grow(MORE));
    more.className = "more";
    function grow(by) {
      let end = shown + by >= text.length - 200 ? text.length : shown + by;
      if (end < text.length && /[\uD800-\uDBFF]/.test(text[end - 1])) end += 1; // not between halves of a pair
      say(pre, text.slice(shown, end));
      shown = end;
      more.hidden = shown === text.length;
      more.textContent = `show more (${(text.length - shown).toLocaleString("en")} characters left)`;
    }
    grow(FIRST);
    box.append(pre, more);
    return box;
  }

  // Names come from records: `constructor` is no key of ours.
  const own = (object, key) => (object && Object.hasOwn(object, key) ? object[key] : undefined);
  const number = (value, digits = 3) => (typeof value === "number" ? value.toFixed(digits) : value ?? "–");
  const signed = (value) => (typeof value === "number" ? (value < 0 ? "−" : "+") + Math.abs(value).toFixed(3) : value ?? "–");
  const seconds = (s) => (s === undefined ? null : s < 0.01 ? `${(s * 1e3).toFixed(1)} ms` : s < 1 ? `${Math.round(s * 1e3)} ms` : `${s.toFixed(1)} s`);
  const count = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;

  // -- Data: the index at once, a part when it is needed -------------------------------------------------------------

  const bytesOf = (id) => Uint8Array.from(atob($(id).textContent), (letter) => letter.charCodeAt(0));
  async function inflate(bytes) {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  const all = { marks: [], top: 16, intents: new Map(), parts: new Map(), rows: [], byKey: new Map(), byTask: new Map() };
  const opened = new Map(); // the last parts that were opened, the newest last
  const KEPT = 12;

  async function openPart(id) {
    let promise = opened.get(id);
    opened.delete(id);
    if (!promise) {
      promise = LIVE
        ? fetch(`part/${id}`).then((answer) => (answer.ok ? answer.arrayBuffer() : Promise.reject(new Error(`part ${id}: ${answer.status}`)))).then(inflate)
        : inflate(bytesOf(`part-${id}`));
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
    for (const row of all.rows) for (const [name, kind] of row.failed) for (const one of new Set([kind, name])) often.set(one, (often.get(one) ?? 0) + 1);
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
      const episodes = opened.has(part.id) ? await opened.get(part.id) : LIVE ? await openPart(part.id) : await inflate(bytesOf(`part-${part.id}`));
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
  const where = (row) => [row.run, row.step !== null && row.step !== undefined ? `step ${row.step}` : "", row.arm, `#${row.attempt}`].filter(Boolean).join(" · ");

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
        el("div", el(`span.sign.${kind}`, sign), el("span.name.code", clip(row.task, 200)), el("span.end", row.rate === null ? "–" : number(row.rate, 2))),
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

  // -- One episode ----------------------------------------------------------------------------------------------------

  let showing = 0;
  async function show() {
    const mine = ++showing, reader = $("reader");
    const row = all.byKey.get(state.e), other = state.vs ? all.byKey.get(state.vs) : null;
    document.body.classList.toggle("reading", Boolean(state.e));
    if (!row) {
      reader.replaceChildren(el("p.empty", state.e ? `There is no episode ${state.e} in this page.` : "Choose an episode. Keys: j and k for the next and the one before, / to search, ? for all keys."));
      if (state.e) reader.prepend(button("‹ list", leave));
      return;
    }
    try {
      const episode = await episodeOf(row), against = other ? await episodeOf(other) : null;
      const wanted = await wantedOf(episode);
      if (mine !== showing) return;
      reader.replaceChildren(against ? pairSheet(row, episode, other, against, wanted) : sheet(row, episode, wanted));
      reader.scrollTop = 0;
    } catch (error) {
      if (mine === showing) reader.replaceChildren(el("p.warning", `This episode cannot be opened: ${error.message}`));
    }
  }

  function badge(row) {
    const [, kind, verdict] = SIGNS.get(row.passed);
    return el(`span.badge.${kind}`, verdict);
  }
  const fact = (name, value) => (value === undefined || value === null || value === "" ? null : el("span", `${name} `, el("b", value)));

  function facts(row, episode) {
    const turns = episode.turns ?? [];
    const total = (name) => turns.reduce((sum, turn) => sum + (turn[name] ?? 0), 0);
    return el("p.facts", fact("step", row.step), fact("arm", row.arm), fact("attempt", row.attempt), fact("stop", row.stop), fact("reward", number(row.reward)),
      fact("rate", number(row.rate)), fact("turns", row.turns), fact("tokens", row.tokens ? row.tokens.toLocaleString("en") : "text only"),
      fact("model", seconds(total("model") || undefined)), fact("sandbox", seconds(total("sandbox") || undefined)), fact("decode", episode.sampling));
  }

  function actions(row) {
    const others = all.byTask.get(row.task) ?? [];
    const box = el("span.go", button("‹ list", leave));
    box.firstChild.classList.add("back");
    if (others.length > 1) box.append(button("compare", () => go(row.key, nextOther(row)), "with another attempt at this task (c)"));
    return box;
  }
  function nextOther(row, after) {
    const others = (all.byTask.get(row.task) ?? []).filter((one) => one !== row);
    const at = others.findIndex((one) => one.key === after);
    if (at >= 0) return others[(at + 1) % others.length].key;
    // First one with another verdict under the same arm: the difference people look for.
    return (others.find((one) => one.passed !== row.passed && one.arm === row.arm) ?? others.find((one) => one.passed !== row.passed) ?? others[0])?.key ?? null;
  }

  function intentOf(row, episode, wanted) {
    const intent = all.intents.get(row.task) ?? wanted?.intent ?? episode.notes?.prompt;
    if (intent) return el("blockquote.text", block("pre.prose", String(intent)));
    return episode.prompt ? null : el("p.note", "What the task asks for is not in the record (a run's folder has it in tasks.jsonl).");
  }

  function sheet(row, episode, wanted) {
    const out = el("article.sheet", el("div.headline", badge(row), el("h2.code", row.task), actions(row)), facts(row, episode), intentOf(row, episode, wanted));
    if (episode.error) out.append(el("p.warning", `No grade: ${episode.error}`));
    const losses = episode.notes?.losses;
    for (const loss of Array.isArray(losses) ? losses : []) out.append(el("p.warning", `Sandbox lost in turn ${loss?.turn}, during ${loss?.command || "grading"} (${loss?.end}): ${loss?.error}`));
    if (episode.notes?.forged_headers) out.append(el("p.warning", `${episode.notes.forged_headers} headers of the chat template in what it was shown, each with a backslash put in.`));
    out.append(checks([episode], wanted), attempts(row) ?? "");
    const files = Object.entries(wanted?.files ?? {});
    if (files.length) {
      const details = el("details.card", el("summary", `the workspace at the start (${count(files.length, "file")})`));
      once(details, () => files.forEach(([path, text]) => details.append(el("p.note.code", path), block("pre.output", text))));
      out.append(details);
    }
    if (episode.prompt) {
      const details = el("details.card", el("summary", `what the policy read first (${count(episode.prompt_tokens, "token")})`));
      once(details, () => details.append(block("pre.output", episode.prompt)));
      out.append(details);
    }
    (episode.turns ?? []).forEach((turn, place) => out.append(turnCard(turn, place)));
    if (!(episode.turns ?? []).length) out.append(el("p.note", "It ended before the first turn."));
    out.append(record(row, episode));
    return out;
  }
  function once(details, act) {
    details.addEventListener("toggle", act, { once: true });
  }

  // What became of this task: its attempts in the order of the list of files.
  function attempts(row) {
    const others = all.byTask.get(row.task) ?? [];
    if (others.length < 2) return null;
    const chips = others.slice(0, 60).map((one) => {
      const [sign, kind] = SIGNS.get(one.passed);
      const made = button("", () => (one === row ? null : go(one.key)), one.key);
      made.append(el(`span.${kind}`, sign), ` ${plain(where(one))}`);
      made.classList.toggle("here", one === row);
      return made;
    });
    const passed = others.filter((one) => one.passed).length, graded = others.filter((one) => one.passed !== null).length;
    return el("div.card", el("h3", `Attempts at this task: ${passed} of ${graded} graded passed`), el("div.others", chips,
      others.length > 60 ? el("span.note", `and ${others.length - 60} more: filter the list by this task`) : null));
  }

  // -- Assertions, and for files what was and what should be, as far as the record says -------------------------------

  const MARKS = { pass: ["✓", "pass"], fail: ["✗", "fail"], error: ["!", "error"] };
  function checks(episodes, wanted) {
    const names = [...new Set(episodes.flatMap((episode) => (episode.assertions ?? []).map((one) => String(one.name))))];
    if (!names.length) return el("p.note", "No assertions are recorded.");
    const table = el("table.checks");
    for (const name of names) {
      const ones = episodes.map((episode) => (episode.assertions ?? []).find((one) => String(one.name) === name));
      const line = el("tr");
      let failed = false;
      ones.forEach((one) => line.append(el("td", el(`span.sign.${(own(MARKS, one?.verdict) ?? ["", "none"])[1]}`, (own(MARKS, one?.verdict) ?? ["–"])[0]))));
      const cell = el("td", el("span.code", name));
      ones.forEach((one, side) => {
        if (!one || one.verdict === "pass") return;
        cell.append(detail(one, episodes.length > 1 ? `${"AB"[side]}: ` : "", own(wanted?.checks, name)?.length));
        failed = true;
      });
      if (failed) cell.append(asksFor(name, wanted) ?? "");
      const score = ones.map((one) => (one ? number(one.score, 2) : "–")).join(" | ");
      const weight = ones.find(Boolean)?.weight;
      line.append(cell, el("td.end", score, weight !== undefined && weight !== 1 ? el("span.note", ` × ${weight}`) : null));
      table.append(line);
    }
    const files = episodes.some((episode) => (episode.assertions ?? []).some((one) => one.verdict !== "pass" && String(one.kind).startsWith("file")));
    return el("div.card", el("h3", "Assertions"), table,
      files ? el("p.note", `Of files the record keeps these findings, not the contents at the end.${wanted ? "" : " The task is not at hand, or has changed since: what should be there is known only as far as a finding tells it."}`) : null);
  }
  // All that a check asks for, and what its file held at the start, from the task.
  function asksFor(name, wanted) {
    const settings = own(wanted?.checks, name);
    if (!settings) return null;
    const path = name.slice(name.indexOf(":") + 1), before = own(wanted.files, path);
    if (!settings.length && before === undefined) return null;
    const list = el("dl.diff");
    for (const [key, value] of settings) list.append(el("dt", key), el("dd.want", block("span", value)));
    if (before !== undefined) list.append(el("dt", "at the start"), el("dd", block("span", before)));
    return list;
  }
  // The sentences of file assertions in which both sides stand; others are shown as they are.
  const SIDES = [
    [/^(.*): no match for '(.*)'$/s, (m) => [["file", m[1]], ["was", "no match"], ["should match", m[2].replaceAll("\\\\", "\\")]]],
    [/^(.*): does not contain '(.*)'$/s, (m) => [["file", m[1]], ["was", "without a text"], ["should contain", m[2]]]],
    [/^(.*): has (\d+ \w+) instead of (\d+)$/s, (m) => [["file", m[1]], ["was", m[2]], ["should be", `${m[3]} ${m[2].replace(/^\d+ /, "")}`]]],
    [/^(.*): changed \(was (\d+) bytes, is (\d+)\)$/s, (m) => [["file", m[1]], ["was", `${m[3]} bytes`], ["should be", `unchanged, ${m[2]} bytes`]]],
    [/^(.*): (?:nothing there|gone)$/s, (m) => [["file", m[1]], ["was", "not there"], ["should be", "there"]]],
    [/^(.*): a (\w+) stands there$/s, (m) => [["file", m[1]], ["was", `a ${m[2]}`], ["should be", "not there"]]],
  ];
  function detail(one, before, whole) {
    const text = String(one.detail || (one.verdict === "error" ? "the machinery failed" : "no reason recorded"));
    const broke = one.broke ? "the check broke on what the agent left: " : "";
    for (const [pattern, sides] of String(one.kind).startsWith("file") ? SIDES : []) {
      const found = text.match(pattern);
      if (!found) continue;
      const list = el("dl.diff");
      for (const [name, value] of sides(found)) {
        if (whole && (name === "should match" || name === "should contain")) continue; // all of it follows, from the task
        const kind = name === "was" ? "dd.was" : name.startsWith("should") ? "dd.want" : "dd";
        list.append(el("dt", name), el(kind, value));
      }
      return el("div", before || broke ? el("span.note", before + broke) : null, list);
    }
    return el("div.detail", before, broke, block("span.code", text));
  }

  // -- A turn ----------------------------------------------------------------------------------------------------------

  // A reply without its fence: what stands before the command, the command, what stands after.
  function parts(turn) {
    const reply = turn.reply ?? "", command = turn.command;
    if (!command) return [reply, null, ""];
    const at = reply.indexOf(command);
    if (at < 0) return [reply, command, ""]; // recorded as it was carried out, and written otherwise
    const before = reply.slice(0, at).replace(/`{3,}[^\n`]*\n\s*$/, ""), after = reply.slice(at + command.length).replace(/^\s*`{3,}[^\S\n]*\n?/, "");
    return [before.trim(), command, after.trim()];
  }

  const KNOWN_NOTES = { thought_tokens: (n) => `${n} tokens of thought`, resampled: (n) => `resampled ${n}×`, text_cut: () => "reply cut in the record" };
  function chips(turn) {
    const out = [];
    const chip = (text, kind = "") => out.push(el(`span.chip${kind}`, text));
    if (turn.timed_out) chip("timed out", ".warn");
    if (turn.finish === "length") chip(`cut at the cap${turn.cap ? ` of ${turn.cap}` : ""}`, ".warn");
    if (turn.finish === "stop_text") chip("ended by a stop text");
    if (turn.action === "malformed") chip("malformed", ".warn");
    for (const [name, value] of Object.entries(turn.notes ?? {})) {
      if (name === "advantage") continue;
      const said = own(KNOWN_NOTES, name)?.(value);
      chip(said ?? `${name.replaceAll("_", " ")}${value === 1 ? "" : ` ${value}`}`, name.startsWith("think") ? ".warn" : "");
    }
    if (turn.forced?.length) chip(`${count(turn.forced.length, "token")} put in, not sampled`);
    if (turn.as_line !== undefined) chip(`later prompts show its context in ${turn.as_line} tokens`);
    return out;
  }

  function turnCard(turn, place, kind = "", side = "") {
    const advantage = turn.notes?.advantage;
    const good = (value) => (typeof value !== "number" || value === 0 ? "" : value > 0 ? ".up" : ".down");
    const header = el("header", el("b", `${side}Turn ${place}`), el("span", turn.action || "not carried out"),
      turn.exit !== undefined ? el(`span.num${turn.exit ? ".fail" : ""}`, `exit ${turn.exit}`) : null,
      turn.tokens ? el("span.num", count(turn.tokens, "token")) : null,
      turn.model !== undefined ? el("span.num", `model ${seconds(turn.model)}`) : null,
      turn.sandbox !== undefined ? el("span.num", `sandbox ${seconds(turn.sandbox)}`) : null,
      turn.signal !== undefined ? el(`span.chip.num${good(turn.signal)}`, `signal ${signed(turn.signal)}`) : null,
      advantage !== undefined ? el(`span.chip.num${good(advantage)}`, `advantage ${signed(advantage)}`) : null,
      turn.uncertainty !== undefined ? el("span.chip.num", `uncertainty ${number(turn.uncertainty)}`)
        : turn.uncertainty_bounds ? el("span.chip.num", `uncertainty ${turn.uncertainty_bounds.map((v) => number(v)).join(" to ")}`) : null,
      chips(turn));
    const [before, command, after] = parts(turn);
    const out = el(`section.card.turn${kind}`, header);
    if (before) out.append(block("pre.prose", before));
    if (command) out.append(block(`pre.command${turn.exit ? ".bad" : ""}`, command, el("span.prompt-sign", "$ ")));
    if (after) out.append(block("pre.prose", after));
    if (!turn.reply && !command) out.append(el("p.note", "An empty reply."));
    if (turn.observation) out.append(block("pre.output", turn.observation));
    out.append(uncertainty(turn));
    if (turn.candidates) out.append(rejected(turn.candidates));
    return out;
  }

  function rejected(candidates) {
    const details = el("details", el("summary", `${count(candidates.length, "rejected candidate")} (signals ${candidates.map((one) => number(one.signal)).join(", ")})`));
    once(details, () => candidates.forEach((one, place) => details.append(
      el("p.note", `${place + 1}. ${count(one.tokens, "token")}, signal ${one.bounds ? one.bounds.map((v) => number(v)).join(" to ") : number(one.signal)}`),
      one.text === undefined ? el("p.note", "Its text is not known here: the tokenizer is not at hand (--model names it).") : block("pre.prose", one.text))));
    return details;
  }

  // -- The strip: entropy of each token. 8 bits each, on a scale of roots (see `eight_bits`) ---------------------------

  const nats = (text) => (text === undefined ? null : Array.from(atob(text), (letter) => all.top * (letter.charCodeAt(0) / 255) ** 2));
  const LEVELS = [[0.5, "low"], [1.5, "mid"], [Infinity, "high"]];

  function uncertainty(turn) {
    const exact = nats(turn.entropy), upper = nats(turn.upper), lower = nats(turn.lower), values = exact ?? upper;
    if (!values) return el("p.note", turn.tokens ? "Recorded without entropies: no strip." : "Recorded as text, without tokens: no strip.");
    const forced = new Set(turn.forced ?? []), top = Math.max(2, ...values), size = values.length;
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("class", "strip");
    svg.setAttribute("viewBox", `0 0 ${Math.max(size, 24)} 100`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    const mean = values.reduce((a, b) => a + b, 0) / size, most = Math.max(...values);
    const said = exact ? `entropy: mean ${mean.toFixed(2)}, most ${most.toFixed(2)} nats` : `entropy known within bounds: mean at most ${mean.toFixed(2)} nats`;
    svg.setAttribute("aria-label", said);
    const paths = { low: "", mid: "", high: "", forced: "", range: "" };
    values.forEach((value, at) => {
      const line = (from, to) => `M${at + 0.5} ${(100 - from).toFixed(1)}V${(100 - Math.max(to, from + 3)).toFixed(1)}`;
      const high = 96 * value / top;
      if (forced.has(at)) paths.forced += line(0, 100);
      else if (!exact) {
        paths.range += line(96 * lower[at] / top, high);
        paths.mid += line(0, 96 * lower[at] / top);
      } else paths[LEVELS.find(([limit]) => value < limit)[1]] += line(0, high);
    });
    for (const [name, d] of Object.entries(paths)) {
      if (!d) continue;
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("d", d);
      path.setAttribute("class", name);
      path.setAttribute("stroke-width", "0.82");
      svg.append(path);
    }
    const texts = pieces(turn);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect(), at = Math.floor((event.clientX - box.left) / box.width * Math.max(size, 24));
      if (at < 0 || at >= size) return hideTip();
      const range = exact ? values[at].toFixed(3) : `${lower[at].toFixed(3)} to ${values[at].toFixed(3)}`;
      tip(event, `token ${at}: ${forced.has(at) ? "put in, not sampled" : `${range} nats`}`, texts?.[at]);
    });
    svg.addEventListener("pointerleave", hideTip);
    const line = el("div.strip-note.note", el("span", said));
    const out = el("div", svg, line);
    if (texts) {
      const details = el("details", el("summary", "token by token"));
      once(details, () => details.append(heat(texts, values, forced)));
      out.append(details);
    } else line.append(el("span", "the text of each token is not known here"));
    return out;
  }
  function pieces(turn) {
    if (!turn.spans) return null;
    const spans = typeof turn.spans === "string" ? Array.from(atob(turn.spans), (letter) => letter.charCodeAt(0)) : turn.spans;
    let at = 0;
    return spans.map((length) => turn.reply.slice(at, (at += length)));
  }
  function heat(texts, values, forced) {
    const pre = el("pre.command.tokens");
    texts.slice(0, 3000).forEach((text, at) => {
      const made = el(`span.tok${forced.has(at) ? ".put" : ""}`, text || "∎");
      const share = Math.round(Math.min(1, values[at] / 3) * 70);
      made.style.background = `color-mix(in srgb, var(--c2) ${share}%, transparent)`;
      pre.append(made);
    });
    if (texts.length > 3000) pre.append(el("span.note", ` and ${texts.length - 3000} more tokens`));
    return pre;
  }
  function tip(event, head, text) {
    const box = $("tip");
    box.replaceChildren(el("div", head), text === undefined ? "" : el("div.code", text === "" ? "end of turn, or part of the next" : JSON.stringify(text)));
    box.hidden = false;
    box.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - box.offsetWidth - 8))}px`;
    box.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8))}px`;
  }
  const hideTip = () => { $("tip").hidden = true; };

  // -- Where it stands, and all that is noted ---------------------------------------------------------------------------

  function record(row, episode) {
    const list = el("dl.plain");
    const add = (name, value) => {
      if (value !== undefined && value !== null && value !== "") list.append(el("dt", name), el("dd.code", typeof value === "object" ? JSON.stringify(value) : value));
    };
    add("episode", `${row.part.first + row.place} of ${row.part.file || row.part.run}`);
    add("seed", episode.seed);
    add("task hash", episode.hash);
    add("source", episode.source);
    add("tokenizer, not at hand", episode.tokenizer);
    for (const [name, value] of Object.entries(episode.environment ?? {})) add(name, value);
    for (const [name, value] of Object.entries(episode.notes ?? {})) if (name !== "losses" && name !== "prompt") add(name, value);
    const details = el("details.card", el("summary", "the record"), list);
    if (!(episode.turns ?? []).some((turn) => turn.notes?.advantage !== undefined) && episode.notes?.advantage === undefined) {
      details.append(el("p.note", "No advantages are recorded with these turns."));
    }
    return details;
  }

  // -- Two attempts at one task, side by side ----------------------------------------------------------------------------

  function difference(a, b) {
    if (!a || !b) return `only ${a ? "A" : "B"} has a turn here`;
    if ((a.command ?? null) !== (b.command ?? null)) return "another command";
    if ((a.reply ?? "") !== (b.reply ?? "")) return "another reply";
    if ((a.observation ?? "") !== (b.observation ?? "") || a.exit !== b.exit) return "another answer of the environment";
    return null;
  }

  function pairSheet(row, episode, other, against, wanted) {
    const out = el("article.sheet.wide");
    const pick = document.createElement("select");
    pick.setAttribute("aria-label", "attempt to compare with");
    for (const one of all.byTask.get(row.task) ?? []) {
      if (one === row) continue;
      const option = el("option", plain(`${SIGNS.get(one.passed)[0]} ${where(one)}`));
      option.value = one.key;
      pick.append(option);
    }
    pick.value = other.key;
    pick.addEventListener("change", () => go(row.key, pick.value));
    const back = button("‹ list", leave);
    back.classList.add("back");
    const head = el("div.headline", el("h2.code", row.task), el("span.go", back, pick, button("swap", () => go(other.key, row.key)), button("close", () => go(row.key), "back to one episode (Escape)")));
    out.append(head, intentOf(row, episode, wanted) ?? "", checks([episode, against], wanted));
    const pairs = el("div.pairs");
    for (const [name, one, data] of [["A", row, episode], ["B", other, against]]) {
      pairs.append(el("div", el("div.headline", el("b", `${name} `), badge(one), el("span.note", where(one))), facts(one, data), data.error ? el("p.warning", data.error) : null));
    }
    const left = episode.turns ?? [], right = against.turns ?? [];
    const size = Math.max(left.length, right.length);
    const both = (into, place, kind) => [left[place], right[place]].forEach((turn, side) => into.append(turn ? turnCard(turn, place, kind, `${"AB"[side]} · `) : el("p.empty", "no turn here")));
    let first = 0;
    while (first < size && !difference(left[first], right[first])) first += 1;
    out.append(pairs);
    if (first) {
      const same = el("details.card", el("summary", first === 1 ? "turn 0 is the same on both sides" : `turns 0 to ${first - 1} are the same on both sides`));
      const inside = el("div.pairs");
      for (let place = 0; place < first; place++) both(inside, place, "");
      same.append(inside);
      out.append(same);
    }
    const rest = el("div.pairs");
    rest.append(el("div.first.across", first < size ? `first difference, turn ${first}: ${difference(left[first], right[first])}` : "no difference: the same turns and the same answers"));
    for (let place = first; place < size; place++) both(rest, place, difference(left[place], right[place]) ? ".differs" : "");
    out.append(rest);
    return out;
  }

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
      $("count").textContent = old ? "This browser is too old: it has no DecompressionStream (Chrome 80, Firefox 113, Safari 16.4 have)." : `The page is damaged: ${error.message}`;
      return;
    }
    document.body.dataset.ready = String(Math.round(performance.now())); // tests and the benchmark wait for it
    if (LIVE) follow();
  }
  start();
})();

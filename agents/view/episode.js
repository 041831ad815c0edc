// One episode, or two side by side.

// -- One episode ----------------------------------------------------------------------------------------------------

let showing = 0;
async function show() {
  const mine = ++showing, reader = $("reader");
  const row = all.byKey.get(state.e), other = state.vs ? all.byKey.get(state.vs) : null;
  document.body.classList.toggle("reading", Boolean(state.e));
  if (!row) {
    const said = state.e
      ? `There is no episode ${state.e} in this page.`
      : "Choose an episode. Keys: j and k for the next and the one before, / to search, ? for all keys.";
    reader.replaceChildren(el("p.empty", said));
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
  return el("p.facts",
    fact("step", row.step), fact("arm", row.arm), fact("attempt", row.attempt), fact("stop", row.stop), fact("reward", number(row.reward)),
    fact("rate", number(row.rate)), fact("turns", row.turns), fact("tokens", row.tokens ? row.tokens.toLocaleString("en") : "text only"),
    fact("model", seconds(total("model") || undefined)), fact("sandbox", seconds(total("sandbox") || undefined)),
    fact("decode", episode.sampling));
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
  const unlike = others.filter((one) => one.passed !== row.passed);
  return (unlike.find((one) => one.arm === row.arm) ?? unlike[0] ?? others[0])?.key ?? null;
}

function intentOf(row, episode, wanted) {
  const intent = all.intents.get(row.task) ?? wanted?.intent ?? episode.notes?.prompt;
  if (intent) return el("blockquote.text", block("pre.prose", String(intent)));
  return episode.prompt ? null : el("p.note", "What the task asks for is not in the record (a run's folder has it in tasks.jsonl).");
}

function sheet(row, episode, wanted) {
  const head = el("div.headline", badge(row), el("h2.code", row.task), actions(row));
  const out = el("article.sheet", head, facts(row, episode), intentOf(row, episode, wanted));
  if (episode.error) out.append(el("p.warning", `No grade: ${episode.error}`));
  const losses = episode.notes?.losses;
  const warn = (text) => out.append(el("p.warning", text));
  for (const loss of Array.isArray(losses) ? losses : []) {
    warn(`Sandbox lost in turn ${loss?.turn}, during ${loss?.command || "grading"} (${loss?.end}): ${loss?.error}`);
  }
  const forged = episode.notes?.forged_headers;
  if (forged) warn(`${forged} headers of the chat template in what it was shown, each with a backslash put in.`);
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
    for (const one of ones) {
      const [mark, kind] = own(MARKS, one?.verdict) ?? ["–", "none"];
      line.append(el("td", el(`span.sign.${kind}`, mark)));
    }
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
  const ofFile = (one) => one.verdict !== "pass" && String(one.kind).startsWith("file");
  const files = episodes.some((episode) => (episode.assertions ?? []).some(ofFile));
  const known = "Of files the record keeps these findings, not the contents at the end.";
  const unknown = " The task is not at hand, or has changed since: what should be there is known only as far as a finding tells it.";
  return el("div.card", el("h3", "Assertions"), table,
    files ? el("p.note", wanted ? known : known + unknown) : null);
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

// How replies write a tool call (envs/calls.py).
const CALL = /<tool_call>(?:(?!<tool_call>)[^])*<\/tool_call>|\[TOOL_CALLS\][^]*|(?:<\|python_tag\|>\s*|^\s*)\{\s*"name"[^]*/g;
// A reply without its fence or its call: what stands before the command, the command, what stands after.
function parts(turn) {
  const reply = turn.reply ?? "", command = turn.command;
  if (!command) return [reply, null, ""];
  const call = [...reply.matchAll(CALL)].at(-1);
  if (call && !/^\s*(?:`{3}|~{3})/m.test(reply.slice(0, call.index)))
    return [reply.slice(0, call.index).trim(), command, reply.slice(call.index + call[0].length).trim()];
  const at = reply.indexOf(command);
  if (at < 0) return [reply, command, ""]; // recorded as it was carried out, and written otherwise
  const before = reply.slice(0, at).replace(/`{3,}[^\n`]*\n\s*$/, "");
  const after = reply.slice(at + command.length).replace(/^\s*`{3,}[^\S\n]*\n?/, "");
  return [before.trim(), command, after.trim()];
}

const KNOWN_NOTES = {
  thought_tokens: (n) => `${n} tokens of thought`,
  resampled: (n) => `resampled ${n}×`,
  text_cut: () => "reply cut in the record",
};
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
  const signals = candidates.map((one) => number(one.signal)).join(", ");
  const signalOf = (one) => (one.bounds ? one.bounds.map((v) => number(v)).join(" to ") : number(one.signal));
  const details = el("details", el("summary", `${count(candidates.length, "rejected candidate")} (signals ${signals})`));
  once(details, () => candidates.forEach((one, place) => details.append(
    el("p.note", `${place + 1}. ${count(one.tokens, "token")}, signal ${signalOf(one)}`),
    one.text === undefined
      ? el("p.note", "Its text is not known here: the tokenizer is not at hand (--model names it).")
      : block("pre.prose", one.text))));
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
  const said = exact
    ? `entropy: mean ${mean.toFixed(2)}, most ${most.toFixed(2)} nats`
    : `entropy known within bounds: mean at most ${mean.toFixed(2)} nats`;
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
  const said = text === "" ? "end of turn, or part of the next" : JSON.stringify(text);
  box.replaceChildren(el("div", head), text === undefined ? "" : el("div.code", said));
  box.hidden = false;
  box.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8))}px`;
}
const hideTip = () => { $("tip").hidden = true; };

// -- Where it stands, and all that is noted ---------------------------------------------------------------------------

function record(row, episode) {
  const list = el("dl.plain");
  const add = (name, value) => {
    if (value === undefined || value === null || value === "") return;
    list.append(el("dt", name), el("dd.code", typeof value === "object" ? JSON.stringify(value) : value));
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
  const swap = button("swap", () => go(other.key, row.key));
  const close = button("close", () => go(row.key), "back to one episode (Escape)");
  const head = el("div.headline", el("h2.code", row.task), el("span.go", back, pick, swap, close));
  out.append(head, intentOf(row, episode, wanted) ?? "", checks([episode, against], wanted));
  const pairs = el("div.pairs");
  for (const [name, one, data] of [["A", row, episode], ["B", other, against]]) {
    const title = el("div.headline", el("b", `${name} `), badge(one), el("span.note", where(one)));
    pairs.append(el("div", title, facts(one, data), data.error ? el("p.warning", data.error) : null));
  }
  const left = episode.turns ?? [], right = against.turns ?? [];
  const size = Math.max(left.length, right.length);
  const both = (into, place, kind) => [left[place], right[place]].forEach((turn, side) => {
    into.append(turn ? turnCard(turn, place, kind, `${"AB"[side]} · `) : el("p.empty", "no turn here"));
  });
  let first = 0;
  while (first < size && !difference(left[first], right[first])) first += 1;
  out.append(pairs);
  if (first) {
    const turns = first === 1 ? "turn 0 is" : `turns 0 to ${first - 1} are`;
    const same = el("details.card", el("summary", `${turns} the same on both sides`));
    const inside = el("div.pairs");
    for (let place = 0; place < first; place++) both(inside, place, "");
    same.append(inside);
    out.append(same);
  }
  const rest = el("div.pairs");
  rest.append(el("div.first.across", first < size
    ? `first difference, turn ${first}: ${difference(left[first], right[first])}`
    : "no difference: the same turns and the same answers"));
  for (let place = first; place < size; place++) both(rest, place, difference(left[place], right[place]) ? ".differs" : "");
  out.append(rest);
  return out;
}

// Text on the page. Whatever a policy or a sandbox wrote is put there as text, never parsed as markup.

const $ = (id) => document.getElementById(id);
const LIVE = document.body.dataset.mode === "live";

// -- Text ----------------------------------------------------------------------------------------------------------

// What cannot be seen or moves what can: controls, format characters (direction marks among them), halves of
// surrogate pairs, private use, line separators, and all that Unicode calls ignorable (fillers, variation selectors).
const HIDDEN = /(?![\n\t])[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;
const code = (letter) => `<U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}>`;
// Names, facts and labels are short, or somebody wants to hold the page up: long texts have `block`.
function clip(text, most = 2000) {
  return text.length > most ? `${text.slice(0, most)}… (${text.length.toLocaleString("en")} characters)` : text;
}
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
function seconds(s) {
  if (s === undefined) return null;
  return s < 1 ? `${(s * 1e3).toFixed(s < 0.01 ? 1 : 0)} ms` : `${s.toFixed(1)} s`;
}
const count = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;


"use strict";
// Names of strangers are only ever set as text, never as markup.
const REFRESH_MS = 2000, KEPT = 60;
const series = new Map();
let before = null;

const element = (name, text, kind) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
};
const fill = (id, ...children) => document.getElementById(id).replaceChildren(...children);
const row = (cells, name = "td") => {
  const made = element("tr");
  for (const cell of cells) {
    const box = element(name);
    box.append(cell instanceof Node ? cell : String(cell));
    made.append(box);
  }
  return made;
};
const table = (id, heads, rows) => fill(id, row(heads, "th"), ...rows.map((cells) => row(cells)));
const sum = (list, of) => list.reduce((total, each) => total + of(each), 0);
const round = (number) => number >= 100 ? Math.round(number) : Math.round(number * 10) / 10;
const date = (text) => text.slice(0, 16).replace("T", " ");

function line(points) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const drawn = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const top = Math.max(1, ...points);
  const step = 100 / Math.max(1, points.length - 1);
  const place = (value, at) => `${at * step},${19 - value * 18 / top}`;
  svg.setAttribute("viewBox", "0 0 100 20");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `of late: ${points.slice(-5).map(round).join(", ")}`);
  drawn.setAttribute("points", points.map(place).join(" "));
  svg.append(drawn);
  return svg;
}

function note(name, value) {
  const points = series.get(name) ?? [];
  points.push(value);
  series.set(name, points.slice(-KEPT));
  return series.get(name);
}

function now(state, lanes) {
  const rate = sum(lanes, (lane) => lane.rate);
  const facts = [
    ["connections", sum(lanes, (lane) => lane.connections)],
    ["in handshakes", sum(lanes, (lane) => lane.handshakes_in_flight)],
    ["handshakes/s", round(rate)],
    ["generation", `${state.generation.newest}, ${state.generation.live_total} alive`],
    ["tickets", `epoch ${state.tickets.epoch} until ${date(state.tickets.epoch_ends)} UTC`
      + state.tickets.announced.map(({from}) => `; another root from ${date(from)} UTC`).join("")],
    ["certificates", state.certificates.total],
  ];
  fill("now", ...facts.flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
  document.getElementById("now").append(element("dt", "handshakes"));
  const drawn = element("dd");
  drawn.append(line(note("", rate)));
  document.getElementById("now").append(drawn);
  const days = state.uptime_s / 86400;
  const up = days >= 2 ? `${Math.floor(days)} days` : `${Math.floor(state.uptime_s / 60)} min`;
  const phase = element("span", condition(state), condition(state) === "serving" ? "good" : "bad");
  fill("head", `${state.version}, process ${state.pid}, `, phase,
    `, up ${up}, ${date(state.now)} UTC`);
}

function condition(state) {
  if (state.phase !== "serving") return state.phase;
  const refused = state.reloads.recent[0]?.outcome === "refused";
  if (refused) return "serving, the last reload was refused";
  const {total} = state.faults;
  return total === 0 ? "serving" : `serving, faults: ${total}`;
}

function faults({total, shown}) {
  document.getElementById("degraded").hidden = total === 0;
  table("faults", ["listener", "what is wrong", "meanwhile"],
    shown.map(({listener, what, consequence}) =>
      [listener ?? "", element("span", what, "bad"), consequence]));
}

function imbalance(lanes, of) {
  const mean = sum(lanes, of) / lanes.length;
  return mean > 0 ? `${round(Math.max(...lanes.map(of)) / mean)} times the mean` : "-";
}

function meter(share) {
  const box = element("span", share === null ? "-" : `${round(share)} % `);
  if (share !== null) {
    const drawn = element("meter");
    drawn.max = 100;
    drawn.value = share;
    box.append(drawn);
  }
  return box;
}

function causes(state) {
  const total = new Map();
  for (const lane of state.lanes)
    for (const [cause, count] of Object.entries(lane.ended))
      total.set(cause, (total.get(cause) ?? 0) + count);
  const known = before ? before.causes : total;
  const rows = [...total].map(([cause, count]) =>
    [cause, count, line(note(`cause ${cause}`, count - (known.get(cause) ?? 0)))]);
  rows.sort((a, b) => b[1] - a[1]);
  table("causes", ["cause", "in all", "over time"], rows);
  return total;
}

function reloads(state) {
  const made = state.reloads.recent.flatMap((reload) => {
    const good = reload.outcome === "accepted";
    const head = element("div", `${date(reload.time)} UTC `);
    head.append(element("span", reload.outcome, good ? "good" : "bad"));
    head.append(`, generation ${reload.generation}, ${reload.took_ms} ms`);
    const said = [...reload.errors.map((text) => `error: ${text}`),
      ...reload.faults.map((text) => `fault: ${text}`),
      ...reload.warnings.map((text) => `warning: ${text}`)];
    return [head, ...said.map((text) => element("pre", text))];
  });
  fill("reloads", ...(made.length ? made : ["None since the start."]));
}

function certificates(state) {
  const today = Date.parse(state.now);
  table("certificates", ["name", "listener", "key", "ends", "days"],
    state.certificates.soonest_to_expire.map((each) => {
      const days = Math.floor((Date.parse(each.not_after) - today) / 86400000);
      const left = element("span", days, days < 14 ? "bad" : "");
      const name = each.names[0] ?? each.source;
      return [name, each.listener, each.key, each.not_after.slice(0, 10), left];
    }));
}

function draw(state) {
  // Another process counts from 0 again.
  if (before && before.pid !== state.pid) {
    before = null;
    series.clear();
  }
  const at = Date.now(), passed = before ? (at - before.at) / 1000 : 0;
  const lanes = state.lanes.map((lane) => {
    const was = before?.lanes[lane.lane];
    const counts = was && passed > 0;
    const share = counts && lane.cpu_ms !== null
      ? Math.min(100, (lane.cpu_ms - was.cpu_ms) / passed / 10) : null;
    return { ...lane, share, rate: counts ? (lane.handshakes - was.handshakes) / passed : 0 };
  });
  now(state, lanes);
  faults(state.faults);
  table("lanes", ["lane", "connections", "handshakes/s", "CPU"],
    lanes.map((lane) => [lane.lane, lane.connections, round(lane.rate), meter(lane.share)]));
  fill("balance", `Busiest: ${imbalance(lanes, (lane) => lane.connections)} of connections, `
    + `${imbalance(lanes, (lane) => lane.rate)} of handshakes.`);
  table("backends", ["backend", "state", "connections", "taken", "failed"],
    state.backends.map((each) => [each.backend,
      element("span", each.why ? `${each.state}: ${each.why}` : each.state,
        each.state === "up" ? "good" : "bad"),
      each.connections, each.connected, each.failed]));
  certificates(state);
  reloads(state);
  before = { at, lanes, causes: causes(state), pid: state.pid };
}

async function look() {
  try {
    const answer = await fetch("state", { cache: "no-store" });
    if (!answer.ok) throw new Error(`it answers ${answer.status}`);
    draw(await answer.json());
    document.body.classList.remove("stale");
  } catch (error) {
    document.body.classList.add("stale");
    fill("head", `No answer: ${error.message}. What is shown is old.`);
  }
  setTimeout(look, REFRESH_MS);
}
look();

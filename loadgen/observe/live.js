// Polls live.json and shows it. Everything from the run goes in as text, never as markup.
"use strict";
const $ = (id) => document.getElementById(id);
const seconds = (v) => (v === null || v === undefined ? "–" : typeof v === "string" ? v : v.toFixed(v < 10 ? 3 : 1) + " s");
const share = (v) => (v === null || v === undefined ? "–" : (100 * v).toFixed(1) + " %");
const TIERS = { compute: ["computed", "part-computed"], hbm: ["from HBM", "part-from-HBM"], external: ["from an external tier", "part-from-external-tier"], unknown: ["source unknown", "part-source-unknown"] };
const history = [[], [], []]; // seconds since this page was opened, first p50, reuse p50
let plot = null, run = null, opened = Date.now();

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function table(id, head, rows) {
  const row = (cells, tag) => { const tr = element("tr"); cells.forEach((c, i) => tr.append(element(i && tag === "td" ? "td" : "th", c))); return tr; };
  $(id).tHead.replaceChildren(row(head, "th"));
  $(id).tBodies[0].replaceChildren(...rows.map((r) => row(r, "td")));
}

function card(name, value, small) {
  const made = element("div", undefined, "card");
  made.append(element("span", name), element("strong", value), element("small", small));
  return made;
}

function draw(found) {
  const at = (name) => { const v = found.ttft_s[name] && found.ttft_s[name].p50; return typeof v === "number" ? v : null; };
  history[0].push((Date.now() - opened) / 1000); history[1].push(at("first")); history[2].push(at("reuse"));
  if (history[0].length > 1800) history.forEach((h) => h.shift());
  const ink = getComputedStyle(document.body).color, width = $("plot").clientWidth || 600;
  if (!plot) {
    const axis = (label) => ({ stroke: ink, grid: { stroke: "rgba(128,128,128,.2)" }, label });
    plot = new uPlot({ width, height: 240, legend: { show: false }, scales: { x: { time: false } }, axes: [axis("seconds since this page was opened"), axis("endpoint s")],
      series: [{}, { label: "first turns", stroke: "#e08a3c", width: 2, spanGaps: true }, { label: "reuse turns", stroke: "#2b6cb0", width: 2, spanGaps: true }] }, history, $("plot"));
  } else { plot.setSize({ width, height: 240 }); plot.setData(history); }
}

function show(found) {
  if (!found) return;
  if (found.run !== run) { run = found.run; history.forEach((h) => h.splice(0)); opened = Date.now(); }
  $("mark").hidden = !found.simulated;
  $("mark").textContent = `SIMULATED (${found.simulated}, ${found.time_scale} times real time): a profile's numbers, not evidence`;
  $("title").textContent = `${found.arm}: ${found.state}, ${found.turns.done} of ${found.turns.planned} turns`;
  $("sub").textContent = `run ${found.run}, ${found.model} at ${found.endpoint}, schedule ${found.schedule}`;
  const lags = found.workers.map((w) => w.loop_lag_p99_s).filter((v) => v !== null);
  const reuse = found.ttft_s.reuse || {};
  $("cards").replaceChildren(
    card("reuse TTFT p50", seconds(reuse.p50), `max ${seconds(reuse.max)}`),
    card("cached share", share(found.cached_share), "of prompt tokens"),
    card("in flight", String(found.in_flight.sessions), `sessions; turns: ${found.in_flight.turns}`),
    card("errors", String(found.turns.errors), "turns"),
    card("loop lag p99", lags.length ? (1000 * Math.max(...lags)).toFixed(1) + " ms" : "–", "worst worker, wall time"),
  );
  const names = ["p50", "p90", "p95", "p99", "max"];
  table("ttft", ["turns", "n", ...names, "no first token"], Object.entries(found.ttft_s).map(([name, t]) => [name, String(t.turns), ...names.map((p) => seconds(t[p])), String(t.without_first_token)]));
  table("workers", ["worker", "turns in flight", "loop lag p99", "state"], found.workers.map((w) => [w.worker, String(w.in_flight), w.loop_lag_p99_s === null ? "–" : (1000 * w.loop_lag_p99_s).toFixed(1) + " ms", w.lost ? "lost" : "up"]));
  const bar = element("div", undefined, "bar"), box = element("div");
  for (const [tier, part] of Object.entries(found.tiers || {})) {
    if (!part) continue;
    const piece = element("i", undefined, TIERS[tier][1]);
    piece.style.width = 100 * part + "%";
    piece.append(element("span", `${TIERS[tier][0]} ${share(part)}`));
    box.append(piece);
  }
  bar.append(element("b", found.arm), box);
  $("tiers").replaceChildren(...(found.tiers ? [bar] : []));
  $("tiersnote").textContent = found.tiers ? "Of turns whose source is known." : "No turn with a known source yet: it takes turns that were alone in flight, or a server that tells.";
  draw(found);
}

async function poll() {
  try {
    const answer = await fetch("live.json", { cache: "no-store" });
    if (answer.ok) show(await answer.json());
  } catch { $("sub").textContent = "the load generator does not answer; trying again"; }
  setTimeout(poll, 2000);
}
poll();

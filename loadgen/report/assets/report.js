"use strict";
// Draws the charts of a report from the JSON in #data. No network, no storage; text goes in by textContent only.
const report = JSON.parse(document.getElementById("data").textContent);
const several = report.arms.length > 1;
const PALETTE = {
  light: { ink: "#17202a", soft: "#5d6975", grid: "#e6eaee", stripe: "rgba(93,105,117,.09)", arms: ["#d9742b", "#2270b8", "#2b8a6b", "#8b5fbf", "#b0453a", "#6b7280"] },
  dark: { ink: "#e8ecf0", soft: "#9ba7b3", grid: "#2a323c", stripe: "rgba(155,167,179,.10)", arms: ["#f0985a", "#63adf2", "#56c3a0", "#b794f4", "#f0857a", "#a3adb8"] },
};
const dark = matchMedia("(prefers-color-scheme: dark)");
let printing = false;
const theme = () => (dark.matches && !printing ? PALETTE.dark : PALETTE.light);
const CLASS_COLOUR = { first: 0, reuse: 1, rebuilt: 3, retry: 5 };

// With several arms the colour is the arm and the fill the class; with one arm the colour is the class.
const colour = (arm, kind) => theme().arms[(several ? arm : CLASS_COLOUR[kind] ?? 2) % 6];
const hollow = (kind) => several && kind === "first";
const label = (arm, kind) => (several ? `${report.arms[arm].arm}, ${kind}` : `${kind} turns`);
const time = (s) => (s == null ? "" : s >= 1 || s === 0 ? `${+s.toPrecision(4)} s` : s >= 1e-3 ? `${+(s * 1e3).toPrecision(3)} ms` : `${+(s * 1e6).toPrecision(3)} µs`);
const nines = (x) => `p${+(100 * (1 - 10 ** -x)).toPrecision(6)}`;

function axis(text, values) {
  const { ink, soft, grid } = theme();
  return { label: text, labelSize: 20, labelGap: 0, labelFont: "12px system-ui, sans-serif", font: "12px system-ui, sans-serif", stroke: soft, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1, size: 4 }, ...(values && { values }) , ink };
}
const seconds = (u, splits) => splits.map((v) => (v == null ? "" : time(v)));
const fromZero = (u, lo, hi) => [0, (hi || 1) * 1.06];
const spread = (u, lo, hi) => [lo, hi > lo ? hi : lo + 1];

// Points of a mode-2 chart, filled or hollow.
function points(u, i) {
  const r = 3 * devicePixelRatio;
  uPlot.orient(u, i, (s, dx, dy, sx, sy, vx, vy, xo, yo, w, h) => {
    const [xs, ys] = u.data[i];
    const path = new Path2D();
    for (let k = 0; k < xs.length; k++) {
      const x = vx(xs[k], sx, w, xo), y = vy(ys[k], sy, h, yo);
      path.moveTo(x + r, y);
      path.arc(x, y, r, 0, 2 * Math.PI);
    }
    u.ctx.save();
    u.ctx.rect(u.bbox.left - r, u.bbox.top - r, u.bbox.width + 2 * r, u.bbox.height + 2 * r);
    u.ctx.clip();
    u.ctx.globalAlpha = xs.length > 400 ? 0.7 : 0.9;
    u.ctx.strokeStyle = u.ctx.fillStyle = s._colour;
    u.ctx.lineWidth = 1.5 * devicePixelRatio;
    if (s._hollow) u.ctx.stroke(path); else u.ctx.fill(path);
    u.ctx.restore();
  });
  return null;
}

// A line, dashed where asked, of a mode-2 chart.
function line(u, i) {
  uPlot.orient(u, i, (s, dx, dy, sx, sy, vx, vy, xo, yo, w, h) => {
    const [xs, ys] = u.data[i];
    u.ctx.save();
    u.ctx.strokeStyle = s._colour;
    u.ctx.globalAlpha = s._alpha ?? 1;
    u.ctx.lineWidth = (s._width ?? 2.2) * devicePixelRatio;
    u.ctx.lineJoin = "round";
    u.ctx.setLineDash(s._dash ? [6 * devicePixelRatio, 4 * devicePixelRatio] : []);
    u.ctx.beginPath();
    xs.forEach((x, k) => { const px = vx(x, sx, w, xo), py = vy(ys[k], sy, h, yo); if (k) u.ctx.lineTo(px, py); else u.ctx.moveTo(px, py); });
    u.ctx.stroke();
    u.ctx.restore();
  });
  return null;
}

function band(u, i) {
  uPlot.orient(u, i, (s, dx, dy, sx, sy, vx, vy, xo, yo, w, h) => {
    const [xs, high, low] = u.data[i];
    u.ctx.save();
    u.ctx.fillStyle = s._colour;
    u.ctx.globalAlpha = 0.16;
    u.ctx.beginPath();
    xs.forEach((x, k) => u.ctx[k ? "lineTo" : "moveTo"](vx(x, sx, w, xo), vy(high[k], sy, h, yo)));
    for (let k = xs.length - 1; k >= 0; k--) u.ctx.lineTo(vx(xs[k], sx, w, xo), vy(low[k], sy, h, yo));
    u.ctx.fill();
    u.ctx.restore();
  });
  return null;
}

const series = (paths, more) => ({ facets: [{ scale: "x", auto: true }, { scale: "y", auto: true }], paths, stroke: more._colour, ...more });

// `drawn`: [{data, series}]; makes the chart, its tooltip and its legend.
function chart(figure, { drawn, x, y, xScale, yScale, legend, hooks, height, tip }) {
  const area = figure.querySelector(".plot-area");
  area.textContent = "";
  const u = new uPlot({
    mode: 2, width: area.clientWidth, height: height ?? 320, padding: [8, 20, 0, 0], legend: { show: false }, cursor: { show: false },
    scales: { x: { time: false, range: spread, ...xScale }, y: { range: fromZero, ...yScale } },
    axes: [{ ...axis(x.label, x.values), size: 30, ...x.axis }, { ...axis(y.label, y.values ?? seconds), size: 62 }],
    series: [null, ...drawn.map((d) => d.series)], hooks: hooks ?? {},
  }, [null, ...drawn.map((d) => d.data)], area);
  key(figure, legend ?? []);
  if (tip) hover(area, u, drawn, tip);
  return u;
}

function key(figure, entries) {
  const box = figure.querySelector(".legend");
  box.textContent = "";
  for (const [text, stroke, empty] of entries) {
    const item = document.createElement("span"), dot = document.createElement("i");
    dot.style.borderColor = stroke;
    if (!empty) dot.style.background = stroke;
    item.append(dot, text);
    box.append(item);
  }
}

function hover(area, u, drawn, tip) {
  const box = document.createElement("div");
  box.className = "tip";
  box.hidden = true;
  area.append(box);
  u.over.addEventListener("mousemove", (event) => {
    let best = null, distance = 400;
    drawn.forEach((d) => d.data[0].forEach((x, k) => {
      if (d.data[1][k] == null) return;
      const px = u.valToPos(x, "x"), py = u.valToPos(d.data[1][k], "y");
      const away = (px - event.offsetX) ** 2 + (py - event.offsetY) ** 2;
      if (away < distance) { distance = away; best = [px, py, tip(x, d.data[1][k]), d.name]; }
    }));
    box.hidden = !best;
    if (!best) return;
    box.style.left = `${best[0] + u.over.offsetLeft}px`;
    box.style.top = `${best[1] + u.over.offsetTop}px`;
    box.textContent = `${best[3]}: ${best[2]}`;
  });
  u.over.addEventListener("mouseleave", () => { box.hidden = true; });
}

// All series of one chart over the arms, as drawn points with their legend.
function dots(name) {
  const drawn = [], legend = [];
  report.arms.forEach((arm, a) => arm[name].forEach((s) => {
    const c = colour(a, s.class);
    drawn.push({ data: [s.x, s.y], name: label(a, s.class), series: series(points, { _colour: c, _hollow: hollow(s.class) }) });
    legend.push([label(a, s.class), c, hollow(s.class)]);
  }));
  return { drawn, legend };
}

function stripes(u) {
  if (several) return;
  const { rounds, steady } = report.arms[0];
  const bands = rounds.length > 1 ? rounds.map(([from, to], k) => [from, to, `round ${k + 1}`, k % 2 === 0]) : steady.length ? [[...steady, "steady", true]] : [];
  u.ctx.save();
  for (const [from, to, name, shaded] of bands) {
    const left = u.valToPos(from, "x", true), right = u.valToPos(to, "x", true);
    if (shaded) { u.ctx.fillStyle = theme().stripe; u.ctx.fillRect(left, u.bbox.top, right - left, u.bbox.height); }
    u.ctx.fillStyle = theme().soft;
    u.ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    if (right - left > 60 * devicePixelRatio) u.ctx.fillText(name, left + 5 * devicePixelRatio, u.bbox.top + 13 * devicePixelRatio);
  }
  u.ctx.restore();
}

const TAIL = [0, ...[0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999, 0.999999].map((q) => -Math.log10(1 - q))];
const logRange = (u, lo, hi) => [lo / 1.3, hi * 1.3];

const FAILED = "#d03a2b";

const CHARTS = {
  spectrum(figure) {
    const drawn = [], legend = [];
    let low = Infinity, high = 0;
    report.arms.forEach((arm, a) => arm.spectrum.forEach((s) => {
      const c = colour(a, s.class), cut = Math.max(1, s.x.findIndex((x) => x > s.supported));
      const end = s.x.some((x) => x > s.supported) ? cut : s.x.length;
      const more = { _colour: c, _dash: hollow(s.class) };
      drawn.push({ data: [s.x.slice(0, end), s.y.slice(0, end)], name: label(a, s.class), series: series(line, more) });
      if (end < s.x.length) drawn.push({ data: [s.x.slice(end - 1), s.y.slice(end - 1)], name: `${label(a, s.class)} (not supported by ${s.n} turns)`, series: series(line, { ...more, _alpha: 0.35 }) });
      legend.push([`${label(a, s.class)} (${s.n.toLocaleString("en")})`, c, hollow(s.class)]);
      low = Math.min(low, ...s.y); high = Math.max(high, ...s.y);
    }));
    const wide = high / low > 20;
    return chart(figure, {
      drawn, legend, tip: (x, y) => `${nines(x)} ${time(y)}`,
      x: { label: "percentile, towards the tail", values: (u, splits) => splits.map((v) => (v === 0 ? "min" : nines(v))), axis: { splits: (u, i, lo, hi) => TAIL.filter((v) => v <= hi) } }, y: { label: "TTFT" },
      xScale: { range: (u, lo, hi) => [0, Math.max(hi, 0.5)] }, yScale: wide ? { distr: 3, range: logRange } : {},
    });
  },
  by_turn(figure) {
    const drawn = [], legend = [];
    report.arms.forEach((arm, a) => {
      const t = arm.by_turn, c = theme().arms[several ? a % 6 : 1], xs = t.x.map((x) => x + 1);
      if (xs.length > 1) drawn.push({ data: [xs, t.max, t.min], name: `${arm.arm}, slowest`, series: series(band, { _colour: c }) });
      drawn.push({ data: [xs, t.p50], name: `${arm.arm}, median`, series: series(line, { _colour: c }) });
      if (xs.length <= 60) drawn.push({ data: [xs, t.p50], name: `${arm.arm}, median`, series: series(points, { _colour: c }) });
      legend.push([arm.arm, c]);
    });
    const whole = (u, splits) => splits.map((v) => (Number.isInteger(v) ? v : ""));
    return chart(figure, { drawn, legend, x: { label: "turn", values: whole, axis: { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10000] } }, y: { label: "TTFT" }, tip: (x, y) => `turn ${x}, ${time(y)}`, xScale: { range: (u, lo, hi) => [lo - (hi - lo) * 0.03 - 0.1, hi + (hi - lo) * 0.03 + 0.1] } });
  },
  timeline(figure) {
    return chart(figure, { ...dots("timeline"), x: { label: "time since the start (s)" }, y: { label: "TTFT" }, tip: (x, y) => `${time(y)} at ${time(x)}`, hooks: { drawClear: [stripes] }, xScale: { range: (u, lo, hi) => [Math.min(0, lo), hi * 1.01 || 1] } });
  },
  cached_share(figure) {
    return chart(figure, { ...dots("cached_share"), x: { label: "share of the prompt that was cached", values: (u, s) => s.map((v) => `${+(v * 100).toFixed(2)} %`) }, y: { label: "TTFT" }, tip: (x, y) => `${(x * 100).toFixed(1)} %, ${time(y)}`, xScale: { range: () => [-0.02, 1.02] } });
  },
  idle_time(figure) {
    const { drawn, legend } = dots("idle_time");
    const xs = drawn.flatMap((d) => d.data[0]);
    const wide = Math.max(...xs) / Math.min(...xs) > 30;
    return chart(figure, { drawn, legend, x: { label: "idle time before the turn", values: seconds }, y: { label: "TTFT" }, tip: (x, y) => `${time(y)} after ${time(x)}`, xScale: wide ? { distr: 3, range: logRange } : { range: (u, lo, hi) => [0, hi * 1.04 || 1] } });
  },
  lanes(figure) {
    const area = figure.querySelector(".plot-area");
    area.textContent = "";
    const kinds = new Set(report.arms.flatMap((arm) => arm.lanes.class.map((k) => report.classes[k])));
    const last = Math.max(1, ...report.arms.map((arm) => arm.lanes.end.reduce((most, v) => Math.max(most, v), 0)));
    const shade = (kind) => theme().arms[CLASS_COLOUR[kind] ?? 2];
    report.arms.forEach((arm) => {
      const L = arm.lanes, box = document.createElement("div");
      area.append(box);
      const rows = L.names.length, tall = Math.max(6, Math.min(22, 420 / rows));
      const bars = (u) => {
        u.ctx.save();
        const at = (v) => u.valToPos(v, "x", true);
        const height = (u.bbox.height / rows) * 0.72;
        L.send.forEach((send, k) => {
          const y = u.valToPos(rows - 1 - L.lane[k], "y", true) - height / 2;
          const first = L.first[k] ?? L.end[k];
          u.ctx.fillStyle = L.first[k] == null ? FAILED : shade(report.classes[L.class[k]]);
          u.ctx.fillRect(at(send), y, Math.max(at(first) - at(send), 1), height);
          u.ctx.globalAlpha = 0.4;
          u.ctx.fillRect(at(first), y, Math.max(at(L.end[k]) - at(first), 0), height);
          u.ctx.globalAlpha = 1;
        });
        u.ctx.restore();
      };
      const shown = L.whole ? "" : ` (${rows} of ${L.sessions} sessions, earliest turns)`;
      const step = Math.ceil(16 / tall);
      new uPlot({
        width: area.clientWidth, height: rows * tall + 64, padding: [8, 20, 0, 0], legend: { show: false }, cursor: { show: false },
        scales: { x: { time: false, range: () => [0, last] }, y: { range: () => [-0.6, rows - 0.4] } },
        axes: [{ size: 30, ...axis(`${several ? `${arm.arm}: ` : ""}time since the start (s)${shown}`) }, { ...axis(""), label: undefined, size: 92, grid: { show: false }, splits: () => L.names.map((_, k) => k).filter((k) => k % step === 0), values: (u, s) => s.map((v) => { const name = L.names[rows - 1 - v] ?? ""; return name.length > 13 ? `${name.slice(0, 12)}…` : name; }) }],
        series: [{}, { paths: () => null, points: { show: false } }], hooks: { draw: [bars] },
      }, [[0, last], [0, 0]], box);
    });
    const failed = report.arms.some((arm) => arm.lanes.first.includes(null));
    key(figure, [...[...kinds].map((kind) => [`${kind}, waiting`, shade(kind)]), ...(failed ? [["failed", FAILED]] : [])]);
  },
  throughput(figure) {
    const drawn = [], legend = [], limits = [];
    let n = 0;
    report.arms.forEach((arm) => {
      const T = arm.throughput;
      if (!T.series) return;
      T.series.forEach((s) => { const c = theme().arms[n++ % 6], name = several ? `${arm.arm}, ${s.name}` : s.name; drawn.push({ data: [s.x, s.y], name, series: series(line, { _colour: c, _width: 1.6 }) }); legend.push([name, c]); });
      if (T.limit) limits.push(T.limit);
    });
    const limit = limits.length ? Math.max(...limits) : 0;
    const draw = (u) => { if (!limit) return; const y = u.valToPos(limit, "y", true); u.ctx.save(); u.ctx.strokeStyle = theme().soft; u.ctx.setLineDash([8, 6]); u.ctx.beginPath(); u.ctx.moveTo(u.bbox.left, y); u.ctx.lineTo(u.bbox.left + u.bbox.width, y); u.ctx.stroke(); u.ctx.restore(); };
    return chart(figure, { drawn, legend, x: { label: "time since the start (s)" }, y: { label: "GB/s", values: (u, s) => s.map((v) => +v.toPrecision(3)) }, tip: (x, y) => `${+y.toPrecision(3)} GB/s`, hooks: { draw: [draw] }, yScale: { range: (u, lo, hi) => [0, Math.max(hi, limit) * 1.06 || 1] } });
  },
};

// One PNG of title, legend, chart and mark, for a slide.
function save(figure) {
  const canvases = [...figure.querySelectorAll("canvas")], r = devicePixelRatio, { ink, soft } = theme();
  const width = canvases[0].width, pad = 16 * r, head = 64 * r, foot = 34 * r;
  const out = document.createElement("canvas");
  out.width = width + 2 * pad;
  out.height = head + canvases.reduce((sum, c) => sum + c.height, 0) + foot;
  const g = out.getContext("2d");
  g.fillStyle = getComputedStyle(document.body).backgroundColor;
  g.fillRect(0, 0, out.width, out.height);
  g.fillStyle = ink;
  g.font = `600 ${17 * r}px system-ui, sans-serif`;
  g.fillText(figure.querySelector("h2").firstChild.textContent.trim(), pad, 26 * r);
  g.font = `${12 * r}px system-ui, sans-serif`;
  let x = pad;
  for (const item of figure.querySelectorAll(".legend span")) {
    g.fillStyle = item.firstChild.style.borderColor;
    g.beginPath(); g.arc(x + 5 * r, 46 * r, 5 * r, 0, 7); g.fill();
    g.fillStyle = soft;
    g.fillText(item.textContent, x + 15 * r, 50 * r);
    x += g.measureText(item.textContent).width + 34 * r;
  }
  let y = head;
  for (const c of canvases) { g.drawImage(c, pad, y); y += c.height; }
  g.fillStyle = soft;
  g.fillText(report.mark || `loadgen ${report.version}`, pad, y + 20 * r);
  const link = document.createElement("a");
  link.download = `${figure.dataset.chart}.png`;
  link.href = out.toDataURL("image/png");
  link.click();
}

function drawAll() {
  for (const figure of document.querySelectorAll("[data-chart]")) CHARTS[figure.dataset.chart](figure);
}

for (const figure of document.querySelectorAll("[data-chart]")) {
  const button = document.createElement("button");
  button.className = "save";
  button.textContent = "save PNG";
  button.addEventListener("click", () => save(figure));
  figure.append(button);
}
drawAll();
dark.addEventListener("change", drawAll);
addEventListener("beforeprint", () => { printing = true; drawAll(); });
addEventListener("afterprint", () => { printing = false; drawAll(); });
let width = innerWidth, pending = 0;
addEventListener("resize", () => { if (innerWidth === width) return; width = innerWidth; clearTimeout(pending); pending = setTimeout(drawAll, 120); });

"use strict";
const arms = JSON.parse(document.getElementById("data").textContent);
const colours = ["#c2571a", "#1769aa", "#2e7d32", "#7b1fa2"];
const ink = getComputedStyle(document.body).color;
const axis = (label) => ({ label, stroke: ink, grid: { stroke: "#8883", width: 1 } });

function draw(element, xLabel, series, data, mode) {
  new uPlot({
    mode, width: element.clientWidth, height: 300, scales: { x: { time: false }, y: { range: (u, lo, hi) => [0, hi * 1.05 || 1] } },
    axes: [axis(xLabel), axis("TTFT (s)")], series: [{ label: xLabel }, ...series],
  }, data, element);
}

const charts = {
  by_turn(element) {
    const turns = [...new Set(arms.flatMap((arm) => arm.by_turn.turn))].sort((a, b) => a - b);
    const column = (arm) => turns.map((turn) => arm.by_turn.p50[arm.by_turn.turn.indexOf(turn)] ?? null);
    draw(element, "turn", arms.map((arm, i) => ({ label: arm.arm, stroke: colours[i % 4], width: 2, points: { show: true } })), [turns, ...arms.map(column)], 1);
  },
  timeline(element) {
    const xs = [...new Set(arms.flatMap((arm) => arm.timeline.x))].sort((a, b) => a - b);
    const at = new Map(xs.map((x, i) => [x, i]));
    const column = (arm) => { const ys = new Array(xs.length).fill(null); arm.timeline.x.forEach((x, i) => { ys[at.get(x)] = arm.timeline.y[i]; }); return ys; };
    draw(element, "time sent (s)", arms.map((arm, i) => ({ label: arm.arm, stroke: colours[i % 4], paths: () => null, points: { show: true, size: 5, fill: colours[i % 4] } })), [xs, ...arms.map(column)], 1);
  },
};
for (const element of document.querySelectorAll("[data-chart]")) charts[element.dataset.chart](element);

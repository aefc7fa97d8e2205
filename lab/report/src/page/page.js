"use strict";
// Hover, legend, scale, theme and copy. The page is whole without it: nothing is drawn here.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const all = (selector, from) => Array.from(from.querySelectorAll(selector));

  // Storage may be forbidden, as in a mail's preview: then the choice lasts as long as the page.
  const storage = (act) => { try { return act(window.localStorage); } catch { return null; } };
  const THEME = "sealane-lab-theme";
  const remembered = storage((s) => s.getItem(THEME));
  if (remembered === "dark" || remembered === "light") root.dataset.theme = remembered;
  const dark = () => root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  for (const button of all("[data-do=theme]", document)) {
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      storage((s) => s.setItem(THEME, root.dataset.theme));
    });
  }

  const number = (value) => {
    const size = Math.abs(value);
    const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 4;
    return value.toLocaleString("en-US", { maximumFractionDigits: digits });
  };
  const range = (v) => number(v[0]) + (v.length > 2 && v[2] > v[1]
    ? " [" + number(v[1]) + "\u2013" + number(v[2]) + "]" : "");
  // An axis is [log?, least, most, first pixel, last pixel].
  const place = ([log, min, max, start, end], v) => {
    const share = log ? Math.log(Math.max(v, min) / min) / Math.log(max / min)
      : (v - min) / (max - min);
    return start + Math.min(1, Math.max(0, share)) * (end - start);
  };

  // Names come from files: they become text, never markup.
  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const say = (tip, title, rows) => {
    const table = element("table");
    for (const [className, name, value] of rows) {
      const row = table.insertRow();
      const cell = row.insertCell();
      if (className) cell.append(element("span", "", "swatch " + className));
      cell.append(name);
      row.insertCell().textContent = value;
    }
    tip.replaceChildren(element("b", title), table);
    tip.hidden = false;
  };

  // What a line says at `x`: a point [x, y, least, most], or nothing where it was not measured.
  const read = (points, x, reading, pixel) => {
    if (reading === "exact") return points.find((p) => p[0] === x);
    if (!points.length || pixel(x) > pixel(points[points.length - 1][0]) + 3) return undefined;
    return points.reduce((a, b) =>
      Math.abs(pixel(b[0]) - pixel(x)) < Math.abs(pixel(a[0]) - pixel(x)) ? b : a);
  };

  const start = (figure) => {
    const source = figure.querySelector("script");
    const data = source ? JSON.parse(source.textContent) : null;
    const faces = all(".face", figure);
    const keys = all(".key", figure);
    const tip = figure.querySelector(".tip");
    if (data && data.kind === "lines") {
      // x, y, least, most are the last four columns; a name may hold commas.
      const table = figure.querySelector("textarea").value.split("\n").slice(1)
        .map((row) => row.split(",").slice(-4).filter((v) => v !== "").map(Number));
      for (const series of data.series) series.p = table.splice(0, series.c);
    }
    let only = -1;
    const shown = (at) => only < 0 || at === only;
    const face = () => faces.findIndex((f) => !f.hidden);

    keys.forEach((key, at) => key.addEventListener("click", () => {
      only = only === at ? -1 : at;
      figure.classList.toggle("dim", only >= 0);
      keys.forEach((k, n) => k.setAttribute("aria-pressed", String(n === only)));
      for (const series of all(".series", figure)) {
        series.classList.toggle("on", Number(series.dataset.s) === only);
      }
      hide();
    }));

    for (const button of all("[data-do=scale]", figure)) {
      button.addEventListener("click", () => {
        const next = (face() + 1) % faces.length;
        faces.forEach((f, n) => { f.hidden = n !== next; });
        const names = button.dataset.names.split(",");
        button.textContent = names[(next + 1) % names.length] + " scale";
        hide();
      });
    }
    for (const button of all("[data-do=copy]", figure)) {
      button.addEventListener("click", () => copy(button, figure));
    }
    if (!data) return;

    const hide = () => {
      tip.hidden = true;
      for (const cross of all(".cross", figure)) cross.style.visibility = "hidden";
      for (const cell of all(".cell.at", figure)) cell.classList.remove("at");
    };
    // Where the arrow keys can stop.
    const cells = all(".cell", figure);
    const stops = data.kind === "bars" ? data.rows.map((_, n) => n)
      : data.kind === "icicle" ? cells.map((_, n) => n)
      : [...new Set(data.series.flatMap((s) => s.p.map((p) => p[0])))].sort((a, b) => a - b);
    let stop = -1;

    const showBars = (n) => {
      const row = data.rows[n];
      stop = n;
      const rows = [];
      row.v.forEach((v, at) => {
        if (v && data.series[at] && shown(at)) {
          rows.push([data.series[at].n ? data.series[at].k : "", data.series[at].n, range(v)]);
        }
      });
      if (data.floor) rows.push(["", data.floor[0], number(data.floor[1])]);
      say(tip, row.n, rows.concat([["", data.y, ""]]));
      const svg = faces[face()].firstElementChild;
      const scale = svg.getBoundingClientRect().height / svg.viewBox.baseVal.height;
      tip.style.left = "auto";
      tip.style.right = "0";
      tip.style.top = row.to * scale + "px";
    };
    const showLines = (x) => {
      stop = stops.indexOf(x);
      const view = data.views[face()];
      const pixel = (v) => place(view.x, v);
      const rows = [];
      data.series.forEach((series, at) => {
        const p = shown(at) && read(series.p, x, data.reading, pixel);
        if (p) rows.push([series.k, series.n, range(p.slice(1))]);
      });
      const title = data.percent
        ? number(100 - 100 / x) + "% took less" : data.x + ": " + number(x);
      say(tip, title, rows.concat([["", data.y, ""]]));
      const svg = faces[face()].firstElementChild;
      const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
      const cross = svg.querySelector(".cross");
      cross.setAttribute("x1", pixel(x));
      cross.setAttribute("x2", pixel(x));
      cross.style.visibility = "visible";
      const right = pixel(x) > svg.viewBox.baseVal.width / 2;
      tip.style.top = "6px";
      tip.style.right = "auto";
      tip.style.left = right ? "0" : "auto";
      const across = pixel(x) * scale;
      const room = svg.getBoundingClientRect().width - tip.offsetWidth;
      const left = right ? across - tip.offsetWidth - 12 : across + 12;
      tip.style.left = Math.max(0, Math.min(room, left)) + "px";
    };
    const showCell = (n) => {
      stop = n;
      cells.forEach((cell, at) => cell.classList.toggle("at", at === n));
      const box = cells[n].getBoundingClientRect();
      const around = tip.parentElement.getBoundingClientRect();
      say(tip, cells[n].dataset.tip, []);
      tip.style.right = "auto";
      tip.style.top = box.bottom - around.top + 4 + "px";
      const room = around.width - tip.offsetWidth;
      tip.style.left = Math.max(0, Math.min(room, box.left - around.left)) + "px";
    };
    const show = (n) => data.kind === "bars" ? showBars(n)
      : data.kind === "icicle" ? showCell(n) : showLines(stops[n]);

    const point = (event) => {
      const svg = faces[face()].firstElementChild;
      const box = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / box.width;
      const x = (event.clientX - box.left) * scale;
      const y = (event.clientY - box.top) * scale;
      if (!stops.length) return;
      if (data.kind === "icicle") {
        const n = cells.indexOf(event.target.closest(".cell"));
        return n < 0 ? hide() : show(n);
      }
      if (data.kind === "bars") {
        const n = data.rows.findIndex((row) => y >= row.from && y < row.to);
        return n < 0 ? hide() : show(n);
      }
      const axis = data.views[face()].x;
      const far = (n) => Math.abs(place(axis, stops[n]) - x);
      show(stops.reduce((best, _, n) => far(n) < far(best) ? n : best, 0));
    };
    for (const f of faces) {
      // Our own tip says more than the browser's; the label of the picture stays.
      for (const title of all("title", f)) {
        const cell = title.closest(".cell");
        if (cell) cell.dataset.tip = title.textContent;
        title.remove();
      }
      f.tabIndex = 0;
      f.setAttribute("aria-label", "Arrow keys read out the figures");
      f.setAttribute("role", "group");
      f.addEventListener("pointermove", point);
      f.addEventListener("pointerdown", point);
      f.addEventListener("pointerleave", (e) => { if (e.pointerType === "mouse") hide(); });
      f.addEventListener("blur", hide);
      f.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
        if (event.key === "Escape") hide();
        if (!step || !stops.length) return;
        event.preventDefault();
        show(Math.min(stops.length - 1, Math.max(0, stop + step)));
      });
    }
  };

  // The clipboard needs permission: where it is refused, the text stands selected.
  const copy = (button, figure) => {
    const area = figure.querySelector("textarea");
    const done = (text) => {
      const before = button.dataset.label || button.textContent;
      button.dataset.label = before;
      button.textContent = text;
      clearTimeout(button.later);
      button.later = setTimeout(() => { button.textContent = before; }, 2000);
    };
    const select = () => {
      figure.querySelector("details.data").open = true;
      area.focus();
      area.select();
      let copied = false;
      try { copied = document.execCommand("copy"); } catch { copied = false; }
      done(copied ? "Copied" : "Selected: press Ctrl+C");
    };
    if (navigator.clipboard && window.isSecureContext) {
      navigator.clipboard.writeText(area.value).then(() => done("Copied"), select);
    } else {
      select();
    }
  };

  for (const figure of all(".plot", document)) start(figure);
})();

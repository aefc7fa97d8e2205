"use strict";
// Appended to a copy of a page: does what a reader does, and leaves what came of it in #probe.
(async () => {
  const said = {};
  const all = (selector, from) => Array.from(from.querySelectorAll(selector));
  const figure = document.querySelector("figure.plot");
  const face = figure.querySelector(".face");
  const tip = figure.querySelector(".tip");
  const event = (type, share) => {
    const box = face.getBoundingClientRect();
    face.dispatchEvent(new PointerEvent(type, {
      bubbles: true, pointerType: "mouse",
      clientX: box.left + box.width * share, clientY: box.top + box.height / 2,
    }));
  };
  const rows = () => all("tr", tip).map((row) =>
    Array.from(row.cells, (cell) => cell.textContent).join("=")).slice(0, -1);

  said.width = innerWidth;
  said.overflow = document.documentElement.scrollWidth - innerWidth;
  // What reaches past the window, unless something around it scrolls or cuts.
  said.outside = all("main *", document).filter((e) => !e.closest(".scroll,pre,.tip,textarea,svg"))
    .filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
    .map((e) => e.tagName + "." + e.className).slice(0, 5);
  // A text that leaves its picture cannot be read on a phone.
  said.cut = all("svg.view", document).filter((svg) => svg.getClientRects().length)
    .flatMap((svg) => all("text", svg).filter((text) => {
      const [inner, outer] = [text.getBoundingClientRect(), svg.getBoundingClientRect()];
      return inner.left < outer.left - 6 || inner.right > outer.right + 10;
    })).map((text) => text.textContent).slice(0, 5);
  said.hidden = tip.hidden;

  event("pointermove", 0.99);
  said.last = [tip.querySelector("b").textContent, rows()];
  event("pointermove", 0.05);
  said.first = [tip.querySelector("b").textContent, rows()];
  const tipBox = tip.getBoundingClientRect();
  said.tipInside = tipBox.left >= 0 && tipBox.right <= innerWidth && tipBox.width > 50;
  event("pointerleave", 0);
  said.left = tip.hidden;

  face.focus();
  for (const key of ["ArrowRight", "ArrowRight"]) {
    face.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  }
  said.keyboard = tip.querySelector("b").textContent;
  face.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  said.escaped = tip.hidden;

  const keys = all(".key", figure);
  const seen = () => all(".face:not([hidden]) .series", figure)
    .filter((s) => Number(getComputedStyle(s).opacity) > 0.5).length;
  said.series = seen();
  keys[1].click();
  event("pointermove", 0.05);
  said.alone = [seen(), keys[1].getAttribute("aria-pressed"), rows()];
  keys[1].click();
  said.restored = seen();

  const scale = figure.querySelector("[data-do=scale]");
  said.scale = [scale.textContent];
  scale.click();
  said.scale.push(scale.textContent, all(".face", figure).map((f) => f.hidden).join());

  const background = () => getComputedStyle(document.body).backgroundColor;
  said.themes = [background()];
  document.querySelector("[data-do=theme]").click();
  said.themes.push(background());

  let copied = null;
  const clipboard = (writeText) =>
    Object.defineProperty(navigator, "clipboard", { value: { writeText }, configurable: true });
  const press = async () => {
    figure.querySelector("[data-do=copy]").click();
    await new Promise((done) => setTimeout(done, 20));
  };
  clipboard((text) => { copied = text; return Promise.resolve(); });
  await press();
  said.copied = copied;
  clipboard(() => Promise.reject(new Error("refused")));
  document.execCommand = () => false;
  await press();
  const area = figure.querySelector("textarea");
  said.selected = area.value.slice(area.selectionStart, area.selectionEnd) === copied;
  said.button = figure.querySelector("[data-do=copy]").textContent;

  const bars = all("figure.plot", document).find((f) => f.querySelector(".bar"));
  if (bars) {
    const place = bars.querySelector(".bar").getBoundingClientRect();
    bars.querySelector(".face").dispatchEvent(new PointerEvent("pointermove", {
      bubbles: true, pointerType: "touch", clientX: place.left + 1, clientY: place.top + 1,
    }));
    said.bars = bars.querySelector(".tip").textContent;
  }
  const cell = all(".wide .cell.series", document)[0];
  if (cell) {
    const place = cell.getBoundingClientRect();
    cell.dispatchEvent(new PointerEvent("pointermove", {
      bubbles: true, pointerType: "touch", clientX: place.left + 1, clientY: place.top + 1,
    }));
    const wide = cell.closest(".wide");
    said.cell = [wide.parentElement.querySelector(".tip").textContent,
      wide.scrollWidth > wide.clientWidth];
  }
  said.errors = window.probeErrors;
  said.attacked = Boolean(window.attacked);
  const result = document.createElement("pre");
  result.id = "probe";
  result.textContent = JSON.stringify(said);
  // In a frame, the browser writes out the page around it.
  window.parent.document.body.append(result);
})();

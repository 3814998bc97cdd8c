// The fleet map: keeps links, or a canvas, as the cards are. The server sends a digit for each card, then only changes.
"use strict";

(() => {
  const root = document.getElementById("fleet-map");
  if (!root) return;
  const legend = [...document.querySelectorAll("#map-legend [data-cell]")];
  const words = legend.map((entry) => entry.dataset.word);
  const texts = legend.map((entry) => entry.dataset.text);
  const canvas = document.getElementById("map-canvas");
  const numbers = new Intl.NumberFormat(document.documentElement.lang);
  let version = root.dataset.version;
  let layout = root.dataset.layout;
  let cells = [];

  const showCounts = () => {
    const counts = new Array(words.length).fill(0);
    for (const cell of cells) counts[cell] += 1;
    legend.forEach((entry, cell) => {
      entry.hidden = counts[cell] === 0;
      entry.querySelector("b").textContent = numbers.format(counts[cell]);
    });
  };

  // Links: a few cards, each of them one.

  const links = canvas ? [] : [...root.querySelectorAll(".cell")];
  if (!canvas) {
    cells = links.map((link) => words.findIndex((word) => link.classList.contains(`cell-${word}`)));
  }
  const showLink = (index) => {
    const link = links[index];
    link.className = `cell cell-${words[cells[index]]} changed`;
    link.title = `${link.dataset.name}, ${texts[cells[index]]}`;
    link.setAttribute("aria-label", link.title);
  };

  // Canvas: thousands of cards. Nodes are blocks of cells, as many beside each other as fit, below the name of a pool.

  const HEADING = 24;
  const GAP = 12;
  const TALLEST = 760;
  const ACROSS = 4;
  const colours = [];
  const ink = {};
  let groups = [];
  let nodes = [];
  let columns = 1;
  let size = 4;
  let block = { width: 1, height: 1 };
  let chosen = -1;

  const readColours = () => {
    const probe = document.createElement("span");
    root.append(probe);
    words.forEach((word, cell) => {
      probe.className = `cell-${word}`;
      probe.style.color = "var(--tone)";
      colours[cell] = getComputedStyle(probe).color;
    });
    probe.className = "";
    for (const name of ["text", "muted", "accent"]) {
      probe.style.color = `var(--${name})`;
      ink[name] = getComputedStyle(probe).color;
    }
    ink.family = getComputedStyle(document.body).fontFamily;
    probe.remove();
  };

  const take = (answer) => {
    groups = answer.groups;
    nodes = [];
    let start = 0;
    for (const group of groups) {
      group.cards = 0;
      for (const [name, cards] of group.nodes) {
        nodes.push({ name, cards, start, x: 0, y: 0 });
        start += cards;
        group.cards += cards;
      }
    }
    cells = Uint8Array.from(answer.cells, (digit) => digit.charCodeAt(0) - 48);
  };

  const arrange = () => {
    const width = canvas.parentElement.clientWidth;
    const most = nodes.reduce((found, node) => Math.max(found, node.cards), 1);
    const across = Math.min(ACROSS, most);
    const heightOf = (group) => Math.ceil(group.nodes.length / columns) * block.height;
    for (size = 14; size >= 3; size -= 1) {
      const gap = Math.max(2, size >> 1);
      block = { width: across * size + gap, height: Math.ceil(most / across) * size + gap };
      columns = Math.max(1, Math.floor((width + gap) / block.width));
      if (groups.reduce((sum, group) => sum + HEADING + GAP + heightOf(group), 0) <= TALLEST) break;
    }
    let y = 0;
    let number = 0;
    for (const group of groups) {
      group.y = y;
      y += HEADING;
      for (let index = 0; index < group.nodes.length; index += 1, number += 1) {
        nodes[number].x = (index % columns) * block.width;
        nodes[number].y = y + Math.floor(index / columns) * block.height;
      }
      y += heightOf(group) + GAP;
    }
    const height = Math.max(1, y - GAP);
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  };

  const pen = () => {
    const found = canvas.getContext("2d");
    const ratio = devicePixelRatio || 1;
    found.setTransform(ratio, 0, 0, ratio, 0, 0);
    return found;
  };

  // Shapes as on the rest of the pages, where a cell is large enough for one.
  const drawCell = (context, word, x, y, side) => {
    const small = side < 4;
    if (word === "free") {
      context.globalAlpha = small ? 0.35 : 0.8;
      if (small) context.fillRect(x, y, side, side);
      else context.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
      context.globalAlpha = 1;
    } else if (word === "heldidle" && !small) {
      context.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
      context.fillRect(x, y + Math.floor(side / 2), side, Math.ceil(side / 2));
    } else if (word === "faulted" && !small) {
      context.lineWidth = Math.max(1.5, side / 4);
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x + side, y + side);
      context.moveTo(x + side, y);
      context.lineTo(x, y + side);
      context.stroke();
      context.lineWidth = 1;
    } else if ((word === "waiting" || word === "leaving" || word === "ignored") && !small) {
      const inset = Math.floor(side / 4);
      context.fillRect(x + inset, y + inset, side - 2 * inset, side - 2 * inset);
    } else {
      context.fillRect(x, y, side, side);
    }
  };

  const drawNode = (context, number) => {
    const node = nodes[number];
    context.clearRect(node.x - 1, node.y - 1, block.width, block.height);
    context.lineWidth = 1;
    for (let card = 0; card < node.cards; card += 1) {
      const cell = cells[node.start + card];
      context.fillStyle = colours[cell];
      context.strokeStyle = colours[cell];
      const across = Math.min(ACROSS, node.cards);
      drawCell(
        context, words[cell], node.x + (card % across) * size + 1, node.y + Math.floor(card / across) * size + 1, size - 1,
      );
    }
    if (number === chosen) {
      context.strokeStyle = ink.accent;
      context.lineWidth = 2;
      context.strokeRect(node.x, node.y, block.width - 2, block.height - 2);
    }
  };

  const draw = () => {
    const context = pen();
    context.clearRect(0, 0, canvas.width, canvas.height);
    for (const group of groups) {
      const name = group.pool ?? canvas.dataset.none;
      context.font = `600 12px ${ink.family}`;
      context.fillStyle = ink.text;
      context.fillText(name, 0, group.y + 13);
      const after = context.measureText(name).width + 8;
      context.font = `12px ${ink.family}`;
      context.fillStyle = ink.muted;
      context.fillText(numbers.format(group.cards), after, group.y + 13);
    }
    for (let number = 0; number < nodes.length; number += 1) drawNode(context, number);
  };

  const nodeAt = (x, y) => nodes.findIndex(
    (node) => x >= node.x && x < node.x + block.width && y >= node.y && y < node.y + block.height,
  );

  const nodeOfCell = (index) => {
    let low = 0;
    let high = nodes.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (nodes[middle].start <= index) low = middle; else high = middle - 1;
    }
    return low;
  };

  let zooming = 0;
  const zoom = async () => {
    const asked = chosen;
    const url = `/fleet-map/node?name=${encodeURIComponent(nodes[asked].name)}`;
    const answer = await fetch(url, { headers: { Accept: "text/html" } });
    if (answer.ok && asked === chosen) document.getElementById("map-zoom").innerHTML = await answer.text();
  };
  const choose = (number) => {
    if (number < 0 || number >= nodes.length) return;
    const before = chosen;
    chosen = number;
    const context = pen();
    if (before >= 0) drawNode(context, before);
    drawNode(context, chosen);
    clearTimeout(zooming);
    zooming = setTimeout(zoom, 120);
  };

  if (canvas) {
    canvas.addEventListener("click", (event) => choose(nodeAt(event.offsetX, event.offsetY)));
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
      if (event.key in steps) {
        event.preventDefault();
        choose(chosen < 0 ? 0 : Math.min(nodes.length - 1, Math.max(0, chosen + steps[event.key])));
      } else if (event.key === "Home" || event.key === "End") {
        event.preventDefault();
        choose(event.key === "Home" ? 0 : nodes.length - 1);
      } else if (event.key === "Enter") {
        document.querySelector("#map-zoom a")?.focus();
      }
    });
    let frame = 0;
    new ResizeObserver(() => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => {
        if (!nodes.length) return;
        arrange();
        draw();
      });
    }).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); draw(); });
  }

  // Changes: the page's stream says that there are some; what they are is asked for here.

  const apply = (changes) => {
    for (const [index, cell] of changes) cells[index] = cell;
    if (!canvas) {
      for (const [index] of changes) showLink(index);
      return;
    }
    const context = pen();
    for (const number of new Set(changes.map(([index]) => nodeOfCell(index)))) drawNode(context, number);
  };

  let asking = false;
  let askAgain = false;
  const refresh = async () => {
    if (asking) { askAgain = true; return; }
    asking = true;
    try {
      const url = new URL(root.dataset.url, location.href);
      if (cells.length) url.searchParams.set("since", version);
      const answer = await (await fetch(url, { headers: { Accept: "application/json" } })).json();
      if (answer.changes) {
        apply(answer.changes);
      } else if (canvas) {
        take(answer);
        arrange();
        draw();
      } else if (answer.layout !== layout) {
        location.reload();
        return;
      }
      version = answer.version;
      layout = answer.layout ?? layout;
      root.dataset.version = version;
      showCounts();
    } finally {
      asking = false;
      if (askAgain) { askAgain = false; refresh(); }
    }
  };

  document.addEventListener("fleetmap", (event) => {
    if (event.detail.data !== version) refresh();
  });
  if (canvas) { readColours(); refresh(); }
})();

"""
The script of the report: search, sort, values on hover and by keyboard, and details of groups on demand.

The page is complete without it, except for the details of groups beyond the first ones, which are kept compressed. It refers to
nothing outside the page.
"""

SCRIPT = r"""
(() => {
'use strict';
const $ = (s, e = document) => e.querySelector(s), $$ = (s, e = document) => [...e.querySelectorAll(s)];
const more = JSON.parse(($('#more') || {textContent: '{}'}).textContent);
const utc = ms => new Date(ms).toISOString().replace('T', ' ').replace('Z', '');
const num = n => n.toLocaleString('en').replaceAll(',', '\u202f');
const dur = ms => {
  const found = [[864e5, 'd'], [36e5, 'h'], [6e4, 'min'], [1e3, 's']].find(([n]) => ms >= n);
  return found ? `${(ms / found[0]).toFixed(1)} ${found[1]}` : `${ms} ms`;
};

// Details of a group: inflated and inserted when they are asked for.
async function open(hash) {
  if (!hash) return;
  // Links have the encoded name of a group; a person may type it as it is.
  const typed = hash.startsWith('group:') ? 'group:' + encodeURIComponent(decoded(hash.slice(6))) : hash;
  const id = document.getElementById(hash) || more[hash] ? hash : typed;
  let section = document.getElementById(id);
  if (!section && more[id]) {
    const raw = Uint8Array.from(atob(more[id]), c => c.charCodeAt(0));
    const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream('deflate'));
    const text = await new Response(stream).text();
    $('#details').insertAdjacentHTML('beforeend', text);
    delete more[id];
    section = document.getElementById(id);
    ready(section);
  }
  const title = section && ($('h2', section) || section);
  if (title) { section.scrollIntoView(); title.tabIndex = -1; title.focus({preventScroll: true}); }
}
function decoded(text) { try { return decodeURIComponent(text); } catch { return text; } }
addEventListener('hashchange', () => open(location.hash.slice(1)));

// Tables: a click on a title sorts, again in the other direction. Numbers, verdicts and times begin with the greatest.
const collator = new Intl.Collator('en', {numeric: true});
function sortable(table) {
  $$('thead th', table).forEach((th, at) => {
    const button = document.createElement('button');
    button.type = 'button'; button.append(...th.childNodes); th.append(button);
    button.onclick = () => {
      const now = th.getAttribute('aria-sort'), first = th.className ? 'descending' : 'ascending';
      const down = (now ? now === 'ascending' : first === 'descending');
      $$('thead th', table).forEach(one => one.removeAttribute('aria-sort'));
      th.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const key = row => {
        const cell = row.cells[at];
        if (!cell) return '';
        const value = cell.dataset.v ?? cell.textContent;
        const n = Number(value.replaceAll('\u202f', '').replace('\u2013', '-1'));
        return value !== '' && !Number.isNaN(n) ? n : value.toLowerCase();
      };
      const rows = [...table.tBodies[0].rows].map(row => [key(row), row]);
      rows.sort(([a], [b]) => {
        const order = typeof a === 'number' && typeof b === 'number' ? a - b : collator.compare(a, b);
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows.map(([, row]) => row));
    };
  });
}

// Charts: the value under the pointer, or under the arrow keys.
function chart(svg) {
  const [first, last, left, right, top, y0, y1] = svg.dataset.axis.split(' ').map(Number);
  const [base, ...steps] = svg.dataset.points.split(' ');
  const valueAt = (value, t) => svg.dataset.kind === 'time' ? Math.max(t - value, 0) || 0 : value;
  const isTime = svg.dataset.kind === 'time', points = [];
  // Instant, value, greatest value just before. Of time lag the value is the instant at which the record was produced, or NaN.
  let before = Number(base);
  for (const one of steps) {
    const [step, value, max] = one.split(':'), t = before + Number(step);
    const known = isTime ? (value ? t - Number(value) : NaN) : Number(value);
    const reached = !isTime ? known : points.length ? valueAt(points.at(-1)[1], t) : 0;
    points.push([t, known, max ? Number(max) : reached]);
    before = t;
  }
  const told = value => isTime ? dur(value) : num(value);
  const said = value => isTime ? (value ? `waiting for ${told(value)}` : 'nothing waits') : `${told(value)} records behind`;
  const x = t => left + (t - first) / (last - first) * (right - left), y = v => y1 - v / top * (y1 - y0);
  const make = (name, attributes) => {
    const e = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    svg.append(e); return e;
  };
  const line = make('line', {class: 'cursor', y1: y0, y2: y1}), dot = make('circle', {class: 'dot', r: 4});
  const text = document.createElement('p');
  text.className = 'value soft';
  svg.after(text); svg.tabIndex = 0;
  let at = points.length - 1;
  // Between two points lag stays, and time lag grows.
  const show = pointed => {
    const t = isTime && pointed > points[at][0] ? Math.min(Math.round(pointed), last) : points[at][0];
    const value = valueAt(points[at][1], t), max = t === points[at][0] ? points[at][2] : 0;
    line.setAttribute('x1', x(t)); line.setAttribute('x2', x(t));
    dot.setAttribute('cx', x(t)); dot.setAttribute('cy', y(value));
    svg.classList.add('on'); text.setAttribute('aria-live', 'polite');
    const before = max > value ? `, up to ${told(max)} just before` : '';
    text.textContent = `${utc(t)} UTC: ${said(value)}${before}`;
  };
  const peak = points.reduce((a, b) => b[2] > a[2] ? b : a);
  const hide = () => {
    svg.classList.remove('on'); text.removeAttribute('aria-live');
    text.textContent = `At most ${told(peak[2])}, ${utc(peak[0])} UTC`;
  };
  hide();
  svg.addEventListener('pointermove', event => {
    const box = svg.getBoundingClientRect(), here = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    const t = first + (here - left) / (right - left) * (last - first);
    at = 0; points.forEach(([ms], i) => { if (ms <= t) at = i; }); show(t);
  });
  svg.addEventListener('pointerleave', hide); svg.addEventListener('blur', hide);
  svg.addEventListener('keydown', event => {
    const step = {ArrowLeft: -1, ArrowRight: 1, Home: -points.length, End: points.length, PageUp: -10, PageDown: 10}[event.key];
    if (!step) return;
    event.preventDefault(); at = Math.min(Math.max(at + step, 0), points.length - 1); show();
  });
}

// What scrolls in itself can be reached and scrolled by keyboard.
function scrollable(card) {
  if (card.scrollWidth <= card.clientWidth) { card.removeAttribute('tabindex'); return; }
  const named = $('caption, [aria-label]', card);
  card.tabIndex = 0; card.setAttribute('role', 'region');
  card.setAttribute('aria-label', named ? named.getAttribute('aria-label') || named.textContent : 'scrolls');
}
function ready(part) {
  $$('table.sorts', part).forEach(sortable); $$('svg.chart', part).forEach(chart); $$('.scroll', part).forEach(scrollable);
}
ready(document.body);
const wide = matchMedia('(min-width: 601px)');
const opened = () => { if (wide.matches) $$('details.wide-open').forEach(one => { one.open = true; }); };
opened(); wide.addEventListener('change', opened);
addEventListener('beforeprint', () => $$('details').forEach(one => { one.open = true; }));
addEventListener('resize', () => $$('.scroll').forEach(scrollable));

// Search: rows that have all words in their names, kinds, verdicts or topics. Numbers and reasons are full of other numbers.
const search = $('#search');
if (search) {
  const rows = $$('table.finds tbody tr'), count = $('#found');
  const named = row => [...row.cells].filter(cell => !cell.matches('.n, .why')).map(cell => cell.textContent);
  const text = rows.map(row => [...named(row), row.dataset.s || ''].join(' ').toLowerCase());
  search.oninput = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    rows.forEach((row, i) => {
      const is = words.every(word => text[i].includes(word));
      row.hidden = !is; if (is && row.closest('#index')) found++;
    });
    count.textContent = words.length ? (found === 1 ? '1 group' : `${num(found)} groups`) : '';
  };
  addEventListener('keydown', event => {
    if (event.key === '/' && document.activeElement.tagName !== 'INPUT') { event.preventDefault(); search.focus(); }
  });
}
if (location.hash) open(location.hash.slice(1));
})();
"""

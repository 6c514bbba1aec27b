"""The style sheet of the report: colours are variables, light or dark by the reader's colour scheme."""

STYLE = """
:root { color-scheme: light dark; --ground: #fbfaf7; --card: #ffffff; --text: #1f2328; --soft: #656d76; --rule: #e3e1da;
  --line: #2f6fab; --area: #2f6fab22; --good: #2c7a4b; --warn: #a35200; --bad: #b3261e; --new: #7a5aa6; }
.m0 { --c: #2f6fab; } .m1 { --c: #b3541e; } .m2 { --c: #2c7a4b; } .m3 { --c: #7a5aa6; } .m4 { --c: #a13d63; }
.m5 { --c: #80722a; } .m6 { --c: #2b7f8c; } .m7 { --c: #6b6f76; }
@media (prefers-color-scheme: dark) {
  .m0 { --c: #78b4ea; } .m1 { --c: #eda06a; } .m2 { --c: #6cc08b; } .m3 { --c: #b79ee0; } .m4 { --c: #e58fb0; }
  .m5 { --c: #d2c069; } .m6 { --c: #6cc3d0; } .m7 { --c: #a7adb5; }
  :root { --ground: #14171b; --card: #1c2026; --text: #e6e4df; --soft: #9aa3ad;
  --rule: #313740; --line: #78b4ea; --area: #78b4ea2b; --good: #6cc08b; --warn: #e3a857; --bad: #ff8f84; --new: #b79ee0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px 16px 64px; max-width: 1240px; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 40px 0 8px; }
h3 { font-size: 1rem; margin: 0 0 4px; overflow-wrap: anywhere; }
p { margin: 4px 0; } .soft { color: var(--soft); } code { overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 12px; margin: 20px 0; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 12px 14px; margin: 12px 0; }
.tiles .card { margin: 0; } .tiles b { display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums; }
svg { display: block; width: 100%; max-width: 1000px; height: auto; overflow: visible; font: 11px system-ui, sans-serif; }
.grid { stroke: var(--rule); } .tick { fill: var(--soft); } .name, .now { fill: var(--text); }
.now { font-weight: 600; paint-order: stroke; stroke: var(--card); stroke-width: 4px; }
.line { fill: none; stroke: var(--line); stroke-width: 1.8; stroke-linejoin: round; } .area { fill: var(--area); }
.chart { cursor: crosshair; } .chart .cursor, .chart .dot { visibility: hidden; pointer-events: none; }
.chart.on .cursor, .chart.on .dot { visibility: visible; }
.cursor { stroke: var(--text); stroke-width: 1; } .dot { fill: var(--line); stroke: var(--card); }
.value { min-height: 1.5em; font-size: 13px; font-variant-numeric: tabular-nums; }
.time { stroke: var(--rule); stroke-width: .8; fill: none; } .topic { font-weight: 600; } .mixed { --c: var(--soft); }
.hit { stroke: transparent; stroke-width: 9; } .many { stroke-width: 2.5; stroke-dasharray: none; stroke-opacity: .45; }
.rebalance:hover .change { stroke: var(--text); } .warned { color: var(--warn); font-weight: 600; }
:focus-visible { outline: 2px solid var(--line); outline-offset: 2px; border-radius: 3px; } section h2:focus { outline: none; }
.skip { position: absolute; left: -999px; } .skip:focus { left: 16px; top: 8px; background: var(--card); padding: 4px 8px; }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid var(--line); outline-offset: 2px; }
th[aria-sort] button::after { content: " \\2193"; } th[aria-sort=ascending] button::after { content: " \\2191"; }
.search input { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--rule); border-radius: 8px;
  padding: 5px 9px; width: min(22em, 70vw); } [hidden] { display: none; } .printed { display: none; }
a { text-underline-offset: 2px; unicode-bidi: isolate; }
.event { stroke: var(--card); stroke-width: 1.5; fill: var(--line); fill-opacity: 1; } .created { fill: var(--new); }
.emptied { fill: var(--soft); } .deleted { fill: var(--text); } .replaced { fill: var(--good); }
.converted { fill: var(--warn); }
rect { fill: var(--c); fill-opacity: .85; } rect:hover { fill-opacity: 1; } a { color: var(--line); }
.change { stroke: var(--soft); stroke-dasharray: 2 3; } .mark { stroke: var(--text); stroke-width: 1.5; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 14px; font-size: 13px; }
.legend span { min-width: 0; overflow-wrap: anywhere; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px; background: var(--c); }
.legend .created { --c: var(--new); } .legend .emptied { --c: var(--soft); } .legend .deleted { --c: var(--text); }
.legend .replaced { --c: var(--good); } .legend .rebalanced { --c: var(--line); } .legend .converted { --c: var(--warn); }
header p { font-size: 13px; } nav { display: flex; flex-wrap: wrap; gap: 4px 14px; margin: 12px 0 -16px; font-size: 14px; }
.incidents { margin: 0; padding: 0; list-style: none; } .incidents li { padding: 6px 0; border-bottom: 1px solid var(--rule); }
.incidents li:last-child { border: 0; } .incidents p { margin: 0; } .told { font-size: 14px; overflow-wrap: anywhere; }
.who { overflow-wrap: anywhere; } summary { cursor: pointer; } details { margin-top: 8px; }
details[open] summary { margin-bottom: 8px; } #index td:not(.n, .t, .why) { min-width: 7em; }
#index td.why { min-width: 13em; } #index td:first-child { min-width: 10em; }
#index th, #index td { padding-left: 6px; padding-right: 6px; }
caption { text-align: left; color: var(--soft); font-size: 13px; padding: 0 10px 4px; }
h3 ~ table caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); padding: 0; }
.issues { columns: 28em; column-gap: 28px; } .issues > div { break-inside: avoid; margin-bottom: 10px; }
dl { margin: 0; } dt { color: var(--soft); font-size: 13px; }
dd { margin: 0; overflow-wrap: anywhere; } section { border-top: 2px solid var(--rule); margin-top: 48px; }
@media (min-width: 900px) { .pair { display: grid; grid-template-columns: 1fr 1fr; gap: 12px; }
  .pair .card { margin: 0; min-width: 0; } .pair svg { font-size: 15px; }
  .pair h3 { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; } }
section h2 { overflow-wrap: anywhere; margin-top: 20px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th { text-align: left; } th.n { text-align: right; } th { color: var(--soft); font-weight: 500; }
th, td { padding: 5px 10px; border-bottom: 1px solid var(--rule); }
td { vertical-align: top; overflow-wrap: anywhere; } .n { text-align: right; white-space: nowrap; overflow-wrap: normal; }
.t { white-space: nowrap; } .behind { color: var(--bad); font-weight: 600; }
th { white-space: nowrap; } td:not(.n):not(.t) { min-width: 9em; }
@media (max-width: 600px) { th, td { padding: 4px 6px; } body { padding: 16px 10px 48px; } .card { padding: 10px; }
  .tiles { display: block; margin: 8px 0; } .tiles .card, .tiles b { display: inline; font-size: 14px; }
  .tiles .card { padding: 0; border: 0; background: none; } .tiles b { padding-right: 4px; }
  .tiles .card:not(:last-child)::after { content: "\\00b7"; margin: 0 5px; } h2 { margin-top: 24px; }
  .incidents li { padding: 4px 0; }
  .told { font-size: 13px; line-height: 1.35; } #top h2 { margin-top: 20px; }
  .who, .told { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; }
  #index td.why { min-width: 44em; } #index td:first-child { min-width: 9em; } nav { margin-bottom: 0; }
  svg { font-size: 20px; } .lanes { font-size: 16px; } .other { display: none; }
  .wide svg { min-width: 640px; font-size: 12px; } }
@media print { body { max-width: none; padding: 0; font-size: 11px; } .search, .skip, .value { display: none; }
  .printed { display: block; } .scroll { overflow: visible; } table { font-size: 9px; } tr, svg { break-inside: avoid; }
  section { break-before: page; border: 0; } thead { display: table-header-group; } }
"""

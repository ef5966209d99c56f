/// The style of the page, which is that of the support console.
enum PageStyle {
    /// Colours are chosen for a contrast of 4.5 to 1 and more in both schemes.
    static let css: Markup = """
        :root {
          color-scheme: light dark;
          --page: #f5f6f8; --card: #ffffff; --text: #1b2027; --soft: #515b68; --line: #d5dae1; --track: #e8ebf0;
          --good: #17653a; --good-bg: #e4f4ea; --warn: #7a4b00; --warn-bg: #fdf1dc; --info: #1d448f; --info-bg: #e4ecfb;
          --p1: #2f6fe0; --p3: #2d8a5b; --over: #c0392b; --main: #1f57c3;
        }
        @media (prefers-color-scheme: dark) {
          :root {
            --page: #12161b; --card: #1b2128; --text: #e7ebf0; --soft: #aab4c0; --line: #333c47; --track: #2a323c;
            --good: #8bdcab; --good-bg: #173225; --warn: #f5cd85; --warn-bg: #37290f; --info: #b5cfff; --info-bg: #1b2c4b;
            --p1: #7aa7ff; --p3: #6fce9b; --over: #ff8a80; --main: #8ab4ff;
          }
        }
        * { box-sizing: border-box; }
        html { font: 100%/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
        body { margin: 0; background: var(--page); color: var(--text); }
        header, main, footer { max-width: 72rem; margin: 0 auto; padding: 1.25rem; }
        header { padding-bottom: 0; }
        footer { color: var(--soft); font-size: .875rem; padding-bottom: 2rem; }
        h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; }
        h2 { font-size: 1.15rem; margin: 0 0 .6rem; }
        p, dl { margin: .5rem 0; }
        code { font: .92em ui-monospace, "SF Mono", Menlo, "Liberation Mono", monospace; overflow-wrap: anywhere; }
        section { margin-top: 1.25rem; }
        .brand { color: var(--soft); font-size: .875rem; margin: 0; }
        .help, caption { color: var(--soft); font-size: .875rem; text-align: left; }
        .said { border-radius: .6rem; padding: .9rem 1.1rem; margin: 0; }
        .said p { margin: 0 0 .4rem; }
        .said p:last-child { margin-bottom: 0; }
        .said .what { font-size: 1.15rem; font-weight: 600; }
        .said pre { margin: 0; white-space: pre-wrap; word-break: break-all; }
        .good { background: var(--good-bg); color: var(--good); }
        .plain { background: var(--info-bg); color: var(--info); }
        .warning { background: var(--warn-bg); color: var(--warn); }
        .card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .9rem 1.1rem; }
        .facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(12.5rem, 100%), 1fr)); gap: .6rem 1.5rem; }
        .facts div { min-width: 0; }
        dt { font-size: .8125rem; color: var(--soft); }
        dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
        .charts { columns: 2 24rem; column-gap: 1.25rem; margin-top: 1.25rem; }
        .charts section { display: inline-block; vertical-align: top; width: 100%; margin: 0 0 1.25rem; break-inside: avoid; }
        .charts + section { margin-top: 0; }
        svg { display: block; max-width: 100%; font-size: .875rem; overflow: visible; }
        svg text { fill: var(--text); }
        svg .sum { font-variant-numeric: tabular-nums; font-weight: 600; }
        svg .soft { fill: var(--soft); }
        .track { fill: var(--track); } .p1 { fill: var(--p1); } .p3 { fill: var(--p3); } .over { fill: var(--over); }
        .edge { stroke: var(--card); stroke-width: 7; } .mark { stroke: var(--text); stroke-width: 3; }
        .progress path { fill: none; vector-effect: non-scaling-stroke; stroke-linecap: round; stroke-linejoin: round; }
        .progress .axis { stroke: var(--line); stroke-width: 1; }
        .progress .goal { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 5 5; }
        .progress .line { stroke: var(--p1); stroke-width: 2.5; }
        .progress .dot { stroke: var(--p1); stroke-width: 9; }
        details { margin-top: .6rem; }
        summary { cursor: pointer; padding: .25rem 0; color: var(--soft); font-size: .875rem; width: fit-content; }
        :focus-visible { outline: 3px solid var(--main); outline-offset: 2px; border-radius: .2rem; }
        table { border-collapse: collapse; width: 100%; font-size: .9375rem; }
        caption { padding: 0 0 .4rem; }
        th, td { text-align: left; vertical-align: top; padding: .45rem .8rem .45rem 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
        tbody tr:last-child > * { border-bottom: 0; }
        thead th { font-size: .8125rem; color: var(--soft); font-weight: 600; overflow-wrap: normal; }
        tbody th { font-weight: 600; }
        th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; padding-right: 0; }
        .rows th.number, .rows td.number { padding-right: .8rem; min-width: 0; }
        .rows td { min-width: 6.5rem; }
        .rows .rule { min-width: 10.5rem; }
        .rows .words { min-width: 16rem; }
        .state { border-radius: 1rem; padding: .05rem .6rem; font-size: .8125rem; font-weight: 600; background: var(--info-bg); color: var(--info); }
        .s-held { background: var(--warn-bg); color: var(--warn); }
        .s-applied { background: var(--good-bg); color: var(--good); }
        @media screen and (max-width: 62rem) {
          /* A table's rows become cards: nothing has to be scrolled sideways. Each field is named by its column; screen readers
             know the name already, for the roles in the page keep it a table. */
          .rows thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
          .rows, .rows caption, .rows tbody, .rows tr, .rows th, .rows td { display: block; }
          .rows tr { border-bottom: 1px solid var(--line); padding: .6rem 0; }
          .rows tbody tr:last-child { border-bottom: 0; }
          .rows th, .rows td, .rows th.number, .rows td.number { border: 0; padding: .15rem 0; text-align: left; }
          .rows td[data-label] { position: relative; padding-left: 7.2rem; min-height: 1.8rem; }
          .rows td[data-label]::before {
            content: attr(data-label); content: attr(data-label) / "";
            position: absolute; left: 0; width: 6.9rem; color: var(--soft); font-size: .8125rem; line-height: 1.75;
          }
          .rows td, .rows .rule, .rows .words { min-width: 0; }
        }
        @media (max-width: 40rem) { header, main, footer { padding: .9rem; } header { padding-bottom: 0; }
          .facts { grid-template-columns: repeat(auto-fill, minmax(min(8rem, 100%), 1fr)); } }
        @media print {
          :root { color-scheme: light; --page: #ffffff; --card: #ffffff; --text: #000000; --soft: #444444; --line: #bbbbbb; --track: #e8ebf0;
            --good: #17653a; --good-bg: #ffffff; --warn: #7a4b00; --warn-bg: #ffffff; --info: #1d448f; --info-bg: #ffffff;
            --p1: #2f6fe0; --p3: #2d8a5b; --over: #c0392b; }
          header, main, footer { max-width: none; padding: 0; margin-bottom: .5rem; }
          .said { border: 1px solid currentColor; }
          .track, .p1, .p3, .over, .edge, .mark, .state { print-color-adjust: exact; }
          tr, .said, .facts div { break-inside: avoid; }
          thead { display: table-header-group; }
          .rows { font-size: .75rem; }
          .rows td, .rows .rule, .rows .words { min-width: 0; }
          summary { display: none; }
          details::details-content { content-visibility: visible; display: block; block-size: auto; }
        }
        """
}

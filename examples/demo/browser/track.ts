/** The connection over time: the slowest message of each half second, cuts and rotations. */

const SVG = 'http://www.w3.org/2000/svg';
const HEIGHT = 74;
const BASE = 52;
const STEP = 500;

function shape(name: string, attributes: Record<string, string | number>, text = ''): SVGElement {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.textContent = text;
  return element;
}

export class Track {
  private readonly _slowest = new Map<number, number>();
  private readonly _marks: { at: number; kind: 'cut' | 'rotated' }[] = [];
  private readonly _down: { from: number; to: number | undefined }[] = [];
  private _end: number | undefined;

  constructor(
    private readonly _svg: SVGElement,
    private readonly _began: number,
  ) {}

  /** Record the latency of a word in milliseconds. */
  late(at: number, latency: number): void {
    const slot = Math.floor((at - this._began) / STEP);
    this._slowest.set(slot, Math.max(latency, this._slowest.get(slot) ?? 0));
  }

  cut(at: number): void {
    this._marks.push({ at, kind: 'cut' });
    this._down.push({ from: at, to: undefined });
  }

  back(at: number): void {
    const last = this._down.at(-1);
    if (last) last.to ??= at;
  }

  rotated(at: number): void {
    this._marks.push({ at, kind: 'rotated' });
  }

  /** Stop the time axis. */
  end(at: number): void {
    this._end ??= at;
  }

  draw(now: number): void {
    const until = this._end ?? now;
    const width = this._svg.clientWidth || 300;
    const span = Math.max(until - this._began, 8_000);
    const x = (at: number): number => ((at - this._began) / span) * width;
    const bar = (STEP / span) * width;
    const shapes: SVGElement[] = [];
    for (const [slot, latency] of this._slowest) {
      // 1 ms to 1 s, on a logarithmic scale.
      const height = 3 + (Math.min(3, Math.log10(Math.max(latency, 1))) / 3) * (BASE - 22);
      shapes.push(
        shape('rect', {
          class: 'bar-up',
          x: slot * bar + 0.5,
          y: BASE - 8 - height,
          width: Math.max(1, bar - 1),
          height,
          rx: 1,
        }),
      );
    }
    const line = { y1: BASE, y2: BASE };
    shapes.push(shape('line', { class: 'up', ...line, x1: 0, x2: x(until) }));
    for (const { from, to } of this._down) {
      const [x1, x2] = [x(from), Math.max(x(to ?? until), x(from) + 2)];
      shapes.push(
        shape('rect', { x: x1, y: BASE - 2, width: x2 - x1, height: 4, fill: 'var(--surface)' }),
      );
      shapes.push(shape('line', { class: 'down', ...line, x1, x2 }));
    }
    for (const { at, kind } of this._marks) {
      const sign = kind === 'cut' ? '✂' : '⟳';
      shapes.push(shape('text', { class: kind, x: Math.max(6, x(at)), y: BASE + 17 }, sign));
    }
    shapes.push(shape('text', { class: 'axis', x: width - 34, y: 9 }, 'ms, log scale'));
    this._svg.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
    this._svg.replaceChildren(...shapes);
  }
}
